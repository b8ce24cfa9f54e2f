"""One step of the kernel Bayes filter while it tracks, against the paper's formulas."""

from __future__ import annotations

from time import process_time

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.benchmarks._synthetic_map import SPACING_M, synthetic_map
from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.embeddings.bayes_rule import reference_posterior_weights
from kbf_localization.embeddings.linear_solver import RidgeSolver
from kbf_localization.embeddings.noise import GaussianNoise
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.belief_filter import BeliefFilter
from kbf_localization.filters.paper_filter import PoseSpace
from kbf_localization.filters.parameters import KernelParameters
from kbf_localization.geometry import relative, unembed
from kbf_localization.motion.odometry_model import transition
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.training_map import TrainingMap
from kbf_localization.training_map.training_map import MapObservation

POSES = 2000
WARM_UP, STEPS, REFERENCE_STEPS = 60, 60, 4
STEP_M = 0.05


def run(progress: Progress = no_progress) -> dict[str, dict[str, float | str]]:
    """Time the case step_n2000: prediction and update of an image described beforehand.

    Times are processor time, so that what else the machine does does not count.
    """
    training_map, corridor = synthetic_map(POSES)
    pose_filter = BeliefFilter(training_map)
    pose_filter.prepare()
    along = 0.3 * SPACING_M * POSES + STEP_M * np.arange(WARM_UP + STEPS + 1, dtype=np.float64)
    poses = corridor.poses(along)
    generator = np.random.default_rng(1)
    pose_filter.reset(GaussianPrior(poses[0], np.diag([0.1, 0.1, 0.05]) ** 2))
    times = []
    for step in tracked(range(WARM_UP + STEPS), "filter steps", progress):
        motion = relative(poses[step], poses[step + 1])
        observation = training_map.observe(corridor.describe(float(along[step + 1]), generator))
        times.append(milliseconds(pose_filter.step, motion, observation, clock=process_time))
    reference = _Reference(training_map)
    reference_times = []
    for _ in tracked(range(REFERENCE_STEPS), "steps by the paper's formulas", progress):
        observation = training_map.observe(corridor.describe(float(along[-1]), generator))
        reference_times.append(
            milliseconds(reference.step, motion, observation, clock=process_time)
        )
    known = "the paper's formulas on the whole map, G_X factorized and G_Z known"
    return {f"step_n{POSES}": case(times[WARM_UP:], reference_times, known)}


class _Reference:
    """Algorithm 1 as printed, normalized; what does not change over time is made before."""

    def __init__(self, training_map: TrainingMap) -> None:
        parameters = KernelParameters()
        space = PoseSpace(training_map.poses, parameters.bandwidth, parameters.heading_bandwidth)
        noise = GaussianNoise(np.diag(training_map.motion_variances * parameters.noise_inflation))
        self._space = space
        self._rule = ModelBasedSumRule(
            lambda points, motion: transition(unembed(points), motion), noise, space.kernel
        )
        self._delta, self._power = parameters.delta, round(parameters.power)
        ridge = parameters.regularization * space.kernel.at_zero()
        self._solver = RidgeSolver(space.kernel.gram(space.points, space.points), ridge)
        self._image_gram = training_map.image_gram(np.arange(len(space))) ** self._power
        self._weights = np.full(len(space), 1.0 / len(space))

    def step(self, motion: Array, observation: MapObservation) -> None:
        gram = self._rule.gram(self._space.points, self._space.points, motion)
        prior = self._solver.solve(gram @ self._weights)
        prior /= prior.sum()
        similarity = observation.similarities() ** self._power
        delta = self._delta * float(np.abs(prior).max()) ** 2
        weights = reference_posterior_weights(prior, self._image_gram, similarity, delta)
        self._weights = weights / weights.sum()
