"""The demo, in small, and what it says when its result is bad."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kbf_localization.cli import demo
from kbf_localization.cli.main import app
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.mapping import load_map


@pytest.mark.ros
@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning", "warm_nodes")
def test_a_small_demo_leaves_everything_that_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "FRAMES", 30)
    monkeypatch.setattr(demo, "IMAGE_SIZE", (160, 120))
    monkeypatch.setattr(demo, "MAP_POSES", 30)
    monkeypatch.setattr(demo, "MAX_MEDIAN_M", 100.0)
    monkeypatch.setattr(demo, "MAX_FRACTION_BEYOND_1M", 1.0)
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path), "--jobs", "1"])
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    node, nai = metrics["methods"]["node"], metrics["methods"]["nai"]
    assert node["frames"] == nai["frames"] == 30 and node["frames_dropped"] == 0
    assert metrics["passed"] and metrics["largest_difference_to_offline"] < 1e-9
    assert metrics["aligned"] and metrics["mapping"]["raw_ate_rmse_m"] > 0.0
    assert 0.0 < node["relative_to_map_median_m"] < math.inf
    drives, own = tmp_path / "drives", tmp_path / "own.kbfmap"
    sources = [str(drives / name) for name in ("seq1_cloudy1", "seq1_cloudy2")]
    built = CliRunner().invoke(
        app,
        [
            "map",
            "build",
            *sources,
            "--poses",
            "30",
            "--jobs",
            "1",
            "--poses-from",
            "odometry",
            "--results",
            str(tmp_path / "mapping"),
            "--output",
            str(own),
        ],
    )
    assert built.exit_code == 0, built.output
    demos = load_map(tmp_path / "office.kbfmap")
    assert demos.floor_plan is not None and demos.own_frame
    assert demos.identity == load_map(own).identity, "a user's map is built otherwise"
    assert "<title>seq1_cloudy3 on office</title>" in (tmp_path / "report.html").read_text()
    bag = "bag/seq1_cloudy3/metadata.yaml"
    for name in ("paths.png", "office.kbfmap", bag, "animation.gif", "mapping.html"):
        assert (tmp_path / name).stat().st_size > 0
    for words in ("[7/7]", "position error, median", "report.html", "paths.png", "Passed"):
        assert words in result.output


def conclude(folder: Path, node: dict[str, float], **kidnapping: Any) -> bool:
    """Whether the demo passes with these figures of the node."""
    metrics: dict[str, Any] = {
        "methods": {"node": {"share_beyond_1m": 0.0, "frames_dropped": 0, **node}},
        "largest_difference_to_offline": None,
    }
    try:
        demo._conclude(ResultsFolder(folder), metrics | kidnapping, 1.0)
    finally:
        passed = json.loads((folder / "metrics.json").read_text())["passed"]
    return bool(passed)


@pytest.mark.parametrize(("median", "beyond"), [(0.31, 0.0), (0.1, 0.06)])
def test_a_bad_result_fails_loudly(tmp_path: Path, median: float, beyond: float) -> None:
    with pytest.raises(KbfError, match=f"misses its mark: median error {median:.2f} m"):
        conclude(tmp_path, {"position_median_m": median, "share_beyond_1m": beyond})


@pytest.mark.parametrize(("median", "beyond"), [(0.29, 0.05), (0.01, 0.0)])
def test_a_good_result_passes(tmp_path: Path, median: float, beyond: float) -> None:
    assert conclude(tmp_path, {"position_median_m": median, "share_beyond_1m": beyond})


def test_a_kidnapped_robot_must_find_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = {"position_median_m": 0.1, "share_confident_wrong": 0.004, "share_beyond_1m": 0.5}
    kidnapping = {"seconds_to_lost": 0.2, "seconds_to_recover": 0.8, "video": "H.264"}
    with pytest.raises(KbfError, match="tracking again after being carried wanted"):
        conclude(tmp_path, node, kidnapping={**kidnapping, "tracking_again_at": None})
    assert conclude(tmp_path, node, kidnapping={**kidnapping, "tracking_again_at": 115})
    said = capsys.readouterr().out
    assert "lost after 0.2 s, found itself after 0.8 s" in said
    assert "kidnap.mp4" in said and "confident and beyond 1 m" in said
