"""Buildings whose places look alike: the filter must keep several hypotheses until it can tell.

*Look-alikes* are places that have most of their visual words in common, without landmarks. *Tiles*
are copies of a part of the building, beside which the rest is unique: exact copies, or near copies
that were mapped from other poses. A *corridor* of equal panels has a unique room at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.embeddings.bayes_rule import Form
from kbf_localization.errors import ParameterError
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import FramePool
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import GROSS_ERROR_M, Run, replay
from kbf_localization.experiments.ablation import VARIANTS as ABLATIONS
from kbf_localization.experiments.ablation import without_keypoints
from kbf_localization.experiments.localization import (
    INVENTED_FRAMES,
    Fold,
    Setup,
    rendered_offices,
    simulated_drives,
)
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.trials import nested_summaries, plus_minus, raw_data
from kbf_localization.filters.belief_filter import Ablation, BeliefFilter
from kbf_localization.filters.parameters import BeliefParameters
from kbf_localization.geometry import embed
from kbf_localization.localization import Localizer
from kbf_localization.mapping.frames import Frames
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.plans import DOOR_M, PANEL_M, plan_corridor
from kbf_localization.training_map.training_map import TrainingMap

POSES = 400
COMMON = 0.7
"""Fraction of an image's words that it has in common with its like."""

HEADING_METRES = 1.0
"""Of poses that are one place: a radian counts as much as a metre."""

COPIES, COPY_DISTANCE_M = 3, 100.0
"""Tiles, and how far apart they are: no drive leads from one to the next."""

CORRIDORS = {
    "corridor_start": "corridor of equal panels, start in it",
    "corridor_door": "corridor of equal panels, start at its door",
    "corridor_driven_in": "corridor of equal panels, driven in",
}
WORLDS = {
    "look_alikes_4": "look-alikes, 4 parts",
    "look_alikes_8": "look-alikes, 8 parts",
    "tiles_exact": "tiles, exact",
    "tiles_near": "tiles from other poses",
    "tiles_exact_landmarks": "tiles, exact, landmarks",
    "tiles_near_landmarks": "tiles from other poses, landmarks",
    **CORRIDORS,
}
"""The worlds, and what they are called in the table."""

DEEP_M = DOOR_M - 3.0 * PANEL_M
"""From here on the panels of the corridor are what an image shows most of."""

VARIANTS: Mapping[str, tuple[Ablation, Form]] = {
    "everything": (Ablation(), "original"),
    "random_walk": (Ablation(odometry=False), "original"),
    "plain_weights": (Ablation(), "plain"),
    "no_null_mass": (Ablation(null_mass=False), "original"),
}
"""Parts of the filter, and the form of the kernel Bayes' rule."""

METRICS = ("last_half_beyond_1m", "confident_wrong", "tracking", "tracking_in_tile")


@dataclass(frozen=True)
class AmbiguityTrial:
    """`metrics` of a variant of the filter in a world made of a building."""

    world: str
    variant: str
    office: int
    metrics: Mapping[str, float]


def rendered_worlds(
    folder: Path,
    worlds: Sequence[str],
    size: tuple[int, int],
    seed: int,
    count: int,
    workers: Workers,
    progress: Progress,
) -> Iterator[tuple[list[str], list[Setup]]]:
    """Render `count` offices and corridors; yield the `worlds` of each kind with what they need."""
    corridors = [world for world in worlds if world in CORRIDORS]
    offices = [world for world in worlds if world not in CORRIDORS]
    if offices:
        rendered = rendered_offices(folder, None, size, seed, count, workers, progress)
        yield offices, list(rendered.values())
    if corridors:
        numbers = range(seed, seed + count)
        yield corridors, [rendered_corridor(folder, size, k, workers, progress) for k in numbers]


def rendered_corridor(
    folder: Path, size: tuple[int, int], seed: int, workers: Workers, progress: Progress
) -> Setup:
    """Render drives in the corridor of `seed`; those of an earlier run are used again."""
    first, second, test = simulated_drives(
        folder / f"corridor{seed}",
        ["cloudy"] * 3,
        plan=plan_corridor(seed),
        seed=seed,
        frames=INVENTED_FRAMES,
        size=size,
        workers=workers,
        progress=progress,
    )
    return Setup("a corridor of equal panels", (Fold((first, second), test),))


