"""Six degrees of freedom to three: where a camera stood and looked, seen from above."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.trajectory import Trajectory
from kbf_localization.vision.camera.mount import OPTICAL_IN_BASE, Mount

PATH_M = 0.25
"""Where the path extends this far (standard deviation), it says as much about the plane as the
mean up direction does: a tilt of 0.2 rad of that direction weighs like 5 cm of height."""

MAX_TILT_RAD = np.radians(5.0)
MAX_HEIGHT_M, MAX_HEIGHT_FRACTION = 0.1, 0.01
"""Standard deviation of a planar motion's height, at most; also as a fraction of the path."""
MAX_AXIS_TILT_RAD = np.radians(10.0)
MAX_SLOPE_RAD = np.radians(75.0)
"""An axis that points up or down more steeply than this has no heading."""


class Axes(Enum):
    """Which of its own axes a body looks along, and which points up."""

    CAMERA = ((0.0, 0.0, 1.0), (0.0, -1.0, 0.0))
    """Optical: z forward, y down (TUM, 7-Scenes, KITTI, ROS's ..._optical_frame)."""
    BASE = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    """A robot: x forward, z up (REP 103)."""


@dataclass(frozen=True)
class PlanarMotion:
    """A trajectory seen from above, and how far it was from planar.

    `poses` (m, 3), NaN where the view is too steep to have a heading. `tilt_rad` is the RMS
    angle by which the up direction moves in the body's frame, 0 for a camera fixed to a robot on a
    flat floor, however it is pitched; `height_m` the standard deviation of the height. `mount` is
    the mean tilt of a camera against its planar pose, None for a robot's trajectory and where the
    camera tilts. `attitudes` (m, 3) are each camera's height (m), pitch and roll (rad) in the frame
    of its planar pose, None for a robot's trajectory.
    """

    poses: Array
    tilt_rad: float
    height_m: float
    length_m: float
    mount: Mount | None = None
    attitudes: Array | None = None

    @property
    def is_planar(self) -> bool:
        height = max(MAX_HEIGHT_M, MAX_HEIGHT_FRACTION * self.length_m)
        return self.tilt_rad <= MAX_TILT_RAD and self.height_m <= height

    @property
    def described(self) -> str:
        return (
            f"tilt {np.degrees(self.tilt_rad):.1f}° RMS, height {self.height_m:.2f} m "
            "(standard deviation)"
        )


def to_plane(trajectory: Trajectory, axes: Axes) -> PlanarMotion:
    """Project onto the plane that fits the path and is level by the mean up direction.

    The plane's normal is the eigenvector of least eigenvalue of C + κ(I - ūūᵀ), where C is the
    positions' covariance and ū the mean up direction: the path decides where it extends, gravity
    where it does not. An axis of the world within 10° of it is taken instead, so that drives of one
    world agree about where they are. The plane's x axis is the world's, projected.
    """
    forward = trajectory.rotations @ np.array(axes.value[0])
    up = trajectory.rotations @ np.array(axes.value[1])
    normal = _plane_normal(trajectory.positions, _unit(up.mean(axis=0)))
    x_axis, y_axis = _plane_axes(_nearest_axis(normal), forward[0])
    heights = trajectory.positions @ normal
    heading = np.arctan2(forward @ y_axis, forward @ x_axis)
    steep = np.abs(forward @ normal) > np.sin(MAX_SLOPE_RAD)
    poses = np.column_stack([trajectory.positions @ x_axis, trajectory.positions @ y_axis, heading])
    poses[steep] = np.nan
    in_body = np.einsum("mji,j->mi", trajectory.rotations, normal)
    angles = np.arccos(np.clip(in_body @ _unit(in_body.mean(axis=0)), -1.0, 1.0))
    tilt = float(np.sqrt(np.mean(angles**2)))
    height_m = float(heights.std())
    if axes is Axes.BASE or steep.all():
        return PlanarMotion(poses, tilt, height_m, trajectory.length_m)
    turned = _in_planar_frames(trajectory.rotations, (x_axis, y_axis), heading)
    up_axis = np.cross(x_axis, y_axis)
    attitudes = np.column_stack([trajectory.positions @ up_axis, _pitch_and_roll(turned)])
    attitudes[steep] = np.nan
    found = PlanarMotion(poses, tilt, height_m, trajectory.length_m, None, attitudes)
    return replace(found, mount=_mean_mount(turned[~steep])) if found.is_planar else found


