"""A drive whose images are described once, to be replayed any number of times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

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
from kbf_localization.evaluation.description_cache import (
    CachedDescriber,
    Outcome,
    describe,
    describe_for_cache,
)
from kbf_localization.evaluation.stopwatch import Stopwatch
from kbf_localization.parallel import Workers, in_threads, read_ahead
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.describer import ImageDescriber, ImageDescription


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


MIN_IMAGES_APART = 50
"""Images of a drive from which on processes for them are worth their start, a fifth of a second of
processor time each: beside threads the filter waits some milliseconds an image."""

IMAGES_AHEAD = 16
"""Images that processes describe before the filter asks for them: some of its steps take ten times
as long as others."""


def describe_images(
    drive: Drive,
    describer: ImageDescriber | CachedDescriber,
    indices: Rows | None = None,
    workers: Workers | None = None,
) -> Iterator[Outcome]:
    """Return a drive's images, or those of `indices`, described some images ahead.

    Threads on all cores describe them; those of a long drive that is not in the cache `workers`,
    where they are given: beside threads a filter waits for Python's lock.
    """
    check_drive(drive)
    wanted = list(range(len(drive))) if indices is None else indices.tolist()
    images = (image for _, image in grey_images(drive, wanted))
    if workers is None or len(wanted) < MIN_IMAGES_APART:
        return in_threads(partial(describe, describer), images)
    return read_ahead(_described_apart(describer, images, workers), IMAGES_AHEAD)


def _described_apart(
    describer: ImageDescriber | CachedDescriber, images: Iterator[Image | None], workers: Workers
) -> Iterator[Outcome]:
    first = next(images)
    # A drive that has been described before has been so as a whole.
    known = isinstance(describer, CachedDescriber) and first is not None and describer.knows(first)
    # Here, so that a describer that warns of the images' size has done so once.
    yield describe(describer, first)
    if known:
        yield from in_threads(partial(describe, describer), images)
    elif isinstance(describer, CachedDescriber):
        entries = workers.map(partial(describe_for_cache, describer.describer), images)
        for outcome, made in entries:
            for key, arrays in made:
                describer.cache.put(key, arrays)
            yield outcome
    else:
        yield from workers.map(partial(describe, describer), images)


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

    Descriptions are kept for the next replay; `workers` as for `describe_images`. `watch` measures
    how long a replay waits for them.
    """

    def __init__(
        self,
        drive: Drive,
        describer: ImageDescriber | CachedDescriber,
        watch: Stopwatch,
        workers: Workers | None = None,
    ) -> None:
        self.name, self.odometry = drive.name, drive.odometry
        self.camera, self.mount = camera_of(drive), mount_of(drive)
        self.stamps_ns: Stamps = np.asarray(drive.stamps_ns)
        self.truth = None if drive.poses is None else np.asarray(drive.poses)
        self._source = describe_images(drive, describer, workers=workers)
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
