"""Reads, describes and shrinks the chosen images, in worker processes and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

import cv2
import numpy as np

from kbf_localization.arrays import Floats, Image, Rows
from kbf_localization.datasets.drive import Drive, grey_images
from kbf_localization.datasets.image_messages import grey_from_compressed
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.training_map.frames import Frames
from kbf_localization.vision.dense_sift import dense_sift
from kbf_localization.vision.describer import Describer, ImageDescription
from kbf_localization.vision.prepare import prepare_image
from kbf_localization.vision.settings import DescriberSettings

Task = TypeVar("Task")
Result = TypeVar("Result")
Item = tuple[int, bytes]

IMAGES_AT_ONCE = 16
THUMBNAIL_SIZE = (96, 72)


@dataclass(frozen=True)
class Described:
    """An image's description and thumbnail, with its place in the list that was asked for.

    `resized` says that it had another size than the pyramid's images.
    """

    place: int
    image: ImageDescription
    thumbnail: bytes
    resized: bool


def image_size(frames: Frames, drives: Sequence[Drive]) -> tuple[int, int] | None:
    """Width and height of the first image that can be decoded."""
    for number, drive in enumerate(drives):
        indices = [int(index) for index in frames.index_of[frames.drive_of == number]]
        for _, image in grey_images(drive, indices):
            if image is not None:
                return image.shape[1], image.shape[0]
    return None


def sample_descriptors(
    frames: Frames,
    drives: Sequence[Drive],
    rows: Rows,
    per_image: int,
    seed: int,
    settings: DescriberSettings,
    workers: Workers,
    progress: Progress,
) -> Floats:
    """At most `per_image` descriptors, drawn from `seed`, of each image in `rows` of the frames."""
    task = _SampleTask(settings, per_image, seed)
    parts: list[Floats] = []
    for done, part in enumerate(workers.map(task, _chunks(frames, drives, rows))):
        parts += part
        progress(min((done + 1) * IMAGES_AT_ONCE, len(rows)), len(rows), "sampling descriptors")
    return np.concatenate(parts) if parts else np.empty((0, 128), dtype=np.float32)


def describe_frames(
    frames: Frames,
    drives: Sequence[Drive],
    rows: Rows,
    describer: Describer,
    workers: Workers,
    progress: Progress,
) -> Iterator[Described]:
    """The images in `rows` of the frames, in order, without those that cannot be decoded."""
    task = _DescribeTask(describer)
    for done, part in enumerate(workers.map(task, _chunks(frames, drives, rows))):
        yield from part
        progress(min((done + 1) * IMAGES_AT_ONCE, len(rows)), len(rows), "describing images")


def single_threaded(work: Callable[[Task, list[Item]], Result]) -> Callable[..., Result]:
    """Leaves OpenCV one thread meanwhile: there are as many workers as cores already."""

    @wraps(work)
    def limited(task: Task, items: list[Item]) -> Result:
        threads = cv2.getNumThreads()
        cv2.setNumThreads(1)
        try:
            return work(task, items)
        finally:
            cv2.setNumThreads(threads)

    return limited


@dataclass(frozen=True)
class _SampleTask:
    settings: DescriberSettings
    per_image: int
    seed: int

    @single_threaded
    def __call__(self, items: list[Item]) -> list[Floats]:
        sampled = []
        size = (self.settings.image_width, self.settings.image_height)
        for place, data in items:
            image = grey_from_compressed(data)
            if image is None:
                continue
            descriptors = dense_sift(prepare_image(image, size), self.settings)
            # Seeded by the image's place, so that the workers' number changes nothing.
            rng = np.random.default_rng((self.seed, place))
            count = min(self.per_image, len(descriptors))
            sampled.append(descriptors[rng.choice(len(descriptors), count, replace=False)])
        return sampled


@dataclass(frozen=True)
class _DescribeTask:
    describer: Describer

    @single_threaded
    def __call__(self, items: list[Item]) -> list[Described]:
        decoded = [(place, grey_from_compressed(data)) for place, data in items]
        images = {place: image for place, image in decoded if image is not None}
        pyramid = self.describer.pyramid
        size = None if pyramid is None else pyramid.image_size
        return [
            Described(
                place,
                description,
                _thumbnail(image),
                resized=size is not None and image.shape != size[::-1],
            )
            for (place, image), description in zip(
                images.items(), self.describer.describe_all(list(images.values())), strict=True
            )
        ]


def _thumbnail(image: Image) -> bytes:
    small = cv2.resize(image, THUMBNAIL_SIZE, interpolation=cv2.INTER_AREA)
    _, thumbnail = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 80])
    return bytes(thumbnail.tobytes())


def _chunks(frames: Frames, drives: Sequence[Drive], rows: Rows) -> Iterator[list[Item]]:
    """Encoded images with their places in `rows`, some at a time; rows increase."""
    chunk: list[Item] = []
    for number, drive in enumerate(drives):
        places = np.flatnonzero(frames.drive_of[rows] == number)
        indices = [int(index) for index in frames.index_of[rows[places]]]
        for place, (_, data) in zip(places, drive.encoded_images(indices), strict=True):
            chunk.append((int(place), data))
            if len(chunk) == IMAGES_AT_ONCE:
                yield chunk
                chunk = []
    if chunk:
        yield chunk
