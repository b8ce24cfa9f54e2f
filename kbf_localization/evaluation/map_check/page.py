"""The page `check.html` of a map's check, with its plots and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.datasets.image_decoding import grey_from_compressed
from kbf_localization.evaluation.map_check.check import MapCheck, stretch_text
from kbf_localization.evaluation.map_check.held_out import LookAlike
from kbf_localization.evaluation.map_check.stretches import Stretch
from kbf_localization.evaluation.map_plot import draw_floor_plan
from kbf_localization.evaluation.metric_texts import length_text, metric_text, percent_text
from kbf_localization.evaluation.plots import make_figure, save_figure
from kbf_localization.evaluation.report import CAMERA_NOTE, Plot, Table, write_check_report
from kbf_localization.evaluation.report_data import (
    MAX_MAP_POSES_DRAWN,
    lacking_landmarks,
    packed,
    plan_data,
)
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.geometry import embed
from kbf_localization.training_map.sources import when

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REASONS = {
    "hole": ("#D55E00", "no image"),
    "uncovered": ("#0072B2", "of one drive only"),
    "one_way": ("#56B4E9", "one direction only"),
    "look_alike": ("#CC79A7", "looks like another place"),
    "light": ("#E69F00", "one light only"),
}
"""The colour of each kind of stretch, and what it means."""

LEGEND: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none", "fontsize": "small"}
MARGIN_M = 2.0
"""Of the floor plan that is shown round the map's poses."""


def write_check(folder: ResultsFolder, check: MapCheck, config: Mapping[str, Any]) -> Path:
    """Write metrics, configuration, plots and `check.html`; the page's path."""
    folder.write_metrics(check.metrics)
    folder.write_config(config)
    _write_path(folder, check)
    save_figure(folder, "expected_error.png", draw_expected_error(check))
    save_figure(folder, "spread.png", draw_spread(check))
    side_by_side = []
    for number, pair in enumerate(check.look_alikes, start=1):
        figure = _side_by_side(check, pair)
        if figure is not None:
            path = save_figure(folder, f"look_alike_{number}.png", figure)
            side_by_side.append(Plot(path, f"Look-alike {number}: {_pair_text(pair)}"))
    notes = [_how(check)]
    if side_by_side:
        notes.append(CAMERA_NOTE)
    elif check.look_alikes:
        notes.append("The map has no thumbnails, so look-alike places are listed without images.")
    pairs = [_pair_text(pair) for pair in check.look_alikes]
    rows = metric_rows(check)
    return write_check_report(
        folder,
        f"Check of a map of {len(check.training_map)} poses",
        config,
        verdict_text=check.verdict,
        data=_plan_data(check),
        tiles=[(label, value) for label, value in rows if label in TILES and value != "–"],
        notes=notes,
        advice=check.general_advice,
        tables=[
            Table("Metrics", ("Metric", "Value"), rows),
            Table("Look-alike places", ("Pair",), _numbered(pairs) or [("none",)]),
            Table(
                "Drives",
                ("Drive", "Lighting", "Recorded", "Poses in the map"),
                [
                    (
                        source.name,
                        source.condition or "unknown",
                        when(source) or "unknown",
                        source.chosen,
                    )
                    for source in check.training_map.sources
                ],
            ),
        ],
        plots=side_by_side,
    )


TILES = {
    "expected error, median",
    "expected error, 90th percentile",
    "images beyond 1 m",
    "error within 3 σ",
    "map images with landmarks",
    "path that another drive covers",
    "time to first fix, median",
}
"""Metrics that are shown large."""


