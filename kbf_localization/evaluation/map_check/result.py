"""The result of a check of a map: metrics, a verdict, what to drive again, and `check.html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.image_messages import grey_from_compressed
from kbf_localization.evaluation.map_check.held_out import FirstFix, LookAlike, scale_m
from kbf_localization.evaluation.map_check.stretches import Stretch, sees_nothing
from kbf_localization.evaluation.map_plot import draw_floor_plan
from kbf_localization.evaluation.metric_texts import length_text, metric_text, percent_text
from kbf_localization.evaluation.plots import make_figure, save_figure
from kbf_localization.evaluation.report import CAMERA_NOTE, Plot, Table, write_check_report
from kbf_localization.evaluation.report_data import (
    MAX_MAP_POSES_DRAWN,
    MIN_LANDMARKS,
    lacking_landmarks,
    packed,
    plan_data,
)
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.evaluation.run import GROSS_ERROR_M
from kbf_localization.geometry import embed
from kbf_localization.mapping.held_out import path_lengths_along
from kbf_localization.training_map.training_map import (
    TrainingMap,
    light,
    part_of_day,
    recorded,
    when,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


GOOD_MEDIAN_M, GOOD_BEYOND = 0.3, 0.02

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


class CheckedPath(NamedTuple):
    """The replayed poses `path` (t, 3), and how the localizer did at each.

    `errors` (t,) is how far off it was, in metres, and `expected` (t,) their running median;
    `mahalanobis` (t,) are the errors in published standard deviations, `covered` (t,) is whether
    the part of the map without that drive covers the pose.
    """

    path: Array
    errors: Array
    expected: Array
    mahalanobis: Array
    covered: Flags


@dataclass(frozen=True, repr=False)
class MapCheck:
    """What came out of a check.

    `stretches` come in the order of what driving them again would gain. `flatters`: drives were
    held against their own poses.
    """

    training_map: TrainingMap
    checked: CheckedPath
    stretches: tuple[Stretch, ...]
    overconfident: tuple[Array, ...]
    look_alikes: tuple[LookAlike, ...]
    first_fixes: tuple[FirstFix, ...]
    flatters: bool

    def __repr__(self) -> str:
        return f"MapCheck({self.verdict})"

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Under the stable keys of `metrics.json`."""
        fixed = [fix for fix in self.first_fixes if fix.images is not None]
        right = [fix for fix in fixed if fix.right]
        return {
            "expected_median_m": self.median_m,
            "expected_p10_m": _percentile(self._errors, 10),
            "expected_p90_m": _percentile(self._errors, 90),
            "expected_beyond_1m": self._beyond,
            "within_three_sigma_share": _mean(
                self.checked.mahalanobis[self.checked.covered] <= 3.0
            ),
            "checked_share": _mean(self.checked.covered),
            **self._landmark_metrics,
            "frames": len(self.checked.path),
            "flatters": self.flatters,
            "first_fix": {
                "starts": len(self.first_fixes),
                "fixed_share": _mean([fix.images is not None for fix in self.first_fixes]),
                "right_share": len(right) / len(fixed) if fixed else None,
                "median_images": _percentile([fix.images for fix in right], 50),
                "median_metres": _percentile([fix.metres for fix in right], 50),
                "median_seconds": _percentile([fix.seconds for fix in right], 50),
            },
            "drives": [
                {
                    "name": source.name,
                    "condition": source.condition,
                    "recorded": None
                    if (times := recorded(source)) is None
                    else [time.isoformat() for time in times],
                    "part_of_day": part_of_day(source),
                    "poses": source.chosen,
                }
                for source in self.training_map.sources
            ],
            "lights": self.lights,
            "stretches": [
                {
                    "from": stretch.poses[0, :2],
                    "to": stretch.poses[-1, :2],
                    "path": waypoints(stretch),
                    "metres": stretch.metres,
                    "why": stretch.why,
                    "drives": stretch.drives,
                    "expected_error_m": stretch.expected_error_m,
                }
                for stretch in self.stretches
            ],
            "covariance_dishonest": [
                {"from": poses[0, :2], "to": poses[-1, :2]} for poses in self.overconfident
            ],
            "look_alikes": [
                {"a": pair.a, "b": pair.b, "images_to_tell_apart": pair.images_to_tell_apart}
                for pair in self.look_alikes
            ],
            "verdict": self.verdict,
            "advice": self.advice,
        }

    @property
    def _landmark_metrics(self) -> dict[str, float | None]:
        """How many of the map's images have landmarks enough to measure a pose."""
        landmarks = self.training_map.landmarks
        counts = None if landmarks is None else landmarks.table.counts()
        return {
            "landmark_coverage_share": 0.0 if counts is None else _mean(counts >= MIN_LANDMARKS),
            "landmarks_median": None if counts is None else _percentile(counts, 50),
        }

    @cached_property
    def lights(self) -> list[str]:
        """The lightings and parts of the day in which the map's drives were recorded."""
        found = {light(source) for source in self.training_map.sources}
        return sorted(name for name in found if name is not None)

    @property
    def median_m(self) -> float | None:
        """The expected error in metres; None where nothing could be checked."""
        return _percentile(self._errors, 50)

    @property
    def _errors(self) -> Array:
        """Errors in metres where the rest of the map covers the path."""
        return self.checked.errors[self.checked.covered]

    @property
    def _beyond(self) -> float | None:
        """The fraction of images with a gross error."""
        return _mean(self._errors > GROSS_ERROR_M)

    @cached_property
    def spread_m(self) -> Array:
        """How far the errors (t,) near each place of the path range, from 10th to 90th percentile.

        Near are images of any drive within half of d₀; NaN where the path is not covered.
        """
        spread = np.full(len(self.checked.path), np.nan)
        covered = np.flatnonzero(self.checked.covered)
        if len(covered):
            tree = cKDTree(self.checked.path[covered, :2])
            near = tree.query_ball_point(tree.data, 0.5 * scale_m(self.training_map))
            errors = self.checked.errors[covered]
            spread[covered] = [np.ptp(np.percentile(errors[rows], (10, 90))) for rows in near]
        return spread

    def sees_nothing(self, poses: Array) -> Flags:
        """Return which poses (t, 3) are on a reported stretch, looking where there is no image."""
        return sees_nothing(self.training_map, self.stretches, poses)

    @cached_property
    def verdict(self) -> str:
        """Whether it will work here, in words."""
        median, beyond = self.median_m, self._beyond
        if median is None or beyond is None:
            return "No verdict: the localizer gave no pose where other drives came by."
        open_m = sum(stretch.metres for stretch in self.stretches if stretch.drives == 0)
        if median <= GOOD_MEDIAN_M and beyond <= GOOD_BEYOND and open_m == 0.0:
            word = "It will work here"
        elif median <= 1.0 and beyond <= 0.2:
            word = "It will work, except where the list below says"
        else:
            word = "It will not work reliably"
        sentence = (
            f"{word}: expect an error of {length_text(median, fine=True)} (median), beyond 1 m in "
            f"{percent_text(beyond)} of the images"
        )
        if open_m > 0.0:
            sentence += f"; {open_m:.0f} m of the path have no image in the map"
        once = 100.0 * (1.0 - float(np.mean(self.checked.covered)))
        if once >= 1.0:
            sentence += f"; {once:.0f} % of the path was seen by one drive only and is not checked"
        if self.flatters:
            sentence += (
                "; this flatters, for no place was seen by two drives: the images were held "
                "against neighbours of the same drive"
            )
        return sentence + "."

    @cached_property
    def advice(self) -> list[str]:
        """What to drive again, the most useful first."""
        return [*map(stretch_text, self.stretches), *self.general_advice]

    @cached_property
    def general_advice(self) -> list[str]:
        """What to drive again, of no stretch in particular."""
        found = []
        if self.flatters:
            found.append("drive the whole path a second time, so that the map can be checked")
        if len(self.lights) == 1:
            found.append(
                f"all drives are of one light ({self.lights[0]}): if robots work in another, "
                "drive in that too"
            )
        return found


