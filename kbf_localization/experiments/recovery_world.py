"""The maps and test drives of the recovery experiment: a simulated office by day and by night."""

from __future__ import annotations

from pathlib import Path

from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.described_drive import describe_drive
from kbf_localization.experiments.localization_drives import simulated_drives
from kbf_localization.experiments.recovery import Scene, World
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.training_map import TrainingMap, build_map
from kbf_localization.training_map.merge import merge_maps


def make_world(
    folder: Path,
    poses: int,
    frames: int,
    test_drives: int,
    size: tuple[int, int],
    *,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> World:
    """Render the drives into `folder` and build the maps: two cloudy drives, and one by night."""
    conditions = ["cloudy"] * (2 + test_drives) + ["night"] * 2
    how = {"seed": seed, "frames": frames, "size": size, "workers": workers}
    drives = simulated_drives(folder, conditions, **how, progress=progress)
    trained, tests, (night_trained, night_test) = drives[:2], drives[2:-2], drives[-2:]
    cloudy = build_map(trained, poses=poses, seed=seed, workers=workers, progress=progress)
    night = build_map(
        [night_trained],
        poses=poses,
        seed=seed,
        like=cloudy,
        workers=workers,
        progress=progress,
    )
    merged = merge_maps([cloudy, night])

    def scene(training_map: TrainingMap, on: list[Drive]) -> Scene:
        describer = training_map.described_by
        described = [describe_drive(one, describer, progress=progress) for one in on]
        return Scene(training_map, tuple(described))

    return World(
        by_day=scene(cloudy, tests),
        night_on_cloudy=scene(cloudy, [night_test]),
        night_on_merged=scene(merged, [night_test]),
    )
