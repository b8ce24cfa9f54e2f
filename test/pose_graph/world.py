"""Drives through a room of points: what a camera sees is computed, not rendered."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.landmarks.bearings import in_base, spatial
from kbf_localization.vision.camera import Mount, PinholeCamera
from kbf_localization.vision.keypoints import Keypoints

CAMERA = PinholeCamera.from_focal(320, 240, 230.0)
MOUNT = Mount.ahead(1.1)
STEP_NS = 100_000_000
RADIUS_M = 1.2


@dataclass(frozen=True)
class World:
    """Points (m, 3) on the walls of a square room, with a descriptor each."""

    points: Array
    descriptors: np.ndarray

    @classmethod
    def of_seed(cls, seed: int, count: int = 160, half_m: float = 4.0) -> World:
        rng = np.random.default_rng(seed)
        along = rng.uniform(-half_m, half_m, count)
        wall = rng.integers(0, 4, count)
        depth = half_m + rng.uniform(-0.6, 0.6, count)
        turn = wall * np.pi / 2
        x = np.cos(turn) * depth - np.sin(turn) * along
        y = np.sin(turn) * depth + np.cos(turn) * along
        points = np.column_stack((x, y, rng.uniform(0.2, 2.4, count)))
        return cls(points, rng.integers(0, 200, (count, 128)).astype(np.uint8))

    def keypoints(self, pose: Array, rng: np.random.Generator) -> Keypoints:
        seen = (in_base(spatial(pose), self.points) - MOUNT.translation) @ MOUNT.rotation
        pixels = CAMERA.project(seen)
        rows = np.flatnonzero(np.isfinite(pixels[:, 0]))
        noisy = pixels[rows] + rng.normal(0.0, 0.4, (len(rows), 2))
        return Keypoints(noisy.astype(np.float32), self.descriptors[rows])


@dataclass
class PointDrive:
    """A drive whose images are poses in a world; `detect_in_worlds` sees them."""

    name: str
    world: World
    truth: Array
    odometry: OdometryLog
    stamps_ns: np.ndarray
    covered: frozenset[int] = frozenset()
    poses: Array | None = None
    labels: None = None
    camera: PinholeCamera | None = CAMERA
    mount: Mount | None = MOUNT
    kind: str = "points"
    condition: str | None = None
    odometry_origin: str = "simulated"
    warnings: tuple[str, ...] = ()
    path: Path = field(default_factory=lambda: Path("drive"))

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def images(self, indices=None):
        return iter(())

    encoded_images = images


def circle(
    laps: float, radius_m: float = RADIUS_M, step_m: float = 0.1, start: float = 0.0
) -> Array:
    """Poses (t, 3) round the room's middle, the robot facing along the circle."""
    angles = start + np.arange(0.0, laps * 2 * np.pi, step_m / radius_m)
    return np.column_stack(
        (radius_m * np.cos(angles), radius_m * np.sin(angles), wrap_angle(angles + np.pi / 2))
    )


def drive(
    name: str,
    truth: Array,
    world: World,
    *,
    seed: int = 0,
    bias: float = 0.015,
    first_ns: int = 0,
    still: range = range(0),
    slip: tuple[int, Array] | None = None,
    covered: range = range(0),
) -> PointDrive:
    """Return a drive whose wheels turn too far by `bias` rad/s and a little noise.

    During `still` images the wheels report nothing; at image slip[0] they report slip[1] more.
    """
    rng = np.random.default_rng(seed)
    motions = relative(truth[:-1], truth[1:])
    motions[:, 2] += bias * STEP_NS * 1e-9 + rng.normal(0.0, 0.002, len(motions))
    motions[:, :2] += rng.normal(0.0, 0.001, (len(motions), 2))
    for step in still:
        motions[step] = 0.0
    if slip is not None:
        motions[slip[0]] = compose(motions[slip[0]], slip[1])
    poses = [np.zeros(3)]
    for motion in motions:
        poses.append(compose(poses[-1], motion))
    stamps = first_ns + STEP_NS * np.arange(len(truth), dtype=np.int64)
    log = OdometryLog(stamps, np.array(poses))
    return PointDrive(name, world, truth, log, stamps, frozenset(covered))


def detect_in_worlds(drives, drive_of, image_of, workers, progress):
    """Stand in for the detector: the keypoints that the world's points give."""
    found = []
    for number, image in zip(drive_of, image_of):
        own = drives[int(number)]
        if int(image) in own.covered:
            found.append(Keypoints.none())
        else:
            rng = np.random.default_rng([int(image), int(own.stamps_ns[0] % 10_007)])
            found.append(own.world.keypoints(own.truth[int(image)], rng))
    return found, (320, 240)