def _plan_data(check: MapCheck) -> dict[str, Any]:
    """Return what the page's plan draws."""
    covered = check.checked.covered
    return {
        "plan": plan_data(check.training_map.floor_plan),
        "lacking": lacking_landmarks(check.training_map),
        "mapPoses": packed(check.training_map.poses[:MAX_MAP_POSES_DRAWN], np.float64),
        "path": packed(check.checked.path, np.float64),
        "values": {
            "expected": packed(np.where(covered, check.checked.expected, np.nan)),
            "spread": packed(np.where(covered, check.spread_m, np.nan)),
        },
        "stretches": [
            {
                "poses": packed(stretch.poses, np.float64),
                "text": stretch_text(stretch),
                **dict(zip(("colour", "label"), REASONS[_kind(stretch)], strict=True)),
            }
            for stretch in check.stretches
        ],
        "pairs": [
            {"number": f"L{number}", "a": pair.a, "b": pair.b}
            for number, pair in enumerate(check.look_alikes, start=1)
        ],
    }


def metric_rows(check: MapCheck) -> list[tuple[str, str]]:
    """Return the check's metrics for a table: what, and how much with its unit."""
    found = check.metrics
    first = found["first_fix"]
    return [
        ("expected error, median", _length(found["expected_median_m"])),
        ("expected error, 10th percentile", _length(found["expected_p10_m"])),
        ("expected error, 90th percentile", _length(found["expected_p90_m"])),
        ("images beyond 1 m", _percent(found["expected_beyond_1m"])),
        ("error within 3 σ", _percent(found["within_three_sigma_share"])),
        ("stretches with too small a covariance", str(len(found["overconfident"]))),
        ("path that another drive covers", _percent(found["checked_share"])),
        ("map images with landmarks", _percent(found["landmark_coverage_share"])),
        ("landmarks of a map image, median", _count(found["landmarks_median"])),
        ("random starts that find the pose", _percent(first["fixed_share"])),
        ("of these, the right pose", _percent(first["right_share"])),
        ("time to first fix, median", metric_text("seconds_to_first_fix", first["median_seconds"])),
        ("distance to first fix, median", _length(first["median_metres"])),
        ("look-alike places", f"{len(found['look_alikes'])} pairs"),
    ]


def _length(metres: float | None) -> str:
    return "–" if metres is None else length_text(metres, fine=True)


def _count(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}"


def draw_expected_error(check: MapCheck) -> Figure:
    """Draw the path, coloured by the expected error, and the badly mapped stretches."""
    figure, axes = _heat_map(check, check.checked.expected, "expected error")
    _draw_stretches(axes, check)
    for number, pair in enumerate(check.look_alikes, start=1):
        for pose in (pair.a, pair.b):
            axes.annotate(
                str(number),
                (float(pose[0]), float(pose[1])),
                color=REASONS["look_alike"][0],
                weight="bold",
                xytext=(5, 5),
                textcoords="offset points",
                zorder=4,
            )
    axes.legend(**LEGEND)
    return figure


def draw_spread(check: MapCheck) -> Figure:
    """Draw the path, coloured by the range of the errors near each place."""
    figure, axes = _heat_map(check, check.spread_m, "spread of the errors")
    axes.legend(**LEGEND)
    return figure


def _heat_map(check: MapCheck, values: Array, what: str) -> tuple[Figure, Axes]:
    """Draw the map's poses, and the checked path (t, 3) coloured by `values` (t,) in metres."""
    figure, axes = make_figure(10.0, 7.0)
    draw_floor_plan(axes, check.training_map.floor_plan)
    axes.plot(*check.training_map.poses[:, :2].T, ".", color="0.8", ms=2, label="map poses")
    path, covered = check.checked.path, check.checked.covered
    if not covered.all():
        axes.plot(*path[~covered, :2].T, ".", color="0.55", ms=4, label="not checked")
    x, y = path[covered, :2].T
    dots = axes.scatter(
        x, y, c=values[covered], s=14, cmap="viridis_r", vmin=0.0, vmax=1.0, zorder=3
    )
    figure.colorbar(dots, ax=axes, label=f"{what} (m; 1 and more: darkest)", shrink=0.7)
    paths = (check.training_map.poses, path, *(stretch.poses for stretch in check.stretches))
    positions = np.concatenate(paths)[:, :2]
    low, high = positions.min(axis=0), positions.max(axis=0)
    axes.set(
        xlabel="x (m)",
        ylabel="y (m)",
        xlim=(low[0] - MARGIN_M, high[0] + MARGIN_M),
        ylim=(low[1] - MARGIN_M, high[1] + MARGIN_M),
        title=f"{what.capitalize()} along the path",
    )
    axes.set_aspect("equal", adjustable="box")
    return figure, axes


