"""Stretches of the path that a map knows badly: holes, one drive only, one direction, one light."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.evaluation.frame_pool import in_scales
from kbf_localization.evaluation.map_check.held_out import covers, length_m, scale_m
from kbf_localization.mapping.held_out import path_lengths_along
from kbf_localization.training_map.sources import light
from kbf_localization.training_map.training_map import TrainingMap

MIN_STRETCH = 0.5
"""A stretch shorter than this, in d₀, makes no difference to a robot that drives through."""

MAX_FILLED = 20_000
"""Poses that fill a path's gaps; a map's poses may lie anywhere within 1,000 km."""

MAX_GAP = 1.0
"""Stretches with less than this between them, in d₀, are joined."""

ON_STRETCH = 0.35
"""In d₀ and φ₀: a pose so near to one of a stretch is on it."""

DIRECTIONS = 16
"""In which a robot at a place may look; in a hole all are tried, not only those driven."""


@dataclass(frozen=True)
class Stretch:
    """A part of the path, `poses` (s, 3), of `metres`, that the map knows badly.

    `why` is "uncovered", "one_way", "look_alike" or "light"; of an uncovered one `drives` is how
    many of the map's drives show it, 0 or 1. `expected_error_m` is how far off to expect the robot.
    `blind` (s, DIRECTIONS) is true where the map has no image for a robot that looks that far to
    the left of the path.
    """

    poses: Array
    metres: float
    why: str
    drives: int | None
    expected_error_m: float
    blind: Flags

    @property
    def blind_poses(self) -> Array:
        """Poses (b, 3) on the stretch, looking where the map has no image."""
        return _all_round(self.poses)[self.blind.ravel()]

    @property
    def gain(self) -> float:
        """What driving it again would better, in metres of the path times metres of error."""
        weight = {"uncovered": 1.0, "look_alike": 1.0, "light": 0.5, "one_way": 0.3}[self.why]
        return weight * (2.0 if self.drives == 0 else 1.0) * self.metres * self.expected_error_m


def drift_m(training_map: TrainingMap, metres: float) -> float:
    """Return the median error in the middle of a stretch that only odometry can cross."""
    noise = training_map.calibration.motion_noise
    half = 0.5 * metres
    forward, left, heading = noise.variances(half, 0.0)
    # A heading that errs as a random walk carries the position off by its integral.
    return float(np.sqrt(np.log(2.0) * (forward + left + heading * half**2 / 3.0)))


def badly_known(
    training_map: TrainingMap, path: Array, source: int | None = None, *, once: bool = True
) -> Iterator[Stretch]:
    """Yield the badly mapped stretches of a path (m, 3), of the map's `source` or another drive.

    Unless `once`, stretches that only this drive shows are left out.
    """
    path = filled(path, scale_m(training_map))
    known = covers(training_map, path)
    for run in runs_where(~known, path, training_map):
        looks = covers(training_map, _all_round(path[run]))
        blind = ~looks.reshape(len(run), DIRECTIONS)
        yield make_stretch(training_map, path[run], "uncovered", 0, blind=blind)
    if once and source is not None:
        by_others = covers(training_map, path, training_map.source_of != source)
        for run in runs_where(known & ~by_others, path, training_map):
            yield make_stretch(training_map, path[run], "uncovered", 1)
    one_way = known & ~covers(training_map, path + np.array([0.0, 0.0, np.pi]))
    for run in runs_where(one_way, path, training_map):
        blind = np.zeros((len(run), DIRECTIONS), dtype=bool)
        blind[:, DIRECTIONS // 2] = one_way[run]
        yield make_stretch(training_map, path[run], "one_way", blind=blind)
    for run in runs_where(_in_one_light(training_map, path), path, training_map):
        yield make_stretch(training_map, path[run], "light")


def filled(path: Array, scale: float) -> Array:
    """Return the path (m, 3), straight where consecutive poses lie far apart; `scale` is d₀."""
    steps = np.hypot(*np.diff(path[:, :2], axis=0).T)
    gaps = steps > MIN_STRETCH * scale
    spacing = max(scale / 8, float(steps[gaps].sum()) / MAX_FILLED)
    parts = []
    for place, step in enumerate(steps):
        parts.append(path[place : place + 1])
        if gaps[place]:
            along = path[place + 1, :2] - path[place, :2]
            fraction = np.linspace(0.0, 1.0, 3 + int(step / spacing))[1:-1, None]
            between = np.full((len(fraction), 3), np.arctan2(along[1], along[0]))
            between[:, :2] = path[place, :2] + fraction * along
            parts.append(between)
    return np.concatenate([*parts, path[-1:]])


def _all_round(poses: Array) -> Array:
    """Return at each of the poses (s, 3) a pose in each direction, (s DIRECTIONS, 3)."""
    looks = np.repeat(poses, DIRECTIONS, axis=0)
    looks[:, 2] += np.tile(np.arange(DIRECTIONS) * (2.0 * np.pi / DIRECTIONS), len(poses))
    return looks


def _in_one_light(training_map: TrainingMap, path: Array) -> Flags:
    """Return where the path (m, 3) was seen in one light only, though the map knows several."""
    lights = np.array([light(source) or "" for source in training_map.sources])
    several = np.unique(lights[lights != ""])
    if len(several) < 2:
        return np.zeros(len(path), dtype=bool)
    seen = [
        covers(training_map, path, (lights == name)[training_map.source_of]) for name in several
    ]
    return np.asarray(np.sum(seen, axis=0) == 1)


def make_stretch(
    training_map: TrainingMap,
    poses: Array,
    why: str,
    drives: int | None = None,
    expected_error_m: float | None = None,
    blind: Flags | None = None,
) -> Stretch:
    metres = length_m(poses)
    if expected_error_m is None:
        expected_error_m = drift_m(training_map, metres)
    if blind is None:
        blind = np.zeros((len(poses), DIRECTIONS), dtype=bool)
    return Stretch(poses, metres, why, drives, expected_error_m, blind)


def without_repeats(training_map: TrainingMap, stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return each place once for each reason, on the longest stretch that has it."""
    kept: list[Stretch] = []
    for reason in dict.fromkeys((stretch.why, stretch.drives) for stretch in stretches):
        own = [stretch for stretch in stretches if (stretch.why, stretch.drives) == reason]
        kept += _distinct(training_map, sorted(own, key=lambda stretch: -stretch.metres))
    return kept


