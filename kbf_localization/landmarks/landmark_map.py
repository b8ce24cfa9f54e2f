"""The landmarks of a map with the camera that saw them: measures poses of images."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.errors import ParameterError
from kbf_localization.landmarks.bearings import (
    PITCH,
    Bearings,
    bearings_of,
    in_base,
    rotations,
    spatial,
)
from kbf_localization.landmarks.calibration import (
    MIN_INLIERS,
    CovarianceModel,
    EvidenceModel,
    view_distance,
)
from kbf_localization.landmarks.pose_solver import LandmarkFix, LandmarkSolver
from kbf_localization.landmarks.table import LandmarkTable
from kbf_localization.limits import Range, check_number
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.camera_info import camera_from_dict, fitted
from kbf_localization.vision.camera.mount import Mount
from kbf_localization.vision.keypoints import Keypoints

SIGMAS: Range = (1e-6, 1e3)
"""Standard deviations in pixels, metres or radians."""

POSITIVE: Range = (1e-12, 1e6)
WEIGHTS: Range = (-1e3, 1e3)
MAX_RAY_DIFFERENCE_RAD, MAX_CENTRE_DIFFERENCE_M = 0.01, 0.02
"""Differences of two calibrations of one camera: about 1 % of the focal length, and a hand's
measure of the mount."""

TILTED_SIGMA = (0.1, 0.2, 0.2)
"""Height (m), pitch and roll (rad) of a camera that has slipped on its mount, or of its robot."""

MAX_LOG_RATIO = 4.0
"""Bound of one fix's evidence: e⁴ is about the number of held-out images that have taught it, and
look-alikes have landmarks too."""

_KEYS = {"camera", "mount", "sigma_px", "attitude_sigma", "covariance", "evidence"}


@dataclass(frozen=True)
class LandmarkDescription:
    """All of a landmark map but its table: the `camera` on its `mount` and the error model.

    `sigma_px` is the standard deviation of a keypoint, `attitude_sigma` (3,) of an image's height
    (m), pitch and roll (rad) around those of the map images next to it.
    """

    camera: Camera
    mount: Mount
    sigma_px: float = 0.7
    attitude_sigma: tuple[float, float, float] = (0.02, 0.008, 0.008)
    covariance: CovarianceModel = CovarianceModel()  # noqa: RUF009 (frozen)
    evidence: EvidenceModel = EvidenceModel()  # noqa: RUF009 (frozen)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for a file."""
        return {
            "camera": self.camera.to_dict(),
            "mount": self.mount.to_dict(),
            "sigma_px": self.sigma_px,
            "attitude_sigma": list(self.attitude_sigma),
            "covariance": asdict(self.covariance),
            "evidence": asdict(self.evidence),
        }

    @classmethod
    def from_dict(cls, content: Any) -> LandmarkDescription:
        """Check and return what `to_dict` gave; ValueError for anything else."""
        if not isinstance(content, dict) or content.keys() != _KEYS:
            raise ValueError("the description's landmarks lack something")
        sigmas = content["attitude_sigma"]
        if not isinstance(sigmas, list) or len(sigmas) != 3:
            raise ValueError("the landmarks' attitude_sigma has another shape")
        height, pitch, roll = (check_number("attitude_sigma", value, SIGMAS) for value in sigmas)
        try:
            camera = camera_from_dict(content["camera"])
            mount = Mount.from_dict(content["mount"])
        except ParameterError as error:
            raise ValueError(f"the landmarks' camera: {error}") from error
        sigma_px = check_number("sigma_px", content["sigma_px"], SIGMAS)
        covariance = CovarianceModel(**_numbers(content["covariance"], CovarianceModel, POSITIVE))
        evidence = EvidenceModel(**_numbers(content["evidence"], EvidenceModel, WEIGHTS))
        return cls(camera, mount, sigma_px, (height, pitch, roll), covariance, evidence)

    def with_table(self, table: LandmarkTable, poses: Array) -> LandmarkMap:
        """Return the landmark map of a table."""
        return LandmarkMap(table, poses, self)


