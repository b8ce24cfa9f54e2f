"""A whole check of a map: its drives held out, the stretches that it knows badly, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import median_filter
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.map_check.held_out import (
    FirstFix,
    LookAlike,
    covers,
    distinct,
    first_fixes,
    localize_fold,
    look_alikes,
    make_folds,
    scale_m,
)
from kbf_localization.evaluation.map_check.stretches import (
    Stretch,
    badly_known,
    make_stretch,
    runs_where,
    sees_nothing,
    without_repeats,
)
from kbf_localization.evaluation.metric_texts import length_text, percent_text
from kbf_localization.evaluation.metrics import mahalanobis_errors, position_errors
from kbf_localization.evaluation.run import GROSS_ERROR_M
from kbf_localization.landmarks.calibration import MIN_INLIERS
from kbf_localization.mapping.held_out import path_lengths_along
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.sources import light, part_of_day, recorded
from kbf_localization.training_map.training_map import TrainingMap

LOOK_ALIKE_SAMPLES, MAX_LOOK_ALIKES, MIN_CONFUSING_IMAGES = 150, 8, 10
STARTS = 20
MEDIAN_FRAMES = 7
"""Frames over which the expected error along the path is a median."""
MAX_GOOD_MEDIAN_M, MAX_GOOD_BEYOND = 0.3, 0.02


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
        overconfident = [
            {"from": poses[0, :2], "to": poses[-1, :2]} for poses in self.overconfident
        ]
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
            "overconfident": overconfident,
            # The former name of "overconfident", until the next release.
            "covariance_dishonest": overconfident,
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
            "landmark_coverage_share": 0.0 if counts is None else _mean(counts >= MIN_INLIERS),
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
        if median <= MAX_GOOD_MEDIAN_M and beyond <= MAX_GOOD_BEYOND and open_m == 0.0:
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


def check_map(
    training_map: TrainingMap,
    drives: Drive | Sequence[Drive | DescribedDrive] = (),
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> MapCheck:
    """Localize each drive of the map on what the other drives gave to it, with the real localizer.

    `drives` are the map's own drives, whose images are then all used, or others with known poses.
    Without them the map's own images do. Of more than 2000 images, windows spread over them do.
    """
    drives = list(drives) if isinstance(drives, Sequence) else [drives]
    count = len(drives or training_map.sources)
    rng = np.random.default_rng(seed)
    confused: list[LookAlike] = []
    fixes: list[FirstFix] = []
    overconfident: list[Array] = []
    checked_paths: list[CheckedPath] = []
    flatters = False
    for fold in make_folds(training_map, drives, seed=seed, progress=progress):
        flatters |= fold.thinned
        for run in localize_fold(fold, progress):
            path = run.truth
            assert path is not None
            covered = covers(fold.training_map, path)
            errors, sigmas = position_errors(run), mahalanobis_errors(run)
            checked_paths.append(
                CheckedPath(path, errors, _running_median(errors), sigmas, covered)
            )
            tracking = np.array(run.states) == "tracking"
            mistaken = (_running_median(sigmas) > 3.0) & tracking & covered
            overconfident += [path[rows] for rows in runs_where(mistaken, path, training_map)]
        confused += look_alikes(fold, -(-LOOK_ALIKE_SAMPLES // count), progress)
        fixes += first_fixes(fold, -(-STARTS // count), rng, progress)
    if not checked_paths:
        raise KbfError("no image got a pose: check that odometry and images overlap in time")
    stretches: list[Stretch] = []
    for source, path in _paths(training_map, drives):
        stretches += badly_known(training_map, path, source, once=not flatters)
    for checked in checked_paths:
        stretches += _confusing(training_map, checked.path, checked.expected, confused)
    return MapCheck(
        training_map=training_map,
        checked=CheckedPath(*map(np.concatenate, zip(*checked_paths, strict=True))),
        stretches=tuple(
            sorted(without_repeats(training_map, stretches), key=lambda stretch: -stretch.gain)
        ),
        overconfident=tuple(overconfident),
        look_alikes=tuple(distinct(confused, training_map, MAX_LOOK_ALIKES)),
        first_fixes=tuple(fixes),
        flatters=flatters,
    )


def _paths(
    training_map: TrainingMap, drives: Sequence[Drive | DescribedDrive]
) -> Iterator[tuple[int | None, Array]]:
    """Yield the paths of the map's drives with their numbers, and of drives unknown to the map."""
    names = [source.name for source in training_map.sources]
    paths = {number: training_map.trajectory(number) for number in range(len(names))}
    for drive in drives:
        poses = drive.truth if isinstance(drive, DescribedDrive) else drive.poses
        assert poses is not None
        path = poses[np.isfinite(poses).all(axis=1)]
        if drive.name not in names:
            yield None, path
        elif not training_map.trajectories:
            paths[names.index(drive.name)] = path
    yield from paths.items()


def _confusing(
    training_map: TrainingMap, path: Array, expected: Array, confused: Sequence[LookAlike]
) -> list[Stretch]:
    """Return stretches of the path that take many images to distinguish from another place."""
    hard = [pair.a for pair in confused if pair.order >= MIN_CONFUSING_IMAGES]
    if not hard:
        return []
    near = np.min([np.hypot(*(path[:, :2] - pose[:2]).T) for pose in hard], axis=0)
    reach = 0.5 * training_map.calibration.similarity.distance_m
    return [
        make_stretch(training_map, path[run], "look_alike", None, float(np.max(expected[run])))
        for run in runs_where(near < reach, path, training_map)
    ]


def _running_median(values: Array) -> Array:
    """Return the running median (t,)."""
    return np.asarray(median_filter(values, MEDIAN_FRAMES, mode="nearest"))
