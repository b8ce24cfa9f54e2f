"""Cameras of all kinds on landmarks of known positions."""

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.landmarks.bearings import bearings_of, in_base, spatial
from kbf_localization.landmarks.landmark_map import LandmarkDescription, LandmarkMap
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.vision.camera import Mount
from kbf_localization.vision.camera.panorama import PanoramaCamera
from kbf_localization.vision.camera.pinhole import PinholeCamera
from kbf_localization.vision.keypoints import Keypoints

PINHOLE = PinholeCamera.from_focal(320, 240, 230.0)
PITCH = 0.4
POSES = np.array([[0.0, 0.0, 0.0], [0.4, 0.1, 0.1], [0.2, -0.2, -0.1]])
TRUTH = np.array([0.2, 0.1, 0.05])
START_ERROR = np.array([0.1, -0.1, 0.03])


def room(seed, *, around=False):
    """Points ahead of the origin, or all around it, each with a descriptor."""
    rng = np.random.default_rng(seed)
    azimuth = rng.uniform(-np.pi, np.pi, 900) if around else rng.uniform(-0.5, 0.5, 400)
    away = rng.uniform(2.0, 6.0, len(azimuth))
    height = away * rng.uniform(-0.9 if not around else -0.4, 0.4, len(azimuth))
    points = np.column_stack([away * np.cos(azimuth), away * np.sin(azimuth), height])
    return points, rng.integers(0, 200, (len(points), 128)).astype(np.uint8)


def seen_by(camera, mount, points, state):
    pixels = camera.project(mount.to_optical(in_base(state, points)))
    rows = np.flatnonzero(np.isfinite(pixels).all(axis=1))
    return rows, pixels[rows]


def landmark_map(camera, mount, points, descriptors, attitude=(0.0, 0.0, 0.0)):
    """A map whose images at POSES have the true points that they see."""
    images = []
    for pose in POSES:
        rows, _ = seen_by(camera, mount, points, spatial(pose, np.array(attitude)))
        rows = rows[:: max(1, -(-len(rows) // 200))]
        level = in_base(spatial(pose), points[rows])
        exact = np.broadcast_to(1e-6 * np.eye(3), (len(rows), 3, 3))
        images.append(ImageLandmarks(descriptors[rows], level, exact, np.array(attitude)))
    description = LandmarkDescription(camera, mount)
    return LandmarkMap(LandmarkTable.of_images(images), POSES, description)


def measured(landmarks, camera, mount, points, descriptors, attitude=(0.0, 0.0, 0.0)):
    """The pose of an image taken by `camera` on `mount`."""
    rows, pixels = seen_by(camera, mount, points, spatial(TRUTH, np.array(attitude)))
    keypoints = Keypoints(pixels.astype(np.float32), descriptors[rows])
    bearings = landmarks.bearings(keypoints, (camera.width, camera.height))
    return landmarks.measure(
        keypoints, bearings, np.arange(3), TRUTH + START_ERROR, 0.01 * np.eye(3)
    )


@pytest.mark.parametrize(
    ("camera", "mount", "around"),
    [
        (PINHOLE, Mount.from_angles(np.zeros(3), roll=np.pi), False),
        (PINHOLE, Mount.from_angles([0.3, 0.1, 0.2], yaw=0.2, pitch=0.2), False),
        (PanoramaCamera.level(720, 160), Mount.ahead(0.2), True),
        (PanoramaCamera.level(720, 360, "linear"), Mount.ahead(0.2), True),
    ],
    ids=["upside down", "beside the base", "cylinder", "equirectangular"],
)
def test_the_pose_is_found_with_any_camera(camera, mount, around):
    points, descriptors = room(1, around=around)
    fix = measured(
        landmark_map(camera, mount, points, descriptors), camera, mount, points, descriptors
    )
    np.testing.assert_allclose(fix.pose, TRUTH, atol=2e-3)
    assert fix.inliers > 50


def test_a_tilt_of_the_maps_images_and_one_of_the_mount_are_the_same_camera():
    """A map of a camera's own poses has its pitch in the images; a robot has it in its mount."""
    points, descriptors = room(2)
    tilted = landmark_map(PINHOLE, Mount.ahead(), points, descriptors, (0.0, PITCH, 0.0))
    pitched = Mount.from_angles(np.zeros(3), pitch=PITCH)
    assert tilted.with_camera(PINHOLE, pitched) is tilted
    turned = Mount.from_angles(np.zeros(3), yaw=0.1, pitch=PITCH)
    other = tilted.with_camera(PINHOLE, turned)
    assert other is not tilted
    fix = measured(other, PINHOLE, turned, points, descriptors)
    np.testing.assert_allclose(fix.pose, TRUTH, atol=2e-3)


@pytest.mark.parametrize("attitude", [(0.0, 0.15, 0.0), (0.0, 0.0, -0.15), (0.05, 0.0, 0.0)])
def test_the_tilt_of_a_camera_is_measured_where_its_pose_cannot_be(attitude):
    points, descriptors = room(4)
    level = landmark_map(PINHOLE, Mount.ahead(1.1), points, descriptors)
    strict = replace(level, description=replace(level.description, attitude_sigma=(0.003,) * 3))
    seen, pixels = seen_by(PINHOLE, Mount.ahead(1.1), points, spatial(TRUTH, np.array(attitude)))
    keypoints = Keypoints(pixels.astype(np.float32), descriptors[seen])
    bearings = strict.bearings(keypoints, (320, 240))
    near = keypoints, bearings, np.arange(3), TRUTH + START_ERROR
    np.testing.assert_allclose(strict.tilt(*near), attitude[1:], atol=2e-3)
    # Keypoints in disorder agree on nothing.
    shuffled = np.random.default_rng(0).permutation(len(seen))
    disordered = Keypoints(keypoints.pixels[shuffled], keypoints.descriptors)
    mixed = strict.bearings(disordered, (320, 240))
    assert strict.tilt(disordered, mixed, np.arange(3), TRUTH) is None


def test_images_of_another_size_scale_the_calibration_and_of_another_shape_have_no_bearings():
    points, descriptors = room(3)
    landmarks = landmark_map(PINHOLE, Mount.ahead(), points, descriptors)
    pixels = np.array([[10.0, 20.0], [200.0, 100.0]], dtype=np.float32)
    keypoints = Keypoints(2.0 * pixels + 0.5, descriptors[:2])
    doubled = landmarks.bearings(keypoints, (640, 480))
    plain = bearings_of(pixels, PINHOLE, Mount.ahead())
    np.testing.assert_allclose(doubled.axes[:, 0], plain.axes[:, 0], atol=1e-6)
    np.testing.assert_allclose(doubled.scale, 2.0 * plain.scale, rtol=1e-6)
    assert landmarks.bearings(keypoints, (640, 640)) is None
