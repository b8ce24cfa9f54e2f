"""The buildings of the fault experiment: invented offices, and one round a real path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.open import open_drive
from kbf_localization.evaluation.described_drive import describe_drive
from kbf_localization.evaluation.frame_pool import describe_drives
from kbf_localization.experiments.faults import Building
from kbf_localization.experiments.localization_drives import real_paths, simulated_drives
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.simulator import simulate_along

EACH = 2
KINDS = {
    "training": ("cloudy", 0.0),
    "tests": ("cloudy", 0.0),
    "night": ("night", 0.0),
    "turned_20_degrees": ("cloudy", np.radians(20.0)),
}
"""The drives, so many of each kind: their light, and by how much the camera is turned."""


@dataclass(frozen=True)
class Builder:
    """Renders buildings and makes their maps, of `poses` poses; images are `size` pixels large."""

    poses: int
    size: tuple[int, int]
    workers: Workers
    progress: Progress = no_progress

    def invented(self, folder: Path, seed: int, frames: int) -> Building:
        """The invented office of `seed`, rendered into `folder`."""
        conditions = [condition for condition, _ in KINDS.values() for _ in range(EACH)]
        turned = [turned_rad for _, turned_rad in KINDS.values() for _ in range(EACH)]
        drives = simulated_drives(
            folder, conditions, camera_turned_rad=turned, frames=frames, **self._how(seed)
        )
        parts = [drives[first : first + EACH] for first in range(0, len(drives), EACH)]
        return self._building(f"office {seed}", parts, seed)

    def round_path(self, folder: Path, trajectories: Path, seed: int) -> Building:
        """The office of `seed` round the real paths in `trajectories`, rendered into `folder`."""
        trained, tested = real_paths(trajectories)
        parts = []
        for kind, (condition, turned_rad) in KINDS.items():
            path, other = (trained, tested) if kind == "training" else (tested, trained)
            paths = simulate_along(
                folder / kind,
                [path],
                office_from=[other],
                extra_drives=EACH - 1,
                condition=condition,
                camera_turned_rad=turned_rad,
                **self._how(seed),
            )
            parts.append([open_drive(one) for one in paths])
        return self._building(f"real path, office {seed}", parts, seed)

    def _how(self, seed: int) -> dict[str, Any]:
        return {
            "seed": seed,
            "size": self.size,
            "workers": self.workers,
            "progress": self.progress,
        }

    def _building(self, name: str, parts: Sequence[Sequence[Drive]], seed: int) -> Building:
        training, tests, by_night, camera_turned = (tuple(part) for part in parts)
        pool = describe_drives(training, seed=seed, workers=self.workers, progress=self.progress)
        self.progress(0, 1, f"learning the map of {name}")
        rows = np.arange(len(pool.frames.poses))
        training_map = pool.map_of(rows, self.poses, "coverage", seed)
        describer = training_map.described_by
        return Building(
            name=name,
            pool=pool,
            poses=self.poses,
            seed=seed,
            training_map=training_map,
            tests=tests,
            described=tuple(
                describe_drive(one, describer, progress=self.progress) for one in tests
            ),
            further={"night": by_night, "turned_20_degrees": camera_turned},
        )
