"""Places far apart that look alike to a map (perceptual aliasing), and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.evaluation.map_check.held_out import LEAST_SHARE, Fold
from kbf_localization.evaluation.map_check.stretches import scale_m
from kbf_localization.geometry import compose, relative
from kbf_localization.localization.state_monitor import FIRST_PROOF
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.training_map.observation import MapObservation
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.training_map.view import MapViews, View, view_parameters

FAR_APART = 3.0
"""In d₀: nearer places look alike because they are nearly the same."""

BEST_MATCHES, MOST_IMAGES = 30, 60
JITTER = np.array([0.08, 0.08, 0.14])
"""How far off, in d₀ and φ₀, a hypothesis is while it tracks."""

NEEDED_EVIDENCE = float(np.log(FIRST_PROOF / (1.0 - FIRST_PROOF)))
"""The log odds at which the localizer's state becomes "tracking"."""


@dataclass(frozen=True)
class LookAlike:
    """The pose `a` (3,) of an image that fits better at the map's pose `b` (3,), far away.

    `images_to_tell_apart` counts images along the way; None: more than could be tried.
    """

    a: Array
    b: Array
    images_to_tell_apart: int | None

    @property
    def order(self) -> int:
        return MOST_IMAGES + 1 if self.images_to_tell_apart is None else self.images_to_tell_apart


def look_alikes(fold: Fold, samples: int, progress: Progress = no_progress) -> Iterator[LookAlike]:
    """Images spread over the fold's drive that fit a place far away better than their own."""
    drive, held = fold.drive, fold.training_map
    pair = _Pair(held)
    far = FAR_APART * scale_m(held)
    frames = np.linspace(0, len(drive) - 1, min(samples, len(drive))).astype(int)
    for frame in tracked(frames, "looking for look-alike places", progress):
        description, truth = drive.descriptions[frame], fold.truth[frame]
        if description is None:
            continue
        observation = held.observe(description)
        best = observation.best_rows(BEST_MATCHES)
        away = best[np.hypot(*(held.poses[best, :2] - truth[:2]).T) > far]
        if len(away) == 0:
            continue
        here, there = pair.look(observation, truth), pair.look(observation, held.poses[away[0]])
        if here.share < LEAST_SHARE or pair.ratio(there) <= pair.ratio(here):
            continue
        yield LookAlike(truth, held.poses[away[0]], pair.images(fold, int(frame), int(away[0])))


class _Pair:
    """Evidence for two places from the same images, as the filter weighs it."""

    def __init__(self, training_map: TrainingMap) -> None:
        self._map, self._learned = training_map, training_map.learned
        resemblance = self._learned.resemblance
        self._views = MapViews(training_map, resemblance, view_parameters(training_map.parameters))
        self._covariance = np.diag((JITTER * resemblance.scales) ** 2)

    def look(self, observation: MapObservation, pose: Array) -> View:
        return self._views.look(observation, pose, self._covariance, self._learned.readout)

    def ratio(self, view: View) -> float:
        return view.ratio(self._learned.evidence)

    def images(self, fold: Fold, start: int, row: int) -> int | None:
        """Images from `start` on until their evidence for the right place is ahead by enough."""
        drive, evidence = fold.drive, self._learned.evidence
        origin, elsewhere = fold.truth[start], self._map.poses[row]
        ahead, last = 0.0, origin
        for used, frame in enumerate(range(start, min(start + MOST_IMAGES, len(drive))), start=1):
            pose, description = fold.truth[frame], drive.descriptions[frame]
            if description is None:
                continue
            step = relative(last, pose)
            travel = self._learned.resemblance.travel(
                float(np.hypot(step[0], step[1])), abs(float(step[2]))
            )
            new = 1.0 if frame == start else evidence.novelty(travel)
            observation = self._map.observe(description)
            wrong = compose(elsewhere, relative(origin, pose))
            ahead += new * (
                self.ratio(self.look(observation, pose)) - self.ratio(self.look(observation, wrong))
            )
            last = pose
            if ahead >= NEEDED_EVIDENCE:
                return used
        return None


def distinct(found: list[LookAlike], training_map: TrainingMap, most: int) -> list[LookAlike]:
    """Each pair of places once, those that take the most images first."""
    reach = FAR_APART * scale_m(training_map)
    kept: list[LookAlike] = []
    for one in sorted(found, key=lambda pair: -pair.order):
        same = any(
            max(_apart(one.a, other.a), _apart(one.b, other.b)) < reach
            or max(_apart(one.a, other.b), _apart(one.b, other.a)) < reach
            for other in kept
        )
        if not same:
            kept.append(one)
    return kept[:most]


def _apart(a: Array, b: Array) -> float:
    return float(np.hypot(*(a[:2] - b[:2])))
