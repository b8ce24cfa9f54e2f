"""What the estimation of poses gives: trajectories, closures, the wheels' errors, its doubts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.pose_graph.closures import Closure, Rejected
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.vision.camera import Camera, Mount

ODOMETRY_EDGES, VISUAL_EDGES, ADJUSTMENT = "odometry_edges", "visual_edges", "adjustment"


@dataclass(frozen=True)
class EstimatedTrajectory:
    """A drive's images: `poses` (t, 3) and `covariances` (t, 3, 3), NaN where nothing is known.

    `odometry` (t, 3) are the wheels' own poses at the images.
    """

    name: str
    poses: Array
    covariances: Array
    odometry: Array

    @property
    def known(self) -> int:
        """How many images have a pose."""
        return int(np.isfinite(self.poses).all(axis=1).sum())


@dataclass(frozen=True)
class WheelErrors:
    """A drive's systematic errors: wheels that report a turn `heading_bias_rad_s` too far left."""

    name: str
    heading_bias_rad_s: float
    turn_scale: float

    @property
    def described(self) -> str:
        """One sentence for people."""
        bias = float(np.degrees(self.heading_bias_rad_s))
        side = "left" if bias > 0.0 else "right"
        turns = "more" if self.turn_scale > 0.0 else "less"
        return (
            f"{self.name}: the wheels turn {abs(bias):.2f}°/s too far {side} and report "
            f"{100 * abs(self.turn_scale):.1f} % {turns} turn than there is"
        )


@dataclass(frozen=True)
class HeldOutScore:
    """How well closures that were left out are predicted, m: a mean of errors up to 0.5 m."""

    closures: int
    scores_m: Mapping[str, float]


@dataclass(frozen=True)
class PoseEstimates:
    """Poses of drives from wheel odometry and images.

    `used` is "odometry_edges", "visual_edges" or "adjustment". `left_out` names the drives, or
    pieces of drives, that nothing joins with the others; `drives_joined` is the number of drives
    that share the map's frame. `held_out` is what decided between the three; None where there
    were too few closures.
    """

    trajectories: tuple[EstimatedTrajectory, ...]
    keyframes: Keyframes
    closures: tuple[Closure, ...]
    rejected: tuple[Rejected, ...]
    wheels: tuple[WheelErrors, ...]
    used: str
    drives_joined: int
    left_out: tuple[str, ...]
    held_out: HeldOutScore | None
    camera: Camera | None
    mount: Mount | None
    warnings: tuple[str, ...]
    cpu_s: float
