"""Reads, describes and shrinks the chosen images, in worker processes and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import cv2
import numpy as np

from kbf_localization.arrays import Floats, Image, Rows
from kbf_localization.datasets.drive import grey_images
from kbf_localization.datasets.image_messages import grey_from_compressed
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.training_map.frames import Frames
from kbf_localization.vision.dense_sift import dense_sift
from kbf_localization.vision.describer import Describer, ImageDescription
from kbf_localization.vision.prepare import prepare_image
from kbf_localization.vision.settings import DescriberSettings

Result = TypeVar("Result")
Encoded = tuple[int, bytes]
Decoded = tuple[int, Image]
"""An image with its place in the list that was asked for."""

IMAGES_AT_ONCE = 16
THUMBNAIL_SIZE = (96, 72)


@dataclass(frozen=True)
class Described:
    """An image's description and thumbnail.

    `resized` says that it had another size than the pyramid's images.
    """

    image: ImageDescription
    thumbnail: bytes
    resized: bool


def image_size(frames: Frames) -> tuple[int, int] | None:
    """Width and height of the first image that can be decoded."""
    for number, drive in enumerate(frames.drives):
        indices = [int(index) for index in frames.index_of[frames.drive_of == number]]
        for _, image in grey_images(drive, indices):
            if image is not None:
                return image.shape[1], image.shape[0]
    return None


def sample_descriptors(
    frames: Frames,
    rows: Rows,
    per_image: int,
    seed: int,
    settings: DescriberSettings,
    workers: Workers,
    progress: Progress,
) -> Floats:
    """At most `per_image` descriptors, drawn from `seed`, of each image in `rows` of the frames."""
    sample = partial(_sample, settings, per_image, seed)
    images = _encoded_images(frames, rows)
    parts = list(_by_workers(sample, images, len(rows), workers, progress, "sampling descriptors"))
    return np.concatenate(parts) if parts else np.empty((0, 128), dtype=np.float32)


def describe_frames(
    frames: Frames,
    rows: Rows,
    describer: Describer,
    workers: Workers,
    progress: Progress,
) -> dict[int, Described]:
    """The images by their rows in the frames, without those that cannot be decoded."""
    describe = partial(_describe, describer)
    images = _encoded_images(frames, rows)
    found = _by_workers(describe, images, len(rows), workers, progress, "describing images")
    return {int(rows[place]): described for place, described in found}


def _encoded_images(frames: Frames, rows: Rows) -> Iterator[Encoded]:
    for number, drive in enumerate(frames.drives):
        places = np.flatnonzero(frames.drive_of[rows] == number)
        indices = [int(index) for index in frames.index_of[rows[places]]]
        for place, (_, data) in zip(places, drive.encoded_images(indices), strict=True):
            yield int(place), data


def _by_workers(
    work: Callable[[list[Decoded]], Iterable[Result]],
    images: Iterator[Encoded],
    count: int,
    workers: Workers,
    progress: Progress,
    what: str,
) -> Iterator[Result]:
    """What `work` makes of `count` images, some at a time; those that cannot be decoded go."""
    chunks = iter(lambda: list(islice(images, IMAGES_AT_ONCE)), [])
    for done, part in enumerate(workers.map(partial(_decode_and, work), chunks), start=1):
        yield from part
        progress(min(done * IMAGES_AT_ONCE, count), count, what)


def _decode_and(
    work: Callable[[list[Decoded]], Iterable[Result]], items: list[Encoded]
) -> list[Result]:
    # OpenCV gets one thread meanwhile: there are as many workers as cores already.
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        decoded = ((place, grey_from_compressed(data)) for place, data in items)
        return list(work([(place, image) for place, image in decoded if image is not None]))
    finally:
        cv2.setNumThreads(threads)


def _sample(
    settings: DescriberSettings, per_image: int, seed: int, images: list[Decoded]
) -> Iterator[Floats]:
    size = (settings.image_width, settings.image_height)
    for place, image in images:
        descriptors = dense_sift(prepare_image(image, size), settings)
        # Seeded by the image's place, so that the workers' number changes nothing.
        rng = np.random.default_rng((seed, place))
        count = min(per_image, len(descriptors))
        yield descriptors[rng.choice(len(descriptors), count, replace=False)]


def _describe(describer: Describer, images: list[Decoded]) -> Iterator[tuple[int, Described]]:
    size = None if describer.pyramid is None else describer.pyramid.image_size
    described = describer.describe_all([image for _, image in images])
    for (place, image), description in zip(images, described, strict=True):
        resized = size is not None and image.shape != size[::-1]
        yield place, Described(description, _thumbnail(image), resized)


def _thumbnail(image: Image) -> bytes:
    small = cv2.resize(image, THUMBNAIL_SIZE, interpolation=cv2.INTER_AREA)
    _, thumbnail = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 80])
    return bytes(thumbnail.tobytes())