def _in_planar_frames(rotations: Array, plane: tuple[Array, Array], heading: Array) -> Array:
    """Return the rotations (m, 3, 3) of cameras in the frames of their planar poses."""
    x_axis, y_axis = plane
    cos, sin = np.cos(heading)[:, None], np.sin(heading)[:, None]
    ahead, left = cos * x_axis + sin * y_axis, cos * y_axis - sin * x_axis
    up = np.broadcast_to(np.cross(x_axis, y_axis), ahead.shape)
    bases = np.stack([ahead, left, up], axis=2)
    return np.asarray(np.swapaxes(bases, 1, 2) @ rotations)


def _pitch_and_roll(rotations: Array) -> Array:
    """Return pitch and roll (m, 2) of cameras (m, 3, 3) that look along their frames' headings."""
    body = rotations @ OPTICAL_IN_BASE.T
    pitch = np.arcsin(np.clip(-body[:, 2, 0], -1.0, 1.0))
    return np.column_stack([pitch, np.arctan2(body[:, 2, 1], body[:, 2, 2])])


def _mean_mount(rotations: Array) -> Mount:
    """Return the mean of rotations (m, 3, 3)."""
    first, _, second = np.linalg.svd(rotations.mean(axis=0))
    turn = np.diag([1.0, 1.0, np.sign(np.linalg.det(first @ second))])
    return Mount(first @ turn @ second, np.zeros(3))


def guess_axes(trajectory: Trajectory) -> Axes:
    """Tell whether a trajectory of unknown kind is a camera's or a robot's.

    The axis that points up keeps its direction while the body turns: z of a robot, y of a camera.
    Without turns to tell by, what moves along its own z axis is a camera, since a robot does not
    climb; else it is the axis nearer to the world's z axis.
    """
    z_axis, y_axis = trajectory.rotations[:, :, 2].mean(0), trajectory.rotations[:, :, 1].mean(0)
    z_steady, y_steady = float(np.linalg.norm(z_axis)), float(np.linalg.norm(y_axis))
    if abs(z_steady - y_steady) < 0.05:
        steps = np.diff(trajectory.positions, axis=0)
        along = np.einsum("mji,mj->mi", trajectory.rotations[:-1], steps)
        x_moved, y_moved, z_moved = (along**2).sum(axis=0)
        if z_moved > x_moved + y_moved:
            return Axes.CAMERA
        z_steady, y_steady = abs(float(z_axis[2])), abs(float(y_axis[2]))
    return Axes.BASE if z_steady >= y_steady else Axes.CAMERA


def _plane_normal(positions: Array, up: Array) -> Array:
    covariance = np.cov(positions.T, bias=True)
    values, vectors = np.linalg.eigh(covariance + PATH_M**2 * (np.eye(3) - np.outer(up, up)))
    normal = vectors[:, int(np.argmin(values))]
    return np.asarray(normal if normal @ up >= 0.0 else -normal)


def _nearest_axis(normal: Array) -> Array:
    """Return the world's axis that is nearly the normal; the normal where there is none."""
    largest = int(np.argmax(np.abs(normal)))
    if abs(normal[largest]) < np.cos(MAX_AXIS_TILT_RAD):
        return normal
    return np.asarray(np.sign(normal[largest]) * np.eye(3)[largest])


def _plane_axes(normal: Array, forward: Array) -> tuple[Array, Array]:
    """Return x and y axes in the plane; x is the world's unless that is vertical."""
    for direction in (np.array([1.0, 0.0, 0.0]), forward, np.array([0.0, 1.0, 0.0])):
        level = direction - (direction @ normal) * normal
        if np.linalg.norm(level) > 0.3:
            x_axis = _unit(level)
            return x_axis, np.cross(normal, x_axis)
    raise AssertionError("two of the world's axes cannot both be vertical")


def _unit(vector: Array) -> Array:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12))
