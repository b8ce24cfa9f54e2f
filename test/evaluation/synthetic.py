"""A drive, a map and runs made of formulas, for tests of what is done with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Image
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.floor_plan_image import FREE, OCCUPIED, FloorPlanImage
from kbf_localization.evaluation.run import Run
from kbf_localization.filters.base import HypothesisEstimate, Weights
from kbf_localization.geometry import compose
from kbf_localization.landmarks.landmark_map import LandmarkDescription, LandmarkMap
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.vision.camera import Mount
from kbf_localization.vision.camera.pinhole import PinholeCamera

START_NS = 1_152_212_857_193_444_000
STEP_NS = 204_000_000
MIN_EVIDENCE = -1.5


def path_of(frames: int) -> NDArray[np.float64]:
    """Once round a corridor of 20 m by 8 m, heading along it."""
    along = np.linspace(0, 2 * np.pi, frames)
    x, y = 10 * np.cos(along), 4 * np.sin(along)
    return np.column_stack((x, y, np.arctan2(np.gradient(y), np.gradient(x))))


def camera_image(number: int, width: int = 160, height: int = 120) -> bytes:
    """A JPEG of stripes that move from frame to frame."""
    columns = np.arange(width)[None, :, None] + 3 * number
    rows = np.arange(height)[:, None, None]
    image = 127 + 90 * np.sin(columns / np.array([9, 14, 23])) * np.cos(rows / 17)
    return cv2.imencode(".jpg", image.astype(np.uint8))[1].tobytes()


@dataclass
class SyntheticDrive:
    """Follows `Drive`; every image is drawn when asked for."""

    frames: int = 120
    name: str = "round trip"
    condition: str | None = "cloudy"
    labels: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()
    path: Path = Path("drives/round_trip")

    @property
    def kind(self) -> str:
        return "memory"

    @property
    def odometry_origin(self) -> str:
        return "simulated"

    @property
    def stamps_ns(self) -> NDArray[np.int64]:
        return START_NS + STEP_NS * np.arange(self.frames, dtype=np.int64)

    @property
    def poses(self) -> NDArray[np.float64]:
        return path_of(self.frames)

    @property
    def odometry(self) -> OdometryLog:
        return OdometryLog(self.stamps_ns, self.poses)

    def __len__(self) -> int:
        return self.frames

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        for index in range(self.frames) if indices is None else indices:
            yield index, camera_image(index)

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        for index, data in self.encoded_images(indices):
            grey = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
            yield index, np.asarray(grey, dtype=np.uint8)


def synthetic_map(poses: int = 200) -> Any:
    rng = np.random.default_rng(5)
    around = path_of(poses) + rng.normal(0, (0.3, 0.3, 0.1), (poses, 3))
    return SimpleNamespace(
        poses=around,
        thumbnails=[camera_image(row) for row in range(poses)],
        floor_plan=synthetic_plan(),
        calibration=SimpleNamespace(likelihood_ratio=SimpleNamespace(q005=MIN_EVIDENCE)),
        landmarks=synthetic_landmarks(around),
    )


LANDMARKS = np.array([[3.0, y, z] for y in (-1.2, -0.4, 0.4, 1.2) for z in (0.5, 1.0, 1.5)])
"""(12, 3) metres ahead, left and up of each map image."""


def synthetic_landmarks(poses: NDArray[np.float64]) -> LandmarkMap:
    """Twelve landmarks on a wall 3 m ahead of each image, of which the first has none."""
    covariances = np.tile(1e-4 * np.eye(3), (12, 1, 1))
    descriptors = np.zeros((12, 128), np.uint8)
    image = ImageLandmarks(descriptors, LANDMARKS, covariances, np.zeros(3))
    table = LandmarkTable.of_images([ImageLandmarks.none(), *[image] * (len(poses) - 1)])
    camera = PinholeCamera(160, 120, 120.0, 120.0, 79.5, 59.5)
    ahead = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    return LandmarkMap(table, poses, LandmarkDescription(camera, Mount(ahead, [0.0, 0.0, 1.0])))


def synthetic_fix(pose: NDArray[np.float64], row: int) -> LandmarkFix:
    """A fix of the twelve landmarks 3 m ahead, half of them matched with the map image `row`."""
    level = np.concatenate((LANDMARKS[:, :2], np.zeros((12, 1))), axis=1)
    points = np.concatenate((compose(pose, level)[:, :2], LANDMARKS[:, 2:]), axis=1)
    rows = np.array([row] * 8 + [row + 1] * 4)
    return LandmarkFix(
        pose=pose,
        covariance=1e-4 * np.eye(3),
        state=np.concatenate((pose, np.zeros(3))),
        inliers=12,
        matched=20,
        matched_fraction=0.4,
        spread=0.5,
        keypoints=np.arange(12),
        points=points,
        landmarks=np.stack((rows, np.arange(12)), axis=1),
    )


def synthetic_plan() -> FloorPlanImage:
    """Walls round the corridor: 24 m by 12 m, a pixel each 10 cm."""
    image = np.full((120, 240), FREE, dtype=np.uint8)
    image[:3] = image[-3:] = OCCUPIED
    image[:, :3] = image[:, -3:] = OCCUPIED
    return FloorPlanImage(image, 0.1, (-12.0, -6.0, 0.0))


def synthetic_hypotheses(
    estimates: NDArray[np.float64], states: Sequence[str]
) -> tuple[tuple[HypothesisEstimate, ...], ...]:
    """One place while tracking; else two more, of which one ends after the first 8 frames."""
    covariance, ahead = np.diag((0.04, 0.01, 0.01)), np.array([3.0, -1.0, 1.0])
    frames = []
    for pose, state in zip(estimates, states, strict=True):
        sure = state == "tracking"
        found = [HypothesisEstimate(pose, covariance, 0.97 if sure else 0.4, 1)]
        if not sure:
            number = 2 if state == "localizing" else 4
            found.append(HypothesisEstimate(pose + ahead, covariance, 0.3, number))
            found.append(HypothesisEstimate(pose - ahead, covariance, 0.004, number + 1))
        frames.append(tuple(found))
    return tuple(frames)


def synthetic_run(drive: SyntheticDrive, map_poses: NDArray[np.float64], method: str) -> Run:
    """A method that is good ("kbf", with one bad stretch), or jumps about (all others)."""
    rng = np.random.default_rng(len(method))
    frames, truth = len(drive), drive.poses
    good = method in ("kbf", "node")
    noise = np.full(frames, 0.1 if good else 1.5)
    bad = slice(frames * 6 // 10, frames * 7 // 10)
    noise[bad] *= 12
    estimates = truth + rng.normal(size=(frames, 3)) * noise[:, None] * (1, 1, 0.2)
    states = ["localizing" if frame < 8 else "tracking" for frame in range(frames)]
    states[bad] = ["lost"] * len(states[bad])
    beliefs = []
    for pose in estimates:
        distances = np.hypot(*(map_poses[:, :2] - pose[:2]).T)
        rows = np.argsort(distances)[:40]
        values = np.exp(-(distances[rows] ** 2)) - 0.3 * np.exp(-(distances[rows] ** 2) / 6)
        beliefs.append(Weights(rows, values / np.abs(values).sum()))
    nearest = np.array([belief.rows[0] for belief in beliefs])
    return Run(
        method=method,
        stamps_ns=drive.stamps_ns,
        estimates=estimates,
        covariances=np.einsum("t,ij->tij", (1.2 * noise) ** 2, np.diag((1.0, 0.6, 0.05))),
        truth=truth,
        states=tuple(states),
        evidence=np.clip(1 - noise / 2 + rng.normal(0, 0.03, frames), 0, 1),
        step_ms=rng.gamma(30, 0.5, frames),
        counts={"odometry_jump": 2} if good else {},
        beliefs=tuple(beliefs),
        best_rows=nearest,
        hypotheses=synthetic_hypotheses(estimates, states) if good else None,
        fixes=tuple(
            synthetic_fix(pose, min(int(row), len(map_poses) - 2)) if state == "tracking" else None
            for pose, row, state in zip(estimates, nearest, states, strict=True)
        )
        if good
        else None,
    )


def read_tum(path: Path) -> tuple[list[int], np.ndarray]:
    """Stamps in nanoseconds and planar poses (t, 3) of a TUM file, by SciPy's rotations."""
    rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    numbers = np.array([row[1:] for row in rows], dtype=float)
    headings = Rotation.from_quat(numbers[:, 3:]).as_euler("zyx")[:, 0]
    stamps = [int(Decimal(row[0]) * 10**9) for row in rows]
    return stamps, np.column_stack((numbers[:, :2], headings))


def drive_named(text: str, frames: int) -> SyntheticDrive:
    """A drive in which everything that a data set can name is called `text`."""
    labels, path = (text,) * frames, Path(text)
    return SyntheticDrive(
        frames, name=text, condition=text, labels=labels, warnings=(text,), path=path
    )
