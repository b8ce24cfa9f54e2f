"""Epipolar errors and depths of matches, against the points that they show."""

from __future__ import annotations

import numpy as np
import pytest

from kbf_localization.arrays import Array
from kbf_localization.vision.camera import Mount, PinholeCamera
from kbf_localization.vision.epipolar import (
    CameraState,
    EpipolarGeometry,
    MatchedPair,
    MatchTable,
)

SIZE = (320, 240)
FOCAL_PX = 2000.0
"""So narrow that directions are pixels to within 1 %."""
CAMERA = PinholeCamera.from_focal(*SIZE, FOCAL_PX)
PITCH, YAW = -0.02, 0.01
POSES = np.array([[0.0, 0.0, 0.0], [0.2, 0.3, 0.01]])


def mount_at(forward_m: float) -> Mount:
    return Mount.from_angles([forward_m, 0.0, 0.0], yaw=YAW, pitch=PITCH)


def state_at(forward_m: float) -> CameraState:
    """The true state of a camera so far ahead of the base."""
    return CameraState(np.array([np.log(FOCAL_PX / SIZE[0]), 0.0, PITCH, YAW, forward_m, 0.0]))


def in_camera(points: Array, pose: Array, mount: Mount) -> Array:
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    return mount.to_optical((points - [pose[0], pose[1], 0.0]) @ turn)


@pytest.fixture(scope="module")
def points() -> Array:
    """Points 20 to 40 m ahead that both cameras see."""
    depth = np.random.default_rng(0).uniform(20.0, 40.0, (2000, 1))
    aside = np.random.default_rng(1).uniform((-0.07, -0.05), (0.09, 0.05), (2000, 2))
    all_points = np.hstack((depth, depth * aside))
    pixels = np.hstack(seen(all_points, mount_at(0.0)) + seen(all_points, mount_at(0.3)))
    return np.asarray(all_points[np.isfinite(pixels).all(axis=1)])


def seen(points: Array, mount: Mount) -> list[Array]:
    """Pixels (k, 2) of the points in both images."""
    return [CAMERA.project(in_camera(points, pose, mount)) for pose in POSES]


def geometry_of(first: Array, second: Array) -> EpipolarGeometry:
    """The geometry of matches in 40s, each as a pair of images."""
    parts = np.array_split(np.arange(len(first)), np.arange(40, len(first), 40))
    pairs = [MatchedPair(*POSES, first[rows], second[rows]) for rows in parts]
    return EpipolarGeometry(MatchTable.of(pairs, None, None), *SIZE, None)


@pytest.mark.parametrize("forward_m", [0.0, 0.3])
def test_true_matches_have_no_error(points: Array, forward_m: float) -> None:
    geometry = geometry_of(*seen(points, mount_at(forward_m)))
    np.testing.assert_allclose(geometry.errors(state_at(forward_m)), 0.0, atol=1e-6)


def test_depths_are_the_points_distances(points: Array) -> None:
    mount = mount_at(0.0)
    nearest, crosses = geometry_of(*seen(points, mount)).depths(state_at(0.0))
    distances = [np.linalg.norm(in_camera(points, pose, mount), axis=1) for pose in POSES]
    assert crosses.any()
    np.testing.assert_allclose(nearest[crosses], np.minimum(*distances)[crosses], rtol=1e-6)


def test_errors_are_sampsons_of_the_fundamental_matrix(points: Array) -> None:
    """Hartley and Zisserman, equation 11.9, in pixels."""
    mount = mount_at(0.3)
    first, second = seen(points, mount)
    second = second + np.array([0.6, -1.1])
    # The first camera's centre and axes, as the second sees them.
    origin, *ends = in_camera(mount.to_base(np.vstack((np.zeros(3), np.eye(3)))), POSES[1], mount)
    x, y, z = origin
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    inverse = np.linalg.inv([[FOCAL_PX, 0.0, CAMERA.cx], [0.0, FOCAL_PX, CAMERA.cy], [0, 0, 1.0]])
    fundamental = inverse.T @ cross @ (np.array(ends) - origin).T @ inverse
    a, b = (np.column_stack((pixels, np.ones(len(pixels)))) for pixels in (first, second))
    lines, back = a @ fundamental.T, b @ fundamental
    length = np.sqrt((lines[:, :2] ** 2).sum(axis=1) + (back[:, :2] ** 2).sum(axis=1))
    found = geometry_of(first, second).errors(state_at(0.3))
    expected = (b * lines).sum(axis=1) / length
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=0.02, atol=1e-3)