@dataclass(frozen=True)
class LandmarkMap:
    """Landmarks of n map images at `poses` (n, 3)."""

    table: LandmarkTable
    poses: Array
    description: LandmarkDescription

    @property
    def camera(self) -> Camera:
        return self.description.camera

    @property
    def mount(self) -> Mount:
        return self.description.mount

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain numbers, for a file."""
        return self.description.to_dict()

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def solver(self) -> LandmarkSolver:
        return LandmarkSolver(
            self.table, self.poses, self.description.sigma_px, self.description.attitude_sigma
        )

    def with_camera(self, camera: Camera | None, mount: Mount | None) -> LandmarkMap:
        """Return the same landmarks seen by another camera; None keeps the map's own.

        The map's own camera also stays where the other sees alike: the landmarks were made
        with it, and a second calibration of one camera only adds its errors. The height stays that
        of the map, whose landmarks are relative to it. A mount is that on a level base: the pitch
        and roll that the map's images have in common belong to it.
        """
        camera, placed = camera or self.camera, self.mount
        if mount is not None:
            place = np.append(mount.translation[:2], self.mount.translation[2])
            placed = Mount(self._common_tilt.T @ mount.rotation, place)
        if _sees_alike(self.camera, self.mount, camera, placed):
            return self
        return replace(self, description=replace(self.description, camera=camera, mount=placed))

    @property
    def _common_tilt(self) -> Array:
        """Return the rotation (3, 3) by the median pitch and roll of the map's images."""
        attitudes = self.table.attitudes[self.table.counts() > 0].astype(np.float64)
        if not len(attitudes):
            return np.eye(3)
        return rotations(spatial(np.zeros(3), np.median(attitudes, axis=0)))

    def bearings(self, keypoints: Keypoints, image_size: tuple[int, int]) -> Bearings | None:
        """Return the directions of an image's keypoints; None for another aspect ratio."""
        if image_size == (self.camera.width, self.camera.height):
            camera = self.camera
        else:
            try:
                camera = fitted(self.camera, *image_size)
            except ParameterError:
                return None
        return bearings_of(keypoints.pixels, camera, self.mount)

    def measure(
        self,
        keypoints: Keypoints,
        bearings: Bearings,
        rows: Rows,
        pose: Array,
        covariance: Array,
    ) -> LandmarkFix | None:
        """Measure the pose of an image near `pose` (3,) on the landmarks of the map's `rows`."""
        fix = self.solver.measure(bearings, keypoints.descriptors, rows, pose, covariance)
        if fix is None:
            return None
        distance = float(view_distance(self.poses[rows], fix.pose).min())
        log_ratio = self.description.evidence.log_ratio(fix)
        return replace(
            fix,
            covariance=self.description.covariance.covariance(fix.covariance, distance),
            log_likelihood_ratio=float(np.clip(log_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO)),
        )

    def tilt(
        self, keypoints: Keypoints, bearings: Bearings, rows: Rows, pose: Array
    ) -> Array | None:
        """Return pitch and roll (2,) of an image's camera, against the map image it matches best.

        It is looked for near a pose, on the landmarks of the map's `rows`, however large it is.
        None where less than half of the keypoints with a match agree on a pose.
        """
        solver = self._tilting_solver
        fix = solver.measure(bearings, keypoints.descriptors, rows, pose, np.eye(3))
        if fix is None or fix.inliers < MIN_INLIERS or 2 * fix.inliers <= fix.matched:
            return None
        attitude = self.table.attitudes[fix.best_row].astype(np.float64)
        return np.asarray(fix.state[PITCH:] - attitude[1:])

    @cached_property
    def _tilting_solver(self) -> LandmarkSolver:
        return LandmarkSolver(self.table, self.poses, self.description.sigma_px, TILTED_SIGMA)

    def image_places(self, state: Array, points: Array) -> Array:
        """Return where a camera at `state` (6,) sees points (k, 3), to draw them.

        Fractions (k, 2) of the image's width and height; NaN for a point that it does not see.
        """
        camera, mount = self.camera, self.mount
        seen = (in_base(state, points) - mount.translation) @ mount.rotation
        return np.asarray((camera.project(seen) + 0.5) / (camera.width, camera.height))

    def map_image_places(self, row: int, points: Array) -> Array:
        """Return where in the map's image `row` points (k, 3) are, as `image_places` does."""
        return self.image_places(spatial(self.poses[row], self.table.attitudes[row]), points)

    def subset(self, rows: Rows) -> LandmarkMap:
        """Return the landmarks of these images alone."""
        return replace(self, table=self.table.subset(rows), poses=np.asarray(self.poses)[rows])


def _sees_alike(a: Camera, a_mount: Mount, b: Camera, b_mount: Mount) -> bool:
    """Tell whether two cameras have the same rays and centre, within their calibrations' errors."""
    if np.abs(a_mount.translation - b_mount.translation).max() > MAX_CENTRE_DIFFERENCE_M:
        return False
    across, down = np.meshgrid(*(np.linspace(0.05, 0.95, 7),) * 2)
    places = np.stack((across.ravel(), down.ravel()), axis=1)
    a_rays = a.rays(places * (a.width, a.height)) @ a_mount.rotation.T
    b_rays = b.rays(places * (b.width, b.height)) @ b_mount.rotation.T
    return not np.linalg.norm(a_rays - b_rays, axis=1).max() > MAX_RAY_DIFFERENCE_RAD


def _numbers(content: Any, kind: type[Any], limits: Range) -> dict[str, float]:
    """Check the numbers of a model in a file; ValueError for anything else."""
    names = {item.name for item in fields(kind)}
    if not isinstance(content, dict) or content.keys() != names:
        raise ValueError(f"the landmarks' {kind.__name__} lacks something")
    return {name: check_number(name, value, limits) for name, value in content.items()}
