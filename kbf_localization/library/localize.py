"""A drive to the poses that the robot would have got, one for each image."""

from __future__ import annotations

from collections.abc import Iterator

from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.run import frames_in_order
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
    none. `method` is "kbf" or a baseline: "fkbf", "nn", "nai", "kmcf".
    """
    localizer = Localizer(
        training_map,
        make_filter(method, training_map, seed=seed),
        settings or LocalizerSettings(),
    )
    for frame in frames_in_order(drive, training_map, progress=progress):
        frame.feed_odometry(localizer)
        if frame.observation is not None:
            fix = localizer.add_described(frame.stamp_ns, frame.observation)
            if fix is not None:
                yield fix