REMEDIES = {
    "uncovered": "drive it again",
    "one_way": "drive it in the other direction, if robots will",
    "light": "drive it in another light",
    "look_alike": "add a landmark or start elsewhere: it looks like another place",
}
WAYPOINT_M, MAX_WAYPOINTS = 2.0, 6
"""Metres between the places by which a stretch is named, and how many there are at most."""


def waypoints(stretch: Stretch) -> Array:
    """Return places (w, 2) along a stretch, evenly apart: its ends alone do not tell its path."""
    travelled = path_lengths_along(stretch.poses)[:, 0]
    count = int(np.clip(np.ceil(stretch.metres / WAYPOINT_M) + 1, 2, MAX_WAYPOINTS))
    at = np.linspace(travelled[0], travelled[-1], count)
    return np.column_stack([np.interp(at, travelled, axis) for axis in stretch.poses[:, :2].T])


def stretch_text(stretch: Stretch) -> str:
    """Return a stretch by its path, with what is wrong with it and what helps."""
    # Zero added to a rounded −0.0 is 0.0.
    path = " → ".join(f"({x:.1f}, {y:.1f})" for x, y in np.round(waypoints(stretch), 1) + 0.0)
    return f"{path}, {stretch.metres:.1f} m: {_reason(stretch)}; {REMEDIES[stretch.why]}"


def _kind(stretch: Stretch) -> str:
    return "hole" if stretch.drives == 0 else stretch.why


def _reason(stretch: Stretch) -> str:
    if stretch.drives == 0:
        all_round = stretch.blind.mean() > 0.5
        return "no image in the map" if all_round else "no image in the direction of driving"
    return {
        "uncovered": "seen by one drive only",
        "one_way": "seen in one direction only",
        "light": "seen in one light only",
        "look_alike": "confused with a place far away",
    }[stretch.why]


def _percentile(values: object, percent: float) -> float | None:
    found = np.asarray(values, dtype=np.float64)
    return float(np.percentile(found, percent)) if found.size else None


def _mean(values: object) -> float | None:
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()) if found.size else None


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
        ("stretches with too small a covariance", str(len(found["covariance_dishonest"]))),
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
