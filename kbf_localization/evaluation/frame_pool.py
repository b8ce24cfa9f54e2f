"""All frames of some drives, described once, for many trials on maps chosen from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kbf_localization.datasets.drive import Drive
from kbf_localization.geometry import interpolate, relative
from kbf_localization.motion.odometry_model import noise_between
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.build import build_map
from kbf_localization.training_map.description import describe_frames
from kbf_localization.training_map.frames import gather_frames
from kbf_localization.vision.pyramid_kernel import PyramidKernel

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

ROWS_AT_ONCE = 64


@dataclass(frozen=True)
class FramePool:
    """t frames of several drives, one after the other.

    `drive_of` (t,); `poses`, `next_poses`, `motions` (t, 3) as in a map; `step_motions` (t, 3) the
    odometry's motion from the frame before, NaN at a drive's first. `similarities` (t, s) of power
    1 with the s frames of the training drives, which come first, in single precision.
    """

    drive_of: Rows
    poses: Array
    next_poses: Array
    motions: Array
    step_motions: Array
    similarities: NDArray[np.float32]

    def rows_of(self, drive: int) -> Rows:
        """The rows of one drive's frames."""
        return np.flatnonzero(self.drive_of == drive)


@dataclass(frozen=True)
class PoolMap:
    """A map of some of a pool's frames; similarities are looked up."""

    pool: FramePool
    rows: Rows
    motion_variances: Array
    parameters: Mapping[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def poses(self) -> Array:
        return self.pool.poses[self.rows]

    @property
    def next_poses(self) -> Array:
        return self.pool.next_poses[self.rows]

    @property
    def motions(self) -> Array:
        return self.pool.motions[self.rows]

    def image_gram(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        columns = self.rows[rows_a if rows_b is None else rows_b]
        return self.pool.similarities[np.ix_(self.rows[rows_a], columns)].astype(np.float64)

    def observe_frame(self, frame: int) -> PoolObservation:
        """The image of one of the pool's frames as an observation against this map."""
        return PoolObservation(self.pool.similarities[frame, self.rows].astype(np.float64))


@dataclass(frozen=True)
class PoolObservation:
    """Similarities (n,) that were computed before."""

    row: Array

    def similarities(self, rows: Rows | None = None) -> Array:
        return self.row if rows is None else self.row[rows]


def pool_map(pool: FramePool, drives: Sequence[int], count: int, seed: int) -> PoolMap:
    """A map of `count` frames of these drives, chosen at random; noise from all their frames."""
    candidates = np.flatnonzero(np.isin(pool.drive_of, drives))
    size = min(count, len(candidates))
    chosen = np.sort(np.random.default_rng(seed).choice(candidates, size, replace=False))
    variances = noise_between(
        pool.poses[candidates], pool.motions[candidates], pool.next_poses[candidates]
    )
    return PoolMap(pool, chosen, variances)


def describe_drives(
    training: Sequence[Drive],
    test: Sequence[Drive] = (),
    *,
    seed: int = 0,
    words: int = 200,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> FramePool:
    """Describe all frames with words learnt from the training drives alone.

    Similarities are computed of every frame with the training drives' frames.
    """
    workers = workers or Serial()
    drives = [*training, *test]
    model = build_map(training, poses=1, seed=seed, words=words, workers=workers, progress=progress)
    frames = gather_frames(drives)
    described = list(
        describe_frames(
            frames,
            drives,
            np.arange(len(frames.poses)),
            model.vocabulary,
            model.describer_settings,
            workers,
            progress,
        )
    )
    kept = np.array([item.place for item in described], dtype=np.intp)
    drive_of, index_of = frames.drive_of[kept], frames.index_of[kept]
    histograms = np.stack([item.histogram for item in described])
    learnt_from = int((drive_of < len(training)).sum())
    return FramePool(
        drive_of=drive_of,
        poses=frames.poses[kept],
        next_poses=frames.next_poses[kept],
        motions=frames.motions[kept],
        step_motions=np.concatenate(
            [_step_motions(drive, index_of[drive_of == i]) for i, drive in enumerate(drives)]
        ),
        similarities=_similarities(
            histograms, learnt_from, PyramidKernel(model.describer_settings), workers, progress
        ),
    )


def _step_motions(drive: Drive, indices: Rows) -> Array:
    odometry = drive.odometry
    at_images = interpolate(odometry.stamps_ns, odometry.poses, drive.stamps_ns[indices])
    motions = np.full((len(indices), 3), np.nan)
    motions[1:] = relative(at_images[:-1], at_images[1:])
    return motions


@dataclass(frozen=True)
class _SimilarityTask:
    """Similarities of some histograms with those of the training drives."""

    kernel: PyramidKernel
    histograms: NDArray[np.uint8]
    self_similarities: Array

    def __call__(self, queries: NDArray[np.uint8]) -> NDArray[np.float32]:
        return np.array(
            [
                self.kernel.similarities(query, self.histograms, self.self_similarities)
                for query in queries
            ],
            dtype=np.float32,
        )


def _similarities(
    histograms: NDArray[np.uint8],
    count: int,
    kernel: PyramidKernel,
    workers: Workers,
    progress: Progress,
) -> NDArray[np.float32]:
    """Similarities (t, count) of all histograms with the first `count`."""
    total = len(histograms)
    columns = histograms[:count]
    task = _SimilarityTask(kernel, columns, kernel.self_similarities(columns))
    starts = range(0, total, ROWS_AT_ONCE)
    result = np.zeros((total, count), dtype=np.float32)
    chunks = (histograms[start : start + ROWS_AT_ONCE] for start in starts)
    for start, part in zip(starts, workers.map(task, chunks), strict=True):
        result[start : start + len(part)] = part
        progress(min(start + ROWS_AT_ONCE, total), total, "comparing images")
    return result
