"""Figures over independent trials: means, deviations, tables and curves with error bars."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.training_map.picture import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Trial:
    """`figures` of a method on one choice of so many poses, in a place: a test drive, an office."""

    place: str
    poses: int
    method: str
    choice: int
    figures: Mapping[str, float]


def summary(values: ArrayLike) -> dict[str, float]:
    """Mean and standard deviation over trials, as `metrics.json` holds them."""
    array = np.asarray(values, dtype=np.float64)
    return {"mean": float(array.mean()), "std": float(array.std())}


def summaries(trials: Iterable[Trial], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """{"<poses>": {"<method>": {name: {"mean", "std"}}}} over all places and choices."""
    gathered: dict[str, dict[str, list[Mapping[str, float]]]] = {}
    for trial in sorted(trials, key=lambda trial: trial.poses):
        by_method = gathered.setdefault(str(trial.poses), {})
        by_method.setdefault(trial.method, []).append(trial.figures)
    return {
        poses: {
            method: {name: summary([one[name] for one in figures]) for name in names}
            for method, figures in by_method.items()
        }
        for poses, by_method in gathered.items()
    }


OFFSET_POINTS = 4.0
"""Curves stand so far right of the one before, in points, so that no bar hides another."""


def trials_text(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials} trials"


def plus_minus(figure: Mapping[str, float], digits: int = 4, scale: float = 1.0) -> str:
    """A summary, times `scale`, as `mean ± deviation`."""
    return " ± ".join(f"{scale * figure[key]:.{digits}f}" for key in ("mean", "std"))


def write_csv(
    folder: ResultsFolder, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """A table of raw figures, one row for each trial and setting."""
    with (
        folder.writing(name) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def save_figure(folder: ResultsFolder, name: str, figure: Figure) -> None:
    """The figure as PNG, called `name`, and as PDF and SVG beside it, for papers.

    No date is in them: the same figures give the same files.
    """
    from matplotlib import rc_context

    undated = {".png": None, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    for suffix, metadata in undated.items():
        path = str(PurePath(name).with_suffix(suffix))
        with folder.writing(path) as temporary, rc_context({"svg.hashsalt": name}):
            figure.savefig(temporary, dpi=150, format=suffix[1:], metadata=metadata)


def finish_panel(axes: Axes, label: str) -> None:
    """The error's axis, called `label`, from zero; a grid; and the curves' names."""
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0.0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def draw_curve(
    axes: Axes,
    label: str,
    positions: Sequence[float],
    figures: Sequence[Mapping[str, float]],
    index: int,
    place: int | None = None,
) -> None:
    """Means over `positions` with a bar of one standard deviation.

    `index` chooses the style; `place`, by default the same, moves the curve that much aside.
    """
    from matplotlib.transforms import ScaledTranslation

    aside = OFFSET_POINTS / 72.0 * (index if place is None else place)
    axes.errorbar(
        positions,
        [figure["mean"] for figure in figures],
        yerr=[figure["std"] for figure in figures],
        label=label,
        color=COLOURS[index % len(COLOURS)],
        marker=MARKERS[index % len(MARKERS)],
        markersize=4,
        linewidth=1.4,
        capsize=3,
        transform=axes.transData + ScaledTranslation(aside, 0.0, axes.figure.dpi_scale_trans),
    )
    # What is moved aside does not count for the axes' limits by itself.
    ends = [(figure["mean"] - figure["std"], figure["mean"] + figure["std"]) for figure in figures]
    axes.update_datalim([(x, y) for x, low_high in zip(positions, ends) for y in low_high])
    axes.margins(x=0.1)
    axes.autoscale_view()
