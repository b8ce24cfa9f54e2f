"""Whether the poses of a map's drives are of one frame, by the landmarks that its images share.

Poses of two sessions of SLAM, or of a map that was moved since, may be off by metres against each
other while each drive fits itself. Images of different drives that show the same place tell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.errors import MapError
from kbf_localization.geometry import compose, fit_rigid, relative, wrap_angle
from kbf_localization.landmarks.table import ImageLandmarks
from kbf_localization.pose_graph.closures import MIN_INLIER_FRACTION, MIN_INLIERS
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.keypoints import mutual_matches, squared_distances

MAX_COMPARED = 40
"""Images of a drive that are compared: tens of places tell whether most of them disagree."""
MIN_PLACES = 5
"""Places that two drives share, with fewer of which nothing is said."""
ELSEWHERE_M, ELSEWHERE_RAD = 0.5, np.radians(10.0)
"""Poses of AMCL or SLAM that are off by more against another drive's are of another frame."""
AGREEMENT_M, AGREEMENT_RELATIVE = 0.10, 0.05
"""Two images' landmarks agree within 0.1 m and 5 % of their distance: what their depth errs by."""
HYPOTHESES = 200
"""Pairs of matches that a motion is computed from: with 40 % inliers each misses with 84 %."""


def frame_warnings(training_map: TrainingMap) -> list[str]:
    """Name drives whose poses contradict those of the drives before them; of landmarks alone."""
    if training_map.landmarks is None:
        return []
    names = [source.name for source in training_map.sources]
    lines = []
    for number in range(1, len(names)):
        own = np.flatnonzero(training_map.source_of == number)
        others = np.flatnonzero(training_map.source_of < number)
        if not (len(own) and len(others)):
            continue
        seen = list(_misplaced(training_map, _spread(own), others))
        if len(seen) < MIN_PLACES:
            continue
        metres, wrong = (np.array(column) for column in zip(*seen))
        if 2 * wrong.sum() > len(wrong):
            lines.append(
                f"{names[number]}: its poses put {wrong.sum()} of {len(wrong)} places that earlier "
                f"drives show too elsewhere than these do, by {np.median(metres[wrong]):.1f} m "
                "(median): either its frame is another, or parts of the building look alike. "
                "--poses-from odometry estimates the poses instead"
            )
    return lines


def _spread(rows: Rows) -> Rows:
    chosen = np.linspace(0, len(rows) - 1, min(MAX_COMPARED, len(rows))).astype(np.intp)
    return np.asarray(rows[chosen], dtype=np.intp)


def _misplaced(training_map: TrainingMap, rows: Rows, others: Rows) -> Iterator[tuple[float, bool]]:
    """Yield for places that two drives share how far apart the poses put them, and if too far."""
    landmarks = training_map.landmarks
    assert landmarks is not None
    similar = others[training_map.image_gram(rows, others).argmax(axis=1)]
    for row, other in zip(rows.tolist(), similar.tolist()):
        try:
            images = landmarks.table.image(row), landmarks.table.image(other)
        except MapError:  # A damaged row.
            continue
        motion = motion_between(*images)
        if motion is None:
            continue
        away = relative(motion, relative(training_map.poses[other], training_map.poses[row]))
        metres, turn = float(np.hypot(*away[:2])), abs(float(wrap_angle(away[2])))
        yield metres, metres > ELSEWHERE_M or turn > ELSEWHERE_RAD


def motion_between(image: ImageLandmarks, other: ImageLandmarks) -> Array | None:
    """Return the pose (3,) of an image as seen from another by the points that both see.

    None where too few of them agree.
    """
    rows, columns, _ = mutual_matches(squared_distances(image.descriptors, other.descriptors))
    if len(rows) < MIN_INLIERS:
        return None
    here, there = image.offsets[rows], other.offsets[columns]
    level = np.abs(here[:, 2] - there[:, 2]) < _bound(there)
    pairs = np.random.default_rng(0).integers(len(rows), size=(HYPOTHESES, 2))
    best = np.zeros(len(rows), dtype=bool)
    for pair in pairs[pairs[:, 0] != pairs[:, 1]]:
        agree = level & _agree(_fitted(here, there, pair), here, there)
        if agree.sum() > best.sum():
            best = agree
    if best.sum() < max(MIN_INLIERS, MIN_INLIER_FRACTION * len(rows)):
        return None
    return _fitted(here, there, np.flatnonzero(best))


def _fitted(here: Array, there: Array, chosen: Rows) -> Array:
    try:
        return fit_rigid(here[chosen, :2], there[chosen, :2])
    except ValueError:  # Two keypoints on one point.
        return np.zeros(3)


def _agree(motion: Array, here: Array, there: Array) -> Flags:
    moved = compose(motion, np.column_stack((here[:, :2], np.zeros(len(here)))))[:, :2]
    return np.asarray(np.hypot(*(moved - there[:, :2]).T) < _bound(there))


def _bound(there: Array) -> Array:
    return np.asarray(AGREEMENT_M + AGREEMENT_RELATIVE * np.linalg.norm(there, axis=1))
