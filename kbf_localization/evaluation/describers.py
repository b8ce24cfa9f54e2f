"""The same drives on maps that differ in nothing but what describes their images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.evaluate import SourceResult, evaluate_drives
from kbf_localization.evaluation.stopwatch import Stopwatch
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.build import build_map
from kbf_localization.vision.recipe import Recipe

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap


@dataclass(frozen=True)
class Variant:
    """A describer as it was asked for, the map built with it, and each test drive's runs."""

    describer: str
    training_map: TrainingMap
    results: list[SourceResult]

    @property
    def bytes_per_pose(self) -> int:
        """What the map keeps of an image: its description, and its grid of words if it has one."""
        grids = self.training_map.word_grids
        words = 0 if grids is None else grids.itemsize * grids.shape[1]
        return int(self.training_map.features.shape[1] + words)


def evaluate_describers(
    recipes: Sequence[Recipe],
    training: Sequence[Drive],
    tests: Sequence[Drive],
    methods: Sequence[str],
    *,
    poses: int = 1000,
    seed: int = 0,
    smooth: bool = False,
    workers: Workers | None = None,
    stopwatch: Stopwatch | None = None,
    progress: Progress = no_progress,
) -> Iterator[Variant]:
    """For each describer a map of `training`, on which all `tests` are replayed.

    The maps have the same poses: these are chosen before images are described.
    """
    watch = stopwatch or Stopwatch()
    for recipe in recipes:
        with watch.measuring("building maps"):
            training_map = build_map(
                training,
                poses=poses,
                describer=recipe,
                seed=seed,
                workers=workers,
                progress=progress,
            )
        results = evaluate_drives(
            tests,
            training_map,
            methods,
            seed=seed,
            smooth=smooth,
            stopwatch=watch,
            progress=progress,
        )
        yield Variant(recipe.text, training_map, results)
