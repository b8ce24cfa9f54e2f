"""What every pose filter takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Observation(Protocol):
    """One described image, asked for its similarity with the map's images.

    A live observation computes what is asked for; a precomputed one looks it up.
    """

    def similarities(self, rows: NDArray[np.intp] | None = None) -> Array:
        """k_Z(Z_i, z_t) with power 1, in [0, 1], for these rows of the map (None: for all)."""


@runtime_checkable
class SearchableObservation(Observation, Protocol):
    """An observation that can say quickly where on a large map it is worth looking closer."""

    def top_level_similarities(self) -> Array:
        """A first look (n,) at the whole map, much cheaper than `similarities`."""


class PoseMap(Protocol):
    """What a filter needs of a training map of n poses."""

    @property
    def poses(self) -> Array:
        """X (n, 3)."""

    @property
    def next_poses(self) -> Array:
        """(n, 3): the true pose one frame later in its drive, NaN where the drive ends."""

    @property
    def motions(self) -> Array:
        """(n, 3): the odometry's motion to `next_poses`, NaN where the drive ends."""

    @property
    def motion_variances(self) -> Array:
        """(σ_x², σ_y², σ_c², σ_s²) of the motion model, for one frame."""

    @property
    def parameters(self) -> Mapping[str, float]:
        """Tuned hyper-parameters by name; empty where nobody has tuned the map."""

    @property
    def thresholds(self) -> Mapping[str, float]:
        """Learned evidence thresholds and the calibration of the covariance, by name."""

    def image_gram(self, rows_a: NDArray[np.intp], rows_b: NDArray[np.intp] | None = None) -> Array:
        """k_Z with power 1 between the map's images, (len rows_a, len rows_b or len rows_a)."""


@dataclass(frozen=True)
class Weights:
    """A weighted set of map poses: the non-zero weights (s,) and their rows in the map (s,)."""

    rows: NDArray[np.intp]
    values: Array


@dataclass(frozen=True)
class GaussianPrior:
    """A belief about the pose: `pose` (3,) and `covariance` (3, 3) of (x, y, heading)."""

    pose: Array
    covariance: Array


@dataclass(frozen=True)
class Estimate:
    """What a filter says after a step.

    `pose` is the filter's best point estimate (3,), `covariance` (3, 3) of (x, y, heading),
    `highest_weight_pose` the paper's estimate, `weights` the belief on the map's poses (None for
    a filter that has none), `preimage_pose` the maximum of the kernel mean (None for a filter that
    has none). `evidence` in [0, 1] says how well the image fits the prediction
    against the best that the map offers for it (NaN where the filter has none). `events` counts
    what went wrong in this step, such as "update_not_finite".
    """

    pose: Array
    covariance: Array
    highest_weight_pose: Array
    weights: Weights | None
    evidence: float
    events: tuple[str, ...] = field(default=())
    preimage_pose: Array | None = None


class PoseFilter(Protocol):
    """A filter over poses; one `step` for each image that is used."""

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Forget everything; start from `prior`, or from anywhere on the map when None."""

    def step(self, motion: Array | None, observation: Observation) -> Estimate:
        """Predict by `motion`, then update with the image.

        `motion` (3,) is the odometry's pose now as seen from its pose at the last step
        (`geometry.relative`); None at the first step, or where odometry was missing.
        """
