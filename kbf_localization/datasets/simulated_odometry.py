"""Wheel odometry derived from known poses, for data sets that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.geometry import compose, relative


@dataclass(frozen=True)
class OdometryNoise:
    """The errors of simulated odometry.

    Distances and turns are too long by the fraction `scale`; over 1 m or 1 rad white noise adds up
    to a standard deviation of `noise` metres along, `noise` metres across and `noise` radians.
    """

    scale: float = 0.02
    noise: float = 0.05
    seed: int = 0

    def __str__(self) -> str:
        return f"simulate:{self.scale:g},{self.noise:g},{self.seed}"


def parse_odometry_option(text: str) -> OdometryNoise | None:
    """Return None for "measured", the noise for "simulate" or "simulate:scale,noise,seed"."""
    if text == "measured":
        return None
    kind, colon, rest = text.partition(":")
    fields = rest.split(",") if colon else []
    try:
        if kind != "simulate" or len(fields) > 3:
            raise ValueError
        kinds: dict[str, Any] = {"scale": float, "noise": float, "seed": int}
        noise = OdometryNoise(
            **{name: kind(field) for (name, kind), field in zip(kinds.items(), fields)}
        )
    except ValueError as error:
        raise ParameterError(
            f"--odometry {text}: give measured, simulate, or simulate:scale,noise,seed such as "
            "simulate:0.02,0.05,0"
        ) from error
    # A comparison with NaN is false.
    if not (abs(noise.scale) < 1 and 0 <= noise.noise < 1 and noise.seed >= 0):
        raise ParameterError(
            f"--odometry {text}: scale must be within -1 and 1, noise from 0 to 1, seed 0 or more"
        )
    return noise


def simulate_odometry(stamps_ns: Stamps, poses: Array | None, noise: OdometryNoise) -> OdometryLog:
    """Return the log, a reading at each stamp whose pose (t, 3) is known, in an odometry frame."""
    known = np.zeros(0, bool) if poses is None else np.isfinite(poses).all(axis=1)
    if poses is None or known.sum() < 2:
        raise DatasetError("odometry can be simulated only for a drive whose poses are known")
    truth = poses[known]
    motions = relative(truth[:-1], truth[1:]) * (1.0 + noise.scale)
    distance, turn = np.hypot(motions[:, 0], motions[:, 1]), np.abs(motions[:, 2])
    size = noise.noise * np.sqrt(distance + turn)
    rng = np.random.default_rng(noise.seed)
    motions += size[:, None] * rng.standard_normal(motions.shape)
    poses_so_far = np.zeros((len(truth), 3))
    for step, motion in enumerate(motions):
        poses_so_far[step + 1] = compose(poses_so_far[step], motion)
    return OdometryLog(stamps_ns[known], poses_so_far)
