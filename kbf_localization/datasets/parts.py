"""A part of a drive, two parts in one, or a drive with other odometry: still a drive."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from kbf_localization.arrays import Array, Image, Rows, Stamps
from kbf_localization.datasets.drive import (
    SIMULATED,
    Drive,
    OdometryLog,
    attitudes_of,
    camera_of,
    mount_of,
    summary,
)
from kbf_localization.datasets.simulated_odometry import OdometryNoise, simulate_odometry
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.geometry import compose, relative
from kbf_localization.vision.camera import Camera, Mount

Item = TypeVar("Item")

INTERLEAVED = "interleaved, flatters"
"""Test images between the map's own, a moment apart, are easier than any later visit."""

_TIME = r"(\d+(?:\.\d*)?|\.\d+)?(s?)"
_RANGE = re.compile(rf"{_TIME}:{_TIME}")
_EVERY = re.compile(r"(every|not-every):(\d+)")


@dataclass(frozen=True)
class Part:
    """Which images of a drive: a stretch of time, or every n-th (or all but every n-th)."""

    text: str
    first: float = 0.0
    last: float = 1.0
    in_seconds: bool = False
    every: int = 0
    complement: bool = False

    @property
    def interleaved(self) -> bool:
        return self.every > 0

    def indices(self, stamps_ns: Stamps) -> Rows:
        """Return the images' indices, in order."""
        if self.interleaved:
            chosen = np.arange(len(stamps_ns)) % self.every == 0
            return np.flatnonzero(chosen != self.complement)
        time = (stamps_ns - stamps_ns[0]) * 1e-9
        if not self.in_seconds:
            time = time / max(float(time[-1]), 1e-9)
        # The end belongs to the next part, except the drive's own.
        inside = (time >= self.first) & ((time < self.last) | (self.last >= time[-1]))
        return np.flatnonzero(inside)


def parse_part(text: str) -> Part:
    """Parse "0:0.7" (fractions of the time), "60s:" (seconds) or "every:10"."""
    every = _EVERY.fullmatch(text)
    if every and int(every[2]) > 1:
        return Part(text, every=int(every[2]), complement=every[1] == "not-every")
    match = _RANGE.fullmatch(text)
    if match is None or not (match[1] or match[3]):
        raise ParameterError(
            f"'{text}' is no part of a drive: give 0:0.7 (fractions of its time), 60s:120s, 0.7:, "
            "every:10 or not-every:10"
        )
    in_seconds = "s" in (match[2], match[4])
    first = float(match[1] or 0.0)
    last = float(match[3]) if match[3] else (math.inf if in_seconds else 1.0)
    if not first < last or not (in_seconds or last <= 1.0):
        raise ParameterError(f"'{text}': a part begins before it ends, and fractions are at most 1")
    return Part(text, first, last, in_seconds)


class _Derived:
    """Images of another drive, those at `indices` in their order, with other odometry."""

    def __init__(self, drive: Drive, name: str, indices: Rows, odometry: OdometryLog) -> None:
        self._drive, self._indices = drive, indices
        self.path: Path = drive.path
        self.kind, self.name, self.condition = drive.kind, name, drive.condition
        self.stamps_ns: Stamps = drive.stamps_ns[indices]
        self.poses: Array | None = None if drive.poses is None else drive.poses[indices]
        covariances = getattr(drive, "pose_covariances", None)
        self.pose_covariances: Array | None = None if covariances is None else covariances[indices]
        labels = drive.labels
        self.labels = None if labels is None else tuple(labels[i] for i in indices)
        self.camera, self.mount = camera_of(drive), mount_of(drive)
        attitudes = attitudes_of(drive)
        self.attitudes: Array | None = None if attitudes is None else attitudes[indices]
        self.odometry = odometry
        self.odometry_origin = drive.odometry_origin
        self.warnings: tuple[str, ...] = drive.warnings

    __repr__ = summary

    def __len__(self) -> int:
        return len(self._indices)

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        return self._read(self._drive.images, indices)

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        return self._read(self._drive.encoded_images, indices)

    def _read(
        self,
        read: Callable[[Sequence[int]], Iterator[tuple[int, Item]]],
        indices: Sequence[int] | None,
    ) -> Iterator[tuple[int, Item]]:
        wanted = np.arange(len(self)) if indices is None else np.array(indices, dtype=np.intp)
        # Where it goes back in the other drive, that is read again.
        for places in np.split(wanted, np.flatnonzero(np.diff(self._indices[wanted]) <= 0) + 1):
            back = {int(self._indices[place]): int(place) for place in places}
            for index, item in read(list(back)):
                yield back[index], item


class DrivePart(_Derived):
    """Some images of a drive, in order, with the odometry that covers them."""

    def __init__(self, drive: Drive, part: Part) -> None:
        chosen = part.indices(drive.stamps_ns)
        if len(chosen) < 2:
            raise DatasetError(
                f"{drive.path}: {len(chosen)} of its {len(drive)} images are in the part "
                f"{part.text}; a drive needs two or more"
            )
        odometry = _odometry_between(drive, int(chosen[0]), int(chosen[-1]))
        super().__init__(drive, f"{drive.name} [{part.text}]", chosen, odometry)
        if part.interleaved:
            self.warnings = (*drive.warnings, f"{self.name}: {INTERLEAVED}")


