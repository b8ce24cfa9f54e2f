"""Builds a training map from drives with known poses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import MapError
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.description import (
    describe_frames,
    image_size,
    sample_descriptors,
)
from kbf_localization.training_map.frames import Frames, gather_frames
from kbf_localization.training_map.selection import SELECTIONS, select_frames
from kbf_localization.training_map.training_map import Source, TrainingMap
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary, learn_vocabulary

VOCABULARY_IMAGES = 250
VOCABULARY_DESCRIPTORS = 100_000


def build_map(
    drives: Sequence[Drive],
    *,
    poses: int = 1000,
    select: str = "coverage",
    seed: int = 0,
    words: int = 200,
    settings: DescriberSettings | None = None,
    vocabulary: Vocabulary | None = None,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> TrainingMap:
    """A map of at most `poses` poses, chosen from the drives' frames; the same for the same seed.

    Images are brought to the size of the first one unless `settings` say otherwise. A given
    `vocabulary` is used as it is (maps with the same one can be merged). A chosen image that
    cannot be decoded is left out, with a warning in the map's `warnings`.
    """
    if poses < 1:
        raise MapError(f"a map needs at least one pose, not {poses}")
    if select not in SELECTIONS:
        raise MapError(f"select must be one of {', '.join(SELECTIONS)}, not '{select}'")
    workers = workers or Serial()
    frames = gather_frames(drives)
    settings = settings or _settings_for(frames, drives, words)
    if vocabulary is None:
        vocabulary = _learn_words(frames, drives, settings, seed, workers, progress)
    rows = select_frames(frames.poses, poses, select, seed)
    histograms = np.empty((len(rows), settings.bins), dtype=np.uint8)
    places: list[int] = []
    thumbnails: list[bytes] = []
    resized = 0
    for item in describe_frames(frames, drives, rows, vocabulary, settings, workers, progress):
        histograms[len(places)] = item.histogram
        places.append(item.place)
        thumbnails.append(item.thumbnail)
        resized += item.resized
    if not places:
        raise MapError(f"{drives[0].path}: none of {len(rows)} chosen images can be decoded")
    kept = rows[places]
    warnings = [warning for drive in drives for warning in drive.warnings]
    if len(kept) < len(rows):
        warnings.append(
            f"{len(rows) - len(kept)} of {len(rows)} chosen images cannot be decoded; left out"
        )
    if resized:
        warnings.append(
            f"{resized} of {len(rows)} chosen images were resized to "
            f"{settings.image_width}x{settings.image_height}"
        )
    return TrainingMap(
        poses=frames.poses[kept],
        histograms=histograms[: len(places)],
        next_poses=frames.next_poses[kept],
        motions=frames.motions[kept],
        vocabulary=vocabulary,
        describer_settings=settings,
        motion_variances=frames.motion_variances(),
        sources=tuple(
            Source(
                name=drive.name,
                kind=drive.kind,
                condition=drive.condition,
                frames=int((frames.drive_of == number).sum()),
                chosen=int((frames.drive_of[kept] == number).sum()),
            )
            for number, drive in enumerate(drives)
        ),
        source_of=frames.drive_of[kept],
        thumbnails=thumbnails,
        warnings=tuple(warnings),
    )


def _settings_for(frames: Frames, drives: Sequence[Drive], words: int) -> DescriberSettings:
    size = image_size(frames, drives)
    if size is None:
        raise MapError(f"{drives[0].path}: no image can be decoded")
    try:
        return replace(DescriberSettings(), image_width=size[0], image_height=size[1], words=words)
    except ValueError as error:
        raise MapError(f"{drives[0].path}: {error}") from error


def _learn_words(
    frames: Frames,
    drives: Sequence[Drive],
    settings: DescriberSettings,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Vocabulary:
    """The vocabulary of images spread over the drives."""
    rows = select_frames(frames.poses, VOCABULARY_IMAGES, "random", seed)
    per_image = min(settings.patches, -(-VOCABULARY_DESCRIPTORS // len(rows)))
    descriptors = sample_descriptors(
        frames, drives, rows, per_image, seed, settings, workers, progress
    )
    if len(descriptors) == 0:
        raise MapError(f"{drives[0].path}: none of {len(rows)} sampled images can be decoded")
    return learn_vocabulary(descriptors, settings.words, seed, progress=progress)
