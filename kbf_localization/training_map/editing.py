"""Edits maps: joins those of several drives or lightings, takes drives and places out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from kbf_localization.arrays import Rows
from kbf_localization.errors import MapError
from kbf_localization.training_map.learned import MotionNoise, triple
from kbf_localization.training_map.learning import learn_from_map
from kbf_localization.training_map.training_map import TrainingMap, subset
from kbf_localization.vision.registry import same_descriptions


def merge_maps(maps: Sequence[TrainingMap]) -> TrainingMap:
    """All poses of all maps.

    The maps must share their describer and its words, since other descriptions cannot be
    compared. What the joined map knows about itself it learns anew, from itself; hyper-parameters
    stay where all maps have the same. The floor plan is that of the first map that has one.
    """
    if not maps:
        raise MapError("nothing to merge: name two maps or more")
    first = maps[0]
    for number, other in enumerate(maps[1:], start=2):
        if not same_descriptions(other.described_by, first.described_by):
            raise MapError(
                f"map {number} has other visual words or another describer than map 1, so their "
                "images cannot be compared; build it anew with 'kbf map build --like' and the "
                "first map"
            )
        earlier = [source.name for part in maps[: number - 1] for source in part.sources]
        refuse_repeated(earlier, [source.name for source in other.sources])
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
        floor_plan=next((part.floor_plan for part in maps if part.floor_plan is not None), None),
        ways=tuple(part.way(source) for part in maps for source in range(len(part.sources))),
    )
    return _learned_anew(merged, _noise(maps))


def refuse_repeated(names: Sequence[str], more: Sequence[str]) -> None:
    """A drive that is in the map twice would vouch for itself."""
    for name in more:
        if name in names:
            raise MapError(
                f"the drive '{name}' is in the map already; remove it first with 'kbf map remove "
                "--source', or rename the drive if it is another one"
            )


def _noise(maps: Sequence[TrainingMap]) -> MotionNoise:
    """Of several robots or drives the larger noise: the filter must be honest about both."""
    known = [part.learned.motion_noise for part in maps]
    return MotionNoise(
        per_metre=triple(np.max([noise.per_metre for noise in known], axis=0)),
        per_radian=triple(np.max([noise.per_radian for noise in known], axis=0)),
        set_aside=sum(noise.set_aside for noise in known),
    )


def remove_sources(training_map: TrainingMap, names: Sequence[str]) -> TrainingMap:
    """The map without the poses of these drives."""
    known = [source.name for source in training_map.sources]
    for name in names:
        if name not in known:
            raise MapError(f"the map has no drive '{name}': it has {', '.join(known)}")
    gone = [number for number, name in enumerate(known) if name in names]
    return _left(training_map, np.flatnonzero(~np.isin(training_map.source_of, gone)))


def remove_box(training_map: TrainingMap, box: tuple[float, float, float, float]) -> TrainingMap:
    """The map without the poses between the corners (x0, y0) and (x1, y1), in metres."""
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
    return _left(training_map, np.flatnonzero(~inside))


def _left(training_map: TrainingMap, rows: Rows) -> TrainingMap:
    if len(rows) == 0:
        raise MapError("nothing would be left of the map; delete its file instead")
    return _learned_anew(subset(training_map, rows), training_map.learned.motion_noise)


def _learned_anew(training_map: TrainingMap, noise: MotionNoise) -> TrainingMap:
    """The map with what it learns from itself, but for the odometry's noise, which it knows."""
    known = replace(learn_from_map(training_map), motion_noise=noise)
    return replace(training_map, known=known)
