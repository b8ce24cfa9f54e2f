"""How long a robot that knows nothing needs until it knows where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.map_check.held_out import Fold, covers
from kbf_localization.evaluation.map_check.stretches import length_m
from kbf_localization.evaluation.metrics import GROSS_ERROR_M
from kbf_localization.evaluation.run import localize_drive
from kbf_localization.localization.localizer import Localizer
from kbf_localization.localization.result import State
from kbf_localization.progress import Progress, no_progress, tracked

MOST_IMAGES = 60


@dataclass(frozen=True)
class FirstFix:
    """A start at a random place: the images, metres and seconds until "tracking", and if rightly.

    `images` is None where it never came to that.
    """

    images: int | None
    metres: float
    seconds: float
    right: bool


def first_fixes(
    fold: Fold, starts: int, rng: np.random.Generator, progress: Progress = no_progress
) -> Iterator[FirstFix]:
    """Fixes from random starts where the map covers the drive."""
    covered = np.flatnonzero(covers(fold.training_map, fold.truth[:-1]))
    if len(covered) == 0:
        return
    localizer = Localizer(fold.training_map)
    for start in tracked(rng.choice(covered, starts), "starting at random places", progress):
        yield fix_from(fold.drive, localizer, int(start))


def fix_from(
    drive: DescribedDrive, localizer: Localizer, start: int, most_images: int = MOST_IMAGES
) -> FirstFix:
    """The first fix of a localizer that knows nothing at image `start` of the drive."""
    localizer.reset()
    part = drive.excerpt(slice(start, start + most_images))
    assert part.truth is not None
    images, right = None, False
    for number, fix, _, _ in localize_drive(part, localizer):
        if fix is not None and fix.state is State.TRACKING:
            error = float(np.hypot(*(fix.pose[:2] - part.truth[number, :2])))
            images, right = number + 1, error <= GROSS_ERROR_M
            break
    way, stamps = part.truth[:images], part.stamps_ns[:images]
    return FirstFix(images, length_m(way), float(stamps[-1] - stamps[0]) * 1e-9, right)