def _write_path(folder: ResultsFolder, check: MapCheck) -> None:
    """Write `path.csv`: the metrics along the path, for other programs."""
    rows = zip(
        check.checked.path,
        check.checked.expected,
        check.spread_m,
        check.checked.covered,
        strict=True,
    )
    lines = ["x_m,y_m,heading_rad,expected_error_m,spread_m,checked"]
    for (x, y, heading), expected, spread, covered in rows:
        values = f"{expected:.4f},{spread:.4f}" if covered else ","
        lines.append(f"{x:.4f},{y:.4f},{heading:.5f},{values},{int(covered)}")
    folder.write_text("path.csv", "\n".join(lines) + "\n")


def _draw_stretches(axes: Axes, check: MapCheck) -> None:
    """Draw lines a little beside the path, so that they hide neither it nor each other."""
    extent = float(np.ptp(check.training_map.poses[:, :2], axis=0).max())
    shown: set[str] = set()
    for stretch in check.stretches:
        kind = _kind(stretch)
        colour, label = REASONS[kind]
        aside = 0.012 * extent * (1 + list(REASONS).index(kind))
        heading = stretch.poses[:, 2]
        normal = np.stack((-np.sin(heading), np.cos(heading)), axis=-1)
        axes.plot(
            *(stretch.poses[:, :2] + aside * normal).T,
            color=colour,
            lw=2.0,
            label=None if kind in shown else label,
        )
        shown.add(kind)


def _side_by_side(check: MapCheck, pair: LookAlike) -> Figure | None:
    """Return the map's images nearest to both places; None where the map has no thumbnails."""
    from matplotlib.figure import Figure

    tree = cKDTree(embed(check.training_map.poses))
    images = []
    for pose in (pair.a, pair.b):
        row = int(tree.query(embed(pose))[1])
        images.append(grey_from_compressed(bytes(check.training_map.thumbnails[row])))
    if any(image is None for image in images):
        return None
    figure = Figure(figsize=(6.0, 2.6), layout="constrained")
    for axes, image, pose in zip(figure.subplots(1, 2), images, (pair.a, pair.b), strict=True):
        axes.imshow(image, cmap="gray", vmin=0, vmax=255)
        axes.set_title(_place(pose), fontsize="small")
        axes.set_axis_off()
    return figure


def _numbered(lines: Sequence[str]) -> list[tuple[str]]:
    """Return lines as the rows of a table of one column, set flush left."""
    return [(f"{number}. {line}",) for number, line in enumerate(lines, start=1)]


def _pair_text(pair: LookAlike) -> str:
    count = pair.images_to_tell_apart
    images = "not distinguished by the images that follow" if count is None else f"{count} images"
    return f"{_place(pair.a)} is taken for {_place(pair.b)}; to distinguish them: {images}"


def _place(pose: Array) -> str:
    return f"({pose[0]:.1f} m, {pose[1]:.1f} m, {np.degrees(pose[2]):.0f}°)"


def _how(check: MapCheck) -> str:
    if check.flatters:
        return (
            "How this was found: every second pose of each drive was localized on the other half. "
            "A later drive sees other light, other people and other furniture, so it will do worse."
        )
    return (
        "How this was found: each drive was localized, by the localizer that the robot runs, on "
        "the part of the map that the other drives gave. A later drive in similar light should err "
        "about as much. The time zone is this computer's."
    )


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else percent_text(fraction)


def _kind(stretch: Stretch) -> str:
    return "hole" if stretch.drives == 0 else stretch.why
