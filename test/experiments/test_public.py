"""kbf experiment public finds data sets, follows their protocols, and marks what is simulated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from kbf_localization.experiments.public import Excerpt, coverage, find_protocols
from test.cli.kbf import done
from test.datasets.public_folders import (
    make_folder,
    make_kitti,
    make_openloris,
    make_seven_scenes,
    make_tum,
)


def described(folder: Path) -> set[tuple[str, tuple[str, ...], str, str]]:
    def name(excerpt: Excerpt) -> str:
        return excerpt.path.name + (f" [{excerpt.part}]" if excerpt.part else "")

    return {
        (protocol.name, tuple(map(name, protocol.training)), name(protocol.test), protocol.how)
        for protocol in find_protocols([folder])
    }


def test_a_scene_is_split_as_its_authors_did(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        make_seven_scenes(tmp_path / "kitchen" / f"seq-{number:02d}", frames=4)
    (tmp_path / "kitchen" / "TrainSplit.txt").write_text("sequence1\r\nsequence3\r\n")
    (tmp_path / "kitchen" / "TestSplit.txt").write_text("sequence2\r\nsequence9\r\n")
    assert described(tmp_path) == {
        ("kitchen/seq-02", ("seq-01", "seq-03"), "seq-02", "the scene's split")
    }


def test_later_visits_are_tested_on_the_first(tmp_path: Path) -> None:
    for visit in ("office1-1", "office1-2", "office1-10", "cafe1-1"):
        make_openloris(tmp_path / visit, frames=20)
    assert described(tmp_path) == {
        ("office1-2", ("office1-1",), "office1-2", "map of office1-1"),
        ("office1-10", ("office1-1",), "office1-10", "map of office1-1"),
        ("cafe1-1", ("cafe1-1 [0:0.5]",), "cafe1-1 [0.5:]", "map of the first 50 % of the time"),
    }


def test_one_drive_is_halved_or_interleaved_where_nothing_is_seen_twice(tmp_path: Path) -> None:
    make_tum(tmp_path / "short", frames=40)  # an arc of 1 rad: what is ahead is near
    make_folder(tmp_path / "arc", frames=220)  # 5.5 rad: later parts look in the other direction
    make_kitti(tmp_path / "kitti", frames=20)
    found = described(tmp_path)
    assert (
        "short",
        ("short [0:0.5]",),
        "short [0.5:]",
        "map of the first 50 % of the time",
    ) in found
    flattering = ("arc", ("arc [every:10]",), "arc [not-every:10]", "interleaved, flatters")
    assert flattering in found
    assert len(found) == 3


def test_coverage_is_the_fraction_of_views_that_the_map_has(tmp_path: Path) -> None:
    whole = open_drive(make_folder(tmp_path, frames=200))
    assert coverage([whole], whole) == 1.0
    first, later = (open_drive(tmp_path, part=part) for part in ("0:0.5", "0.5:"))
    # On the arc of radius 2, 1 m of chord is 2 asin(1/4) = 0.505 rad, 30° is 0.524 rad; frames
    # are 0.025 rad apart, so the first 20 of 100 are within both.
    assert coverage([first], later) == pytest.approx(0.2, abs=0.011)


def test_a_folder_without_data_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no bag and no folder of a known data set"):
        find_protocols([tmp_path])


@pytest.mark.usefixtures("quick_learning")
def test_the_command_writes_a_table_a_report_and_metrics(tmp_path: Path) -> None:
    make_tum(tmp_path / "data" / "short", frames=40)
    make_openloris(tmp_path / "data" / "office1-1", frames=40)
    make_openloris(tmp_path / "data" / "office1-2", frames=40)
    output = tmp_path / "results"
    options = ["--methods", "nn,nai", "--poses", "20", "--seeds", "2", "--jobs", "1", "--output"]
    said = done("experiment", "public", tmp_path / "data", *options, output)
    assert "short: map of the first 50 % of the time, 20 images" in " ".join(said.split())
    sets = json.loads((output / "metrics.json").read_text())["sets"]
    assert sets["short"]["odometry"] == "simulated"
    assert sets["office1-2"]["odometry"] == "measured"
    rmse = sets["short"]["methods"]["nai"]["position_rmse_m"]
    assert rmse["mean"] >= 0 and np.isfinite(rmse["std"])
    assert (output / "report.html").is_file()
