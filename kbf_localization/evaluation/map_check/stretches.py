"""Stretches of the way that a map knows badly: holes, one drive only, one direction, one light."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.evaluation.frame_pool import covered_share, share_near
from kbf_localization.evaluation.map_check.held_out import LEAST_SHARE
from kbf_localization.geometry import embed
from kbf_localization.training_map.recorded import light
from kbf_localization.training_map.training_map import TrainingMap

SHORTEST = 0.5
"""A stretch shorter than this, in d₀, makes no difference to a robot that drives through."""

BRIDGED = 1.0
"""Two stretches with less than this between them, in d₀, are one."""


@dataclass(frozen=True)
class Stretch:
    """A part of the way, `poses` (s, 3), of `metres`, that the map knows badly.

    `why` is "uncovered", "one_way", "look_alike" or "light"; of an uncovered one `drives` is how
    many of the map's drives show it, 0 or 1. `expected_error_m` is how far off to expect the robot.
    """

    poses: Array
    metres: float
    why: str
    drives: int | None
    expected_error_m: float

    @property
    def gain(self) -> float:
        """What driving it again would better, in metres of the way times metres of error."""
        weight = {"uncovered": 1.0, "look_alike": 1.0, "light": 0.5, "one_way": 0.3}[self.why]
        return weight * (2.0 if self.drives == 0 else 1.0) * self.metres * self.expected_error_m


def drift_m(training_map: TrainingMap, metres: float) -> float:
    """The median error in the middle of a stretch that only odometry can cross."""
    noise = training_map.learned.motion_noise
    half = 0.5 * metres
    forward, left, heading = noise.variances(half, 0.0)
    # A heading that errs as a random walk carries the position off by its integral.
    return float(np.sqrt(np.log(2.0) * (forward + left + heading * half**2 / 3.0)))


def holes(training_map: TrainingMap) -> Iterator[Stretch]:
    """Where consecutive poses of a drive lie so far apart that the map covers nothing between."""
    for number in range(len(training_map.sources)):
        poses = training_map.poses[training_map.source_of == number]
        steps = np.hypot(*np.diff(poses[:, :2], axis=0).T)
        for place in np.flatnonzero(steps > SHORTEST * scale_m(training_map)):
            share = np.linspace(0.0, 1.0, 3 + int(8 * steps[place] / scale_m(training_map)))
            between = poses[place] + share[:, None] * (poses[place + 1] - poses[place])
            along = between[-1, :2] - between[0, :2]
            between[1:-1, 2] = np.arctan2(along[1], along[0])
            for run in runs_where(
                covered_share(training_map, between) < LEAST_SHARE, between, training_map
            ):
                yield make_stretch(training_map, between[run], "uncovered", 0)


def driven_once(training_map: TrainingMap, path: Array, shares: Array) -> Iterator[Stretch]:
    """Where no other drive covers the path (t, 3) of one, by the `shares` (t,) that the others do.

    Where the whole map does not cover it either, as with a drive that the map does not know, it
    is a hole.
    """
    whole = covered_share(training_map, path) >= LEAST_SHARE
    for drives, missing in ((0, ~whole), (1, whole & (shares < LEAST_SHARE))):
        for run in runs_where(missing, path, training_map):
            yield make_stretch(training_map, path[run], "uncovered", drives)


def one_way(training_map: TrainingMap, path: Array) -> Iterator[Stretch]:
    """Where the map has no picture that looks back along the path (t, 3)."""
    back = path + np.array([0.0, 0.0, np.pi])
    there = covered_share(training_map, path) >= LEAST_SHARE
    missing = there & (covered_share(training_map, back) < LEAST_SHARE)
    for run in runs_where(missing, path, training_map):
        yield make_stretch(training_map, path[run], "one_way")


def one_light(training_map: TrainingMap, path: Array) -> Iterator[Stretch]:
    """Where the path was seen in one light only, though the map knows several."""
    by_source = [light(source) for source in training_map.sources]
    lights = sorted({one for one in by_source if one})
    if len(lights) < 2:
        return
    seen = np.zeros(len(path), dtype=np.intp)
    for one in lights:
        own = [number for number, other in enumerate(by_source) if other == one]
        poses = training_map.poses[np.isin(training_map.source_of, own)]
        shares = share_near(training_map.learned.resemblance, poses, path)
        seen += shares >= LEAST_SHARE
    for run in runs_where(seen == 1, path, training_map):
        yield make_stretch(training_map, path[run], "light")


def make_stretch(
    training_map: TrainingMap,
    poses: Array,
    why: str,
    drives: int | None = None,
    expected_error_m: float | None = None,
) -> Stretch:
    metres = length_m(poses)
    if expected_error_m is None:
        expected_error_m = drift_m(training_map, metres)
    return Stretch(poses, metres, why, drives, expected_error_m)


def without_repeats(training_map: TrainingMap, stretches: list[Stretch]) -> list[Stretch]:
    """Each place once for each reason, the longest stretch first."""
    kept: list[Stretch] = []
    for one in sorted(stretches, key=lambda stretch: -stretch.metres):
        for other in kept:
            if one.why == other.why and _within(training_map, one.poses, other.poses):
                break
        else:
            kept.append(one)
    return kept


def _within(training_map: TrainingMap, poses: Array, others: Array) -> bool:
    scales = training_map.learned.resemblance.scales[[0, 1, 2, 2]]
    distances, _ = cKDTree(embed(others) / scales).query(embed(poses) / scales)
    return bool(np.mean(distances < 1.0) > 0.5)


def runs_where(flags: NDArray[np.bool_], path: Array, training_map: TrainingMap) -> list[Rows]:
    """Rows of the path (t, 3) where the flags (t,) hold, in stretches; short gaps are bridged."""
    scale = scale_m(training_map)
    places = np.flatnonzero(flags)
    if len(places) == 0:
        return []
    steps = np.hypot(*np.diff(path[:, :2], axis=0).T) if len(path) > 1 else np.zeros(0)
    way = np.concatenate(([0.0], np.cumsum(steps)))
    breaks = np.flatnonzero(np.diff(way[places]) > BRIDGED * scale) + 1
    found = [np.arange(part[0], part[-1] + 1) for part in np.split(places, breaks)]
    return [run for run in found if way[run[-1]] - way[run[0]] >= SHORTEST * scale]


def length_m(poses: Array) -> float:
    """The length of a way through poses (t, 3)."""
    return float(np.hypot(*np.diff(poses[:, :2], axis=0).T).sum()) if len(poses) > 1 else 0.0


def scale_m(training_map: TrainingMap) -> float:
    """d₀: so far apart, two pictures no longer look alike."""
    return training_map.learned.resemblance.distance_m
