"""A world seen without a camera: walls of visual words, looked at along rays, over a loop.

Its images are grids of words as a describer gives them, so that maps, learning and filters are
the real ones; only the pixels are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import FramePool
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import compose, relative
from kbf_localization.localization import Localizer
from kbf_localization.mapping.build import map_of_frames
from kbf_localization.mapping.calibrate import calibrate_from_map
from kbf_localization.mapping.describing import Described
from kbf_localization.mapping.frames import gather_frames, select_frames
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import ImageDescription
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary, pyramid_histogram

SETTINGS = DescriberSettings(image_width=328, image_height=120, words=40)
FIELD_OF_VIEW = 1.2
CAMERA_M, CEILING_M, CELL_M = 1.0, 2.6, 0.35
STEP_NS = 200_000_000

VOCABULARY = Vocabulary(
    np.random.default_rng(99).normal(size=(SETTINGS.words, 128)).astype(np.float32)
)
DESCRIBER = PyramidDescriber(VOCABULARY, SETTINGS)


class World:
    """A hall with pillars. A view is an ImageDescription; some of its words are wrong."""

    def __init__(self, seed: int = 0, wrong: float = 0.15) -> None:
        generator = np.random.default_rng(seed)
        corners = [_corners(0.0, 0.0, 7.0, 5.0)]
        corners += [
            _corners(x, y, 0.35, 0.35)
            for x, y in generator.uniform((-1.2, -0.6), (1.2, 0.6), (2, 2))
        ]
        self._from = np.concatenate(corners)
        self._to = np.concatenate([np.roll(corner, -1, axis=0) for corner in corners])
        self._salt = int(generator.integers(1 << 31))
        self._wrong = wrong

    def view(self, pose, generator) -> ImageDescription:
        rows, columns = SETTINGS.grid_shape
        bearings = FIELD_OF_VIEW * (0.5 - (np.arange(columns) + 0.5) / columns)
        directions = pose[2] + bearings
        distance, wall, along = self._hits(pose[:2], directions)
        slope = FIELD_OF_VIEW * (rows / columns) * (0.5 - (np.arange(rows) + 0.5) / rows)
        height = CAMERA_M + distance[None] * np.tan(slope)[:, None]
        # Floor and ceiling are met before the wall is.
        fraction = np.where(
            height < 0.0,
            CAMERA_M / np.maximum(CAMERA_M - height, 1e-9),
            np.where(
                height > CEILING_M,
                (CEILING_M - CAMERA_M) / np.maximum(height - CAMERA_M, 1e-9),
                1.0,
            ),
        )
        ends = pose[:2] + (fraction * distance)[..., None] * np.stack(
            (np.cos(directions), np.sin(directions)), axis=-1
        )
        on_wall = fraction >= 1.0
        first = np.where(on_wall, np.broadcast_to(along, fraction.shape), ends[..., 0])
        second = np.where(on_wall, height, ends[..., 1])
        surface = np.where(on_wall, wall[None], np.where(height < 0.0, -1, -2))
        words = self._word(surface, first, second)
        wrong = generator.random(words.shape) < self._wrong
        words[wrong] = generator.integers(0, SETTINGS.words, int(wrong.sum()))
        flat = words.reshape(-1)
        return ImageDescription(pyramid_histogram(flat, SETTINGS), flat.astype(SETTINGS.word_type))

    def _hits(self, origin, directions):
        """Distance, wall and place along it where each ray ends."""
        ray = np.stack((np.cos(directions), np.sin(directions)), axis=-1)[:, None]
        edge = (self._to - self._from)[None]
        start = (self._from - origin)[None]
        cross = ray[..., 0] * edge[..., 1] - ray[..., 1] * edge[..., 0]
        cross = np.where(np.abs(cross) < 1e-12, 1e-12, cross)
        reach = (start[..., 0] * edge[..., 1] - start[..., 1] * edge[..., 0]) / cross
        place = (start[..., 0] * ray[..., 1] - start[..., 1] * ray[..., 0]) / cross
        reach = np.where((reach > 1e-6) & (place >= 0.0) & (place <= 1.0), reach, 1e3)
        wall = reach.argmin(axis=1)
        each = np.arange(len(directions))
        lengths = np.linalg.norm(self._to - self._from, axis=1)
        return reach[each, wall], wall, place[each, wall] * lengths[wall]

    def _word(self, surface, first, second):
        """A word for each cell of each surface: a hash of its place."""
        cells = (
            surface.astype(np.int64) * 73856093
            ^ np.floor(first / CELL_M).astype(np.int64) * 19349663
            ^ np.floor(second / CELL_M).astype(np.int64) * 83492791
        ) + self._salt
        mixed = (cells * 2654435761) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
        return ((mixed ^ (mixed >> 13)) % SETTINGS.words).astype(np.int64)


def _corners(x, y, half_width, half_height):
    return np.array(
        [
            [x - half_width, y - half_height],
            [x + half_width, y - half_height],
            [x + half_width, y + half_height],
            [x - half_width, y + half_height],
        ]
    )


def loop(count, wobble=0.0, turns=1.0, phase=0.0):
    """Poses (count, 3) round an oval of 23 m, heading along the path."""
    angle = phase + np.linspace(0.0, 2.0 * np.pi * turns, count)
    stretch = 1.0 + wobble * np.sin(3.0 * angle)
    xy = np.stack((4.2 * stretch * np.cos(angle), 2.8 * stretch * np.sin(angle)), axis=-1)
    step = np.gradient(xy, axis=0)
    return np.column_stack((xy, np.arctan2(step[:, 1], step[:, 0])))


@dataclass(frozen=True)
class Fix:
    """What a filter uses of a landmark fix."""

    pose: np.ndarray
    covariance: np.ndarray
    inliers: int = 60
    log_likelihood_ratio: float = 0.0


@dataclass(frozen=True)
class SyntheticDrive:
    """True poses (t, 3), noisy odometry motions (t-1, 3) and views; follows `Drive`."""

    poses: np.ndarray
    motions: np.ndarray
    views: tuple[ImageDescription, ...]
    name: str = "drive"
    condition: str | None = None
    kind: str = "memory"
    path: Path = Path("memory")
    warnings: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None
    odometry_origin: str = "simulated"

    def __len__(self) -> int:
        return len(self.poses)

    @property
    def stamps_ns(self):
        return STEP_NS * np.arange(len(self.poses), dtype=np.int64)

    @property
    def odometry(self) -> OdometryLog:
        poses = [np.zeros(3)]
        for motion in self.motions:
            poses.append(compose(poses[-1], motion))
        return OdometryLog(self.stamps_ns, np.array(poses))

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, None]]:
        yield from ((index, None) for index in indices or range(len(self)))

    @property
    def described(self) -> DescribedDrive:
        return DescribedDrive(
            self.name,
            self.condition,
            self.stamps_ns,
            self.poses,
            self.odometry,
            self.views,
            np.zeros(len(self)),
        )


METRE_SIGMA, RADIAN_SIGMA = np.array([0.03, 0.01, 0.02]), np.array([0.005, 0.005, 0.03])
"""Standard deviations of the odometry's error over a metre, and over a radian."""


