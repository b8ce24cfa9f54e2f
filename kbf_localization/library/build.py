"""Drives to a map that is ready for use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbf_localization.datasets.drive import Drive
from kbf_localization.localization.calibration import calibrate
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap, with_parameters
from kbf_localization.training_map import build_map as build_uncalibrated_map


def build_map(
    drives: Drive | Sequence[Drive],
    *,
    poses: int = 1000,
    select: str = "coverage",
    words: int = 200,
    like: TrainingMap | None = None,
    parameters: Mapping[str, float] | None = None,
    thresholds: Mapping[str, float] | None = None,
    seed: int = 0,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> TrainingMap:
    """A map of at most `poses` poses from the drives' frames; the same for the same seed.

    `select` is "coverage", which spreads the poses over the drives' way, or "random". `words` is
    the size of the visual vocabulary; a map built `like` another one shares its vocabulary, so
    that the two can be merged. `parameters` and `thresholds` are what `kbf tune` found. Thresholds
    that are not given are learnt from the drives themselves.
    """
    sources = list(drives) if isinstance(drives, Sequence) else [drives]
    training_map = build_uncalibrated_map(
        sources,
        poses=poses,
        select=select,
        seed=seed,
        words=words,
        settings=None if like is None else like.describer_settings,
        vocabulary=None if like is None else like.vocabulary,
        workers=workers,
        progress=progress,
    )
    tuned = with_parameters(
        training_map,
        training_map.parameters if parameters is None else parameters,
        thresholds,
    )
    if tuned.thresholds:
        return tuned
    learnt = calibrate(tuned, sources, workers=workers, progress=progress)
    return with_parameters(tuned, tuned.parameters, learnt)
