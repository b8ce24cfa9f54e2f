"""kbf split, and the parts that map build and evaluate take without copying."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.open import open_drive
from test.cli.kbf import done, refused
from test.datasets.public_folders import make_seven_scenes


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_seven_scenes(tmp_path_factory.mktemp("scene") / "seq-01", frames=60)


def test_two_bags_hold_the_drive_one_after_the_other(scene: Path, tmp_path: Path) -> None:
    done(
        "split", scene, "--first", 0.75, "--odometry", "simulate:0,0,1", "--output", tmp_path / "p"
    )
    whole = open_drive(scene, odometry="simulate:0,0,1")
    train, test = (open_drive(tmp_path / "p" / name) for name in ("train", "test"))
    assert whole.poses is not None and train.poses is not None and test.poses is not None
    assert train.odometry_origin == test.odometry_origin == "simulated"
    np.testing.assert_array_equal(np.r_[train.stamps_ns, test.stamps_ns], whole.stamps_ns)
    np.testing.assert_allclose(np.r_[train.poses, test.poses], whole.poses, atol=1e-9)
    stored = [data for _, data in whole.encoded_images()]
    assert [data for drive in (train, test) for _, data in drive.encoded_images()] == stored


def test_an_interleaved_split_is_labelled(scene: Path, tmp_path: Path) -> None:
    output = done(
        "split", scene, "--every", 5, "--odometry", "simulate", "--output", tmp_path / "p"
    )
    assert "interleaved, flatters" in output
    assert len(open_drive(tmp_path / "p" / "train")) == 12


@pytest.mark.usefixtures("quick_learning")
def test_map_and_test_come_from_different_times_and_results_are_marked(
    scene: Path, tmp_path: Path
) -> None:
    simulated = ("--odometry", "simulate")
    map_path, results = tmp_path / "scene.kbfmap", tmp_path / "results"
    done("map", "build", scene, "--train", "0:0.5", *simulated, "--poses", 20,
        "--vocabulary-size", 20, "--jobs", 1, "--output", map_path)  # fmt: skip
    output = done("evaluate", scene, "--test", "0.5:", *simulated, "--map", map_path,
                 "--method", "nn", "--output", results)  # fmt: skip
    metrics = json.loads((results / "metrics.json").read_text())
    assert metrics["odometry"] == "simulated"
    assert metrics["methods"]["nn"]["frames"] == 30
    assert "odometry simulated" in output
    assert "odometry simulated" in (results / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--first", "1.5"), "a fraction of the time"),
        (("--first", "0.5", "--every", "3"), "give one of them"),
        (("--every", "1"), "2 or more"),
        ((), "no wheel odometry"),
    ],
)
def test_a_users_mistake_is_one_line(
    scene: Path, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    assert says in refused("split", scene, "--output", tmp_path / "p", *arguments)
    assert not (tmp_path / "p").exists()
