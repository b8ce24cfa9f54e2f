"""A map of any size without images: a corridor that winds to and fro, its look changing slowly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kbf_localization.arrays import Array, Counts, Floats, Rows
from kbf_localization.geometry import relative
from kbf_localization.mapping.calibrate import calibrate_from_map
from kbf_localization.training_map import Source, TrainingMap
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import ImageDescription
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary

SPACING_M = 0.1
LANE_M = 50.0
TURN_RADIUS_M = 3.0
MOTION_SIGMA = 0.004
POSES_AT_ONCE = 1000

OWN_WORDS = 25
"""Words of a region that belong to one place; the others are the building's."""

OWN_FRACTION = 0.6

SHIFT_PER_METRE = 0.25
"""By how much of its width an image shifts while the robot passes its place."""


class Corridor:
    """A path of straight lanes joined by half circles, and what a camera sees along it.

    About every metre there is an anchor: counts of words drawn for it alone, over counts that
    the whole building has in common. Between anchors the counts are interpolated, so that the
    similarity of two places falls with the path between them, to that of unrelated places.
    """

    def __init__(self, length_m: float, seed: int = 0) -> None:
        self.settings = DescriberSettings()
        side = self.settings.regions_per_side(self.settings.levels - 1)
        self._seed = seed
        self._shape = (side, side, self.settings.words)
        self._in_region = self.settings.patches / side**2
        generator = np.random.default_rng(seed)
        anchors, regions = int(length_m) + 2, side * side
        common = generator.dirichlet(np.full(self.settings.words, 0.5), regions)
        self._common = ((1.0 - OWN_FRACTION) * self._in_region * common).ravel()
        size = (anchors, regions, OWN_WORDS)
        # Word number and count of an anchor's own words, a region.
        self._words = generator.integers(0, self.settings.words, size, dtype=np.uint8)
        self._counts = generator.exponential(1.0, size).astype(np.float32)
        scale = OWN_FRACTION * self._in_region / self._counts.sum(axis=2, keepdims=True)
        self._counts *= scale

    def poses(self, along_m: Array) -> Array:
        """Return (x, y, heading) (m, 3) after so many metres (m,) of the path."""
        period = LANE_M + np.pi * TURN_RADIUS_M
        lane, offset = np.divmod(along_m, period)
        direction = np.where(lane % 2 == 0, 1.0, -1.0)
        turned = np.maximum(offset - LANE_M, 0.0) / TURN_RADIUS_M
        onward = np.minimum(offset, LANE_M) + TURN_RADIUS_M * np.sin(turned)
        x = np.where(direction > 0.0, onward, LANE_M - onward)
        y = 2.0 * TURN_RADIUS_M * lane + TURN_RADIUS_M * (1.0 - np.cos(turned))
        heading = np.where(direction > 0.0, turned, np.pi - turned)
        return np.column_stack([x, y, np.arctan2(np.sin(heading), np.cos(heading))])

    def views(self, along_m: Array, generator: np.random.Generator | None = None) -> Counts:
        """Return histograms (m, bins) seen at these places; a generator adds counting noise."""
        first = np.floor(along_m).astype(np.intp)
        fraction = (along_m - first).astype(np.float32)[:, None]
        needed, places = np.unique(np.concatenate((first, first + 1)), return_inverse=True)
        anchors = self._anchors(needed)
        before, after = places[: len(first)], places[len(first) :]
        finest = (1.0 - fraction) * anchors[before] + fraction * anchors[after]
        if generator is not None:
            finest = generator.poisson(finest).astype(np.float32)
        return self._pyramids(finest.reshape(-1, *self._shape))

    def describe(
        self, along_m: float, generator: np.random.Generator | None = None
    ) -> ImageDescription:
        """Return the description of what is seen at a place."""
        places = np.array([along_m])
        return ImageDescription(self.views(places, generator)[0], self.word_grids(places)[0])

    def word_grids(self, along_m: Array) -> Counts:
        """Return grids of words (m, cells): each metre's shifts as the robot goes by."""
        rows, columns = self.settings.reduced_grid_shape
        numbers = np.floor(along_m).astype(np.intp)
        shifts = np.rint((along_m - numbers) * SHIFT_PER_METRE * columns).astype(np.intp)
        grids = np.empty((len(along_m), rows * columns), dtype=np.uint8)
        for place, (number, shift) in enumerate(zip(numbers, shifts, strict=True)):
            generator = np.random.default_rng((self._seed, int(number)))
            grid = generator.integers(0, self.settings.words, (rows, columns))
            grids[place] = np.roll(grid, shift, axis=1).reshape(-1)
        return grids

    def _anchors(self, numbers: Rows) -> Floats:
        """Return mean counts (m, regions · words) of the finest level."""
        words = self.settings.words
        counts = np.tile(self._common.astype(np.float32), (len(numbers), 1))
        regions = words * np.arange(self._words.shape[1])[:, None]
        for row, number in enumerate(numbers):
            bins = (self._words[number] + regions).ravel()
            counts[row] += np.bincount(bins, self._counts[number].ravel(), len(self._common))
        return counts

    def _pyramids(self, finest: Floats) -> Counts:
        """Return stored counts (m, bins) from the finest level's (m, side, side, words)."""
        levels = [finest]
        while len(levels) < self.settings.levels:
            fine = levels[-1]
            half = fine.shape[1] // 2
            levels.append(fine.reshape(-1, half, 2, half, 2, self._shape[2]).sum(axis=(2, 4)))
        histograms = np.empty((len(finest), self.settings.bins), dtype=np.uint8)
        for columns, divisor, level in zip(
            self.settings.level_columns(),
            self.settings.level_divisors(),
            reversed(levels),
            strict=True,
        ):
            scaled = level.reshape(len(finest), -1) / divisor
            histograms[:, columns] = np.minimum(np.rint(scaled), 255.0)
        return histograms


def synthetic_map(count: int, seed: int = 0) -> tuple[TrainingMap, Corridor]:
    """Return a map of `count` poses along a corridor, and the corridor."""
    along = SPACING_M * np.arange(count, dtype=np.float64)
    corridor = Corridor(SPACING_M * count + 1.0, seed)
    generator = np.random.default_rng(seed)
    histograms = np.empty((count, corridor.settings.bins), dtype=np.uint8)
    for start in range(0, count, POSES_AT_ONCE):
        chunk = slice(start, start + POSES_AT_ONCE)
        histograms[chunk] = corridor.views(along[chunk])
    poses = corridor.poses(along)
    next_poses, motions = np.full((2, count, 3), np.nan)
    next_poses[:-1] = poses[1:]
    motions[:-1] = relative(poses[:-1], poses[1:])
    words = generator.normal(size=(corridor.settings.words, 128)).astype(np.float32)
    training_map = TrainingMap(
        poses=poses,
        features=histograms,
        next_poses=next_poses,
        motions=motions,
        described_by=PyramidDescriber(Vocabulary(words), corridor.settings),
        motion_variances=np.full(4, MOTION_SIGMA**2),
        sources=(Source("corridor", "synthetic", None, count, count),),
        source_of=np.zeros(count, dtype=np.intp),
        thumbnails=[b""] * count,
        word_grids=corridor.word_grids(along),
    )
    return replace(training_map, fitted=calibrate_from_map(training_map)), corridor