def run_trials(
    setups: Sequence[Setup],
    worlds: Sequence[str],
    *,
    seed: int,
    workers: Workers,
    progress: Progress = no_progress,
) -> list[AmbiguityTrial]:
    """Run every variant in each of the `worlds`, made of each building."""
    results: list[AmbiguityTrial] = []
    for office, setup in enumerate(setups):
        for fold in setup.folds:
            pool = fold.describe(seed + office, workers, progress)
            task = partial(_run, pool, len(fold.training), seed, office)
            doing = f"look-alikes, building {office + 1} of {len(setups)}"
            for found in tracked(workers.map(task, worlds), doing, progress, len(worlds)):
                results += found
    return results


def _run(
    pool: FramePool, training_drives: int, seed: int, office: int, world: str
) -> list[AmbiguityTrial]:
    """Run all variants of the filter in one world."""
    training_map, drive, in_tile = make_world(pool, training_drives, world, seed)
    results = []
    for name, (parts, rule) in VARIANTS.items():
        parameters = BeliefParameters(rule=rule)
        pose_filter = BeliefFilter(training_map, parameters, parts)
        run = replay(drive, Localizer(training_map, pose_filter))
        results.append(AmbiguityTrial(world, name, office, metrics_of(run, in_tile)))
    return results


def make_world(
    pool: FramePool, training_drives: int, world: str, seed: int
) -> tuple[TrainingMap, DescribedDrive, Flags]:
    """Return a map, a drive on it, and when (t,) the drive is where copies exist."""
    if not (world.endswith("landmarks") or world in CORRIDORS):
        pool = without_keypoints(pool)
    rows = np.flatnonzero(pool.frames.drive_of < training_drives)
    if world.startswith("look_alikes"):
        mixed = with_look_alikes(pool, int(world.rpartition("_")[2]))
        drive = mixed.drive(training_drives)
        training_map = mixed.map_of(rows, POSES, "coverage", seed)
        return training_map, drive, np.zeros(len(drive), dtype=bool)
    if world in CORRIDORS:
        drive = pool.drive(training_drives)
        x = _truth(drive)[:, 0]
        starts = {"start": x < DEEP_M, "door": x < DOOR_M, "driven_in": x > DOOR_M}
        drive = starting_inside(drive, starts[world.removeprefix("corridor_")])
        # Where the robot has seen nothing but the corridor since it started.
        deep = np.logical_and.accumulate(_truth(drive)[:, 0] < DEEP_M)
        return pool.map_of(rows, POSES, "coverage", seed), drive, deep
    tiled, middle = with_tiles(pool, training_drives, exact="exact" in world)
    drive = pool.drive(training_drives)
    drive = starting_inside(drive, _truth(drive)[:, 0] < middle)
    everything = np.arange(len(tiled.frames.poses))
    training_map = tiled.map_of(everything, POSES, "coverage", seed)
    # Once the robot has left the tile it may know which tile it was in.
    in_tile = np.logical_and.accumulate(_truth(drive)[:, 0] < middle)
    return training_map, drive, np.asarray(in_tile)


def _truth(drive: DescribedDrive) -> Array:
    assert drive.truth is not None
    return drive.truth


def with_look_alikes(pool: FramePool, alike: int) -> FramePool:
    """Return the same frames, `alike` parts of the building looking much alike.

    The parts are those of the first drive's path. Each image has most of its words from the image
    at the same place of the first part; word grids and keypoints, which tell them apart, are gone.
    """
    first = [int(row) for row in pool.rows_of(0) if int(row) in pool.described]
    part = max(1, len(first) // alike)
    tree = cKDTree(_points(pool.frames.poses[first]))
    nearest = np.asarray(tree.query(_points(pool.frames.poses))[1])
    described = {}
    for row, own in pool.described.items():
        like = pool.described[first[int(nearest[row]) % part]].image.features
        mixed = COMMON * like.astype(np.float64) + (1.0 - COMMON) * own.image.features
        features = np.round(mixed).astype(like.dtype)
        image = replace(own.image, features=features, words=None, keypoints=None)
        described[row] = replace(own, image=image)
    return replace(pool, described=described)


def with_tiles(pool: FramePool, training_drives: int, *, exact: bool) -> tuple[FramePool, float]:
    """Return the training frames with copies of their left half, and where that ends (m).

    Copies are `COPY_DISTANCE_M` apart. They have the same frames, or else every copy, the original
    too, has its own frames, so that the tiles were seen from slightly different poses.
    """
    poses = pool.frames.poses
    middle = float(np.median(poses[pool.frames.drive_of < training_drives, 0]))
    pieces: list[tuple[Rows, float]] = []
    for copy in range(COPIES):
        for number in range(training_drives):
            rows = pool.rows_of(number)
            left = poses[rows, 0] < middle
            own = exact | (np.arange(len(rows)) % COPIES == copy)
            chosen = left & own if copy else ~left | own
            pieces.append((rows[chosen], COPY_DISTANCE_M * copy))
    parts = [_shifted(pool.frames.part(rows), shift) for rows, shift in pieces]
    rows = np.concatenate([piece[0] for piece in pieces])
    described = {
        place: pool.described[int(row)]
        for place, row in enumerate(rows)
        if int(row) in pool.described
    }
    frames = Frames(
        drives=[drive for part in parts for drive in part.drives],
        drive_of=np.concatenate([part.drive_of + number for number, part in enumerate(parts)]),
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("index_of", "poses", "next_poses", "motions", "odometry")
        },
    )
    return FramePool(frames, described, pool.describer), middle


