"""fKBF, the baseline that learns the motion from training pairs too (section 6.3)."""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.kernels import GaussianKernel
from kbf_localization.embeddings.sum_rules import NonparametricSumRule
from kbf_localization.events import Event
from kbf_localization.filters.paper_filter import (
    NEGLIGIBLE,
    Belief,
    PaperFilter,
)
from kbf_localization.filters.parameters import NonparametricParameters
from kbf_localization.geometry import embed
from kbf_localization.training_map.training_map import TrainingMap

LEAST_SPREAD = np.array([1e-3, 1e-3, 1e-3])
"""Of the training motions, in m, m and rad: a robot that only drove straight has no turns."""


class NonparametricFilter(PaperFilter):
    """The kernel Bayes filter with the non-parametric sum rule in the place of the model.

    The transition is learned from the map's poses, the odometry's motions there and the poses one
    frame later, with a Gaussian kernel on the motions as control inputs.
    """

    def __init__(self, training_map: TrainingMap, parameters: NonparametricParameters) -> None:
        super().__init__(training_map, parameters)
        steps = np.hstack((training_map.motions, training_map.next_poses))
        known = np.isfinite(steps).all(axis=1)
        motions = training_map.motions[known]
        spread = np.maximum(motions.std(axis=0), LEAST_SPREAD) if known.any() else LEAST_SPREAD
        control_kernel = GaussianKernel(np.diag((parameters.control_bandwidth * spread) ** 2))
        scale = self.space.kernel.at_zero() * control_kernel.at_zero()
        ridge = parameters.transition_regularization * scale
        self._transition_rule = NonparametricSumRule(
            self.space.points[known],
            embed(training_map.next_poses[known]),
            self.space.kernel,
            self.space.kernel,
            ridge / max(int(known.sum()), 1),
            motions,
            control_kernel,
        )

    def _moved_mean(self, belief: Belief, motion: Array | None) -> KernelMean:
        """The predictive kernel mean by the non-parametric sum rule."""
        if motion is None or not np.isfinite(motion).all():
            return super()._moved_mean(belief, None)
        mean = KernelMean(belief.points, belief.weights, self.space.kernel)
        moved = self._transition_rule(mean, motion)
        sizes = np.abs(moved.weights)
        if not float(sizes.sum()) > 0.0:
            # No training motion is like this one: nothing was learned about it.
            self._events.append(Event.UNKNOWN_MOTION)
            return super()._moved_mean(belief, None)
        kept = sizes > NEGLIGIBLE * sizes.max()
        return KernelMean(moved.points[kept], moved.weights[kept], self.space.kernel)
