"""Matches of an image's keypoints with the landmarks of a few map images."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.landmarks.bearings import Bearings
from kbf_localization.landmarks.projection import Pairs
from kbf_localization.landmarks.table import LandmarkTable
from kbf_localization.vision.keypoints import distance_columns, distance_rows, mutual_matches

MAX_IMAGES = 64
"""Map images kept ready; with 200 landmarks of 620 bytes, 8 MB."""


@dataclass(frozen=True)
class MapImage:
    """Landmarks of a map image in the map's frame.

    `columns` (m, 130) are the descriptors for distances; `points` (m, 3), `covariances`
    (3, 3, m), `attitude` (3,).
    """

    columns: Floats
    points: Array
    covariances: Array
    attitude: Array

    def __len__(self) -> int:
        return len(self.points)


class MapImages:
    """The landmarks of a table's images at `poses` (n, 3); those used last are kept."""

    def __init__(self, table: LandmarkTable, poses: Array) -> None:
        self._table, self._poses = table, poses
        self._kept: OrderedDict[int, MapImage] = OrderedDict()

    def image(self, row: int) -> MapImage:
        """Return the landmarks of one image."""
        # Threads may each read the same image; what they keep is equal.
        found = self._kept.pop(row, None)
        if found is None:
            placed = self._table.place(np.array([row]), self._poses[[row]])
            found = MapImage(
                distance_columns(placed.descriptors),
                placed.points,
                np.ascontiguousarray(np.moveaxis(placed.covariances, 0, -1)),
                placed.attitudes[0],
            )
        self._kept[row] = found
        while len(self._kept) > MAX_IMAGES:
            self._kept.popitem(last=False)
        return found


@dataclass(frozen=True)
class Matches:
    """Candidate pairs (m,).

    `keypoints` are rows of the image's, `images` numbers of the map images, `landmarks` rows in
    each; `covariances` (3, 3, m) are of the points, `ratios` those to the second nearest.
    """

    keypoints: Rows
    images: Rows
    landmarks: Rows
    pairs: Pairs
    covariances: Array
    ratios: Floats


def match_images(
    bearings: Bearings, descriptors: NDArray[np.uint8], images: Sequence[MapImage]
) -> Matches:
    """Mutual matches with each map image by itself, which shows a landmark once."""
    usable = np.flatnonzero(bearings.scale > 0.0)
    ready = distance_rows(descriptors[usable])
    found = [mutual_matches(ready @ image.columns.T) for image in images]
    counts = [len(rows) for rows, _, _ in found]
    parts = list(zip(images, found))
    keypoints = usable[np.concatenate([rows for rows, _, _ in found])]
    points = np.concatenate([image.points[columns] for image, (_, columns, _) in parts])
    return Matches(
        keypoints,
        np.repeat(np.arange(len(images)), counts),
        np.concatenate([columns for _, columns, _ in found]),
        Pairs.of(bearings[keypoints], points),
        np.concatenate(
            [image.covariances[..., columns] for image, (_, columns, _) in parts], axis=-1
        ),
        np.concatenate([ratios for _, _, ratios in found]),
    )
