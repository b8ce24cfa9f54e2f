"""What every data set gives: a drive of images with stamps, wheel odometry and known poses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kbf_localization.arrays import Array, Image, Stamps
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.input_checks import check_grey, check_headings, check_stamps
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.mount import Mount


@dataclass(frozen=True)
class OdometryLog:
    """Wheel odometry in its own frame.

    `stamps_ns` (m,) strictly increasing, `poses` (m, 3), `covariances` (m, 3, 3) of (x, y, heading)
    as the robot reports them, None where it does not, or always the same.
    """

    stamps_ns: Stamps
    poses: Array
    covariances: Array | None = None

    def covariance(self, reading: int) -> Array | None:
        """Return (3, 3) of one reading."""
        return None if self.covariances is None else self.covariances[reading]

    def covering(self, first_ns: int, last_ns: int) -> OdometryLog:
        """Return the readings that cover the stamps, with one before and one after."""
        start = int(np.searchsorted(self.stamps_ns, first_ns, side="right")) - 1
        stop = int(np.searchsorted(self.stamps_ns, last_ns, side="left")) + 1
        inside = slice(max(start, 0), stop)
        covariances = None if self.covariances is None else self.covariances[inside]
        return OdometryLog(self.stamps_ns[inside], self.poses[inside], covariances)


MEASURED, SIMULATED, NO_ODOMETRY = "measured", "simulated", "none"
"""How a drive's odometry was got: from the robot, derived from the truth, or not at all."""


def summary(drive: Drive) -> str:
    """Return a drive's `repr`."""
    seconds = (drive.stamps_ns[-1] - drive.stamps_ns[0]) * 1e-9 if len(drive) else 0.0
    poses = "without poses" if drive.poses is None else "with poses"
    return f"<{drive.kind} {drive.name}: {len(drive)} images in {seconds:.0f} s, {poses}>"


def check_drive(drive: Drive) -> None:
    """Refuse a drive of somebody's own whose stamps or poses are not as `Drive` documents them."""
    logs = {"": (drive.stamps_ns, drive.poses)}
    logs["odometry: "] = drive.odometry.stamps_ns, drive.odometry.poses
    for whose, (stamps_ns, poses) in logs.items():
        try:
            check_stamps(stamps_ns)
            if poses is not None:
                check_headings(poses)
        except ParameterError as error:
            raise DatasetError(f"{drive.path}: {whose}{error}") from error


def grey_images(
    drive: Drive, indices: Sequence[int] | None = None
) -> Iterator[tuple[int, Image | None]]:
    """Yield `drive.images`; refuse an image that is not grey."""
    for index, image in drive.images(indices):
        if image is not None:
            try:
                check_grey(image)
            except ParameterError as error:
                raise DatasetError(f"{drive.path}: image {index}: {error}") from error
        yield index, image


def camera_of(drive: Timed) -> Camera | None:
    """Return a drive's calibrated camera; None also for a drive that does not know the question."""
    return getattr(drive, "camera", None)


def mount_of(drive: Timed) -> Mount | None:
    """Return where a drive's camera sits; None also for a drive that does not know the question."""
    return getattr(drive, "mount", None)


def attitudes_of(drive: Timed) -> Array | None:
    """Return height (m), pitch and roll (rad) of a drive's camera at its images, (t, 3).

    They are those of a level camera that looks along the heading of `poses`. None where the
    drive's poses are a robot's on a floor.
    """
    return getattr(drive, "attitudes", None)


class Timed(Protocol):
    """Images with stamps, in order, and the odometry between them."""

    @property
    def name(self) -> str: ...

    @property
    def stamps_ns(self) -> Stamps:
        """(t,) strictly increasing stamps of the images, in nanoseconds."""

    @property
    def odometry(self) -> OdometryLog:
        """Wheel odometry; raises DatasetError where the drive has none."""

    def __len__(self) -> int: ...


class Drive(Timed, Protocol):
    """One recorded or simulated drive; images are read when asked for, never all at once."""

    @property
    def path(self) -> Path: ...

    @property
    def kind(self) -> str:
        """What it is stored in, such as "bag" or "COLD folder"."""

    @property
    def condition(self) -> str | None:
        """The lighting, such as "cloudy", where it is known."""

    @property
    def poses(self) -> Array | None:
        """(t, 3) known poses at the images' stamps, or None where the drive has none."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The room of each image, where it is known."""

    @property
    def camera(self) -> Camera | None:
        """The calibrated camera at the images' size, where it is known; see `camera_of`."""

    @property
    def mount(self) -> Mount | None:
        """The camera's pose in the frame whose pose `poses` are, where it is known."""

    @property
    def odometry_origin(self) -> str:
        """How the odometry was got: MEASURED, SIMULATED or NO_ODOMETRY."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was passed over while reading, a line each."""

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        """Yield indices and grey images (h, w), in order; None for one that cannot be decoded."""

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Return the images' bytes as stored (JPEG or PNG) with their indices, in order."""