def drive(world, poses, seed, name="drive") -> SyntheticDrive:
    """The odometry errs as a random walk whose variance grows with metres and radians."""
    generator = np.random.default_rng(seed)
    motions = relative(poses[:-1], poses[1:])
    metres, radians = np.hypot(motions[:, 0], motions[:, 1]), np.abs(motions[:, 2])
    variances = np.outer(metres, METRE_SIGMA**2) + np.outer(radians, RADIAN_SIGMA**2)
    motions = motions + generator.normal(size=motions.shape) * np.sqrt(variances)
    views = tuple(world.view(pose, generator) for pose in poses)
    return SyntheticDrive(poses, motions, views, name)


def map_of(drives: Sequence[SyntheticDrive], count, seed=0, select="random") -> TrainingMap:
    """The map that `build_map` would make of these drives, whose words are known already."""
    pool = pool_of(drives)
    rows = select_frames(pool.frames.poses, count, select, seed)
    return map_of_frames(pool.frames, pool.described, rows, DESCRIBER, seed=seed)


def pool_of(drives: Sequence[SyntheticDrive]) -> FramePool:
    """All frames of the drives, described."""
    frames = gather_frames(drives)
    described = {
        row: Described(drives[frames.drive_of[row]].views[frames.index_of[row]], b"", False)
        for row in range(len(frames.poses))
    }
    return FramePool(frames, described, DESCRIBER)


def pool_of_laps(world: World, frames: Sequence[int]) -> FramePool:
    """The frames of drives round the loop, each of so many frames and a little beside the last."""
    return pool_of([drive(world, loop(n, wobble=0.02 * i), seed=i) for i, n in enumerate(frames)])


def synthetic_map(world, count=150, seed=1) -> TrainingMap:
    """A map of `count` poses chosen at random from two drives round the loop."""
    return map_of(drives_of_the_map(world, seed), count, seed)


def drives_of_the_map(world, seed=1) -> list[SyntheticDrive]:
    return [
        drive(world, loop(300, wobble=0.06, phase=0.1 * seed), seed, "first"),
        drive(world, loop(300, wobble=-0.04, phase=0.3 * seed), seed + 1, "second"),
    ]


def without_words(training_map: TrainingMap) -> TrainingMap:
    """A map without word grids, calibrated on its own poses, as an old map is."""
    bare = replace(training_map, word_grids=None)
    return replace(bare, fitted=calibrate_from_map(bare))


BLACK = ImageDescription(
    np.zeros(SETTINGS.bins, dtype=np.uint8), np.zeros(SETTINGS.patches, dtype=np.uint8)
)
"""An image without any counts."""


def run(pose_filter, training_map, test_drive):
    """The estimates of a filter over a drive."""
    estimates = []
    for index, view in enumerate(test_drive.views):
        motion = None if index == 0 else test_drive.motions[index - 1]
        estimates.append(pose_filter.step(motion, training_map.observe(view)))
    return estimates


def localizer(training_map, method="kbf") -> Localizer:
    return Localizer(training_map, make_filter(method, training_map))


def position_errors(estimates, poses):
    found = np.array([estimate.pose for estimate in estimates])
    return np.linalg.norm(found[:, :2] - poses[:, :2], axis=1)
