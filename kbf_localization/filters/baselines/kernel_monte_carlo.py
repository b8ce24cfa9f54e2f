"""KMCF: samples from the motion model, kernel Bayes' rule, resampling by herding."""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings.herding import herd
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.filters.base import Estimate, GaussianPrior
from kbf_localization.filters.paper_filter import Belief, PaperFilter
from kbf_localization.filters.parameters import MonteCarloParameters
from kbf_localization.geometry import unembed
from kbf_localization.motion.odometry_model import transition
from kbf_localization.training_map.observation import MapObservation
from kbf_localization.training_map.training_map import TrainingMap


class KernelMonteCarloFilter(PaperFilter):
    """The kernel Monte Carlo filter of Kanagawa, Nishiyama, Gretton and Fukumizu.

    It needs samples of the motion model alone, no conjugate pair of noise and kernel.
    """

    def __init__(
        self, training_map: TrainingMap, parameters: MonteCarloParameters, seed: int = 0
    ) -> None:
        self._seed = seed
        self._samples = max(1, round(parameters.samples))
        self._sigma = np.sqrt(
            np.asarray(training_map.motion_variances) * parameters.noise_inflation
        )
        super().__init__(training_map, parameters)

    def reset(self, prior: GaussianPrior | None = None) -> None:
        super().reset(prior)
        self._generator = np.random.default_rng(self._seed)

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        estimate = super().step(motion, observation, variances)
        if self._belief is not None:
            mean = KernelMean(self._belief.points, self._belief.weights, self.space.kernel)
            herded = herd(mean, self._samples)
            self._belief = Belief(herded, np.full(len(herded), 1.0 / len(herded)))
        return estimate

    def _moved_mean(self, belief: Belief, motion: Array | None) -> KernelMean:
        """Samples of the motion model, one from each point of the belief."""
        if motion is None or not np.isfinite(motion).all():
            return super()._moved_mean(belief, None)
        noise = self._sigma * self._generator.standard_normal(belief.points.shape)
        moved = transition(unembed(belief.points), motion) + noise
        return KernelMean(moved, belief.weights, self.space.kernel)
