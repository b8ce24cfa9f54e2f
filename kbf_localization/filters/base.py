"""What every pose filter takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kbf_localization.arrays import Array, Rows
from kbf_localization.events import Event
from kbf_localization.training_map.observation import MapObservation


@dataclass(frozen=True)
class Weights:
    """A weighted set of map poses: the non-zero weights (s,) and their rows in the map (s,)."""

    rows: Rows
    values: Array


@dataclass(frozen=True)
class GaussianPrior:
    """A belief about the pose: `pose` (3,) and `covariance` (3, 3) of (x, y, heading)."""

    pose: Array
    covariance: Array


@dataclass(frozen=True)
class HypothesisEstimate:
    """One of the places where the robot may be, with its probability.

    `number` stays with the hypothesis while it lives.
    """

    pose: Array
    covariance: Array
    probability: float
    number: int


@dataclass(frozen=True)
class Confidence:
    """The calibrated quantities from which the state follows.

    `probability` of the estimate's hypothesis, `evidence` its running log-likelihood ratio against
    "elsewhere", `least_evidence` what that is at right poses but for one time in fifty,
    `widest_sigma_m` the position's standard deviation up to which a pose tells the place.
    """

    probability: float
    evidence: float
    least_evidence: float
    widest_sigma_m: float


@dataclass(frozen=True)
class Estimate:
    """What a filter knows after a step.

    `pose` is the filter's best point estimate (3,), `covariance` (3, 3) of (x, y, heading), which
    of several hypotheses is that of the published one; `whole_covariance` is that of the whole
    belief. `highest_weight_pose` is the paper's estimate, `weights` the belief on the map's poses
    (None for a filter that has none), `preimage_pose` the maximum of the kernel mean (None for a
    filter that has none). `evidence` says how well the image fits (NaN where the filter has none).
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


class PoseFilter(Protocol):
    """A filter over poses; one `step` for each image that is used."""

    def prepare(self) -> None:
        """Compute now what the first images would else wait for."""

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Forget everything; start from `prior`, or from anywhere on the map when None."""

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        """Predict by `motion`, then update with the image.

        `motion` (3,) is the odometry's pose now as seen from its pose at the last step
        (`geometry.relative`); None at the first step, or where odometry was missing. `variances`
        (3,) forward, left and in heading are the motion's by the odometry itself, None where it
        does not tell them; methods whose noise is the same for every frame have no use for them.
        """
