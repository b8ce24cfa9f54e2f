"""Looking back: each pose by what came before it and by what came after.

A backward pass over the steps of a `HypothesisFilter`. The probabilities go back along the ways by
which weight went forward: a hypothesis lives on, is merged into another, leaks to elsewhere, or is
born from there. The Gaussians go back along each hypothesis (Rauch, Tung and Striebel); before its
birth, a hypothesis is where odometry says that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.hypothesis import Hypothesis, drift, transition
from kbf_localization.geometry import compose, invert, wrap_angle

NEGLIGIBLE = 1e-3
"""Probability below which a way that ends in a birth is followed back no further."""


@dataclass(frozen=True)
class Step:
    """One step of the filter; hypotheses go by their numbers.

    `begins` says that nothing came before it. `motion` (3,) had the variances `noise` (3,); a share
    `lasts` of the lasting error was kept. Hypotheses were `predicted`, and `after` the step they
    have their new weights, as `log_elsewhere` is elsewhere's. On the way there, `survival` is the
    logarithm of the factor on a hypothesis's weight, `leaks` the share of it that went elsewhere,
    `births` the logarithm of each new hypothesis's share of elsewhere's weight, and `heirs` says in
    which hypothesis each one lives on.
    """

    begins: bool
    motion: Array
    noise: Array
    lasts: float
    predicted: Mapping[int, Hypothesis]
    after: Mapping[int, Hypothesis]
    log_elsewhere: float
    survival: Mapping[int, float]
    leaks: Mapping[int, float]
    births: Mapping[int, float]
    heirs: Mapping[int, int]


@dataclass(frozen=True)
class SmoothedPose:
    """`pose` (3,) with `covariance` (3, 3); `probability` that the robot took this way."""

    pose: Array
    covariance: Array
    probability: float


@dataclass(frozen=True)
class _Gaussian:
    """Of the pose and the lasting error: `state` (6,), `joint` (6, 6)."""

    state: Array
    joint: Array

    @classmethod
    def of(cls, one: Hypothesis) -> _Gaussian:
        return cls(np.concatenate((one.pose, one.error)), one.joint)


def smoothed(steps: Sequence[Step]) -> list[SmoothedPose | None]:
    """The most probable pose at each step, given all of them; None where none was thought of."""
    found: list[SmoothedPose | None] = []
    end = len(steps)
    for start in range(len(steps) - 1, -1, -1):
        if steps[start].begins or start == 0:
            found = _smoothed_stretch(steps[start:end]) + found
            end = start
    return found


def _smoothed_stretch(steps: Sequence[Step]) -> list[SmoothedPose | None]:
    """Of steps that hang together."""
    last = steps[-1]
    future = dict.fromkeys(last.after, 0.0)
    future_elsewhere = 0.0
    gaussians = {number: _Gaussian.of(one) for number, one in last.after.items()}
    coming: dict[int, float] = {}
    found = [_most_probable(last, future, future_elsewhere, gaussians, coming)]
    for step, before in zip(steps[:0:-1], steps[-2::-1]):
        # Weight that is elsewhere stays there or is born in this step.
        born = {
            number: share + future.get(step.heirs[number], -np.inf)
            for number, share in step.births.items()
        }
        elsewhere = float(np.logaddexp.reduce([future_elsewhere, *born.values()]))
        stays, leaked = _origin_of_elsewhere(step, before)
        earlier: dict[int, float] = {}
        earlier_gaussians: dict[int, _Gaussian] = {}
        for number, one in before.after.items():
            heir = step.heirs[number]
            lives = step.survival[number] + future.get(heir, -np.inf)
            leaves = _log(step.leaks[number]) + elsewhere
            earlier[number] = float(np.logaddexp(lives, leaves))
            follows = heir in gaussians and lives >= leaves
            earlier_gaussians[number] = (
                _looked_back(one, step, number, gaussians[heir]) if follows else _Gaussian.of(one)
            )
        # What is born in this step, or later, came from where odometry says.
        mass = {
            number: float(np.logaddexp(coming.get(number, -np.inf), leaked + value))
            for number, value in {**dict.fromkeys(coming, -np.inf), **born}.items()
        }
        for number in mass:
            heir = step.heirs[number] if number in born else number
            if heir in gaussians and number not in earlier_gaussians:
                earlier_gaussians[number] = _driven_back(gaussians[heir], step)
        coming = {
            number: value + stays for number, value in mass.items() if number in earlier_gaussians
        }
        future, future_elsewhere, gaussians = earlier, elsewhere, earlier_gaussians
        found.append(_most_probable(before, future, future_elsewhere, gaussians, coming))
        total = _log_total(before, future, future_elsewhere)
        coming = {k: v for k, v in coming.items() if v - total > np.log(NEGLIGIBLE)}
    return found[::-1]


def _origin_of_elsewhere(step: Step, before: Step) -> tuple[float, float]:
    """Logarithms: of the share of elsewhere's weight that was there before, and of the weight."""
    leaks = [one.log_weight + _log(step.leaks[number]) for number, one in before.after.items()]
    weight = float(np.logaddexp.reduce([before.log_elsewhere, *leaks]))
    return before.log_elsewhere - weight, weight


def _log_total(step: Step, future: Mapping[int, float], future_elsewhere: float) -> float:
    ways = [one.log_weight + future[number] for number, one in step.after.items()]
    return float(np.logaddexp.reduce([step.log_elsewhere + future_elsewhere, *ways]))


def _most_probable(
    step: Step,
    future: Mapping[int, float],
    future_elsewhere: float,
    gaussians: Mapping[int, _Gaussian],
    coming: Mapping[int, float],
) -> SmoothedPose | None:
    ways = dict(coming)
    for number, one in step.after.items():
        way = one.log_weight + future[number]
        ways[number] = float(np.logaddexp(way, coming.get(number, -np.inf)))
    if not ways:
        return None
    best = max(ways, key=lambda number: ways[number])
    total = _log_total(step, future, future_elsewhere)
    gaussian = gaussians[best]
    pose = gaussian.state[:3].copy()
    pose[2] = wrap_angle(pose[2])
    return SmoothedPose(pose, gaussian.joint[:3, :3], float(np.exp(min(ways[best] - total, 0.0))))


def _looked_back(one: Hypothesis, step: Step, number: int, later: _Gaussian) -> _Gaussian:
    """Rauch, Tung and Striebel's step from `later` back to `one`."""
    predicted = step.predicted[number]
    change = transition(one.pose, compose(one.pose, step.motion), step.lasts)
    gain = np.linalg.solve(predicted.joint, change @ one.joint).T
    surprise = later.state - np.concatenate((predicted.pose, predicted.error))
    surprise[2] = wrap_angle(surprise[2])
    state = np.concatenate((one.pose, one.error)) + gain @ surprise
    joint = one.joint + gain @ (later.joint - predicted.joint) @ gain.T
    return _Gaussian(state, 0.5 * (joint + joint.T))


def _driven_back(later: _Gaussian, step: Step) -> _Gaussian:
    """Where odometry says that a pose came from."""
    end = later.state[:3]
    start = compose(end, invert(step.motion))
    change = transition(end, start, step.lasts)
    joint = change @ later.joint @ change.T
    joint[:3, :3] += drift(end, start, step.noise)
    joint[3:, 3:] += (1.0 - step.lasts**2) * np.eye(3)
    return _Gaussian(np.concatenate((start, step.lasts * later.state[3:])), joint)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0.0 else -np.inf
