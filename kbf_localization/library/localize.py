"""A drive to the poses that the robot would have got, one for each image."""

from __future__ import annotations

from collections.abc import Iterator

from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.described_drive import DriveInPassing
from kbf_localization.evaluation.run import localize_drive
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localization, Localizer, LocalizerSettings
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap


def localize(
    training_map: TrainingMap,
    drive: Drive,
    method: str = "kbf",
    *,
    settings: LocalizerSettings | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Iterator[Localization]:
    """A fix for each image of `drive`, as soon as it is computed; nothing is kept.

    An image that cannot be used, because it cannot be decoded or no odometry covers its stamp, gets
    none. `method` is "kbf" or another one: "paper", "fkbf", "nn", "nai", "kmcf".
    """
    localizer = Localizer(
        training_map, make_filter(method, training_map, seed=seed), settings or LocalizerSettings()
    )
    passing = DriveInPassing(drive, training_map.described_by)
    for _, fix, _, _ in localize_drive(passing, localizer, progress):
        if fix is not None:
            yield fix
