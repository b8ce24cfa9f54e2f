"""The networks that the describers' benchmark makes for itself."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.benchmarks.describers import (
    light_discriminants,
    places_in_lights,
    trained_network,
)
from kbf_localization.vision.onnx_describer import OnnxDescriber
from test.vision.networks import random_convolutions

RNG = np.random.default_rng(3)
SMALL = {"size": (24, 32), "filters": (4, 8)}


def test_discriminants_solve_the_generalized_eigenproblem() -> None:
    views = RNG.normal(size=(60, 3, 12)) + 2.0 * RNG.normal(size=(60, 1, 12))
    weights, bias = light_discriminants(views, 4, shrinkage=0.0)
    centred = views - views.mean(axis=1, keepdims=True)
    within = np.einsum("pli,plj->ij", centred, centred) / (60 * 2)
    between = np.cov(views.mean(axis=1).T)
    np.testing.assert_allclose(weights.T @ within @ weights, np.eye(4), atol=1e-5)
    scatter = weights.T @ between @ weights
    np.testing.assert_allclose(scatter, np.diag(np.diag(scatter)), atol=1e-5 * scatter.max())
    assert (np.diff(np.diag(scatter)) <= 0.0).all(), "the largest first"
    np.testing.assert_allclose(views.mean(axis=(0, 1)) @ weights + bias, 0.0, atol=1e-5)


def test_light_is_forgotten_at_places_that_it_has_not_seen() -> None:
    """Light adds a multiple of one direction, ten times as large as what tells places apart."""
    direction = RNG.normal(size=30)

    def draw(places: int) -> np.ndarray:
        own = RNG.normal(size=(places, 1, 30))
        light = 10.0 * RNG.normal(size=(places, 2, 1)) * direction
        return own + light + 0.1 * RNG.normal(size=(places, 2, 30))

    def found(views: np.ndarray) -> float:
        units = views / np.linalg.norm(views, axis=2, keepdims=True)
        day, night = units[:, 0], units[:, 1]
        return float(((night @ day.T).argmax(axis=1) == np.arange(len(views))).mean())

    weights, bias = light_discriminants(draw(200), 20, shrinkage=1e-4)
    unseen = draw(100)
    assert found(unseen) < 0.6 and found(unseen @ weights + bias) > 0.95


def test_the_network_that_is_written_projects_the_random_ones_features(tmp_path: Path) -> None:
    weights = RNG.normal(size=(96, 5)).astype(np.float32)
    bias = RNG.normal(size=5).astype(np.float32)
    random = OnnxDescriber(random_convolutions(tmp_path / "random.onnx", **SMALL))
    projected = OnnxDescriber(
        random_convolutions(tmp_path / "projected.onnx", **SMALL, projection=(weights, bias))
    )
    images = RNG.integers(0, 256, (3, 24, 32), dtype=np.uint8)
    expected = random.vectors(list(images)) @ weights + bias
    np.testing.assert_allclose(projected.vectors(list(images)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_it_is_trained_on_places_in_several_lights(tmp_path: Path) -> None:
    lights = places_in_lights(1, 6, (32, 24))
    assert [len(images) for images in lights] == [6, 6, 6]
    assert all(image.shape == (24, 32) for images in lights for image in images)
    path = trained_network(tmp_path / "net.onnx", offices=(1,), places=40, dimensions=7, **SMALL)
    assert OnnxDescriber(path).length == 7
