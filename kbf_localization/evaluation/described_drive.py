"""A drive whose images are described once, to be replayed any number of times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kbf_localization.arrays import Array, Image, Rows, Stamps
from kbf_localization.datasets.drive import (
    Drive,
    OdometryLog,
    camera_of,
    check_drive,
    grey_images,
    mount_of,
)
from kbf_localization.evaluation.description_cache import CachedDescriber
from kbf_localization.evaluation.stopwatch import Stopwatch
from kbf_localization.parallel import in_threads
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.describer import ImageDescriber, ImageDescription

Outcome = tuple["ImageDescription | None", float]
"""An image's description, None where it cannot be decoded, with its milliseconds."""


@dataclass(frozen=True)
class DescribedDrive:
    """t images with stamps and descriptions, None for an image that cannot be decoded.

    `truth` (t, 3) has NaN where a pose is unknown, and is None where all are. `describe_ms` (t,) is
    how long each description took.
    """

    name: str
    condition: str | None
    stamps_ns: Stamps
    truth: Array | None
    odometry: OdometryLog
    descriptions: tuple[ImageDescription | None, ...]
    describe_ms: Array
    camera: Camera | None = None
    mount: Mount | None = None

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def outcomes(self) -> Iterator[Outcome]:
        return zip(self.descriptions, self.describe_ms.tolist(), strict=True)

    def part(self, rows: Rows | slice) -> DescribedDrive:
        """Return some of the images, in order, with all of the odometry."""
        places = np.arange(len(self))[rows]
        return replace(
            self,
            stamps_ns=self.stamps_ns[places],
            truth=None if self.truth is None else self.truth[places],
            descriptions=tuple(self.descriptions[int(place)] for place in places),
            describe_ms=self.describe_ms[places],
        )

    def excerpt(self, rows: Rows | slice) -> DescribedDrive:
        """Return some of the images, in order, with the odometry between them."""
        part = self.part(rows)
        if len(part) == 0:
            return part
        ends = (int(stamp) for stamp in part.stamps_ns[[0, -1]])
        return replace(part, odometry=self.odometry.covering(*ends))


def describe_images(
    drive: Drive,
    describer: ImageDescriber | CachedDescriber,
    indices: Rows | None = None,
) -> Iterator[Outcome]:
    """Return a drive's images, or those of `indices`, described on all cores some images ahead."""

    def describe(image: Image | None) -> Outcome:
        if image is None:
            return None, 0.0
        if isinstance(describer, CachedDescriber):
            return describer.describe(image)
        start = time.perf_counter()
        description = describer.describe(image)
        return description, 1e3 * (time.perf_counter() - start)

    check_drive(drive)
    images = grey_images(drive, None if indices is None else indices.tolist())
    return in_threads(describe, (image for _, image in images))


def describe_drive(
    drive: Drive,
    describer: ImageDescriber | CachedDescriber,
    progress: Progress = no_progress,
    indices: Rows | None = None,
) -> DescribedDrive:
    """Describe a drive's images, or those of the `indices`, to replay it more than once."""
    chosen = slice(None) if indices is None else indices
    stamps_ns = np.asarray(drive.stamps_ns)[chosen]
    found = describe_images(drive, describer, indices)
    outcomes = list(tracked(found, f"describing {drive.name}", progress, len(stamps_ns)))
    return DescribedDrive(
        name=drive.name,
        condition=drive.condition,
        stamps_ns=stamps_ns,
        truth=None if drive.poses is None else np.asarray(drive.poses)[chosen],
        odometry=drive.odometry,
        descriptions=tuple(description for description, _ in outcomes),
        describe_ms=np.array([milliseconds for _, milliseconds in outcomes]),
        camera=camera_of(drive),
        mount=mount_of(drive),
    )


class DriveDescribedAhead:
    """A drive whose images are described on all cores ahead of the replay that reads them.

    Descriptions are kept for the next replay. `watch` measures how long a replay waits for them.
    """

    def __init__(
        self, drive: Drive, describer: ImageDescriber | CachedDescriber, watch: Stopwatch
    ) -> None:
        self.name, self.odometry = drive.name, drive.odometry
        self.camera, self.mount = camera_of(drive), mount_of(drive)
        self.stamps_ns: Stamps = np.asarray(drive.stamps_ns)
        self.truth = None if drive.poses is None else np.asarray(drive.poses)
        self._source = describe_images(drive, describer)
        self._watch = watch
        self._kept: list[Outcome] = []

    def __len__(self) -> int:
        return len(self.stamps_ns)

    @property
    def descriptions(self) -> tuple[ImageDescription | None, ...]:
        """The descriptions of the images that a replay has read."""
        return tuple(description for description, _ in self._kept)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield each image's outcome, described now where no replay has read it before."""
        for number in range(len(self)):
            if number == len(self._kept):
                with self._watch.measuring("waiting for descriptions"):
                    self._kept.append(next(self._source))
            yield self._kept[number]
