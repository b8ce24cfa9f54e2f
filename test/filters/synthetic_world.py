"""A world without images: histograms of landmarks seen in each direction, over a loop."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kbf_localization.geometry import embed, relative, wrap_angle
from kbf_localization.motion.odometry_model import estimate_noise

WORDS = 40
SECTORS = 8


class World:
    """Landmarks with words, on the plane; a view is a histogram (SECTORS · WORDS,) of counts."""

    def __init__(self, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self._landmarks = generator.uniform(-6.0, 6.0, (900, 2))
        self._words = generator.integers(0, WORDS, 900)

    def view(self, pose, generator):
        offsets = self._landmarks - pose[:2]
        distances = np.hypot(offsets[:, 0], offsets[:, 1])
        bearings = wrap_angle(np.arctan2(offsets[:, 1], offsets[:, 0]) - pose[2])
        seen = (np.abs(bearings) < 0.8) & (distances > 0.3) & (distances < 4.0)
        seen &= generator.random(len(seen)) < 0.85
        sectors = ((bearings[seen] + 0.8) / 1.6 * SECTORS).astype(int).clip(0, SECTORS - 1)
        histogram = np.zeros((SECTORS, WORDS))
        np.add.at(histogram, (sectors, self._words[seen]), 40.0 / (1.0 + distances[seen]))
        return np.minimum(histogram, 255).astype(np.uint8).ravel()


def similarity(a, b):
    """Histogram intersection, normalized so that it is 1 between equal ones; (len a, len b)."""
    a, b = np.atleast_2d(a).astype(float), np.atleast_2d(b).astype(float)
    common = np.array([np.minimum(row, b).sum(axis=1) for row in a])
    sums = np.sqrt(np.outer(a.sum(axis=1), b.sum(axis=1)))
    return np.divide(common, sums, out=np.zeros_like(common), where=sums > 0)


@dataclass(frozen=True)
class SyntheticObservation:
    histogram: np.ndarray
    histograms: np.ndarray

    def similarities(self, rows=None):
        held = self.histograms if rows is None else self.histograms[rows]
        return similarity(self.histogram, held)[0]


class PassThrough:
    def describe(self, image):
        return image


@dataclass(frozen=True)
class SyntheticMap:
    poses: np.ndarray
    histograms: np.ndarray
    next_poses: np.ndarray
    motions: np.ndarray
    motion_variances: np.ndarray
    parameters: dict = field(default_factory=dict)
    thresholds: dict = field(default_factory=dict)

    def image_gram(self, rows_a, rows_b=None):
        rows_b = rows_a if rows_b is None else rows_b
        return similarity(self.histograms[rows_a], self.histograms[rows_b])

    def observe(self, histogram):
        return SyntheticObservation(histogram, self.histograms)

    def describer(self):
        return PassThrough()


def loop(count, wobble=0.0, turns=1.0):
    """Poses (count, 3) along a figure of circumference ~ 20 m, heading along the path."""
    phase = np.linspace(0.0, 2.0 * np.pi * turns, count)
    radius = 3.0 + wobble * np.sin(3.0 * phase)
    xy = np.stack((radius * np.cos(phase), radius * np.sin(2.0 * phase) * 0.6), axis=-1)
    step = np.gradient(xy, axis=0)
    return np.column_stack((xy, np.arctan2(step[:, 1], step[:, 0])))


@dataclass(frozen=True)
class SyntheticDrive:
    """True poses (t, 3), noisy odometry motions (t-1, 3) and views (t, bins)."""

    poses: np.ndarray
    motions: np.ndarray
    views: np.ndarray


def drive(world, poses, seed):
    generator = np.random.default_rng(seed)
    motions = relative(poses[:-1], poses[1:])
    motions = motions + generator.normal(0.0, [0.004, 0.004, 0.004], motions.shape)
    views = np.array([world.view(pose, generator) for pose in poses])
    return SyntheticDrive(poses, motions, views)


def synthetic_map(world, count=150, seed=1):
    """A map of `count` poses chosen at random from one drive round the loop."""
    trained = drive(world, loop(600, wobble=0.15), seed)
    chosen = np.sort(np.random.default_rng(seed).choice(599, count, replace=False))
    return SyntheticMap(
        poses=trained.poses[chosen],
        histograms=trained.views[chosen],
        next_poses=trained.poses[chosen + 1],
        motions=trained.motions[chosen],
        motion_variances=estimate_noise(trained.poses, trained.motions),
    )


def run(pose_filter, training_map, test_drive):
    """The estimates of a filter over a drive."""
    estimates = []
    for index, view in enumerate(test_drive.views):
        motion = None if index == 0 else test_drive.motions[index - 1]
        estimates.append(pose_filter.step(motion, training_map.observe(view)))
    return estimates


def position_errors(estimates, poses):
    said = np.array([one.pose for one in estimates])
    return np.linalg.norm(said[:, :2] - poses[:, :2], axis=1)


__all__ = ["World", "drive", "embed", "loop", "position_errors", "run", "synthetic_map"]
