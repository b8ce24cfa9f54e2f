"""The interface of pose filters: what a step takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.events import Event
from kbf_localization.filters.smoothing import Step
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.training_map.training_map import MapObservation

MAX_MOTION = 1e6
"""Metres or radians; a motion beyond it is a fault of the odometry."""


def is_known(motion: Array | None) -> TypeGuard[Array]:
    """Return whether a motion (3,) was measured: it is there, finite and no larger than any."""
    return motion is not None and bool((np.abs(motion) < MAX_MOTION).all())


@dataclass(frozen=True)
class Weights:
    """A weighted set of map poses: the non-zero weights (s,) and their rows in the map (s,)."""

    rows: Rows
    values: Array

    def heaviest(self, count: int) -> Weights:
        """Return the `count` largest positive weights, the largest first."""
        order = np.argsort(-self.values, kind="stable")[:count]
        order = order[self.values[order] > 0.0]
        return Weights(self.rows[order], self.values[order])


@dataclass(frozen=True)
class GaussianPrior:
    """A belief about the pose: `pose` (3,) and `covariance` (3, 3) of (x, y, heading)."""

    pose: Array
    covariance: Array


@dataclass(frozen=True)
class HypothesisEstimate:
    """A pose at which the robot may be, with its probability.

    `number` identifies the hypothesis while it lives.
    """

    pose: Array
    covariance: Array
    probability: float
    number: int


@dataclass(frozen=True)
class Confidence:
    """The calibrated quantities from which the state follows.

    `probability` of the estimate's hypothesis, `evidence` its running log-likelihood ratio against
    "elsewhere", `min_evidence` its 0.5 % quantile at right poses, `max_sigma_m` the position's
    standard deviation up to which a pose identifies the place. `confirmed` tells whether this image
    fits at the pose, so that it measures it; without one, odometry alone carries the pose on.
    `interrupted` tells that the image neither fits there nor continues the previous image, or that
    landmarks contradict the pose; `verified` that landmarks have measured the pose, if the map has
    any there: visual words alone may take a place for another.
    """

    probability: float
    evidence: float
    min_evidence: float
    max_sigma_m: float
    confirmed: bool = True
    interrupted: bool = False
    verified: bool = True


@dataclass(frozen=True)
class Estimate:
    """The result of a step.

    `pose` is the best point estimate (3,), `covariance` (3, 3) that of (x, y, heading) for the
    published hypothesis; `whole_covariance` is that of the whole belief. `highest_weight_pose` is
    the paper's estimate, `weights` the belief on the map's poses or None, `preimage_pose` the
    maximum of the kernel mean or None. `evidence` is the log-likelihood ratio of the image (NaN
    where the filter has none). `step` is the record for the smoother, `landmark_fix` the pose that
    landmarks measured for the published hypothesis; None where there is none. `camera_yaw` is the
    angle (rad) by which the camera looks turned to the left on its mount since the map was made.
    """

    pose: Array
    covariance: Array
    highest_weight_pose: Array
    weights: Weights | None
    evidence: float
    events: tuple[Event, ...] = ()
    preimage_pose: Array | None = None
    whole_covariance: Array | None = None
    confidence: Confidence | None = None
    hypotheses: tuple[HypothesisEstimate, ...] = ()
    step: Step | None = None
    landmark_fix: LandmarkFix | None = None
    camera_yaw: float = 0.0


class PoseFilter(Protocol):
    """A filter over poses, with a `step` for each used image."""

    def prepare(self) -> None:
        """Compute in advance what the first steps need."""

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Forget everything; start from `prior`, or from anywhere on the map when None."""

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        """Predict by `motion`, then update with the image.

        `motion` (3,) is the odometry's pose now as seen from its pose at the last step
        (`geometry.relative`); None at the first step, or where odometry was missing. `variances`
        (3,) forward, left and in heading are those that the odometry reports for the motion, None
        where it reports none; methods with constant noise ignore them.
        """
