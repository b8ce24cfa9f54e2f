"""Metrics over independent trials: means, deviations, and curves with error bars."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.evaluation.map_plot import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
OFFSET_POINTS = 4.0
"""Each curve stands so far right of the previous, in points, so that no bar hides another."""


@dataclass(frozen=True)
class Trial:
    """`metrics` of a method on one choice of so many poses, in a place: a test drive, an office."""

    place: str
    poses: int
    method: str
    choice: int
    metrics: Mapping[str, float]


def summary(values: ArrayLike) -> dict[str, float]:
    """Return mean and standard deviation over trials, as `metrics.json` holds them."""
    array = np.asarray(values, dtype=np.float64)
    return {"mean": float(array.mean()), "std": float(array.std())}


def nested_summaries(values: Iterable[tuple[Sequence[str], float]]) -> dict[str, Any]:
    """Return {a: {b: {…: {"mean", "std"}}}} over all values that have the keys (a, b, …)."""
    gathered: dict[tuple[str, ...], list[float]] = {}
    for keys, value in values:
        gathered.setdefault(tuple(keys), []).append(value)
    nested: dict[str, Any] = {}
    for (*parents, last), found in gathered.items():
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = summary(found)
    return nested


def summaries(trials: Iterable[Trial], names: Sequence[str]) -> dict[str, Any]:
    """Return {"<poses>": {"<method>": {name: {"mean", "std"}}}} over all places and choices.

    A method without a state has no metrics of a state.
    """
    return nested_summaries(
        ((str(trial.poses), trial.method, name), trial.metrics[name])
        for trial in sorted(trials, key=lambda trial: trial.poses)
        for name in names
        if name in trial.metrics
    )


def raw_data(
    trials: Iterable[Any], columns: Mapping[str, str], metrics: Sequence[str]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the header and the rows of a CSV file with all trials.

    `columns` names the attributes that come before the `metrics`; a metric that a trial does not
    have is empty.
    """
    rows = [
        (
            *(getattr(trial, name) for name in columns.values()),
            *(trial.metrics.get(name) for name in metrics),
        )
        for trial in trials
    ]
    return (*columns, *metrics), rows


def trials_text(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials} trials"


def plus_minus(figure: Mapping[str, float], digits: int = 4, scale: float = 1.0) -> str:
    """Return a summary, times `scale`, as `mean ± deviation`."""
    return " ± ".join(f"{scale * figure[key]:.{digits}f}" for key in ("mean", "std"))


def finish_panel(axes: Axes, label: str) -> None:
    """Finish a panel: the error's axis `label` from zero, a grid, and the curves' names."""
    axes.set_ylabel(label)
    # Room above the curves, where the legend covers none of them.
    axes.set_ylim(0.0, 1.3 * axes.get_ylim()[1])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", ncols=2)


def draw_sizes(axes: Axes, sizes: Collection[str], label: str) -> None:
    """Draw the logarithmic axis of sizes, called `label`, with a tick at each of them."""
    from matplotlib.ticker import NullLocator

    axes.set(xscale="log", xlabel=label)
    axes.set_xticks([int(size) for size in sizes], list(sizes))
    axes.xaxis.set_minor_locator(NullLocator())


def draw_curve(
    axes: Axes,
    label: str,
    metrics: Mapping[str, Mapping[str, float]],
    index: int,
    place: int | None = None,
) -> None:
    """Draw means over the numbers that are the keys, with bars of one standard deviation.

    `index` chooses the style; `place`, by default the same, moves the curve that much aside.
    """
    from matplotlib.transforms import ScaledTranslation

    positions = [float(key) for key in metrics]
    means = np.array([figure["mean"] for figure in metrics.values()])
    deviations = np.array([figure["std"] for figure in metrics.values()])
    aside = OFFSET_POINTS / 72.0 * (index if place is None else place)
    axes.errorbar(
        positions,
        means,
        yerr=deviations,
        label=label,
        color=COLOURS[index % len(COLOURS)],
        marker=MARKERS[index % len(MARKERS)],
        markersize=4,
        linewidth=1.4,
        capsize=3,
        transform=axes.transData + ScaledTranslation(aside, 0.0, axes.figure.dpi_scale_trans),
    )
    # What is moved aside does not count for the axes' limits by itself.
    for ends in (means - deviations, means + deviations):
        axes.update_datalim(np.column_stack((positions, ends)))
    axes.margins(x=0.1)
    axes.autoscale_view()
