"""`kbf evaluate` from folders to metrics, trajectories, report and plots."""

import json
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.evaluation.metric_texts import percent_text
from kbf_localization.mapping import build_map, load_map
from kbf_localization.training_map import save_map
from kbf_localization.vision.registry import formula
from test.cli.kbf import done, refused
from test.conftest import learning_quickly
from test.datasets.cold_folders import write_cold_drive
from test.evaluation.stable_keys import STABLE_KEYS
from test.evaluation.synthetic import SyntheticDrive, read_tum
from test.vision.networks import random_convolutions


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map, and two drives whose folders' names tell the lighting."""
    folder = tmp_path_factory.mktemp("office")
    write_cold_drive(folder / "seq1_cloudy1", SyntheticDrive(24))
    write_cold_drive(folder / "seq1_night1", SyntheticDrive(12))
    with learning_quickly():
        save_map(build_map([SyntheticDrive(60)], poses=30, words=10), folder / "office.kbfmap")
    return folder


def on_map(office: Path) -> tuple[object, ...]:
    """The evaluation of its cloudy drive."""
    return ("evaluate", office / "seq1_cloudy1", "--map", office / "office.kbfmap")


def test_one_drive_gives_metrics_trajectories_and_report(office: Path, tmp_path: Path) -> None:
    output = done(*on_map(office), "--output", tmp_path / "out")
    methods = json.loads((tmp_path / "out" / "metrics.json").read_text())["methods"]
    assert set(methods) == {"kbf", "nai"}
    assert all(set(figures) >= STABLE_KEYS for figures in methods.values())
    stamps, poses = read_tum(tmp_path / "out" / "trajectory_truth.tum")
    assert np.array_equal(stamps, SyntheticDrive(24).stamps_ns)
    assert poses[:, :2] == pytest.approx(SyntheticDrive(24).poses[:, :2], abs=1e-6)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {
        "config.yaml",
        "trajectory_kbf.tum",
        "trajectory_nai.tum",
        "report.html",
    }
    assert not any(name.endswith(".png") for name in names), "plots are for those who ask"
    assert "report.html" in output and "MB)" in output


