"""The scale of an image kernel, learned from a map's own drives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kbf_localization.arrays import Floats, Image
from kbf_localization.geometry import embed
from kbf_localization.mapping.build import map_of_frames
from kbf_localization.mapping.frames import select_frames
from kbf_localization.vision.describer import ImageDescription
from kbf_localization.vision.vectors import VectorDescriber, to_rows
from test.filters.synthetic_world import drive, loop, pool_of

LENGTH = 96


class Waves(VectorDescriber):
    """Its images are described already."""

    name, version, length = "waves", 1, LENGTH

    def vectors(self, images: Sequence[Image]) -> Floats:
        raise NotImplementedError("this world has no images")


class WaveWorld:
    """An image is a vector of waves over the poses, with noise."""

    def __init__(self, noise: float) -> None:
        generator = np.random.default_rng(7)
        self._waves = generator.normal(size=(4, LENGTH)) * np.array([[0.6], [0.6], [1.0], [1.0]])
        self._phases = generator.uniform(0.0, 2.0 * np.pi, LENGTH)
        self._noise = noise

    def view(self, pose: np.ndarray, generator: np.random.Generator) -> ImageDescription:
        waves = np.cos(embed(pose) @ self._waves + self._phases)
        noisy = waves + self._noise * generator.normal(size=LENGTH)
        return ImageDescription(to_rows(noisy[None].astype(np.float32))[0])


def errors(cosines: np.ndarray, poses: np.ndarray, truth: np.ndarray, sharpness: float) -> float:
    """Mean distance to the kernel regression of the position on the images."""
    weights = np.exp(sharpness * (cosines - cosines.max(axis=1, keepdims=True)))
    estimates = weights @ poses[:, :2] / weights.sum(axis=1, keepdims=True)
    return float(np.linalg.norm(estimates - truth[:, :2], axis=1).mean())


@pytest.mark.parametrize("noise", [0.3, 1.2])
def test_it_localizes_a_new_drive_nearly_as_well_as_the_best(noise: float) -> None:
    world = WaveWorld(noise)
    drives = [
        drive(world, loop(150, wobble=0.06), 1, "first"),
        drive(world, loop(150, wobble=-0.04, phase=0.3), 2, "second"),
    ]
    pool = pool_of(drives)
    rows = select_frames(pool.frames.poses, 120, "random", 0)
    known = map_of_frames(pool.frames, pool.described, rows, Waves())
    (scale,) = known.described_by.scales
    new = drive(world, loop(100, wobble=0.02, phase=0.7), 5, "new")
    cosines = np.stack([known.gallery.compare(view.features)[0] for view in new.views])
    powers = 12.0 / np.geomspace(0.02, 5.0, 60) ** 2
    best = min(errors(cosines, known.poses, new.poses, power) for power in powers)
    found = errors(cosines, known.poses, new.poses, 12.0 / scale**2)
    assert found < 1.3 * best
    assert errors(cosines, known.poses, new.poses, 12.0 / (6.0 * scale) ** 2) > 1.3 * best