def _distinct(training_map: TrainingMap, stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """Yield of stretches for one reason what is not on an earlier stretch."""
    # A hole is one hole from whichever side it is driven into.
    covered = [
        stretch.blind_poses if stretch.drives == 0 else stretch.poses for stretch in stretches
    ]
    ends = np.cumsum([len(poses) for poses in covered])
    tree = cKDTree(in_scales(training_map.calibration.similarity, np.concatenate(covered)))
    listed = np.zeros(tree.n, dtype=bool)
    for stretch, poses, end in zip(stretches, covered, ends, strict=True):
        near = tree.query_ball_point(
            in_scales(training_map.calibration.similarity, stretch.poses), ON_STRETCH
        )
        new = np.array([not listed[rows].any() for rows in near])
        listed[end - len(poses) : end] = True
        if new.all():
            yield stretch
            continue
        for run in runs_where(new, stretch.poses, training_map):
            error = stretch.expected_error_m if stretch.why == "look_alike" else None
            yield make_stretch(
                training_map,
                stretch.poses[run],
                stretch.why,
                stretch.drives,
                error,
                stretch.blind[run],
            )


def sees_nothing(training_map: TrainingMap, stretches: Sequence[Stretch], poses: Array) -> Flags:
    """Return which poses (t, 3) are on one of the stretches and look where the map has no image."""
    blind = np.concatenate([np.zeros((0, 3)), *(stretch.blind_poses for stretch in stretches)])
    tree = cKDTree(in_scales(training_map.calibration.similarity, blind))
    return np.asarray(
        tree.query(in_scales(training_map.calibration.similarity, poses))[0] < ON_STRETCH
    )


def runs_where(flags: Flags, path: Array, training_map: TrainingMap) -> list[Rows]:
    """Return rows of the path (t, 3) where the flags (t,) hold, by stretch; bridge short gaps."""
    scale = scale_m(training_map)
    places = np.flatnonzero(flags)
    if len(places) == 0:
        return []
    travelled = path_lengths_along(path)[:, 0]
    breaks = np.flatnonzero(np.diff(travelled[places]) > MAX_GAP * scale) + 1
    found = [np.arange(part[0], part[-1] + 1) for part in np.split(places, breaks)]
    return [run for run in found if travelled[run[-1]] - travelled[run[0]] >= MIN_STRETCH * scale]
