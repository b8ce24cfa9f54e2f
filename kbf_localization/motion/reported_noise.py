"""The noise of a motion by the odometry's own covariances, where these can be believed.

Few robots send a covariance that grows as they drive. Most send a constant, or switch between two,
which says nothing about a motion. The velocity's covariance is not used: how it adds up depends on
how long the velocity's errors last, which is not told.
"""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.geometry import wrap_angle
from kbf_localization.limits import LARGEST_SIGMA_M, LARGEST_SIGMA_RAD

LEAST, MOST = 0.25, 100.0
"""Of the variances that the map learned: reported ones never count for less, since they leave out
the errors that last; and larger ones are jumps of a made-up covariance."""

_LARGEST = np.square((LARGEST_SIGMA_M, LARGEST_SIGMA_M, LARGEST_SIGMA_RAD))


def is_covariance(matrix: Array) -> bool:
    """Whether it may be a covariance (3, 3) of (x, y, heading).

    Finite and symmetric, its variances not negative, not all zero and not beyond the limits.
    """
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        return False
    variances = matrix.diagonal()
    if not ((variances >= 0.0) & (variances <= _LARGEST)).all() or not variances.any():
        return False
    return bool(np.abs(matrix - matrix.T).max() <= 1e-6 * variances.max())


def added_variances(start: Array, before: Array, end: Array, after: Array) -> Array | None:
    """Variances (3,) forward, left and in heading of the motion between two readings.

    They are poses (3,) `start` and `end` with covariances (3, 3) `before` and `after`. Where
    P' = J P Jᵀ + G Q Gᵀ, with J the motion's Jacobian and G the rotation to the robot's axes, this
    is the diagonal of Q; None where no covariance Q explains them.
    """
    jacobian = np.eye(3)
    jacobian[0, 2], jacobian[1, 2] = start[1] - end[1], end[0] - start[0]
    added = after - jacobian @ before @ jacobian.T
    # Positive semi-definite, but for rounding.
    if not np.linalg.eigvalsh(added)[0] >= -1e-9 * np.abs(after).max():
        return None
    heading = start[2] + 0.5 * float(wrap_angle(end[2] - start[2]))
    cos, sin = np.cos(heading), np.sin(heading)
    forward, left = np.array([cos, sin]), np.array([-sin, cos])
    plane = added[:2, :2]
    return np.array([forward @ plane @ forward, left @ plane @ left, added[2, 2]])


def sane_variances(reported: Array, learned: Array) -> Array | None:
    """The reported variances (3,), at least a share of the learned ones; None where not sane.

    Sane are those of which none is beyond `MOST` of the learned ones, and not all are too small.
    """
    if (reported > MOST * learned).any() or not (reported > LEAST * learned).any():
        return None
    return np.maximum(reported, LEAST * learned)
