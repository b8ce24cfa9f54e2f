"""One step of the kernel Bayes filter while it tracks, against the paper's formulas."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Counts, Rows
from kbf_localization.embeddings.linear_solver import RidgeSolver
from kbf_localization.embeddings.posterior_weights import reference_posterior_weights
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.kernel_bayes_filter import KernelBayesFilter
from kbf_localization.geometry import compose
from kbf_localization.progress import Progress, no_progress
from kbf_localization.vision.pyramid_kernel import PyramidKernel
from kbf_localization.vision.settings import DescriberSettings

POSES = 2000
WARM_UP, STEPS, REFERENCE_STEPS = 60, 60, 4
STEP = np.array([0.05, 0.0, 0.02])


def run(progress: Progress = no_progress) -> dict[str, dict[str, float | str]]:
    """The case step_n2000: prediction and update, the image being described already."""
    world = _BenchmarkMap(POSES)
    pose_filter = KernelBayesFilter(world)
    pose = world.poses[0]
    pose_filter.reset(GaussianPrior(pose, np.diag([0.1, 0.1, 0.05]) ** 2))
    times = []
    for step in range(WARM_UP + STEPS):
        pose = compose(pose, STEP)
        histogram = world.seen_from(pose[None])[0]
        start = time.perf_counter()
        pose_filter.step(STEP, _BenchmarkObservation(world, histogram))
        times.append(time.perf_counter() - start)
        progress(step + 1, WARM_UP + STEPS, "filter steps")
    reference = _Reference(world, pose_filter)
    reference_times = []
    for step in range(REFERENCE_STEPS):
        start = time.perf_counter()
        reference.step(STEP, _BenchmarkObservation(world, histogram))
        reference_times.append(time.perf_counter() - start)
        progress(step + 1, REFERENCE_STEPS, "steps by the paper's formulas")
    ours = 1e3 * float(np.median(times[WARM_UP:]))
    theirs = 1e3 * float(np.median(reference_times))
    return {
        f"step_n{POSES}": {
            "ours_ms": ours,
            "reference_ms": theirs,
            "ratio": theirs / ours,
            "reference": "the paper's formulas on the whole map, G_X factorized and G_Z known",
        }
    }


class _Reference:
    """Algorithm 1 as printed, normalized; what does not change over time is made before."""

    def __init__(self, world: _BenchmarkMap, pose_filter: KernelBayesFilter) -> None:
        space, parameters = pose_filter.space, pose_filter.parameters
        self._space = space
        self._rule: ModelBasedSumRule = pose_filter.motion_rule
        self._delta, self._power = parameters.delta, round(parameters.power)
        ridge = parameters.regularization * space.kernel.at_zero()
        self._solver = RidgeSolver(space.kernel.gram(space.points, space.points), ridge)
        self._image_gram = world.image_gram(np.arange(len(space))) ** self._power
        self._weights = np.full(len(space), 1.0 / len(space))

    def step(self, motion: Array, observation: _BenchmarkObservation) -> None:
        gram = self._rule.gram(self._space.points, self._space.points, motion)
        prior = self._solver.solve(gram @ self._weights)
        prior /= prior.sum()
        similarity = observation.similarities() ** self._power
        delta = self._delta * float(np.abs(prior).max()) ** 2
        weights = reference_posterior_weights(prior, self._image_gram, similarity, delta)
        self._weights = weights / weights.sum()


class _BenchmarkMap:
    """Poses on a winding path; histograms of a pyramid's size change smoothly along it."""

    def __init__(self, count: int) -> None:
        generator = np.random.default_rng(0)
        self._kernel = PyramidKernel(DescriberSettings())
        bins = sum(columns.stop - columns.start for columns in DescriberSettings().level_columns())
        self._fields = generator.standard_normal((3, bins)) * np.array([[0.5], [0.5], [1.0]])
        self._phases = generator.uniform(0.0, 2.0 * np.pi, bins)
        poses = [np.zeros(3)]
        for step in range(count - 1):
            turn = 0.02 + 0.4 * STEP[0] * np.sin(step / 40.0)
            poses.append(compose(poses[-1], [2.0 * STEP[0], 0.0, turn]))
        self.poses = np.array(poses)
        self.next_poses = np.full((count, 3), np.nan)
        self.motions = np.full((count, 3), np.nan)
        self.motion_variances = np.full(4, 1e-4)
        self.parameters: dict[str, float] = {}
        self.thresholds: dict[str, float] = {}
        self.histograms = self.seen_from(self.poses)
        self.self_similarities = self._kernel.self_similarities(self.histograms)

    def seen_from(self, poses: Array) -> Counts:
        """Histograms (m, bins) that change smoothly with the pose."""
        angles = poses @ self._fields + self._phases
        return np.asarray(np.maximum(40.0 * np.cos(angles), 0.0), dtype=np.uint8)

    def image_gram(
        self,
        rows_a: Rows,
        rows_b: Rows | None = None,
    ) -> Array:
        columns = None if rows_b is None else self.histograms[rows_b]
        return self._kernel.gram(self.histograms[rows_a], columns)

    def similarities(
        self,
        histogram: Counts,
        rows: Rows | None,
    ) -> Array:
        if rows is None:
            return self._kernel.similarities(histogram, self.histograms, self.self_similarities)
        return self._kernel.similarities(
            histogram, self.histograms[rows], self.self_similarities[rows]
        )


@dataclass(frozen=True)
class _BenchmarkObservation:
    world: _BenchmarkMap
    histogram: Counts

    def similarities(self, rows: Rows | None = None) -> Array:
        return self.world.similarities(self.histogram, rows)
