"""Methods over drives, descriptors over maps, and the files that an evaluation writes.

On a map in its own frame, the truth is brought into that frame first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.drive import MEASURED, SIMULATED, Drive
from kbf_localization.datasets.parts import PosedDrive
from kbf_localization.datasets.trajectory import write_tum
from kbf_localization.errors import DatasetError, MapError, ParameterError
from kbf_localization.evaluation.described_drive import DriveDescribedAhead
from kbf_localization.evaluation.description_cache import CachedDescriber, DescriptionCache
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.plots import save_plots
from kbf_localization.evaluation.report import write_drives_report, write_report
from kbf_localization.evaluation.results import ResultsFolder, numbered_names
from kbf_localization.evaluation.run import Run, replay, smoothed_run
from kbf_localization.evaluation.stopwatch import Stopwatch
from kbf_localization.evaluation.training_data import training_warning
from kbf_localization.evaluation.verdict import verdict
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import compose, fit_rigid, relative, wrap_angle
from kbf_localization.localization.localizer import Localizer
from kbf_localization.localization.result import LocalizerSettings, State
from kbf_localization.mapping.build import build_map
from kbf_localization.mapping.poses import RELATIVE_SIGMA
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.anchors import Anchor
from kbf_localization.pose_graph.estimate import estimate_poses
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import ImageDescription
from kbf_localization.vision.recipe import Recipe

METRES_PER_RADIAN = 1.0
"""Distance that counts as much as a turn by a radian when the nearest map image is chosen."""


def truth_frame(runs: Sequence[Run]) -> Array | None:
    """Return the pose (3,) of the truth's frame in the map's, by least squares on tracked images.

    Without two of them at distinct places all images with a known truth are taken, and None is
    returned where these are too few as well.
    """
    for wanted in (_tracked, _known):
        estimates = np.concatenate([run.estimates[wanted(run)] for run in runs])
        truths = [run.truth[wanted(run)] for run in runs if run.truth is not None]
        if not truths or not len(estimates):
            continue
        truth = np.concatenate(truths)
        try:
            return fit_rigid(truth[:, :2], estimates[:, :2])
        except ValueError:
            continue
    return None


def _known(run: Run) -> Flags:
    if run.truth is None:
        return np.zeros(len(run), dtype=bool)
    return np.asarray(np.isfinite(run.truth).all(axis=1))


def _tracked(run: Run) -> Flags:
    tracking: Flags = np.array([state == "tracking" for state in run.states], dtype=bool)
    return _known(run) & tracking


def with_truth_in(run: Run, frame: Array) -> Run:
    """Return the run with its truth moved by `frame` (3,)."""
    if run.truth is None:
        return run
    return replace(run, truth=compose(frame, run.truth))


def truth_in_map(run: Run, training_map: TrainingMap) -> Array:
    """Return the true poses (t, 3) as the nearest map images place them; NaN where unknown.

    The map has estimated and known poses of its images: the true motion from the known
    pose of the image nearest to the estimate leads from its estimated one to the true pose.
    """
    references = training_map.reference_poses
    found = np.full((len(run), 3), np.nan)
    if references is None or run.truth is None:
        return found
    rows = np.flatnonzero(np.isfinite(references).all(axis=1))
    poses = training_map.poses[rows]
    for frame in np.flatnonzero(_known(run)):
        away = poses - run.estimates[frame]
        turned = METRES_PER_RADIAN * wrap_angle(away[:, 2])
        nearest = int(np.argmin(away[:, 0] ** 2 + away[:, 1] ** 2 + turned**2))
        motion = relative(references[rows[nearest]], run.truth[frame])
        found[frame] = compose(poses[nearest], motion)
    return found


def errors_relative_to_map(run: Run, training_map: TrainingMap) -> Array:
    """Return the errors (t,) in metres of poses relative to the nearest map image; NaN if unknown.

    They are independent of the frames of map and truth.
    """
    return np.asarray(np.hypot(*(run.estimates - truth_in_map(run, training_map))[:, :2].T))


Metrics = dict[str, float]

ALIGNED_NOTE = (
    "The map has its own frame: the truth was moved onto the tracked poses (SE(2)) before errors "
    "were measured. The error relative to the map needs no such alignment."
)


@dataclass(frozen=True, repr=False)
class SourceResult:
    """One drive and each method's estimates, by the method's name.

    `descriptions` of its images by the map's descriptor, where they were made here. `truth_frame`
    (3,) is the pose of the truth's frame in the map's, where the truth was moved by it.
    """

    drive: Drive
    runs: Mapping[str, Run]
    descriptions: Sequence[ImageDescription | None] = ()
    truth_frame: Array | None = None

    @property
    def truth(self) -> Array | None:
        """The true poses (t, 3) of the drive's images in the map's frame, where they are known."""
        poses = self.drive.poses
        if poses is None or self.truth_frame is None:
            return poses
        return compose(self.truth_frame, poses)

    def __repr__(self) -> str:
        return f"SourceResult({self.drive.name}: {', '.join(self.runs)})"


def evaluate_drives(
    drives: Sequence[Drive],
    training_map: TrainingMap,
    methods: Sequence[str],
    *,
    settings: LocalizerSettings | None = None,
    seed: int = 0,
    smooth: bool = False,
    cache: DescriptionCache | None = None,
    workers: Workers | None = None,
    stopwatch: Stopwatch | None = None,
    progress: Progress = no_progress,
) -> list[SourceResult]:
    """Replay each drive through each method, as fast as the CPU allows.

    Images are described on all cores ahead of the first method's filter, which does not wait.
    With `smooth` the default filter's runs are also given smoothed, as "kbf_smoothed". Images whose
    descriptions are in the `cache` are not described again; `workers` describe the others.
    """
    watch = stopwatch or Stopwatch()
    if smooth and "kbf" not in methods:
        raise ParameterError("--smooth smooths the method kbf, which --method leaves out")
    results = []
    for drive in drives:
        describer = training_map.image_describer
        described = DriveDescribedAhead(
            drive,
            describer if cache is None else CachedDescriber(describer, cache),
            watch,
            workers,
        )
        runs = {}
        for name in methods:
            with watch.measuring(name):
                pose_filter = make_filter(name, training_map, seed=seed)
                localizer = Localizer(training_map, pose_filter, settings or LocalizerSettings())
                run = replay(described, localizer, name, keep_beliefs=True, progress=progress)
            runs[name] = run
            if smooth and run.steps is not None:
                with watch.measuring("smoothing"):
                    smooth_run = smoothed_run(run, run.steps)
                runs[smooth_run.method] = smooth_run
        if not any(len(run) for run in runs.values()):
            raise DatasetError(f"{drive.path}: no image got an estimate; {_why(runs)}")
        results.append(SourceResult(drive, runs, described.descriptions))
    return results


def metrics_by_method(results: Sequence[SourceResult]) -> dict[str, Metrics]:
    """Return each method's metrics over the frames of all drives together."""
    return {
        name: trajectory_metrics(*(result.runs[name] for result in results))
        for name in results[0].runs
    }


