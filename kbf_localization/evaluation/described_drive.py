"""A drive whose images are described once, to be replayed as often as one likes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kbf_localization.arrays import Array, Image, Rows, Stamps
from kbf_localization.datasets.drive import Drive, OdometryLog, Timed, check_drive, grey_images
from kbf_localization.parallel import in_threads
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.vision.describer import Describer, ImageDescription

Outcome = tuple["ImageDescription | None", float]


class Replayable(Timed, Protocol):
    """A drive whose images are described."""

    def outcomes(self) -> Iterator[Outcome]:
        """Each image's description, None where it cannot be decoded, with its milliseconds."""


@dataclass(frozen=True)
class DescribedDrive:
    """t images with stamps and descriptions, None for one that cannot be decoded.

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

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def outcomes(self) -> Iterator[Outcome]:
        """Each image's description with the milliseconds that it took."""
        return zip(self.descriptions, (float(one) for one in self.describe_ms), strict=True)

    def part(self, rows: Rows | slice) -> DescribedDrive:
        """Some of its images, in order; the odometry stays whole."""
        places = np.arange(len(self))[rows]
        return replace(
            self,
            stamps_ns=self.stamps_ns[places],
            truth=None if self.truth is None else self.truth[places],
            descriptions=tuple(self.descriptions[int(place)] for place in places),
            describe_ms=self.describe_ms[places],
        )

    def excerpt(self, rows: Rows | slice) -> DescribedDrive:
        """Some of its images, in order, and the odometry between them."""
        part = self.part(rows)
        if len(part) == 0:
            return part
        ends = (int(stamp) for stamp in part.stamps_ns[[0, -1]])
        return replace(part, odometry=self.odometry.covering(*ends))


@dataclass(frozen=True)
class DriveInPassing:
    """A drive whose images are described while it is replayed, and not kept.

    So many `threads` (None: one per core) describe images ahead. An image's description does not
    depend on the others, so the result does not depend on `threads`.
    """

    drive: Drive
    describer: Describer
    threads: int | None = None
    indices: Rows | None = None
    """Of the images to describe, in order; None: all."""

    def __post_init__(self) -> None:
        check_drive(self.drive)

    @property
    def name(self) -> str:
        return self.drive.name

    @property
    def stamps_ns(self) -> Stamps:
        return np.asarray(self.drive.stamps_ns)[self._chosen]

    @property
    def odometry(self) -> OdometryLog:
        return self.drive.odometry

    @property
    def _chosen(self) -> Rows | slice:
        return slice(None) if self.indices is None else self.indices

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def outcomes(self) -> Iterator[Outcome]:
        """Each image's description with the milliseconds that it took, in order."""
        wanted = None if self.indices is None else self.indices.tolist()
        images = (image for _, image in grey_images(self.drive, wanted))
        return in_threads(self._describe, images, self.threads)

    def _describe(self, image: Image | None) -> Outcome:
        if image is None:
            return None, 0.0
        start = time.perf_counter()
        description = self.describer.describe(image)
        return description, 1e3 * (time.perf_counter() - start)


def describe_drive(
    drive: Drive,
    describer: Describer,
    progress: Progress = no_progress,
    indices: Rows | None = None,
) -> DescribedDrive:
    """Describe a drive's images, or those of the `indices`, to replay it more than once."""
    passing = DriveInPassing(drive, describer, indices=indices)
    chosen = slice(None) if indices is None else indices
    doing = f"describing {drive.name}"
    outcomes = list(tracked(passing.outcomes(), doing, progress, len(passing)))
    return DescribedDrive(
        name=drive.name,
        condition=drive.condition,
        stamps_ns=passing.stamps_ns,
        truth=None if drive.poses is None else np.asarray(drive.poses)[chosen],
        odometry=drive.odometry,
        descriptions=tuple(description for description, _ in outcomes),
        describe_ms=np.array([milliseconds for _, milliseconds in outcomes]),
    )