def test_the_table_has_words_and_units_and_metrics_json_its_keys(
    office: Path, tmp_path: Path
) -> None:
    options = ("--method", "nai", "--method", "nn", "--plots", "--no-report")
    output = done(*on_map(office), *options, "--output", tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert list(metrics["methods"]) == ["nai", "nn"], "a repeated option adds"
    fraction = metrics["methods"]["nai"]["share_beyond_1m"]
    (line,) = (line for line in output.splitlines() if "frames beyond 1 m" in line)
    assert f" {percent_text(fraction)} " in line and "share_beyond_1m" not in output
    plots = {"paths.png", "error_over_time.png", "error_distribution.png", "sigma_and_error.png"}
    assert {path.name for path in tmp_path.glob("*.png")} == plots
    assert "Where the time went:" in output
    spent = metrics["speed"]["seconds"]
    assert {"reading the map", "waiting for descriptions", "nai", "nn", "plots"} <= set(spent)
    assert sum(spent.values()) <= metrics["speed"]["run_s"]


def test_a_bag_without_poses_says_that_errors_cannot_be_computed(
    office: Path, tmp_path: Path
) -> None:
    class WithoutPoses(SyntheticDrive):
        @property
        def poses(self) -> None:  # type: ignore[override]
            return None

        @property
        def odometry(self) -> OdometryLog:
            return OdometryLog(self.stamps_ns, SyntheticDrive(self.frames).poses)

    write_bag(WithoutPoses(12), tmp_path / "bag")
    output = done(
        "evaluate",
        *(tmp_path / "bag", "--map", office / "office.kbfmap", "--output", tmp_path / "out"),
        *("--method", "nai"),
    )
    assert "has no true poses, so errors cannot be computed" in output
    assert "errors cannot be computed" in (tmp_path / "out" / "report.html").read_text()


def test_looking_back_is_a_row_and_a_trajectory_beside_the_filters(
    office: Path, tmp_path: Path
) -> None:
    options = ("--smooth", "--method", "nai,kbf")
    output = done(*on_map(office), *options, "--output", tmp_path / "out")
    methods = json.loads((tmp_path / "out" / "metrics.json").read_text())["methods"]
    assert list(methods) == ["nai", "kbf", "kbf_smoothed"]
    assert "kbf_smoothed" in output
    stamps, _ = read_tum(tmp_path / "out" / "trajectory_kbf_smoothed.tum")
    assert np.array_equal(stamps, read_tum(tmp_path / "out" / "trajectory_kbf.tum")[0])
    assert "kbf_smoothed" in (tmp_path / "out" / "report.html").read_text()


def test_nothing_to_smooth_is_one_line(office: Path, tmp_path: Path) -> None:
    said = refused(*on_map(office), "--method", "nai", "--smooth")
    assert "--smooth smooths the method kbf" in said


def test_several_drives_get_a_table_by_lighting_and_a_report_each(
    office: Path, tmp_path: Path
) -> None:
    drives = (office / "seq1_cloudy1", office / "seq1_night1")
    options = ("--map", office / "office.kbfmap", "--method", "nai", "--output", tmp_path)
    output = done("evaluate", *drives, *options)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["methods"]["nai"]["frames"] == 36
    assert metrics["conditions"]["night"]["nai"]["frames"] == 12
    assert "By lighting" in output and "night" in output
    index = (tmp_path / "report.html").read_text()
    for part in metrics["sources"]:
        assert (tmp_path / part / "report.html").is_file()
        assert f'href="{part}report.html"' in index


def test_an_unknown_method_is_one_line_and_exit_code_2(office: Path, tmp_path: Path) -> None:
    assert "amcl" in refused(*on_map(office), "--method", "amcl", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("quick_learning")
def test_a_map_is_built_and_evaluated_for_each_descriptor(office: Path, tmp_path: Path) -> None:
    network = random_convolutions(tmp_path / "net.onnx")
    output = done(
        "evaluate",
        *(office / "seq1_night1", "--build-from", office / "seq1_cloudy1", "--poses", 20),
        *("--descriptor", "sift", "--descriptor", "sift*onnx", "--model", network),
        *("--method", "nai", "--no-report", "--output", tmp_path / "out"),
    )
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    described = metrics["describers"]
    assert list(described) == ["sift", "sift*onnx"] and "Bytes a pose" in output
    for text, figures in described.items():
        folder = tmp_path / "out" / figures["folder"]
        assert json.loads((folder / "metrics.json").read_text())["methods"] == figures["methods"]
        known = load_map(folder / "map.kbfmap", network if "onnx" in text else None)
        assert formula(known.described_by) == text and len(known) == 20
        # The built map gives the same when it is named.
        again = tmp_path / "again" / figures["folder"]
        model = ("--model", network) if "onnx" in text else ()
        done(
            "evaluate",
            *(office / "seq1_night1", "--map", folder / "map.kbfmap", *model),
            *("--method", "nai", "--no-report", "--output", again),
        )
        metrics = json.loads((again / "metrics.json").read_text())["methods"]["nai"]
        for key in ("position_rmse_m", "position_median_m", "share_beyond_1m", "frames"):
            assert metrics[key] == figures["methods"]["nai"][key]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--map MAP, or drives to build one"),
        (("--map", "office.kbfmap", "--descriptor", "sift"), "--descriptor is for a map that is"),
        (("--map", "office.kbfmap", "--kernel", "cosine"), "--kernel is for a map that is"),
        (("--map", "office.kbfmap", "--build-from", "drive"), "leave --map away"),
        (("--build-from", "drive", "--descriptor", "onnx"), "--descriptor onnx needs a network"),
        (("--build-from", "drive", "--model", "net.onnx"), "uses no network"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    office: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused("evaluate", office / "seq1_cloudy1", *arguments)
