"""The state space model of section 6.2: a point that goes round a wavy circle, seen distorted."""

from __future__ import annotations

from dataclasses import dataclass

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


def _setting(noise: Density, observation_std: float, *rotations: float) -> Setting:
    """With η of the training and, where another one follows, of the test."""
    training, test = (
        StateSpaceModel(rotation, noise, observation_std)
        for rotation in (rotations[0], rotations[-1])
    )
    return Setting(training, test)


_CORNERS = ((0.2, 0.2), (0.2, -0.2), (-0.2, 0.2), (-0.2, -0.2))
_PARTS = [GaussianNoise(0.3**2 * np.eye(2), corner) for corner in _CORNERS]

SETTINGS = {
    # Top right: Gaussian noise, σ_h = 0.2, σ_o = 0.05.
    "gaussian": _setting(GaussianNoise(0.2**2 * np.eye(2)), 0.05, 1.0),
    # Bottom left: a mixture of four Gaussians as noise, σ_o = 0.01.
    "mixture": _setting(MixtureNoise(np.full(4, 0.25), _PARTS), 0.01, 1.0),
    # Bottom right: η is 0.1 in training and 0.4 in the test; σ_h = 0.1, σ_o = 0.01.
    "changed_rotation": _setting(GaussianNoise(0.1**2 * np.eye(2)), 0.01, 0.1, 0.4),
}
