"""A small network, trained in seconds: random convolutions, then a projection that forgets light.

It learns from places of simulated offices, each rendered in several lights.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from scipy.linalg import eigh

from kbf_localization.arrays import Array, Floats, Image
from kbf_localization.benchmarks._random_network import random_convolutions
from kbf_localization.datasets.cold import CONDITIONS
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.floor_plan import FloorPlan
from kbf_localization.simulator.lighting import lighting_for
from kbf_localization.simulator.lookup import Camera
from kbf_localization.simulator.plans import plan_office
from kbf_localization.simulator.renderer import Renderer
from kbf_localization.simulator.scene import scene
from kbf_localization.simulator.sensor import Sensor
from kbf_localization.simulator.trajectory import drive_through
from kbf_localization.vision.onnx_describer import OnnxDescriber

OFFICES = tuple(range(101, 109))
"""Seeds of the offices that it learns from; nothing is measured in them."""

PLACES = 250
"""In each of these offices."""

FRAMES_PER_PLACE = 3
SIDESTEP = (0.1, 0.1, 0.05)
"""Standard deviations, in metres and radians, between the views of one place."""

DIMENSIONS, SHRINKAGE = 128, 0.3
"""Chosen by how often a place of a further such office was found again at night and in the sun."""


def trained_network(
    path: Path,
    *,
    size: tuple[int, int],
    filters: tuple[int, ...],
    offices: tuple[int, ...] = OFFICES,
    places: int = PLACES,
    dimensions: int = DIMENSIONS,
    progress: Progress = no_progress,
) -> Path:
    """Train it and write it as ONNX; `size` is the height and width of its input."""
    random = OnnxDescriber(random_convolutions(path, size=size, filters=filters))
    views = []
    for office in tracked(offices, "rendering places to train a network", progress):
        by_light = places_in_lights(office, places, (size[1], size[0]))
        views.append(np.stack([random.vectors(images) for images in by_light], axis=1))
    projection = forgetting_light(np.concatenate(views), dimensions)
    return random_convolutions(path, size=size, filters=filters, projection=projection)


def forgetting_light(
    views: Floats, dimensions: int, shrinkage: float = SHRINKAGE
) -> tuple[Floats, Floats]:
    """Linear discriminants: weights (m, dimensions) and bias, from views (places, lights, m).

    They are the generalized eigenvectors v of the covariance between places B and that within a
    place W, Bv = λWv with vᵀWv = 1, of the largest λ: what differs between places, in units of what
    light and a step aside change. W is shrunk towards a multiple of the identity.
    """
    middle = views.mean(axis=(0, 1))
    means = views.mean(axis=1)
    within = (views - means[:, None]).reshape(-1, views.shape[2]).astype(np.float64)
    inside = within.T @ within / (len(views) * (views.shape[1] - 1))
    between = np.cov(means.T.astype(np.float64))
    size = len(inside)
    inside = (1.0 - shrinkage) * inside + shrinkage * np.trace(inside) / size * np.eye(size)
    _, vectors = eigh(between, inside, subset_by_index=[size - dimensions, size - 1])
    weights = vectors[:, ::-1].astype(np.float32)
    return np.ascontiguousarray(weights), np.asarray(-(middle @ weights), dtype=np.float32)


def places_in_lights(seed: int, places: int, size: tuple[int, int]) -> list[list[Image]]:
    """For each lighting a grey image (height, width) of each place along a drive."""
    plan, generator = plan_office(seed), np.random.default_rng([seed, 30])
    track = drive_through(plan, generator, 0, FRAMES_PER_PLACE * places).poses
    poses = track[::FRAMES_PER_PLACE][:places]
    return [
        _pictures(
            plan, poses + generator.normal(0.0, SIDESTEP, poses.shape), light, size, generator
        )
        for light in CONDITIONS
    ]


def _pictures(
    plan: FloorPlan, poses: Array, light: str, size: tuple[int, int], generator: np.random.Generator
) -> list[Image]:
    camera, lighting = Camera(*size), lighting_for(light, plan.seed, 0)
    renderer = Renderer(scene(plan, lighting, camera.width), camera)
    sensor = Sensor(camera, lighting)
    pictures = (sensor.expose(renderer.render(pose), 0.0, generator) for pose in poses)
    return [np.asarray(cv2.cvtColor(one, cv2.COLOR_BGR2GRAY), np.uint8) for one in pictures]
