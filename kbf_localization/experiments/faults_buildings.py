"""The buildings of the fault experiment: invented offices, and one round a real path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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

TRAINING, TESTS = 2, 2
"""Drives that make a map, and drives that are tested on it."""

TURNED_RAD = np.radians(20.0)


def invented_building(
    folder: Path,
    *,
    seed: int,
    poses: int,
    frames: int,
    size: tuple[int, int],
    workers: Workers,
    progress: Progress = no_progress,
) -> Building:
    """The invented office of `seed`, rendered into `folder`."""
    conditions = ["cloudy"] * (TRAINING + TESTS) + ["night"] * TESTS + ["cloudy"] * TESTS
    turned = [0.0] * (TRAINING + 2 * TESTS) + [TURNED_RAD] * TESTS
    drives = simulated_drives(
        folder,
        conditions,
        seed=seed,
        frames=frames,
        size=size,
        camera_turned_rad=turned,
        workers=workers,
        progress=progress,
    )
    ends = np.cumsum([TRAINING, TESTS, TESTS])
    parts = [drives[a:b] for a, b in zip((0, *ends), (*ends, len(drives)), strict=True)]
    return _building(f"office {seed}", parts, poses, seed, workers, progress)


def building_round_path(
    folder: Path,
    trajectories: Path,
    *,
    seed: int,
    poses: int,
    size: tuple[int, int],
    workers: Workers,
    progress: Progress = no_progress,
) -> Building:
    """The office of `seed` round the real paths in `trajectories`, rendered into `folder`."""
    trained, tested = real_paths(trajectories)

    def rendered(name: str, path: Path, other: Path, extra: int, **how: object) -> list[Drive]:
        paths = simulate_along(
            folder / name,
            [path],
            office_from=[other],
            extra_drives=extra,
            seed=seed,
            size=size,
            workers=workers,
            progress=progress,
            **how,  # type: ignore[arg-type]
        )
        return [open_drive(one) for one in paths]

    parts = [
        rendered("training", trained, tested, TRAINING - 1),
        rendered("tests", tested, trained, TESTS - 1),
        rendered("night", tested, trained, TESTS - 1, condition="night"),
        rendered("turned", tested, trained, TESTS - 1, camera_turned_rad=TURNED_RAD),
    ]
    return _building(f"real path, office {seed}", parts, poses, seed, workers, progress)


def _building(
    name: str,
    parts: Sequence[Sequence[Drive]],
    poses: int,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Building:
    training, tests, by_night, camera_turned = (tuple(part) for part in parts)
    pool = describe_drives(training, seed=seed, workers=workers, progress=progress)
    progress(0, 1, f"learning the map of {name}")
    rows = np.arange(len(pool.frames.poses))
    training_map = pool.map_of(rows, poses, "coverage", seed)
    describer = training_map.describer()
    return Building(
        name=name,
        pool=pool,
        poses=poses,
        seed=seed,
        training_map=training_map,
        tests=tests,
        described=tuple(describe_drive(one, describer, progress=progress) for one in tests),
        by_night=by_night,
        camera_turned=camera_turned,
    )
