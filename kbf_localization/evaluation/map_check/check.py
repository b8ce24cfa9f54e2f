"""A whole check of a map: its drives held out, the stretches that it knows badly, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import covered_share
from kbf_localization.evaluation.map_check.first_fix import FirstFix, first_fixes
from kbf_localization.evaluation.map_check.held_out import (
    LEAST_SHARE,
    localize_fold,
    make_folds,
)
from kbf_localization.evaluation.map_check.look_alikes import LookAlike, distinct, look_alikes
from kbf_localization.evaluation.map_check.stretches import (
    Stretch,
    badly_known,
    make_stretch,
    runs_where,
    scale_m,
    sees_nothing,
    without_repeats,
)
from kbf_localization.evaluation.metrics import GROSS_ERROR_M, error_in_sigmas, position_errors
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.recorded import light, part_of_day, recorded
from kbf_localization.training_map.training_map import TrainingMap

LOOK_ALIKE_SAMPLES, MOST_LOOK_ALIKES, MANY_IMAGES = 150, 8, 10
STARTS = 20
SMOOTHED = 7
"""Frames over which the expected error along the path is a median."""

GOOD_MEDIAN_M, GOOD_BEYOND = 0.3, 0.02


@dataclass(frozen=True, repr=False)
class MapCheck:
    """What came out of a check.

    `path` (t, 3) are the replayed poses, `errors` (t,) how far off the localizer was at each,
    `expected` (t,) their running median, `covered` (t,) whether the part of the map without that
    drive covers the pose, `in_sigmas` (t,) the errors in published standard deviations,
    `tracking` (t,) whether the state was "tracking". `stretches` come in the order of what driving
    them again would gain. `flatters` says that drives were held against their own poses.
    """

    training_map: TrainingMap
    path: Array
    errors: Array
    expected: Array
    covered: NDArray[np.bool_]
    in_sigmas: Array
    tracking: NDArray[np.bool_]
    stretches: tuple[Stretch, ...]
    dishonest: tuple[Array, ...]
    look_alikes: tuple[LookAlike, ...]
    first_fixes: tuple[FirstFix, ...]
    flatters: bool

    def __repr__(self) -> str:
        return f"MapCheck({self.verdict})"

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Under the stable keys of `metrics.json`."""
        fixed = [one for one in self.first_fixes if one.images is not None]
        right = [one for one in fixed if one.right]
        return {
            "expected_median_m": self.median_m,
            "expected_p10_m": self._expected(10),
            "expected_p90_m": self._expected(90),
            "expected_beyond_1m": self._beyond,
            "within_three_sigma_share": _mean(self.in_sigmas[self.covered] <= 3.0),
            "checked_share": _mean(self.covered),
            "frames": len(self.path),
            "flatters": self.flatters,
            "first_fix": {
                "starts": len(self.first_fixes),
                "fixed_share": _mean([one.images is not None for one in self.first_fixes]),
                "right_share": len(right) / len(fixed) if fixed else None,
                "median_images": _median([one.images for one in right]),
                "median_metres": _median([one.metres for one in right]),
                "median_seconds": _median([one.seconds for one in right]),
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
                    "from": one.poses[0, :2],
                    "to": one.poses[-1, :2],
                    "metres": one.metres,
                    "why": one.why,
                    "drives": one.drives,
                    "expected_error_m": one.expected_error_m,
                }
                for one in self.stretches
            ],
            "covariance_dishonest": [
                {"from": poses[0, :2], "to": poses[-1, :2]} for poses in self.dishonest
            ],
            "look_alikes": [
                {"a": one.a, "b": one.b, "images_to_tell_apart": one.images_to_tell_apart}
                for one in self.look_alikes
            ],
            "verdict": self.verdict,
            "advice": self.advice,
        }

    @cached_property
    def lights(self) -> list[str]:
        """The lightings and parts of the day in which the map's drives were recorded."""
        found = {light(source) for source in self.training_map.sources}
        return sorted(one for one in found if one is not None)

    @property
    def median_m(self) -> float | None:
        """The expected error in metres; None where nothing could be checked."""
        return self._expected(50)

    def _expected(self, percent: float) -> float | None:
        """A percentile of the expected errors; None where nothing could be checked."""
        return _percentile(self.errors[self.covered], percent)

    @property
    def _beyond(self) -> float | None:
        """The share of images with a gross error."""
        return _mean(self.errors[self.covered] > GROSS_ERROR_M)

    @cached_property
    def spread_m(self) -> Array:
        """How far the errors (t,) near each place of the path range, from 10th to 90th percentile.

        Near are images of any drive within half of d₀; NaN where the path is not covered.
        """
        spread = np.full(len(self.path), np.nan)
        covered = np.flatnonzero(self.covered)
        if len(covered):
            tree = cKDTree(self.path[covered, :2])
            near = tree.query_ball_point(tree.data, 0.5 * scale_m(self.training_map))
            errors = self.errors[covered]
            spread[covered] = [np.ptp(np.percentile(errors[rows], (10, 90))) for rows in near]
        return spread

    def sees_nothing(self, poses: Array) -> NDArray[np.bool_]:
        """Which poses (t, 3) are on a stretch that it names, looking where there is no picture."""
        return sees_nothing(self.training_map, self.stretches, poses)

    @cached_property
    def verdict(self) -> str:
        """Whether it will work here, in words."""
        median, beyond = self.median_m, self._beyond
        if median is None or beyond is None:
            return "No verdict: the localizer gave no pose where other drives came by."
        open_m = sum(one.metres for one in self.stretches if one.drives == 0)
        if median <= GOOD_MEDIAN_M and beyond <= GOOD_BEYOND and open_m == 0.0:
            word = "It will work here"
        elif median <= 1.0 and beyond <= 0.2:
            word = "It will work, except where the list below says"
        else:
            word = "It will not work reliably"
        told = (
            f"{word}: expect an error of {median:.2f} m (median), beyond 1 m in "
            f"{100 * beyond:.0f} % of the images"
        )
        if open_m > 0.0:
            told += f"; {open_m:.0f} m of the way have no picture in the map"
        once = 100.0 * (1.0 - float(np.mean(self.covered)))
        if once >= 1.0:
            told += f"; {once:.0f} % of the way was seen by one drive only and is not checked"
        if self.flatters:
            told += (
                "; this flatters, for no place was seen by two drives: the images were held "
                "against neighbours of the same drive"
            )
        return told + "."

    @cached_property
    def advice(self) -> list[str]:
        """What to drive again, the most useful first."""
        ways = {
            "uncovered": "drive it again",
            "one_way": "drive it in the other direction, if robots will",
            "light": "drive it in another light",
            "look_alike": "add a landmark or start elsewhere: it looks like another place",
        }
        found = [
            f"({one.poses[0, 0]:.1f}, {one.poses[0, 1]:.1f}) to ({one.poses[-1, 0]:.1f}, "
            f"{one.poses[-1, 1]:.1f}), {one.metres:.1f} m: {_reason(one)}; {ways[one.why]}"
            for one in self.stretches
        ]
        if len(self.lights) == 1:
            found.append(
                f"all drives are of one light ({self.lights[0]}): if robots work in another, "
                "drive in that one too"
            )
        if self.flatters:
            found.insert(0, "drive the whole way a second time, so that the map can be checked")
        return found


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
    dishonest: list[Array] = []
    columns = []
    flatters = False
    for fold in make_folds(training_map, drives, seed=seed, progress=progress):
        flatters |= fold.thinned
        for trial in localize_fold(fold, progress):
            path = trial.truth
            shares = covered_share(fold.training_map, path)
            errors = position_errors(trial.run)
            sigmas, expected = error_in_sigmas(trial.run), _smoothed(errors)
            tracking = np.array([state == "tracking" for state in trial.run.states])
            columns.append((path, errors, expected, shares, sigmas, tracking))
            mistaken = (_smoothed(sigmas) > 3.0) & tracking & (shares >= LEAST_SHARE)
            dishonest += [path[run] for run in runs_where(mistaken, path, training_map)]
        confused += look_alikes(fold, -(-LOOK_ALIKE_SAMPLES // count), progress)
        fixes += first_fixes(fold, -(-STARTS // count), rng, progress)
    if not columns:
        raise KbfError("no image got a pose: check that odometry and images overlap in time")
    stretches: list[Stretch] = []
    for source, way in _ways(training_map, drives):
        stretches += badly_known(training_map, way, source, once=not flatters)
    for path, _, expected, *_ in columns:
        stretches += _confusing(training_map, path, expected, confused)
    path, errors, expected, shares, sigmas, tracking = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    return MapCheck(
        training_map=training_map,
        path=path,
        errors=errors,
        expected=expected,
        covered=shares >= LEAST_SHARE,
        in_sigmas=sigmas,
        tracking=tracking,
        stretches=tuple(
            sorted(without_repeats(training_map, stretches), key=lambda one: -one.gain)
        ),
        dishonest=tuple(dishonest),
        look_alikes=tuple(distinct(confused, training_map, MOST_LOOK_ALIKES)),
        first_fixes=tuple(fixes),
        flatters=flatters,
    )


def _ways(
    training_map: TrainingMap, drives: Sequence[Drive | DescribedDrive]
) -> Iterator[tuple[int | None, Array]]:
    """Where the map's drives went, each with its number, and drives that the map does not know."""
    names = [source.name for source in training_map.sources]
    ways = {number: training_map.way(number) for number in range(len(names))}
    for drive in drives:
        poses = drive.truth if isinstance(drive, DescribedDrive) else drive.poses
        assert poses is not None
        way = poses[np.isfinite(poses).all(axis=1)]
        if drive.name not in names:
            yield None, way
        elif not training_map.ways:
            ways[names.index(drive.name)] = way
    yield from ways.items()


def _confusing(
    training_map: TrainingMap, path: Array, expected: Array, confused: Sequence[LookAlike]
) -> list[Stretch]:
    """Stretches of the path whose images take many to be told from another place's."""
    hard = [one.a for one in confused if one.order >= MANY_IMAGES]
    if not hard:
        return []
    near = np.min([np.hypot(*(path[:, :2] - pose[:2]).T) for pose in hard], axis=0)
    reach = 0.5 * training_map.learned.resemblance.distance_m
    return [
        make_stretch(training_map, path[run], "look_alike", None, float(np.max(expected[run])))
        for run in runs_where(near < reach, path, training_map)
    ]


def _reason(stretch: Stretch) -> str:
    if stretch.drives == 0:
        all_round = stretch.blind.mean() > 0.5
        return "no picture in the map" if all_round else "no picture in the direction of driving"
    return {
        "uncovered": "seen by one drive only",
        "one_way": "seen in one direction only",
        "light": "seen in one light only",
        "look_alike": "confused with a place far away",
    }[stretch.why]


def _smoothed(values: Array) -> Array:
    """The running median (t,)."""
    half = SMOOTHED // 2
    padded = np.pad(values, half, mode="edge")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED), axis=1))


def _median(values: object) -> float | None:
    return _percentile(values, 50)


def _percentile(values: object, share: float) -> float | None:
    found = np.asarray(values, dtype=np.float64)
    return float(np.percentile(found, share)) if found.size else None


def _mean(values: object) -> float | None:
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()) if found.size else None
