import numpy as np
import pytest

from kbf_localization.filters.pose_smoother import PATIENCE, PoseSmoother
from kbf_localization.geometry import compose

WIDTHS = np.array([0.5, 0.4])
FORWARD = np.array([0.1, 0.0, 0.05])


def followed(smoother, modes, motion=FORWARD):
    return [smoother.follow(None if i == 0 else motion, mode) for i, mode in enumerate(modes)]


def path(count):
    poses = [np.zeros(3)]
    for _ in range(count - 1):
        poses.append(compose(poses[-1], FORWARD))
    return np.array(poses)


def test_a_gain_of_one_is_the_mode_itself():
    modes = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_allclose(followed(PoseSmoother(1.0, WIDTHS), modes), modes)


def test_modes_on_the_odometrys_path_are_kept():
    np.testing.assert_allclose(followed(PoseSmoother(0.1, WIDTHS), path(40)), path(40), atol=1e-12)


def test_scatter_of_the_modes_is_averaged_out():
    scatter = np.random.default_rng(0).normal(0.0, [0.2, 0.2, 0.05], (200, 3))
    said = np.array(followed(PoseSmoother(0.1, WIDTHS), path(200) + scatter))
    errors = np.linalg.norm((said - path(200))[50:, :2], axis=1)
    assert np.sqrt(np.mean(errors**2)) < 0.4 * np.sqrt(2 * 0.2**2)


def test_a_short_excursion_of_the_mode_is_ignored_and_a_lasting_one_followed():
    still = np.zeros(3)
    smoother = PoseSmoother(0.1, WIDTHS)
    followed(smoother, np.zeros((30, 3)), still)
    far = np.array([5.0, 0.0, 0.0])
    said = [smoother.follow(still, far)[0] for _ in range(int(PATIENCE))]
    assert said[:-1] == pytest.approx([0.0] * (int(PATIENCE) - 1))
    assert said[-1] == 5.0


def test_an_image_that_tells_nothing_moves_nothing():
    smoother = PoseSmoother(0.5, WIDTHS)
    followed(smoother, np.zeros((200, 3)), np.zeros(3))
    moved = smoother.follow(np.zeros(3), np.array([0.5, 0.0, 0.0]), trust=0.0)
    assert moved[0] == pytest.approx(0.5 / 201)
