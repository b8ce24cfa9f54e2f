"""What the experiments that run for hours leave behind. Their trials are made up here."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.experiments import ablation, faults_run, map_check, recovery
from kbf_localization.experiments.trials import Trial
from test.cli.kbf import done


def faults() -> list[faults_run.Outcome]:
    """In the second building the robot never finds itself; what does not apply is None."""
    metrics = dict.fromkeys(faults_run.METRICS, 0.5)
    lost = {**metrics, "seconds_to_lost": None, "seconds_to_recover": None}
    return [
        faults_run.Outcome(fault, building, 0, values)
        for fault in ("dim", "kidnapped")
        for building, values in (("office 0", metrics), ("office 1", lost))
    ]


def predictions() -> list[map_check.Prediction]:
    """A check that names nothing has no precision."""
    return [
        map_check.Prediction(61, "drives", 90, 10, 12, 9, 0.1, 0.08),
        map_check.Prediction(61, "map alone", 90, 0, 0, 0, 0.1, 0.1),
    ]


def variants() -> list[Trial]:
    metrics = dict.fromkeys(ablation.METRICS, 0.25)
    return [Trial("office 0", 200, name, 0, metrics) for name in ablation.VARIANTS]


def recoveries() -> recovery.Outcome:
    def trace(updates: int) -> recovery.Trace:
        trace = np.empty(updates, recovery.COLUMNS)
        trace["error_m"] = trace["standard_distance"] = np.linspace(2.0, 0.1, updates)
        trace["sigma_m"], trace["covered"] = 0.2, True
        trace["state"] = ["localizing"] + ["tracking"] * (updates - 1)
        return trace

    kidnapped = trace(recovery.BEFORE_KIDNAPPING + recovery.AFTER_KIDNAPPING)
    drives = ("undisturbed", "night_on_cloudy", "night_on_merged")
    return {
        "global_start": [trace(recovery.START_UPDATES)] * 2,
        "kidnapping": [kidnapped],
        **{name: [trace(50)] for name in drives},
    }


# The command, what takes its hours, what stands in its place, and the files with their rows.
EXPERIMENTS: dict[str, tuple[dict[str, Callable[[], object]], dict[str, int | None]]] = {
    "faults": (
        {"faults_run.Builder.invented": lambda: None, "faults_run.run_faults": faults},
        {"faults.csv": 4, "faults.png": None},
    ),
    "map-check": (
        {
            "localization.rendered_drives": lambda: None,
            "map_check.predict": predictions,
        },
        {"predictions.csv": 2},
    ),
    "ablation": (
        {"localization.rendered_drives": lambda: None, "ablation.run_trials": variants},
        {"ablation.csv": len(ablation.VARIANTS)},
    ),
    "recovery": (
        {"recovery.make_world": lambda: None, "recovery.run_trials": recoveries},
        {"updates.csv": 2 * 30 + 100 + 3 * 50, "recovery.png": None},
    ),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_metrics_tables_and_plots_are_there_in_the_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_ins, files = EXPERIMENTS[name]
    for place, made in stand_ins.items():
        monkeypatch.setattr(
            f"kbf_localization.experiments.{place}", lambda *_, made=made, **__: made()
        )
    output = done("experiment", name, "--jobs", 1, "--output", tmp_path)
    assert json.loads((tmp_path / "metrics.json").read_text())
    assert "<table" in (tmp_path / "report.html").read_text()
    assert f"Results: {tmp_path / 'report.html'}" in output
    for file, rows in files.items():
        if rows is None:
            assert (tmp_path / file).read_bytes().startswith(b"\x89PNG")
        else:
            with (tmp_path / file).open(newline="") as table:
                assert len(list(csv.DictReader(table))) == rows