def _shifted(frames: Frames, shift_m: float) -> Frames:
    """Return the frames as of a building so far along y."""
    by = np.array([0.0, shift_m, 0.0])
    return replace(frames, poses=frames.poses + by, next_poses=frames.next_poses + by)


def starting_inside(drive: DescribedDrive, inside: Flags) -> DescribedDrive:
    """Return the drive from where its longest stretch `inside` (t,) begins that it later leaves.

    A stretch that ends in the last quarter counts only where there is no other: too little of what
    is outside follows.
    """
    flags = np.concatenate(([False], inside, [False])).astype(int)
    begins, ends = (np.flatnonzero(np.diff(flags) == sign) for sign in (1, -1))
    left = ends <= 0.75 * len(drive)
    longest = int(np.argmax((ends - begins) * (left if left.any() else 1)))
    return drive.part(slice(int(begins[longest]), None))


def _points(poses: Array) -> Array:
    """Return poses (t, 3) as points (t, 4) whose distances tell places apart."""
    return embed(poses) * (1.0, 1.0, HEADING_METRES, HEADING_METRES)


def metrics_of(run: Run, in_tile: Flags) -> dict[str, float]:
    """Return the metrics of one run; *tracking* in a tile is confident without a reason."""
    errors = position_errors(run)
    tracking = np.array([state == "tracking" for state in run.states])
    rows: Rows = np.flatnonzero(in_tile[: len(run)])
    return {
        "last_half_beyond_1m": float(np.mean(errors[len(errors) // 2 :] > GROSS_ERROR_M)),
        "confident_wrong": float(np.mean(tracking & (errors > GROSS_ERROR_M))),
        "tracking": float(np.mean(tracking)),
        "tracking_in_tile": float(np.mean(tracking[rows])) if len(rows) else 0.0,
    }


def check_worlds(text: str | None) -> list[str]:
    """Return the worlds in a list separated by commas, each once; all for None."""
    if text is None:
        return list(WORLDS)
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in WORLDS]
    if unknown or not names:
        raise ParameterError(
            f"no world is called '{', '.join(unknown)}': choose from {', '.join(WORLDS)}"
        )
    return names


def experiment_result(trials: Sequence[AmbiguityTrial]) -> ExperimentResult:
    """Return a table of variants by worlds, and every trial."""
    metrics = nested_summaries(
        ((trial.world, trial.variant, name), trial.metrics[name])
        for trial in trials
        for name in METRICS
    )
    rows = [
        (
            f"{WORLDS[world]}; {ABLATIONS[variant].title}",
            *(plus_minus(values[name], 1, 100.0) for name in METRICS),
        )
        for world, by_variant in metrics.items()
        for variant, values in by_variant.items()
    ]
    columns = (
        *("World and filter", "Last half beyond 1 m [%]", "Confident and wrong [%]"),
        *("Tracking [%]", "Tracking in a tile [%]"),
    )
    of = {name: name for name in ("world", "variant", "office")}
    return ExperimentResult(
        "Places that look alike",
        metrics,
        tables=[Table("Places that look alike, mean ± std over buildings", columns, rows)],
        csv={"ambiguity.csv": raw_data(trials, of, METRICS)},
    )
