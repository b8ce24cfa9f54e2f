"""The RTS smoother over the hypotheses: each pose given the images before and after it.

A backward pass over the steps of a `BeliefFilter`. Probabilities are propagated back as weight
moved forward: by survival, merges, leaks to the null hypothesis and births from it. Gaussians are
propagated back along each hypothesis (Rauch, Tung and Striebel); before its birth, a hypothesis is
where the odometry says that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.hypothesis import Hypothesis, transition_matrix
from kbf_localization.geometry import compose, invert, process_noise, wrap_angle

MIN_PROBABILITY = 1e-3
"""Probability below which a path is not followed back beyond its birth."""


@dataclass(frozen=True)
class Step:
    """A step of the filter; hypotheses are keyed by their numbers.

    `begins` says that nothing came before it. `motion` (3,) had the variances `noise` (3,); the
    measurement bias had the correlation `bias_correlation`. Hypotheses were `predicted`, and
    `after` the step they have their new weights, and `log_elsewhere` is the null hypothesis's.
    Between the two, `survival` is the logarithm of the factor on a hypothesis's weight, `leaks` the
    fraction that leaked to the null hypothesis, `births` the logarithm of each new hypothesis's
    fraction of that weight, and `merged_into` the hypothesis in which each lives on.
    `null_survival` is the logarithm of the fraction that stays with the null hypothesis.
    """

    begins: bool
    motion: Array
    noise: Array
    bias_correlation: float
    predicted: Mapping[int, Hypothesis]
    after: Mapping[int, Hypothesis]
    log_elsewhere: float
    survival: Mapping[int, float]
    leaks: Mapping[int, float]
    births: Mapping[int, float]
    merged_into: Mapping[int, int]
    null_survival: float = 0.0


@dataclass(frozen=True)
class SmoothedPose:
    """`pose` (3,) with `covariance` (3, 3); `probability` of the path that leads through it."""

    pose: Array
    covariance: Array
    probability: float


@dataclass(frozen=True)
class _Gaussian:
    """A Gaussian of pose and bias: `state` (6,), `covariance` (6, 6)."""

    state: Array
    covariance: Array

    @classmethod
    def of(cls, hypothesis: Hypothesis) -> _Gaussian:
        return cls(np.concatenate((hypothesis.pose, hypothesis.bias)), hypothesis.state_covariance)


def smooth(steps: Sequence[Step]) -> list[SmoothedPose | None]:
    """Return the most probable pose at each step, given all steps; None without hypotheses."""
    smoothed: list[SmoothedPose | None] = []
    end = len(steps)
    for start in range(len(steps) - 1, -1, -1):
        if steps[start].begins or start == 0:
            smoothed = _smooth_segment(steps[start:end]) + smoothed
            end = start
    return smoothed


def _smooth_segment(steps: Sequence[Step]) -> list[SmoothedPose | None]:
    """Smooth consecutive steps."""
    last = steps[-1]
    future = dict.fromkeys(last.after, 0.0)
    future_elsewhere = 0.0
    gaussians = {number: _Gaussian.of(hypothesis) for number, hypothesis in last.after.items()}
    coming: dict[int, float] = {}
    smoothed = [_most_probable(last, future, future_elsewhere, gaussians, coming)]
    for step, before in zip(steps[:0:-1], steps[-2::-1]):
        # Weight that is elsewhere stays there or becomes a component in this step.
        births = {
            number: log_part + future.get(step.merged_into[number], -np.inf)
            for number, log_part in step.births.items()
        }
        stayed = step.null_survival + future_elsewhere
        elsewhere = float(np.logaddexp.reduce([stayed, *births.values()]))
        stays, leaked = _origin_of_elsewhere(step, before)
        earlier: dict[int, float] = {}
        earlier_gaussians: dict[int, _Gaussian] = {}
        for number, hypothesis in before.after.items():
            successor = step.merged_into[number]
            lives = step.survival[number] + future.get(successor, -np.inf)
            leaves = _log(step.leaks[number]) + elsewhere
            earlier[number] = float(np.logaddexp(lives, leaves))
            follows = successor in gaussians and lives >= leaves
            earlier_gaussians[number] = (
                _smooth_back(hypothesis, step, number, gaussians[successor])
                if follows
                else _Gaussian.of(hypothesis)
            )
        # A component that is added in this step, or later, came from where odometry says.
        mass = {
            number: float(np.logaddexp(coming.get(number, -np.inf), leaked + value))
            for number, value in {**dict.fromkeys(coming, -np.inf), **births}.items()
        }
        for number in mass:
            successor = step.merged_into[number] if number in births else number
            if successor in gaussians and number not in earlier_gaussians:
                earlier_gaussians[number] = _reckon_back(gaussians[successor], step)
        coming = {
            number: value + stays for number, value in mass.items() if number in earlier_gaussians
        }
        future, future_elsewhere, gaussians = earlier, elsewhere, earlier_gaussians
        smoothed.append(_most_probable(before, future, future_elsewhere, gaussians, coming))
        total = _log_total(before, future, future_elsewhere)
        coming = {k: v for k, v in coming.items() if v - total > np.log(MIN_PROBABILITY)}
    return smoothed[::-1]


def _origin_of_elsewhere(step: Step, before: Step) -> tuple[float, float]:
    """Return the log fraction of the null weight that was there before, and the log weight."""
    leaks = [
        hypothesis.log_weight + _log(step.leaks[number])
        for number, hypothesis in before.after.items()
    ]
    weight = float(np.logaddexp.reduce([before.log_elsewhere, *leaks]))
    return before.log_elsewhere - weight, weight


def _log_total(step: Step, future: Mapping[int, float], future_elsewhere: float) -> float:
    weights = [hypothesis.log_weight + future[number] for number, hypothesis in step.after.items()]
    return float(np.logaddexp.reduce([step.log_elsewhere + future_elsewhere, *weights]))


def _most_probable(
    step: Step,
    future: Mapping[int, float],
    future_elsewhere: float,
    gaussians: Mapping[int, _Gaussian],
    coming: Mapping[int, float],
) -> SmoothedPose | None:
    paths = dict(coming)
    for number, hypothesis in step.after.items():
        path = hypothesis.log_weight + future[number]
        paths[number] = float(np.logaddexp(path, coming.get(number, -np.inf)))
    if not paths:
        return None
    best = max(paths, key=lambda number: paths[number])
    total = _log_total(step, future, future_elsewhere)
    gaussian = gaussians[best]
    pose = gaussian.state[:3].copy()
    pose[2] = wrap_angle(pose[2])
    return SmoothedPose(
        pose, gaussian.covariance[:3, :3], float(np.exp(min(paths[best] - total, 0.0)))
    )


def _smooth_back(hypothesis: Hypothesis, step: Step, number: int, later: _Gaussian) -> _Gaussian:
    """Apply Rauch, Tung and Striebel's step from `later` back to `hypothesis`."""
    predicted = step.predicted[number]
    jacobian = transition_matrix(
        hypothesis.pose, compose(hypothesis.pose, step.motion), step.bias_correlation
    )
    gain = np.linalg.solve(predicted.state_covariance, jacobian @ hypothesis.state_covariance).T
    surprise = later.state - np.concatenate((predicted.pose, predicted.bias))
    surprise[2] = wrap_angle(surprise[2])
    state = np.concatenate((hypothesis.pose, hypothesis.bias)) + gain @ surprise
    covariance = (
        hypothesis.state_covariance
        + gain @ (later.covariance - predicted.state_covariance) @ gain.T
    )
    return _Gaussian(state, 0.5 * (covariance + covariance.T))


def _reckon_back(later: _Gaussian, step: Step) -> _Gaussian:
    """Return the pose before the step, by the odometry alone."""
    end = later.state[:3]
    start = compose(end, invert(step.motion))
    jacobian = transition_matrix(end, start, step.bias_correlation)
    covariance = jacobian @ later.covariance @ jacobian.T
    covariance[:3, :3] += process_noise(end, start, step.noise)
    covariance[3:, 3:] += (1.0 - step.bias_correlation**2) * np.eye(3)
    return _Gaussian(np.concatenate((start, step.bias_correlation * later.state[3:])), covariance)


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0.0 else -np.inf