def in_map_frame(
    results: Sequence[SourceResult], training_map: TrainingMap
) -> tuple[list[SourceResult], bool]:
    """Return the results with the truth in the map's frame, and whether it had to be moved there.

    A map from wheel odometry alone has its own frame. The first method's tracked images tell where
    the truth's lies. Covariances are then judged by errors relative to the nearest map image.
    """
    frame = None
    if training_map.own_frame:
        frame = truth_frame([next(iter(result.runs.values())) for result in results])
    if frame is None:
        return list(results), False
    return [
        replace(
            result,
            runs={
                name: replace(with_truth_in(run, frame), map_truth=truth_in_map(run, training_map))
                for name, run in result.runs.items()
            },
            truth_frame=frame,
        )
        for result in results
    ], True


def relative_metrics(
    results: Sequence[SourceResult], training_map: TrainingMap
) -> dict[str, Metrics]:
    """Return each method's error relative to the nearest map image, where that is known."""
    found: dict[str, Metrics] = {}
    for name in results[0].runs:
        errors = np.concatenate(
            [errors_relative_to_map(result.runs[name], training_map) for result in results]
        )
        known = errors[np.isfinite(errors)]
        found[name] = {"relative_to_map_median_m": float(np.median(known))} if len(known) else {}
    return found


def write_results(
    folder: ResultsFolder,
    results: Sequence[SourceResult],
    training_map: TrainingMap,
    config: Mapping[str, Any],
    stopwatch: Stopwatch | None = None,
    progress: Progress = no_progress,
    *,
    report: bool = True,
    plots: bool = False,
) -> dict[str, Any]:
    """Write metrics, configuration, trajectories, the report and plots; return the metrics.

    `config["command"]` is what the report tells a reader to run again. Several drives get a folder
    each, and a report that leads to theirs.
    """
    simulated = any(result.drive.odometry_origin == SIMULATED for result in results)
    relative_errors = relative_metrics(results, training_map)
    results, aligned = in_map_frame(results, training_map)
    metrics: dict[str, Any] = {
        "odometry": SIMULATED if simulated else MEASURED,
        "methods": {
            name: own | relative_errors[name] for name, own in metrics_by_method(results).items()
        },
    }
    if training_map.own_frame:
        metrics["aligned"] = aligned
    notes = (ALIGNED_NOTE,) if aligned else ()
    warnings = [
        training_warning(training_map, result.drive, result.descriptions) for result in results
    ]
    if any(warnings):
        metrics["warnings"] = [line for line in warnings if line]
    if lights := sorted({result.drive.condition for result in results if result.drive.condition}):
        metrics["conditions"] = {
            light: metrics_by_method(
                [result for result in results if result.drive.condition == light]
            )
            for light in lights
        }
    parts = _parts(results)
    if len(results) > 1:
        metrics["sources"] = {
            part: {
                "name": result.drive.name,
                "condition": result.drive.condition,
                "odometry": result.drive.odometry_origin,
                "methods": {name: trajectory_metrics(run) for name, run in result.runs.items()},
                "verdict": verdict(next(iter(result.runs.values()))),
            }
            for part, result in zip(parts, results, strict=True)
        }
    watch = stopwatch or Stopwatch()
    folder.write_config(config)
    for part, result, warning in zip(parts, results, warnings, strict=True):
        _write_trajectories(folder, part, result)
        if plots:
            with watch.measuring("plots"):
                save_plots(folder, part, result.runs, training_map, progress)
        if report:
            with watch.measuring("report"):
                write_report(
                    folder,
                    f"{part}report.html",
                    _title(result.drive, config),
                    config,
                    result.runs,
                    training_map,
                    result.drive,
                    warning,
                    progress,
                    truth=result.truth,
                    notes=notes,
                )
    if report and len(results) > 1:
        write_drives_report(folder, config, metrics, parts)
    folder.write_metrics(metrics)
    return metrics


