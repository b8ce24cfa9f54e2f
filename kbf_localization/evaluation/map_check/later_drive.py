"""From drives held out of a map to a later drive, which will have the whole map to be near to.

A drive that is held out of a map of N drives meets pictures of N − 1 drives, a later one of N. This
makes two differences. One of N drives came nearer to where the robot is; and at the same distance
pictures of more drives, whose poses and lights err differently, tell more.
"""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array

GAIN = 0.22
"""The error goes with N^−GAIN: found in simulated offices of the seeds 11 to 14."""


def nearness_weights(shares: Array, drives: int) -> Array:
    """How much each held-out frame tells about a later drive, of a map of so many `drives`.

    `shares` (t,) are how well the other drives cover the frames. If the distance to each drive is
    drawn alike and exceeds d with probability S, the least of N − 1 distances exceeds it with
    S^(N−1) and the least of N with S^N. Their densities have the ratio S·N/(N − 1), which are the
    weights, up to a constant.
    """
    farther = (np.argsort(np.argsort(shares)) + 0.5) / len(shares)
    return np.asarray(farther ** (1.0 / (drives - 1)))


def error_scale(drives: int) -> float:
    """The error on a map of so many drives, in that on the same map without one of them."""
    return float((1.0 - 1.0 / drives) ** GAIN)


def weighted_percentile(values: Array, weights: Array, percent: float) -> float:
    """The least value at or below which so many percent of the weight lie."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, percent / 100.0 * reached[-1])
    return float(values[order][min(int(place), len(values) - 1)])
