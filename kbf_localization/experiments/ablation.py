"""What each part of the filter is worth: localization with one part left out after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.drive import Drive
from kbf_localization.embeddings.bayes_rule import Form
from kbf_localization.evaluation.frame_pool import FramePool
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import replay
from kbf_localization.experiments.localization import Setup
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.trials import Trial, plus_minus, raw_data, summaries
from kbf_localization.filters.belief_filter import Ablation, BeliefFilter
from kbf_localization.filters.parameters import BeliefParameters, parameters_of
from kbf_localization.localization import Localizer
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.vision.dense_sift import DESCRIPTOR_LENGTH
from kbf_localization.vision.describer import as_grey
from kbf_localization.vision.keypoints import Keypoints

METRICS = ("position_rmse_m", "position_median_m", "share_beyond_1m")


@dataclass(frozen=True)
class Variant:
    """The filter with some of its parts, called `title`; the map learned with the same."""

    title: str
    parts: Ablation = Ablation()  # noqa: RUF009 (frozen)
    rule: Form = "original"
    read_out: bool = True
    landmarks: bool = True
    camera_known: bool = True
    sift: bool = True


VARIANTS: Mapping[str, Variant] = {
    "everything": Variant("everything"),
    "no_landmarks": Variant("no landmarks", landmarks=False),
    "random_walk": Variant("random walk in place of odometry", Ablation(odometry=False)),
    "plain_weights": Variant("plain weights in place of the KBR", rule="plain"),
    "no_null_mass": Variant("1 − κ stays with its component", Ablation(null_mass=False)),
    "no_read_out": Variant("no offsets by alignment", read_out=False),
    "learned_camera": Variant("camera calibrated from the drives", camera_known=False),
    "orb": Variant("ORB in place of SIFT", sift=False),
    "no_landmarks_random_walk": Variant(
        "no landmarks, random walk in place of odometry", Ablation(odometry=False), landmarks=False
    ),
    "no_landmarks_plain_weights": Variant(
        "no landmarks, plain weights in place of the KBR", rule="plain", landmarks=False
    ),
    "no_landmarks_no_null_mass": Variant(
        "no landmarks, 1 − κ stays with its component", Ablation(null_mass=False), landmarks=False
    ),
    "no_landmarks_no_read_out": Variant(
        "no landmarks, no offsets by alignment", read_out=False, landmarks=False
    ),
}
"""All of it, and each part left out in turn."""


def run_trials(
    setups: Sequence[Setup],
    *,
    trials: int,
    sizes: Sequence[int],
    seed: int,
    workers: Workers,
    progress: Progress = no_progress,
) -> list[Trial]:
    """Run every variant on the same `trials` random maps of each size, in each office."""
    results: list[Trial] = []
    for office, setup in enumerate(setups):
        for fold in setup.folds:
            pool = fold.describe(seed, workers, progress)
            task = partial(_run, pool, len(fold.training), office, seed)
            items = [(name, n, k) for n in sizes for k in range(trials) for name in VARIANTS]
            doing = f"parts left out, office {office + 1} of {len(setups)}"
            results += tracked(workers.map(task, items), doing, progress, len(items))
    return results


def _run(
    pool: FramePool, training_drives: int, office: int, seed: int, item: tuple[str, int, int]
) -> Trial:
    """Run one variant on one random map of so many poses."""
    name, poses, choice = item
    variant = VARIANTS[name]
    if not variant.read_out:
        pool = _without_word_grids(pool)
    if not variant.landmarks:
        pool = without_keypoints(pool)
    if not variant.camera_known:
        pool = _without_camera(pool)
    if not variant.sift:
        pool = _with_orb(pool)
    chosen = pool.random_map(
        range(training_drives),
        poses,
        seed + 100_000 + choice,
        {"kbf.rule": variant.rule},
    )
    pose_filter = BeliefFilter(
        chosen, parameters_of(BeliefParameters, "kbf", chosen.parameters), variant.parts
    )
    run = replay(pool.drive(training_drives), Localizer(chosen, pose_filter))
    return Trial(str(office), poses, name, choice, trajectory_metrics(run))


def _without_word_grids(pool: FramePool) -> FramePool:
    """Return the same frames, from which no offset can be read."""
    described = {
        row: replace(item, image=replace(item.image, words=None))
        for row, item in pool.described.items()
    }
    return replace(pool, described=described)


def without_keypoints(pool: FramePool) -> FramePool:
    """Return the same frames, of which no landmarks can be made."""
    described = {
        row: replace(item, image=replace(item.image, keypoints=None))
        for row, item in pool.described.items()
    }
    return replace(pool, described=described)


def _without_camera(pool: FramePool) -> FramePool:
    """Return the same frames of drives whose camera is not known."""
    drives = [_UncalibratedDrive(drive) for drive in pool.frames.drives]
    return replace(pool, frames=replace(pool.frames, drives=drives))


class _UncalibratedDrive:
    """A drive that does not know its camera."""

    camera = None
    mount = None

    def __init__(self, drive: Drive) -> None:
        self._drive = drive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drive, name)

    def __len__(self) -> int:
        return len(self._drive)


ORB_BITS, ORB_KEYPOINTS = 256, 400


def orb_keypoints(image: Image) -> Keypoints:
    """Return as many ORB keypoints as upright SIFT takes, with descriptors for its matching.

    Hamming's distance of 256 bits is a squared distance, which a projection on 128 orthogonal axes
    keeps in the mean; it differs by about 9 % for bits that differ at random.
    """
    found, bits = cv2.ORB_create(ORB_KEYPOINTS).detectAndCompute(as_grey(image), None)  # type: ignore[attr-defined]
    if not found:
        return Keypoints.none()
    signs = np.unpackbits(bits, axis=1).astype(np.float64) - 0.5
    projected = signs @ _orb_axes()
    # Projections have a standard deviation of one half.
    descriptors = np.clip(np.rint(127.5 + 63.75 * projected), 0, 255).astype(np.uint8)
    return Keypoints(np.array([point.pt for point in found], dtype=np.float32), descriptors)


@lru_cache(maxsize=1)
def _orb_axes() -> Array:
    """Return orthonormal columns (256, 128)."""
    drawn = np.random.default_rng(0).standard_normal((ORB_BITS, DESCRIPTOR_LENGTH))
    return np.asarray(np.linalg.qr(drawn)[0])


def _with_orb(pool: FramePool) -> FramePool:
    """Return the same frames with ORB's keypoints."""
    described = dict(pool.described)
    for number, drive in enumerate(pool.frames.drives):
        rows = pool.rows_of(number)
        images = drive.images(pool.frames.index_of[rows].tolist())
        for row, (_, image) in zip(rows.tolist(), images):
            if image is not None and row in described:
                item = described[row]
                with_orb = replace(item.image, keypoints=orb_keypoints(image))
                described[row] = replace(item, image=with_orb)
    return replace(pool, described=described)


def experiment_result(trials: Sequence[Trial]) -> ExperimentResult:
    """Return the metrics over offices and choices, and every trial."""
    metrics = summaries(trials, METRICS)
    rows = [
        (
            f"n = {size}, {VARIANTS[name].title}",
            plus_minus(values["position_rmse_m"], 2),
            plus_minus(values["position_median_m"], 3),
            plus_minus(values["share_beyond_1m"], 1, 100.0),
        )
        for size, by_variant in metrics.items()
        for name, values in by_variant.items()
    ]
    title = "Each part left out in turn, mean ± std over offices and choices"
    columns = ("Map and filter", "RMSE [m]", "Median [m]", "Beyond 1 m [%]")
    of = {"variant": "method", "poses": "poses", "office": "place", "choice": "choice"}
    return ExperimentResult(
        "Parts left out",
        metrics,
        tables=[Table(title, columns, rows)],
        csv={"ablation.csv": raw_data(trials, of, METRICS)},
    )