def _title(drive: Drive, config: Mapping[str, Any]) -> str:
    """Return the drive's name, and the map's where the configuration names its file."""
    return f"{drive.name} on {Path(config['map']).stem}" if "map" in config else drive.name


def _parts(results: Sequence[SourceResult]) -> list[str]:
    """Return each drive's folder within the results: none for one drive, else numbered names."""
    if len(results) == 1:
        return [""]
    return [f"{name}/" for name in numbered_names([result.drive for result in results])]


def _write_trajectories(folder: ResultsFolder, part: str, result: SourceResult) -> None:
    for name, run in result.runs.items():
        with folder.writing(f"{part}trajectory_{name}.tum") as path:
            write_tum(path, run.stamps_ns, run.estimates)
    if result.truth is not None:
        with folder.writing(f"{part}trajectory_truth.tum") as path:
            write_tum(path, np.asarray(result.drive.stamps_ns), result.truth)


def _why(runs: Mapping[str, Run]) -> str:
    counts = next(iter(runs.values())).counts
    reasons = ", ".join(f"{reason.replace('_', ' ')} ({count})" for reason, count in counts.items())
    return f"{reasons or 'it has no images'}; check that odometry and images overlap in time"


@dataclass(frozen=True)
class Variant:
    """A describer as it was asked for, the map built with it, and each test drive's runs."""

    describer: str
    training_map: TrainingMap
    results: list[SourceResult]

    @property
    def bytes_per_pose(self) -> int:
        """What the map keeps of an image: its description and, if any, its grid of words."""
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
    """Build a map of `training` for each descriptor and replay all `tests` on it.

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
            workers=workers,
            stopwatch=watch,
            progress=progress,
        )
        yield Variant(recipe.text, training_map, results)


ANCHOR_STEP_M = 0.5
"""Path between two localized images that hold the drive: errors nearer together are the same."""
MAX_SIGMA_M = 0.5
"""A localized image that is less certain holds nothing."""
MIN_SIGMA = np.array([0.05, 0.05, 0.02])
"""m, m, rad: what a map's own poses err by."""
MIN_ANCHORS = 3


def localized_drive(
    training_map: TrainingMap, drive: Drive, seed: int = 0, progress: Progress = no_progress
) -> PosedDrive:
    """Return the drive with poses in the map's frame; MapError where it cannot be localized.

    The smoother localizes it on the map; its sure poses hold a pose graph of its odometry and
    images. They are doubtful: one that the rest of the drive contradicts is given up.
    """
    result = evaluate_drives(
        [drive], training_map, ["kbf"], seed=seed, smooth=True, progress=progress
    )[0]
    run = result.runs["kbf_smoothed"]
    anchors: list[Anchor] = []
    last = None
    for stamp, pose, covariance, state in zip(
        run.stamps_ns, run.estimates, run.covariances, run.states
    ):
        sigma = np.sqrt(np.diag(covariance))
        if state != State.TRACKING.value or sigma[:2].max() > MAX_SIGMA_M:
            continue
        if last is not None and np.hypot(*relative(last, pose)[:2]) < ANCHOR_STEP_M:
            continue
        last = pose
        sigma = np.maximum(sigma, MIN_SIGMA)
        anchors.append(
            Anchor(
                0,
                int(stamp),
                (float(pose[0]), float(pose[1]), float(pose[2])),
                (float(sigma[0]), float(sigma[1]), float(sigma[2])),
                doubtful=True,
            )
        )
    if len(anchors) < MIN_ANCHORS:
        raise MapError(
            f"{drive.path}: cannot be localized on the map, so it cannot be added without poses; "
            "does it meet the map's drives, in the same direction?"
        )
    found = estimate_poses([drive], anchors=anchors, seed=seed, progress=progress)
    trajectory = found.trajectories[0]
    note = (
        f"{drive.name}: its poses are those of localization on the map at {len(anchors)} places, "
        "with wheel odometry and images between them"
    )
    return PosedDrive(
        drive,
        trajectory.poses,
        trajectory.covariances,
        RELATIVE_SIGMA,
        found.camera,
        found.mount,
        (note, *found.warnings),
        trajectory.clock_offset_s,
    )
