"""Runs side by side: differences are those of the errors, and their spread that of blocks."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kbf_localization.datasets.trajectory import write_tum
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.evaluation.compare import (
    ComparedDrive,
    Comparison,
    read_comparison,
    resampled_rows,
)
from kbf_localization.evaluation.evaluate import SourceResult, write_results
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.geometry import compose
from test.evaluation.synthetic import SyntheticDrive, synthetic_map, synthetic_run

DRIVE, POSES = SyntheticDrive(150), synthetic_map().poses


def results(folder: Path, drive: SyntheticDrive, *methods: str, forward_m: float = 0.0) -> Path:
    """A folder as `kbf evaluate` leaves it; all estimates moved along x."""
    folder.mkdir(parents=True)
    write_tum(folder / "trajectory_truth.tum", drive.stamps_ns, drive.poses)
    for method in methods:
        moved = synthetic_run(drive, POSES, method).estimates + np.array([forward_m, 0.0, 0.0])
        write_tum(folder / f"trajectory_{method}.tum", drive.stamps_ns, moved)
    return folder


def test_the_figures_are_those_of_the_metrics(tmp_path: Path) -> None:
    comparison = read_comparison([results(tmp_path / "a", DRIVE, "kbf", "nai")])
    for label, metrics in comparison.metrics().items():
        expected = trajectory_metrics(synthetic_run(DRIVE, POSES, label))
        assert metrics == pytest.approx({key: expected[key] for key in metrics}, rel=1e-9)


def test_on_a_map_in_its_own_frame_the_errors_are_those_of_the_metrics(tmp_path: Path) -> None:
    """The estimates are in a frame that is turned and moved from the truth's."""
    frame = np.array([4.0, -1.0, 0.6])
    run = synthetic_run(DRIVE, POSES, "kbf")
    run = replace(run, estimates=compose(frame, run.estimates), states=("tracking",) * len(run))
    made = {"own_frame": True, "reference_poses": None, "sources": ()}
    own: Any = SimpleNamespace(**{**vars(synthetic_map()), **made})
    folder = ResultsFolder.create("evaluate", tmp_path / "own")
    result = SourceResult(DRIVE, {"kbf": run, "nai": run})
    written = write_results(folder, [result], own, {"command": "kbf evaluate"})
    metrics = read_comparison([folder.path]).metrics()["kbf"]
    assert written["aligned"]
    expected = {key: written["methods"]["kbf"][key] for key in metrics}
    assert metrics == pytest.approx(expected, rel=1e-6)
    assert metrics["position_median_m"] < 1.0
    # The report's player draws the truth where the errors say that it is.
    data = re.search(r'id="data"[^>]*>(.*?)</script>', (folder.path / "report.html").read_text())
    assert data is not None
    truth = np.frombuffer(base64.b64decode(json.loads(data[1])["frames"]["truth"])).reshape(-1, 3)
    drawn = np.hypot(*(run.estimates - truth)[:, :2].T)
    assert np.median(drawn) == pytest.approx(metrics["position_median_m"], rel=1e-6)


def test_a_run_does_not_differ_from_itself(tmp_path: Path) -> None:
    first, second = (results(tmp_path / name, DRIVE, "kbf") for name in "ab")
    comparison = read_comparison([first, second])
    assert comparison.labels == ("a", "b")
    for found in comparison.differences(resamples=50)["b"].values():
        assert (found.difference, found.std, found.verdict) == (0.0, 0.0, "equal")


def test_a_clear_difference_is_named_and_a_small_difference_is_noise() -> None:
    """One run's errors are another's, all 10 cm more; a third's differ by noise of mean zero."""
    rng = np.random.default_rng(0)
    errors = rng.gamma(4.0, 0.05, 500)
    noisy = np.abs(errors + rng.normal(0.0, 0.05, 500))
    drive = ComparedDrive(
        "",
        0.2 * np.arange(500),
        np.stack((np.stack((errors, errors + 0.1, noisy)), np.zeros((3, 500)))),
    )
    found = Comparison(("a", "b", "c"), (drive,)).differences(resamples=200)
    worse = found["b"]["position_median_m"]
    assert worse.verdict == "worse" and worse.difference == pytest.approx(0.1)
    assert worse.std == pytest.approx(0.0, abs=1e-12), "the same blocks for both runs"
    assert found["c"]["position_median_m"].verdict == "within noise"


def test_blocks_spread_as_correlated_errors_do() -> None:
    """The mean of n values of an AR(1) process varies by σ²(1 + ρ)/(1 - ρ)/n."""
    count, rho = 40_000, 0.8
    rng = np.random.default_rng(1)
    values = np.empty(count)
    values[0] = rng.normal() / np.sqrt(1 - rho**2)
    noise = rng.normal(size=count)
    for index in range(1, count):
        values[index] = rho * values[index - 1] + noise[index]
    expected = np.var(values) * (1 + rho) / (1 - rho) / count
    seconds = np.arange(count, dtype=float)
    spread = {
        block: np.var([values[resampled_rows(seconds, block, rng)].mean() for _ in range(200)])
        for block in (1.0, 60.0)
    }
    assert spread[60.0] == pytest.approx(expected, rel=0.3)
    assert spread[1.0] < 0.3 * expected, "single frames would flatter"


def test_runs_of_other_drives_are_refused(tmp_path: Path) -> None:
    class Later(SyntheticDrive):
        @property
        def stamps_ns(self) -> np.ndarray:  # type: ignore[override]
            return super().stamps_ns + 10**12

    folders = [results(tmp_path / "a", DRIVE, "kbf"), results(tmp_path / "b", Later(150), "kbf")]
    with pytest.raises(DatasetError, match="has no frames"):
        read_comparison(folders)
    with pytest.raises(DatasetError, match="trajectory_truth"):
        read_comparison([tmp_path / "nowhere"])
    with pytest.raises(ParameterError, match="two runs"):
        read_comparison(folders[:1])


def test_only_frames_that_all_runs_have_are_compared(tmp_path: Path) -> None:
    whole = results(tmp_path / "a", DRIVE, "kbf")
    part = results(tmp_path / "b", DRIVE, "kbf")
    text = (part / "trajectory_kbf.tum").read_text().splitlines(keepends=True)
    (part / "trajectory_kbf.tum").write_text("".join(text[10:-20]))
    (drive,) = read_comparison([whole, part]).drives
    assert len(drive) == 150 - 30
    np.testing.assert_array_equal(drive.errors[:, 0], drive.errors[:, 1])


def test_several_drives_are_matched_by_their_frames(tmp_path: Path) -> None:
    for name, order in (("a", (150, 60)), ("b", (60, 150))):
        for number, frames in enumerate(order, start=1):
            results(tmp_path / name / f"{number:02d}-d{frames}", SyntheticDrive(frames), "kbf")
    comparison = read_comparison([tmp_path / "a", tmp_path / "b"])
    assert [(drive.name, len(drive)) for drive in comparison.drives] == [("d150", 150), ("d60", 60)]
