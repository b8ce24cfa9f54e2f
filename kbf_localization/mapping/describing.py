"""Reads, describes and shrinks images in worker processes, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeVar

import cv2
import numpy as np

from kbf_localization.arrays import Floats, Image, Rows
from kbf_localization.datasets.drive import grey_images
from kbf_localization.datasets.image_decoding import grey_from_compressed
from kbf_localization.landmarks.build import KeypointStore
from kbf_localization.mapping.frames import Frames
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.threads import one_thread_of_opencv
from kbf_localization.vision.dense_sift import DescriberSettings, dense_sift
from kbf_localization.vision.describer import (
    Describer,
    ImageDescriber,
    ImageDescription,
    prepare_image,
    reduced_size,
)
from kbf_localization.vision.keypoints import Keypoints, detect_keypoints

Result = TypeVar("Result")
Encoded = tuple[int, bytes]
Decoded = tuple[int, Image]
"""An image with its index in the requested list."""

CHUNK_IMAGES = 16
"""Images that a worker gets at a time."""

THUMBNAIL_PIXELS = 96 * 72


@dataclass(frozen=True)
class Described:
    """Hold an image's description and thumbnail.

    `resized` tells whether it had another size than the pyramid's images.
    """

    image: ImageDescription
    thumbnail: bytes
    resized: bool


def image_size(frames: Frames) -> tuple[int, int] | None:
    """Return width and height of the first image that can be decoded."""
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
    """Draw at most `per_image` descriptors (m, 128) of each image in `rows` of the frames."""
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
    keypoints: KeypointStore | None = None,
    detect: bool = False,
) -> dict[int, Described]:
    """Describe the images of these rows of the frames, without those that cannot be decoded.

    Their keypoints go to the store, where there is one; without a store, `detect` keeps them.
    """
    describe = partial(_describe, describer, detect or keypoints is not None)
    images = _encoded_images(frames, rows)
    found: dict[int, Described] = {}
    for place, described in _by_workers(
        describe, images, len(rows), workers, progress, "describing images"
    ):
        row, image = int(rows[place]), described.image
        if keypoints is not None and image.keypoints is not None:
            keypoints.add(row, image.keypoints)
            described = replace(described, image=replace(image, keypoints=None))
        found[row] = described
    return found


def detect_frames(
    frames: Frames, rows: Rows, keypoints: KeypointStore, workers: Workers, progress: Progress
) -> None:
    """Put the keypoints of the images of these rows of the frames into the store."""
    images = _encoded_images(frames, rows)
    for place, found in _by_workers(
        _detect, images, len(rows), workers, progress, "detecting keypoints"
    ):
        keypoints.add(int(rows[place]), found)


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
    """Yield what `work` makes of `count` images, chunk by chunk, without undecodable images."""
    chunks = iter(lambda: list(islice(images, CHUNK_IMAGES)), [])
    for done, part in enumerate(workers.map(partial(_decode_and, work), chunks), start=1):
        yield from part
        progress(min(done * CHUNK_IMAGES, count), count, what)


def _decode_and(
    work: Callable[[list[Decoded]], Iterable[Result]], items: list[Encoded]
) -> list[Result]:
    # There are as many workers as cores already.
    with one_thread_of_opencv():
        decoded = ((place, grey_from_compressed(data)) for place, data in items)
        return list(work([(place, image) for place, image in decoded if image is not None]))


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


def _detect(images: list[Decoded]) -> Iterator[tuple[int, Keypoints]]:
    for place, image in images:
        yield place, detect_keypoints(image)


def _describe(
    describer: Describer, detect: bool, images: list[Decoded]
) -> Iterator[tuple[int, Described]]:
    size = None if describer.pyramid is None else describer.pyramid.image_size
    described = ImageDescriber(describer, detect).describe_all([image for _, image in images])
    for (place, image), description in zip(images, described, strict=True):
        own = image.shape[1], image.shape[0]
        resized = size is not None and size not in (own, reduced_size(own))
        yield place, Described(description, _thumbnail(image), resized)


def _thumbnail(image: Image) -> bytes:
    scale = (THUMBNAIL_PIXELS / (image.shape[0] * image.shape[1])) ** 0.5
    width, height = (max(round(scale * side), 1) for side in image.shape[1::-1])
    small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    _, thumbnail = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 80])
    return bytes(thumbnail.tobytes())
