"""Wheel odometry whose increments err as those of a real robot's wheels do.

The error against the truth, measured on COLD's Freiburg seq1_night1, has three traits that white
noise lacks: heavy tails (0.014 m RMS but 0.005 m median over 0.2 s), lateral slip that persists for
about a second, and a heading that wobbles round a constant bias of 0.005 rad/s instead of
diffusing.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.geometry import compose, interpolate, relative, wrap_angle

PERIOD_S = 0.05

_HEADING_BIAS = 0.0048  # rad/s
_HEADING_WOBBLE = np.radians(1.05)  # standard deviation, with _WOBBLE_S correlation time
_WOBBLE_S = 1.5
_FORWARD_DRIFT = 0.017  # m/s, slow: wheel radius, floor
_FORWARD_DRIFT_S = 15.0
_FORWARD_JITTER = 0.0105  # m per square root of 0.2 s
_SIDE_SLIP = 0.037  # m/s
_SIDE_SLIP_S = 0.8
_BURSTS = 0.95  # standard deviation of the logarithm of the noise's size, correlated over _BURST_S
_BURST_S = 1.0


def _coloured(rng: np.random.Generator, steps: int, correlation_s: float) -> Array:
    """Return Gauss–Markov noise (steps,) of unit variance and time constant `correlation_s`."""
    keep = float(np.exp(-PERIOD_S / correlation_s))
    noise = rng.standard_normal(steps)
    noise[1:] *= np.sqrt(1 - keep**2)
    return _decaying_sum(noise, keep)


def _decaying_sum(steps: Array, keep: float) -> Array:
    """Return y[t] = steps[t] + keep y[t-1]: lfilter([1], [1, -keep], steps), slow to import."""
    return np.array(list(accumulate(steps.tolist(), lambda y, step: step + keep * y)))


def drive_wheels(stamps_ns: Stamps, poses: Array, rng: np.random.Generator) -> OdometryLog:
    """Return the log, 20 readings a second in an odometry frame, of a robot that took `poses`."""
    first, last = int(stamps_ns[0]) - 200_000_000, int(stamps_ns[-1]) + 200_000_000
    clock = np.arange(first, last, round(PERIOD_S * 1e9), dtype=np.int64) // 1000 * 1000
    there = interpolate(stamps_ns, poses, clock)
    truth = relative(there[:-1], there[1:])
    moving = (np.hypot(truth[:, 0], truth[:, 1]) > 2e-4) | (np.abs(truth[:, 2]) > 4e-4)
    motion = truth + np.where(moving[:, None], _errors(len(truth), rng), 0.0)
    start = np.array([*rng.uniform(-5, 5, 2), rng.uniform(-np.pi, np.pi)])
    heading = start[2] + np.r_[0.0, np.cumsum(motion[:, 2])]
    steps = compose(np.stack([0 * heading, 0 * heading, heading], -1)[:-1], motion)[:, :2]
    places = start[:2] + np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    return OdometryLog(clock, np.column_stack([places, wrap_angle(heading)]))


def _errors(steps: int, rng: np.random.Generator) -> Array:
    """Return errors (steps, 3) of the readings' increments in the robot's frame."""
    size = np.exp(_BURSTS * _coloured(rng, steps, _BURST_S) - _BURSTS**2)
    jitter = _FORWARD_JITTER * np.sqrt(PERIOD_S / 0.2) * rng.standard_normal(steps) * size
    forward = jitter + _FORWARD_DRIFT * PERIOD_S * _coloured(rng, steps, _FORWARD_DRIFT_S)
    # Slip that comes in bursts: its size varies more slowly than the slip itself.
    sideways = _SIDE_SLIP * PERIOD_S * _coloured(rng, steps, _SIDE_SLIP_S) * size
    keep = float(np.exp(-PERIOD_S / _WOBBLE_S))
    kicks = _HEADING_WOBBLE * np.sqrt(1 - keep**2) * rng.standard_normal(steps) * size
    wobble = _decaying_sum(kicks, keep)
    turning = np.diff(wobble, prepend=0.0) + _HEADING_BIAS * PERIOD_S
    return np.stack([forward, sideways, turning], axis=-1)
