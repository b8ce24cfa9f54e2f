"""Builds a training map from drives, whose poses are known or estimated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.floor_plan_image import read_floor_plan
from kbf_localization.errors import MapError
from kbf_localization.filters.parameters import BeliefParameters, parameters_of
from kbf_localization.geometry import embed
from kbf_localization.landmarks.build import KeypointSource, KeypointStore
from kbf_localization.limits import ParameterValue
from kbf_localization.mapping.calibrate import calibrate, fit_kernel_scales
from kbf_localization.mapping.describing import (
    Described,
    describe_frames,
    detect_frames,
    image_size,
    sample_descriptors,
)
from kbf_localization.mapping.frame_agreement import frame_warnings
from kbf_localization.mapping.frames import (
    LANDMARK_SPACING,
    SELECTIONS,
    Frames,
    gather_frames,
    select_frames,
)
from kbf_localization.mapping.held_out import Probes, runs_along
from kbf_localization.mapping.landmarks import (
    calibrate_landmarks,
    can_measure,
    find_camera,
    held_out_count,
    landmark_warnings,
    make_landmarks,
    partner_rows,
)
from kbf_localization.mapping.poses import with_poses
from kbf_localization.motion.noise import MotionNoise, fit_motion_noise
from kbf_localization.motion.odometry_model import noise_between
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.calibration import SimilarityModel
from kbf_localization.training_map.sources import Source
from kbf_localization.training_map.training_map import MapObservation, TrainingMap, map_spacing
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import Describer, reduced_size
from kbf_localization.vision.recipe import Recipe
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary, learn_vocabulary

NOISE_WINDOW = 2.0
"""In d₀ and φ₀: wheel errors are correlated over metres, so short windows underestimate them."""

DEFAULT_POSES = 1000
"""A pose every 0.1 to 0.3 m of an office's floor."""

VOCABULARY_IMAGES, VOCABULARY_DESCRIPTORS = 250, 100_000
"""Sampled images and descriptors on which k-means finds the visual words."""


