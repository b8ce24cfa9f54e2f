"""A room of points with known positions, seen by a pinhole camera of known pose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.landmarks.bearings import in_base, spatial
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.vision.keypoints import Keypoints

OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
"""Columns: x right, y down, z ahead of the camera in the base frame."""


@dataclass(frozen=True)
class Pinhole:
    focal: float = 230.0
    width: int = 320
    height: int = 240

    def rays(self, pixels: Array) -> Array:
        u = (pixels[:, 0] - self.width / 2) / self.focal
        v = (pixels[:, 1] - self.height / 2) / self.focal
        rays = np.column_stack((u, v, np.ones(len(pixels))))
        return np.asarray(rays / np.linalg.norm(rays, axis=1)[:, None])

    def pixels_per_radian(self, pixels: Array) -> Array:
        return np.full(len(pixels), self.focal)

    def project(self, points: Array) -> Array:
        seen = points[:, 2] > 0.05
        depth = np.where(seen, points[:, 2], 1.0)
        pixels = points[:, :2] / depth[:, None] * self.focal
        pixels += np.array([self.width / 2, self.height / 2])
        inside = seen & (pixels >= 0).all(axis=1)
        inside &= (pixels[:, 0] < self.width) & (pixels[:, 1] < self.height)
        return np.where(inside[:, None], pixels, np.nan)


@dataclass(frozen=True)
class Mount:
    rotation: Array
    translation: Array


CAMERA = Pinhole()
LEVEL = Mount(OPTICAL, np.array([0.2, 0.05, 1.1]))


@dataclass(frozen=True)
class Room:
    """Points (m, 3) with a descriptor each, (m, 128)."""

    points: Array
    descriptors: np.ndarray

    @classmethod
    def of_seed(cls, seed: int, count: int = 400, depth: tuple[float, float] = (2.0, 8.0)) -> Room:
        """Points ahead of a robot near the origin that looks along x."""
        rng = np.random.default_rng(seed)
        x = rng.uniform(*depth, count)
        points = np.column_stack(
            (x, x * rng.uniform(-0.6, 0.6, count), 1.1 + x * rng.uniform(-0.45, 0.45, count))
        )
        return cls(points, rng.integers(0, 200, (count, 128)).astype(np.uint8))

    def image(
        self, state: Array, noise_px: float = 0.0, rng: np.random.Generator | None = None
    ) -> tuple[Keypoints, np.ndarray]:
        """Keypoints from a state (6,), and which points they are."""
        seen = (in_base(state, self.points) - LEVEL.translation) @ LEVEL.rotation
        pixels = CAMERA.project(seen)
        rows = np.flatnonzero(np.isfinite(pixels[:, 0]))
        pixels = pixels[rows]
        if rng is not None:
            pixels = pixels + rng.normal(0.0, noise_px, pixels.shape)
        # A double is in order for tests at numerical precision.
        return Keypoints(pixels, self.descriptors[rows]), rows  # type: ignore[arg-type]

    def table(
        self, poses: Array, sigma_m: float = 1e-3, rng: np.random.Generator | None = None
    ) -> LandmarkTable:
        """A table of maps images at poses (n, 3) with the true points, each off by sigma_m."""
        images = []
        for pose in poses:
            _, rows = self.image(spatial(pose))
            rows = rows[:200]
            cos, sin = np.cos(pose[2]), np.sin(pose[2])
            turn = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
            points = self.points[rows]
            if rng is not None:
                points = points + rng.normal(0.0, sigma_m, points.shape)
            offsets = (points - np.array([pose[0], pose[1], 0.0])) @ turn.T
            covariances = np.broadcast_to(np.eye(3) * sigma_m**2, (len(rows), 3, 3))
            images.append(ImageLandmarks(self.descriptors[rows], offsets, covariances, np.zeros(3)))
        return LandmarkTable.of_images(images)
