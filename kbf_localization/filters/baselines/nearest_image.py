"""NAI, the naïve baseline: the map pose whose image is most like the one just seen."""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.base import Estimate, GaussianPrior, Weights
from kbf_localization.training_map.observation import MapObservation
from kbf_localization.training_map.training_map import TrainingMap


class NearestImage:
    """Takes no notice of motion, nor of earlier images (section 6.3, NAI)."""

    def __init__(self, training_map: TrainingMap, spread: float = 1.0) -> None:
        """`spread` (m, and rad for the heading) is the standard deviation that it claims."""
        self._poses = training_map.poses
        self._covariance = np.diag([spread**2, spread**2, spread**2])

    def prepare(self) -> None:
        pass

    def reset(self, prior: GaussianPrior | None = None) -> None:
        pass

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        similarities = np.nan_to_num(observation.similarities(), nan=-1.0)
        best = int(np.argmax(similarities))
        pose = self._poses[best].copy()
        return Estimate(
            pose=pose,
            covariance=self._covariance.copy(),
            highest_weight_pose=pose.copy(),
            weights=Weights(np.array([best]), np.ones(1)),
            evidence=float("nan"),
        )
