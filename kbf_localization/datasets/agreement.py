"""Compares a drive's known poses with its wheel odometry: units, axes and signs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.geometry import interpolate, relative, wrap_angle

STEP_M = 0.5
"""Length of the odometry's motions that are compared: longer than its noise, shorter than drift."""
MIN_MOTIONS, MIN_TURNS, MIN_TURN_RAD = 8, 4, 0.1
MAX_SCALE_ERROR = 0.25
"""Wheels are wrong by some per cent, units by more than this."""
MAX_DIRECTION_RAD = np.radians(20.0)
UNITS = {"millimetres": 1e3, "centimetres": 1e2, "feet": 1.0 / 0.3048}
"""How many of them a metre is."""


@dataclass(frozen=True)
class Agreement:
    """How the known poses' motions differ from the odometry's, as medians over a drive.

    `scale` is the known length over the odometry's; `direction_rad` the angle, in the robot's own
    frame, by which the known motion points to the left of the odometry's; `turn` the known turn
    over the odometry's, None without turns. `error_m` is the distance between the two motions'
    ends after a metre. `inverse_scale` is the scale of the known poses' inverses.
    """

    scale: float
    direction_rad: float
    turn: float | None
    error_m: float
    inverse_scale: float
    motions: int


def agreement(poses: Array | None, stamps_ns: Stamps, odometry: OdometryLog) -> Agreement | None:
    """Compare the poses (t, 3) at the images' stamps; None where too little of both is known."""
    if poses is None or len(odometry.stamps_ns) < 2:
        return None
    covered = (stamps_ns >= odometry.stamps_ns[0]) & (stamps_ns <= odometry.stamps_ns[-1])
    rows = np.flatnonzero(covered & np.isfinite(poses).all(axis=1))
    if len(rows) < 2:
        return None
    by_wheels = interpolate(odometry.stamps_ns, odometry.poses, stamps_ns[rows])
    ends = _ends(by_wheels)
    at_ends = poses[rows][ends]
    known = relative(at_ends[:-1], at_ends[1:])
    driven = relative(by_wheels[ends[:-1]], by_wheels[ends[1:]])
    inverses = relative(at_ends, np.zeros(3))
    inverse = relative(inverses[:-1], inverses[1:])
    known_m, driven_m, inverse_m = (
        np.hypot(*motion[:, :2].T) for motion in (known, driven, inverse)
    )
    far = driven_m > 0.5 * STEP_M
    if far.sum() < MIN_MOTIONS:
        return None
    known, driven, known_m, driven_m = known[far], driven[far], known_m[far], driven_m[far]
    angles = [np.arctan2(motion[:, 1], motion[:, 0]) for motion in (known, driven)]
    between = wrap_angle(angles[0] - angles[1])
    turning = np.abs(driven[:, 2]) > MIN_TURN_RAD
    turn = None
    if turning.sum() >= MIN_TURNS:
        turn = float(np.median(known[turning, 2] / driven[turning, 2]))
    error = np.hypot(*(known[:, :2] - driven[:, :2]).T) / driven_m
    return Agreement(
        float(np.median(known_m / driven_m)),
        _circular_median(between),
        turn,
        float(np.median(error)),
        float(np.median(inverse_m[far] / driven_m)),
        int(far.sum()),
    )


def disagreements(found: Agreement | None) -> list[str]:
    """Say what is wrong between known poses and odometry, and the mistake that explains it."""
    if found is None:
        return []
    if not _is_one(found.scale):
        if _is_one(found.inverse_scale):
            return [
                "the inverses of the known poses travel as far as the odometry: are they from "
                "world to robot or camera, as COLMAP stores them? Give the poses in the world"
            ]
        return [
            f"the known poses travel {found.scale:.3g} times as far as the odometry"
            f"{_unit(found.scale)}"
        ]
    if found.turn is not None and found.turn < 0.0:
        return [
            "the known poses turn left where the odometry turns right: their axes are mirrored; "
            "expected are a robot's (x forward, y left, z up) or a camera's (x right, y down, z "
            "forward), not ARKit's or Blender's (y up, z backward)"
        ]
    if abs(found.direction_rad) > MAX_DIRECTION_RAD:
        return [
            f"the known poses' heading differs from the odometry's by "
            f"{np.degrees(found.direction_rad):.0f}°: are they those of the robot's base (x "
            "forward), and not of a camera or laser that looks elsewhere?"
        ]
    return []


def _is_one(scale: float) -> bool:
    return 1.0 / (1.0 + MAX_SCALE_ERROR) < scale < 1.0 + MAX_SCALE_ERROR


def _ends(poses: Array) -> Rows:
    """Return rows (k,) of poses (t, 3), each a step of STEP_M or more along the path further."""
    steps = np.hypot(*np.diff(poses[:, :2], axis=0).T)
    marks = np.floor(np.concatenate([[0.0], np.cumsum(steps)]) / STEP_M)
    return np.unique(marks, return_index=True)[1]


def _circular_median(angles: Array) -> float:
    """Return the angle about which the others lie half to the left and half to the right."""
    mean = float(np.arctan2(np.sin(angles).mean(), np.cos(angles).mean()))
    return float(wrap_angle(np.array(mean + np.median(wrap_angle(angles - mean)))))


def _unit(scale: float) -> str:
    """Name the unit that explains a ratio of lengths, in words that follow it."""
    for unit, per_metre in UNITS.items():
        for whose, factor in (("known", scale), ("odometry's", 1.0 / max(scale, 1e-12))):
            if abs(factor / per_metre - 1.0) < MAX_SCALE_ERROR:
                return f": are the {whose} positions in {unit}? Both must be in metres"
    return "; both must be in metres"
