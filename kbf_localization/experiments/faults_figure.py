"""The files of the fault experiment: every run as CSV, and what each fault does as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.experiments.faults_run import FIGURES, Outcome
from kbf_localization.experiments.trials import save_figure, write_csv
from kbf_localization.training_map.picture import COLOURS

FIGURE_NAME = "faults.png"


def write_files(
    folder: ResultsFolder, outcomes: Sequence[Outcome], metrics: Mapping[str, Any]
) -> None:
    """`faults.csv`, a row a run, and `faults.png`."""
    write_csv(
        folder,
        "faults.csv",
        ("fault", "building", "run", *FIGURES),
        (
            (one.fault, one.building, one.case, *(one.figures[name] for name in FIGURES))
            for one in outcomes
        ),
    )
    _draw(folder, metrics)


def _draw(folder: ResultsFolder, metrics: Mapping[str, Any]) -> None:
    """Shares of the images in which the robot tracks rightly, and in which it is wrong and sure."""
    from matplotlib.figure import Figure

    names = list(metrics)
    places = np.arange(len(names))
    figure = Figure(figsize=(8.5, 1.2 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots()

    def shares(figure_name: str, kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([100.0 * metrics[name][figure_name][kind] for name in names])

    tracking, wrong = (shares(key, "mean") for key in ("tracking_share", "confident_wrong_share"))
    axes.barh(places, tracking - wrong, color=COLOURS[5], label="tracking, within 1 m")
    axes.barh(places, wrong, left=tracking - wrong, color=COLOURS[1], label="tracking, beyond 1 m")
    axes.plot(
        shares("confident_wrong_share", "worst"),
        places,
        "x",
        color="black",
        label="beyond 1 m, worst run",
    )
    axes.set_yticks(places, [name.replace("_", " ") for name in names])
    axes.set(xlabel="share of the images since the fault began [%]", xlim=(0.0, 100.0))
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small")
    save_figure(folder, FIGURE_NAME, figure)
