import numpy as np
import pytest

from kbf_localization.experiments.synthetic_filter import SETTINGS, curve


def test_states_scatter_round_the_moved_previous_state() -> None:
    model = SETTINGS["gaussian"].training
    states, _ = model.simulate(4000, np.random.default_rng(0))
    residuals = states[1:] - model.move(states[:-1])
    np.testing.assert_allclose(residuals.mean(axis=0), 0.0, atol=0.015)
    np.testing.assert_allclose(np.cov(residuals.T), 0.2**2 * np.eye(2), atol=0.003)


def test_transition_adds_the_rotation_to_the_states_own_angle() -> None:
    model = SETTINGS["changed_rotation"].test
    moved = model.move(np.array([[0.0, 2.5]]))
    np.testing.assert_allclose(moved, curve(np.array([np.pi / 2.0 + 0.4])))


def test_observation_noise_has_the_given_standard_deviation() -> None:
    states, observations = SETTINGS["gaussian"].training.simulate(4000, np.random.default_rng(1))
    blur = observations - np.sign(states) * np.sqrt(np.abs(states))
    np.testing.assert_allclose(blur.std(axis=0), 0.05, rtol=0.06)


def test_mixture_noise_has_its_variance() -> None:
    noise = SETTINGS["mixture"].training.noise
    sample = noise.sample(20_000, np.random.default_rng(2))
    # Each coordinate: 0.3² within a part and 0.2² between the parts.
    np.testing.assert_allclose(sample.var(axis=0), 0.3**2 + 0.2**2, rtol=0.05)


def test_rotation_changes_between_training_and_test_in_one_panel_alone() -> None:
    rotations = {
        name: (setting.training.rotation, setting.test.rotation)
        for name, setting in SETTINGS.items()
    }
    assert rotations["changed_rotation"] == (0.1, 0.4)
    assert rotations["gaussian"] == rotations["mixture"] == (1.0, pytest.approx(1.0))