def _odometry_between(drive: Drive, first: int, last: int) -> OdometryLog:
    """Return the odometry that covers the images from the first to the last."""
    return drive.odometry.covering(int(drive.stamps_ns[first]), int(drive.stamps_ns[last]))


class AlteredDrive(_Derived):
    """Images of a drive at `indices`, all by default, with other odometry, poses or images.

    `alter` takes an image's index here and the image, and returns what the camera gives instead.
    An index may be repeated where `stamps_ns` are given.
    """

    def __init__(
        self,
        drive: Drive,
        *,
        indices: Rows | None = None,
        stamps_ns: Stamps | None = None,
        odometry: OdometryLog | None = None,
        poses: Array | None = None,
        alter: Callable[[int, Image], Image] | None = None,
    ) -> None:
        rows = np.arange(len(drive)) if indices is None else indices
        super().__init__(drive, drive.name, rows, odometry or drive.odometry)
        self._alter = alter
        if stamps_ns is not None:
            self.stamps_ns = stamps_ns
        if poses is not None:
            self.poses = poses

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        for index, image in super().images(indices):
            if image is not None and self._alter is not None:
                image = self._alter(index, image)
            yield index, image


class KidnappedDrive(_Derived):
    """A drive during which the robot is kidnapped: its wheels and camera rest then.

    The images `before` the robot is lifted, then after `rest_s` seconds those `after` it is set
    down: both are stretches of the same drive. The truth jumps, the odometry does not.
    """

    def __init__(self, drive: Drive, before: range, after: range, rest_s: float = 1.0) -> None:
        lifted, set_down = (int(drive.stamps_ns[row]) for row in (before[-1], after[0]))
        later = lifted + round(rest_s * 1e9) - set_down
        first, second = (_odometry_between(drive, part[0], part[-1]) for part in (before, after))
        period = int(np.median(np.diff(first.stamps_ns)))
        resting = np.arange(first.stamps_ns[-1] + period, second.stamps_ns[0] + later, period)
        there = first.poses[-1]
        elsewhere = compose(there, relative(second.poses[0], second.poses))
        odometry = OdometryLog(
            np.concatenate((first.stamps_ns, resting, second.stamps_ns + later)),
            np.concatenate((first.poses, np.tile(there, (len(resting), 1)), elsewhere)),
        )
        super().__init__(drive, f"{drive.name} [carried]", np.r_[before, after], odometry)
        self.stamps_ns[len(before) :] += later
        self.set_down_ns = int(self.stamps_ns[len(before)])

    @classmethod
    def kidnapped_far(cls, drive: Drive, images: int) -> KidnappedDrive:
        """Join the first `images` images and as many from the drive's farthest place."""
        if drive.poses is None or len(drive) < 3 * images:
            raise DatasetError(
                f"{drive.path}: cannot be carried elsewhere without {3 * images} images with poses"
            )
        places = drive.poses[:, :2]
        distances = np.hypot(*(places - places[images - 1]).T)
        start = images + int(np.nanargmax(distances[images : len(drive) - images + 1]))
        return cls(drive, range(images), range(start, start + images))


class SimulatedOdometryDrive(_Derived):
    """A drive whose odometry is derived from its known poses, and says so."""

    def __init__(self, drive: Drive, noise: OdometryNoise) -> None:
        try:
            odometry = simulate_odometry(drive.stamps_ns, drive.poses, noise)
        except DatasetError as error:
            raise DatasetError(f"{drive.path}: {error}") from error
        super().__init__(drive, drive.name, np.arange(len(drive)), odometry)
        self.odometry_origin = SIMULATED
        self.warnings = (*drive.warnings, f"{drive.name}: odometry simulated ({noise})")


class PosedDrive(_Derived):
    """A drive with other poses (t, 3) than its own, NaN where one is not known.

    `covariances` (t, 3, 3) are those of the poses, `pose_sigma` (3,) what they err by relative to
    neighbouring images, in m, m and rad. `camera` and `mount` are those that the poses were
    estimated with. The odometry's clock is put right by `clock_offset_s`, by which the images were
    taken later than their stamps say. `reference_poses` are the poses that the drive had before.
    """

    def __init__(
        self,
        drive: Drive,
        poses: Array,
        covariances: Array,
        pose_sigma: tuple[float, float, float],
        camera: Camera | None,
        mount: Mount | None,
        warnings: Sequence[str] = (),
        clock_offset_s: float = 0.0,
    ) -> None:
        log = drive.odometry
        stamps_ns = log.stamps_ns - round(clock_offset_s * 1e9)
        odometry = OdometryLog(stamps_ns, log.poses, log.covariances)
        super().__init__(drive, drive.name, np.arange(len(drive)), odometry)
        self.poses, self.covariances, self.pose_sigma = poses, covariances, pose_sigma
        self.reference_poses = drive.poses
        self.camera, self.mount, self.attitudes = camera, mount, None
        self.warnings = (*drive.warnings, *warnings)


class CalibratedDrive(_Derived):
    """A drive with another camera and mount than its own."""

    def __init__(self, drive: Drive, camera: Camera, mount: Mount) -> None:
        super().__init__(drive, drive.name, np.arange(len(drive)), drive.odometry)
        self.camera, self.mount = camera, mount


def with_camera(drive: Drive, camera: Camera, mount: Mount) -> Drive:
    """Return the drive with this camera, unless it knows its own."""
    return drive if camera_of(drive) is not None else CalibratedDrive(drive, camera, mount)