def build_map(
    drives: Drive | Sequence[Drive],
    *,
    poses: int | str | None = None,
    select: str = "coverage",
    seed: int = 0,
    words: int = 200,
    settings: DescriberSettings | None = None,
    describer: str | Recipe | Describer = "sift",
    like: TrainingMap | None = None,
    parameters: Mapping[str, ParameterValue] | None = None,
    floor_plan: Path | str | None = None,
    landmarks: bool = True,
    poses_from: str = "auto",
    refine_poses: bool = False,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> TrainingMap:
    """Build a map of at most `poses` poses from the drives' frames; equal seeds give equal maps.

    Without `poses`, a map with landmarks has as many as cover the drives' paths, at most 1000, and
    one without landmarks 1000. `select` is "coverage", which spreads the poses over the drives'
    paths, or "random". Images are resized to the first image's size, large images halved, unless
    `settings` give another size. `words` is the size of the visual vocabulary. `describer` is
    "sift", the spatial pyramid, a describer such as `OnnxDescriber("net.onnx")`, or a `Recipe` such
    as Recipe("sift*onnx", …). A map built `like` another has its describer and its vocabulary, so
    that the two can be merged. A chosen image that cannot be decoded is left out, with a warning in
    the map's `warnings`. `floor_plan` is a YAML file of map_server's, kept in the map to draw on.
    The map is calibrated with the hyper-parameters `parameters` that it will be used with.

    `poses_from` is "given", the drives' known poses; "odometry", poses estimated from wheel
    odometry and images (`estimate_poses`); or "auto", given poses where all drives have some. How
    they were estimated is in the map's `warnings`. `poses="odometry"` says the same in short. With
    `refine_poses` given poses are noisy: jumps, drift and gaps in them are mended, and named.
    """
    count = poses if isinstance(poses, int) else DEFAULT_POSES
    spacing = 0.0 if isinstance(poses, int) or not landmarks else LANDMARK_SPACING
    if isinstance(poses, str):
        poses_from = poses
    if count < 1:
        raise MapError(f"a map needs at least one pose, not {count}")
    if select not in SELECTIONS:
        raise MapError(f"select must be one of {', '.join(SELECTIONS)}, not '{select}'")
    workers = workers or Serial()
    all_drives = drives if isinstance(drives, Sequence) else [drives]
    source = with_poses(
        all_drives, poses_from, refine=refine_poses, seed=seed, workers=workers, progress=progress
    )
    frames = gather_frames(source.drives)
    plan = None if floor_plan is None else read_floor_plan(Path(floor_plan), frames.poses)

    def pyramid() -> PyramidDescriber:
        layout = settings or _settings_for(frames, words)
        vocabulary = _learn_words(frames, layout, seed, workers, progress)
        return PyramidDescriber(vocabulary, layout)

    if like is not None:
        describer = like.described_by
    elif isinstance(describer, str):
        describer = Recipe(describer)
    if isinstance(describer, Recipe):
        describer = describer.make(pyramid)
    rows = select_frames(frames.poses, count, select, seed, spacing)
    built = _built(frames, rows, describer, parameters, seed, landmarks, workers, progress)
    if spacing and built.landmarks is None and len(rows) < min(count, len(frames.poses)):
        # Whole images measure poses by their neighbours, which must be nearer than landmarks need.
        rows = select_frames(frames.poses, count, select, seed)
        dense = _built(frames, rows, describer, parameters, seed, False, workers, progress)
        built = replace(dense, warnings=tuple(dict.fromkeys((*dense.warnings, *built.warnings))))
    built = replace(built, warnings=(*built.warnings, *frame_warnings(built)))
    return replace(source.annotated(built), floor_plan=plan)


def _built(
    frames: Frames,
    rows: Rows,
    describer: Describer,
    parameters: Mapping[str, ParameterValue] | None,
    seed: int,
    landmarks: bool,
    workers: Workers,
    progress: Progress,
) -> TrainingMap:
    """Describe the frames `rows`, and those that calibrate, and make the map of them."""
    asked = np.unique(np.concatenate((rows, *probe_runs(frames, rows))))
    with KeypointStore() as store:
        keypoints = store if landmarks else None
        described = describe_frames(frames, asked, describer, workers, progress, keypoints)
        if keypoints is not None:
            rest = np.setdiff1d(partner_rows(frames, rows), asked)
            detect_frames(frames, rest, keypoints, workers, progress)
        return map_of_frames(
            frames,
            described,
            rows,
            describer,
            parameters,
            seed,
            keypoints=keypoints,
            workers=workers,
            progress=progress,
        )


def map_of_frames(
    frames: Frames,
    described: Mapping[int, Described],
    rows: Rows,
    describer: Describer,
    parameters: Mapping[str, ParameterValue] | None = None,
    seed: int = 0,
    *,
    keypoints: KeypointSource | None = None,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> TrainingMap:
    """Make the map of the frames `rows`, calibrated on those of `probe_runs`.

    `described` has the frames' descriptions by their row, without those that cannot be decoded.
    With `keypoints` of all frames the map has landmarks.
    """
    kept = np.array([row for row in rows if int(row) in described], dtype=np.intp)
    if len(kept) == 0:
        raise MapError(f"{frames.drives[0].path}: none of {len(rows)} chosen images can be decoded")
    items = [described[int(row)] for row in kept]
    grids = [item.image.words for item in items if item.image.words is not None]
    training_map = TrainingMap(
        poses=frames.poses[kept],
        features=np.stack([item.image.features for item in items]),
        next_poses=frames.next_poses[kept],
        motions=frames.motions[kept],
        described_by=describer,
        motion_variances=noise_between(frames.poses, frames.motions, frames.next_poses),
        sources=tuple(
            Source(
                name=drive.name,
                kind=drive.kind,
                condition=drive.condition,
                frames=int((frames.drive_of == number).sum()),
                chosen=int((frames.drive_of[kept] == number).sum()),
                stamps_ns=(int(drive.stamps_ns[0]), int(drive.stamps_ns[-1])),
            )
            for number, drive in enumerate(frames.drives)
        ),
        source_of=frames.drive_of[kept],
        thumbnails=[item.thumbnail for item in items],
        parameters=dict(parameters or {}),
        warnings=tuple(_warnings(frames, items, len(rows), describer)),
        word_grids=np.stack(grids) if len(grids) == len(items) else None,
        trajectories=tuple(frames.trajectory(number) for number in range(len(frames.drives))),
        reference_poses=_reference_poses(frames, kept),
    )
    runs = [[row for row in run if int(row) in described] for run in probe_runs(frames, rows)]
    probed = np.unique([int(row) for run in runs for row in run])
    held_out = spread_over(probed, held_out_count(len(frames.poses)))
    if keypoints is not None:
        training_map = _with_landmarks(
            training_map,
            frames,
            kept,
            keypoints,
            items[0].image.image_size,
            held_out,
            workers,
            progress,
        )
    progress(0, 1, "calibrating on the map's own drives")

    def observe(row: int) -> MapObservation:
        description = described[row].image
        if keypoints is not None and row in keypoints:
            description = replace(description, keypoints=keypoints[row])
        return training_map.observe(description)

    probes = Probes.of(
        runs,
        frames.poses,
        frames.drive_of,
        frames.odometry,
        frames.path_lengths,
        observe,
    )
    used = parameters_of(BeliefParameters, "kbf", training_map.parameters)
    path_lengths = frames.path_lengths[kept]
    training_map, probes = fit_kernel_scales(training_map, path_lengths, probes, used, seed)
    noise = partial(_motion_noise, frames)
    calibration = calibrate(training_map, path_lengths, probes, noise, used, seed)
    training_map = replace(training_map, fitted=calibration)
    held_out_images = [] if keypoints is None else [observe(int(row)) for row in held_out]
    return calibrate_landmarks(
        training_map, held_out_images, frames.poses[held_out], frames.drive_of[held_out]
    )


def _reference_poses(frames: Frames, rows: Rows) -> Array | None:
    """Return the poses (n, 3) that drives with estimated poses had before; None without any."""
    known = [getattr(drive, "reference_poses", None) for drive in frames.drives]
    found = np.full((len(rows), 3), np.nan)
    for place, row in enumerate(rows):
        poses = known[int(frames.drive_of[row])]
        if poses is not None:
            found[place] = poses[int(frames.index_of[row])]
    return found if np.isfinite(found).any() else None


def _with_landmarks(
    training_map: TrainingMap,
    frames: Frames,
    rows: Rows,
    keypoints: KeypointSource,
    image_size: tuple[int, int],
    held_out: Rows,
    workers: Workers | None,
    progress: Progress,
) -> TrainingMap:
    """Return the map with landmarks, or with a warning why it has none."""
    camera = find_camera(frames, keypoints, image_size)
    if isinstance(camera, str):
        return replace(training_map, warnings=(*training_map.warnings, camera))
    landmarks = make_landmarks(frames, rows, keypoints, camera, workers, progress, held_out)
    warnings = (*training_map.warnings, *camera.warnings, *landmark_warnings(landmarks))
    kept = landmarks if can_measure(landmarks) else None
    return replace(training_map, landmarks=kept, warnings=warnings)


def spread_over(rows: Rows, count: int) -> Rows:
    """Return at most `count` of the rows, evenly spread."""
    chosen = np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.intp)
    return np.asarray(rows[chosen], dtype=np.intp)


def probe_runs(frames: Frames, rows: Rows) -> list[Rows]:
    """Return runs of frames, spread over the drives, that calibrate a map of the frames `rows`."""
    spacing = map_spacing(embed(frames.poses[rows]))
    return runs_along(frames.path_lengths, frames.drive_of, spacing)


def _motion_noise(frames: Frames, similarity: SimilarityModel) -> MotionNoise:
    """Estimate Q over windows of the map's scales, in which correlated wheel errors add up."""
    segments = ((frames.poses[own], frames.odometry[own]) for own in frames.unbroken())
    windows = NOISE_WINDOW * similarity.distance_m, NOISE_WINDOW * similarity.angle_rad
    return fit_motion_noise(segments, *windows)


def _warnings(
    frames: Frames, items: Sequence[Described], asked: int, describer: Describer
) -> Iterator[str]:
    for drive in frames.drives:
        yield from drive.warnings
    if len(items) < asked:
        yield f"{asked - len(items)} of {asked} chosen images cannot be decoded; left out"
    resized = sum(item.resized for item in items)
    if resized:
        width, height = describer.image_size
        yield f"{resized} of {asked} chosen images were resized to {width}x{height}"


def _settings_for(frames: Frames, words: int) -> DescriberSettings:
    size = image_size(frames)
    if size is None:
        raise MapError(f"{frames.drives[0].path}: no image can be decoded")
    width, height = reduced_size(size)
    try:
        return replace(DescriberSettings(), image_width=width, image_height=height, words=words)
    except ValueError as error:
        raise MapError(f"{frames.drives[0].path}: {error}") from error


def _learn_words(
    frames: Frames,
    settings: DescriberSettings,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Vocabulary:
    """Learn the vocabulary from images drawn from all drives."""
    rows = select_frames(frames.poses, VOCABULARY_IMAGES, "random", seed)
    per_image = min(settings.patches, -(-VOCABULARY_DESCRIPTORS // len(rows)))
    descriptors = sample_descriptors(frames, rows, per_image, seed, settings, workers, progress)
    if len(descriptors) == 0:
        raise MapError(
            f"{frames.drives[0].path}: none of {len(rows)} sampled images can be decoded"
        )
    return learn_vocabulary(descriptors, settings.words, seed, progress=progress)
