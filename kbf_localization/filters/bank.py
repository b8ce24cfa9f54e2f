"""What a bank of hypotheses says as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.base import Weights
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.geometry import wrap_angle
from kbf_localization.training_map.view import View

CONSISTENT = 11.3
"""Squared distance, in both covariances, of hypotheses that agree: the 99 % quantile of a
difference in three coordinates."""


def agreeing(hypotheses: Sequence[Hypothesis], published: Hypothesis) -> float:
    """The probability of all hypotheses that agree with the published pose."""
    agree = (one for one in hypotheses if published.distance(one) < CONSISTENT)
    return min(sum(one.probability for one in agree), 1.0)


def weights_on_map(hypotheses: Sequence[Hypothesis], views: Mapping[int, View]) -> Weights:
    """Each hypothesis's weights on the map's poses, times its probability; views by numbers."""
    parts = [
        (views[one.number].rows, one.probability * views[one.number].weights)
        for one in hypotheses
        if one.number in views and len(views[one.number].rows)
    ]
    if not parts:
        return Weights(np.zeros(0, dtype=np.intp), np.zeros(0))
    rows, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    values = np.bincount(places, np.concatenate([part[1] for part in parts]), len(rows))
    return Weights(rows, values.astype(np.float64))


def whole_covariance(
    hypotheses: Sequence[Hypothesis], log_elsewhere: float, pose: Array, everywhere: Array
) -> Array:
    """(3, 3) of all hypotheses and of elsewhere, of the spread `everywhere`, round `pose`."""
    weight = float(np.exp(log_elsewhere))
    total = weight * everywhere
    for one in hypotheses:
        offset = one.pose - pose
        offset[2] = wrap_angle(offset[2])
        total = total + one.probability * (one.covariance + np.outer(offset, offset))
        weight += one.probability
    return np.asarray(total / weight)
