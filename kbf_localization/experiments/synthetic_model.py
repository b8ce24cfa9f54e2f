"""The state space model of section 6.2: a point that goes round a wavy circle, seen distorted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings import Density, GaussianNoise, MixtureNoise

AMPLITUDE = 0.4  # b
WAVES = 8  # M


@dataclass(frozen=True)
class StateSpaceModel:
    """`rotation` is η (radians a step), `noise` that of the transition, `observation_std` σ_o."""

    rotation: float
    noise: Density
    observation_std: float

    def turned(self, rotation: float) -> StateSpaceModel:
        """The same with another η."""
        return replace(self, rotation=rotation)

    def move(self, states: Array) -> Array:
        """f: the noise-free next states of `states` (n, 2); a state's own angle drives it."""
        return curve(np.arctan2(states[:, 1], states[:, 0]) + self.rotation)

    def simulate(self, length: int, generator: np.random.Generator) -> tuple[Array, Array]:
        """States (length, 2) from a random angle on, and their observations (length, 2)."""
        noise = self.noise.sample(length, generator)
        states = np.empty((length, 2))
        states[0] = curve(generator.uniform(0.0, 2.0 * np.pi, 1))[0] + noise[0]
        for step in range(1, length):
            states[step] = self.move(states[step - 1][None])[0] + noise[step]
        # A Laplace variable of scale s has the standard deviation s√2.
        blur = generator.laplace(0.0, self.observation_std / np.sqrt(2.0), (length, 2))
        return states, np.sign(states) * np.sqrt(np.abs(states)) + blur


def curve(angles: Array) -> Array:
    """(1 + b sin(Mθ)) (cos θ, sin θ) for angles (n,), as points (n, 2)."""
    radius = 1.0 + AMPLITUDE * np.sin(WAVES * angles)
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=-1)


@dataclass(frozen=True)
class Setting:
    """One panel: the model that the training data come from, and the one of the test."""

    training: StateSpaceModel
    test: StateSpaceModel


def gaussian_setting() -> Setting:
    """Top right: Gaussian noise, σ_h = 0.2, σ_o = 0.05."""
    model = StateSpaceModel(1.0, GaussianNoise(0.2**2 * np.eye(2)), 0.05)
    return Setting(model, model)


def mixture_setting() -> Setting:
    """Bottom left: a mixture of four Gaussians as noise, σ_o = 0.01."""
    corners = [(0.2, 0.2), (0.2, -0.2), (-0.2, 0.2), (-0.2, -0.2)]
    parts = [GaussianNoise(0.3**2 * np.eye(2), corner) for corner in corners]
    model = StateSpaceModel(1.0, MixtureNoise(np.full(4, 0.25), parts), 0.01)
    return Setting(model, model)


def changed_rotation_setting() -> Setting:
    """Bottom right: η is 0.1 in training and 0.4 in the test; σ_h = 0.1, σ_o = 0.01."""
    model = StateSpaceModel(0.1, GaussianNoise(0.1**2 * np.eye(2)), 0.01)
    return Setting(model, model.turned(0.4))


SETTINGS = {
    "gaussian": gaussian_setting,
    "mixture": mixture_setting,
    "changed_rotation": changed_rotation_setting,
}
