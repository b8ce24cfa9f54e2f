"""What every pose filter takes and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Observation(Protocol):
    """One described image, asked for its similarity with the map's images.

    A live observation computes what is asked for; a precomputed one looks it up.
    """

    def similarities(self, rows: NDArray[np.intp] | None = None) -> Array:
        """k_Z(Z_i, z_t) with power 1, in [0, 1], for these rows of the map (None: for all)."""


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
    a filter that has none). `evidence` in [0, 1] says how well the image fits the prediction
    against the best that the map offers for it (NaN where the filter has none). `events` counts
    what went wrong in this step, such as "update_not_finite".
    """

    pose: Array
    covariance: Array
    highest_weight_pose: Array
    weights: Weights | None
    evidence: float
    events: tuple[str, ...] = field(default=())


class PoseFilter(Protocol):
    """A filter over poses; one `step` for each image that is used."""

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Forget everything; start from `prior`, or from anywhere on the map when None."""

    def step(self, motion: Array | None, observation: Observation) -> Estimate:
        """Predict by `motion`, then update with the image.

        `motion` (3,) is the odometry's pose now as seen from its pose at the last step
        (`geometry.relative`); None at the first step, or where odometry was missing.
        """
