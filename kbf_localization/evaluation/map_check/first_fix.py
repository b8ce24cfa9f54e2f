"""How long a robot that knows nothing needs until it knows where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import covered_share
from kbf_localization.evaluation.map_check.held_out import LEAST_SHARE, Fold
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
    truth = fold.drive.truth
    assert truth is not None
    covered = np.flatnonzero(covered_share(fold.training_map, truth) >= LEAST_SHARE)
    covered = covered[covered < len(truth) - 1]
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
    for number, fix, _, _ in localize_drive(part, localizer):
        if fix is not None and fix.state is State.TRACKING:
            error = float(np.hypot(*(fix.pose[:2] - part.truth[number, :2])))
            seconds = float(part.stamps_ns[number] - part.stamps_ns[0]) * 1e-9
            metres = length_m(part.truth[: number + 1])
            return FirstFix(number + 1, metres, seconds, error <= GROSS_ERROR_M)
    seconds = float(part.stamps_ns[-1] - part.stamps_ns[0]) * 1e-9
    return FirstFix(None, length_m(part.truth), seconds, False)
