"""Edits maps: merges them, removes drives and places, and calibrates the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array, Rows
from kbf_localization.errors import MapError
from kbf_localization.geometry import compose, fit_rigid
from kbf_localization.landmarks.landmark_map import LandmarkMap
from kbf_localization.landmarks.table import LandmarkTable
from kbf_localization.mapping.calibrate import calibrate_from_map
from kbf_localization.mapping.frame_agreement import frame_warnings
from kbf_localization.mapping.frames import check_extent
from kbf_localization.motion.noise import MotionNoise, triple
from kbf_localization.training_map.training_map import TrainingMap, subset
from kbf_localization.vision.registry import same_descriptions

MAX_DISAGREEMENT_M = 0.3
"""Points clicked on a plan of 5 cm cells, or measured by tape, agree better."""
MAX_SCALE_ERROR = 0.02
"""Beyond it the distances of map and plan differ by more than points are inexact."""


def merge_maps(maps: Sequence[TrainingMap]) -> TrainingMap:
    """Merge maps: the result has all poses of all maps.

    The maps must have the same describer and vocabulary, since other descriptions cannot be
    compared. The merged map is calibrated on its own poses; hyper-parameters stay where all maps
    have the same. The floor plan is that of the first map with a plan.
    """
    if not maps:
        raise MapError("nothing to merge: name two maps or more")
    first = maps[0]
    for number, other in enumerate(maps[1:], start=2):
        if not same_descriptions(other.described_by, first.described_by):
            raise MapError(
                f"map {number} has other visual words or another describer than map 1, so their "
                "images cannot be compared; rebuild it with 'kbf map build --vocabulary-from' and "
                "the first map"
            )
        earlier = [source.name for part in maps[: number - 1] for source in part.sources]
        refuse_repeated(earlier, [source.name for source in other.sources])
    check_extent(np.concatenate([part.poses for part in maps]))
    counts = np.array([len(part) for part in maps], dtype=np.float64)
    variances = np.stack([part.motion_variances for part in maps])
    same_parameters = all(part.parameters == first.parameters for part in maps)
    first_source = np.cumsum([0, *(len(part.sources) for part in maps[:-1])])
    grids = [part.word_grids for part in maps if part.word_grids is not None]
    merged = TrainingMap(
        poses=np.concatenate([part.poses for part in maps]),
        features=np.concatenate([part.features for part in maps]),
        next_poses=np.concatenate([part.next_poses for part in maps]),
        motions=np.concatenate([part.motions for part in maps]),
        described_by=first.described_by,
        motion_variances=np.average(variances, axis=0, weights=counts),
        sources=tuple(chain.from_iterable(part.sources for part in maps)),
        source_of=np.concatenate(
            [part.source_of + start for part, start in zip(maps, first_source, strict=True)]
        ),
        thumbnails=list(chain.from_iterable(part.thumbnails for part in maps)),
        parameters=first.parameters if same_parameters else {},
        warnings=tuple(chain.from_iterable(part.warnings for part in maps)),
        word_grids=None if len(grids) < len(maps) else np.concatenate(grids),
        landmarks=_merged_landmarks(maps),
        floor_plan=next((part.floor_plan for part in maps if part.floor_plan is not None), None),
        trajectories=tuple(
            part.trajectory(source) for part in maps for source in range(len(part.sources))
        ),
        own_frame=first.own_frame,
        reference_poses=_merged_references(maps),
    )
    warnings = dict.fromkeys((*merged.warnings, *frame_warnings(merged)))
    return _recalibrated(replace(merged, warnings=tuple(warnings)), _noise(maps))


def _merged_references(maps: Sequence[TrainingMap]) -> Array | None:
    """Return the known poses beside the estimated, NaN for maps without any."""
    if all(part.reference_poses is None for part in maps):
        return None
    unknown = [np.full_like(part.poses, np.nan) for part in maps]
    return np.concatenate(
        [
            blank if part.reference_poses is None else part.reference_poses
            for part, blank in zip(maps, unknown)
        ]
    )


def _merged_landmarks(maps: Sequence[TrainingMap]) -> LandmarkMap | None:
    """Return the landmarks of all maps, where all have some of the same camera."""
    parts = [part.landmarks for part in maps if part.landmarks is not None]
    first = parts[0] if parts else None
    if first is None or len(parts) < len(maps):
        return None
    if any((p.camera, p.mount) != (first.camera, first.mount) for p in parts):
        return None
    images = [part.table.image(row) for part in parts for row in range(len(part))]
    poses = np.concatenate([part.poses for part in maps])
    return replace(first, table=LandmarkTable.of_images(images), poses=poses)


def refuse_repeated(names: Sequence[str], more: Sequence[str]) -> None:
    """Raise a MapError for a drive that would be in the map twice: it would confirm itself."""
    for name in more:
        if name in names:
            raise MapError(
                f"the drive '{name}' is in the map already; remove it first with 'kbf map remove "
                "--source', or rename the drive if it is another one"
            )


def _noise(maps: Sequence[TrainingMap]) -> MotionNoise:
    """Return the largest noise of the maps, with which the filter is consistent on all drives."""
    noises = [part.calibration.motion_noise for part in maps]
    return MotionNoise(
        per_metre=triple(np.max([noise.per_metre for noise in noises], axis=0)),
        per_radian=triple(np.max([noise.per_radian for noise in noises], axis=0)),
        set_aside=sum(noise.set_aside for noise in noises),
    )


def remove_sources(training_map: TrainingMap, names: Sequence[str]) -> TrainingMap:
    """Return the map without the poses of these drives."""
    present = [source.name for source in training_map.sources]
    for name in names:
        if name not in present:
            raise MapError(f"the map has no drive '{name}': it has {', '.join(present)}")
    removed = [number for number, name in enumerate(present) if name in names]
    return _kept(training_map, np.flatnonzero(~np.isin(training_map.source_of, removed)))


def remove_box(training_map: TrainingMap, box: tuple[float, float, float, float]) -> TrainingMap:
    """Return the map without the poses between the corners (x0, y0) and (x1, y1), in metres."""
    corners = np.array(box, dtype=np.float64).reshape(2, 2)
    low, high = corners.min(axis=0), corners.max(axis=0)
    positions = training_map.poses[:, :2]
    inside = ((positions >= low) & (positions <= high)).all(axis=1)
    if not inside.any():
        (west, south), (east, north) = positions.min(axis=0), positions.max(axis=0)
        raise MapError(
            f"no pose lies within the box; the map reaches from ({west:.1f}, {south:.1f}) to "
            f"({east:.1f}, {north:.1f})"
        )
    return _kept(training_map, np.flatnonzero(~inside))


def move_map(training_map: TrainingMap, frame: Array) -> TrainingMap:
    """Return the map in another frame, in which the pose of the present one is `frame` (3,).

    Landmarks are kept relative to the poses, and what was calibrated does not depend on the frame,
    but for the motion's variances along its axes.
    """
    plan = training_map.floor_plan
    if plan is not None:
        x, y, heading = (float(value) for value in compose(frame, np.array(plan.origin)))
        plan = replace(plan, origin=(x, y, heading))
    cos2, sin2 = float(np.cos(frame[2]) ** 2), float(np.sin(frame[2]) ** 2)
    turned = np.kron(np.eye(2), np.array([[cos2, sin2], [sin2, cos2]]))
    poses = compose(frame, training_map.poses)
    landmarks = training_map.landmarks
    return replace(
        training_map,
        poses=poses,
        next_poses=compose(frame, training_map.next_poses),
        motion_variances=turned @ training_map.motion_variances,
        trajectories=tuple(compose(frame, path) for path in training_map.trajectories),
        floor_plan=plan,
        landmarks=None if landmarks is None else replace(landmarks, poses=poses),
        own_frame=False,
    )


def frame_from_pairs(pairs: ArrayLike) -> tuple[Array, Array]:
    """Return the frame (3,) that fits pairs (n, 4: x, y in the map, x, y there), and errors (n,).

    MapError for fewer than two pairs, or pairs at one place.
    """
    pairs = np.asarray(pairs, dtype=np.float64)
    if pairs.ndim != 2 or pairs.shape[1] != 4 or len(pairs) < 2 or not np.isfinite(pairs).all():
        raise MapError("give two or more pairs of points: x_map,y_map,x_to,y_to, in metres")
    try:
        frame = fit_rigid(pairs[:, :2], pairs[:, 2:])
    except ValueError as error:
        raise MapError("the points are all the same: give two distinct places or more") from error
    moved = compose(frame, np.column_stack((pairs[:, :2], np.zeros(len(pairs)))))
    return frame, np.asarray(np.hypot(*(moved[:, :2] - pairs[:, 2:]).T))


def disagreement(pairs: ArrayLike, frame: Array) -> str | None:
    """Say how pairs (n, 4) contradict a rigid motion `frame` (3,); None where they fit it.

    Distances that differ in both frames by a common factor are the odometry's scale.
    """
    pairs = np.asarray(pairs, dtype=np.float64)
    moved = compose(frame, np.column_stack((pairs[:, :2], np.zeros(len(pairs)))))[:, :2]
    away, there = (points - points.mean(axis=0) for points in (moved, pairs[:, 2:]))
    scale = float((away * there).sum() / (away**2).sum())
    left = float(np.hypot(*(scale * away - there).T).max())
    if len(pairs) > 2 and left > MAX_DISAGREEMENT_M:
        return f"the points contradict each other by {left:.2f} m; check them"
    if abs(scale - 1.0) > MAX_SCALE_ERROR:
        return (
            f"distances there are {scale:.3f} times the map's. If the points are right, the wheels "
            f"are not: build the map with --odometry-scale {scale:.3f}"
        )
    return None


def _kept(training_map: TrainingMap, rows: Rows) -> TrainingMap:
    if len(rows) == 0:
        raise MapError("nothing would be left of the map; delete its file instead")
    return _recalibrated(subset(training_map, rows), training_map.calibration.motion_noise)


def _recalibrated(training_map: TrainingMap, noise: MotionNoise) -> TrainingMap:
    """Return the map calibrated on its own poses, with the motion noise that is known already."""
    calibration = replace(calibrate_from_map(training_map), motion_noise=noise)
    return replace(training_map, fitted=calibration)
