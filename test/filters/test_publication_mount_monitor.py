"""The monitor of the camera's mount, on paths with a known turn of the camera."""

from dataclasses import dataclass

import numpy as np
import pytest

from kbf_localization.filters.publication import MIN_PAIRS, MountMonitor
from kbf_localization.geometry import compose

SIGMA = np.array([0.01, 0.01, 0.004])


@dataclass(frozen=True)
class Fix:
    pose: np.ndarray
    covariance: np.ndarray


def drive(
    monitor,
    turned_rad,
    steps=120,
    seed=0,
    motion=(0.04, 0.0, 0.03),
    factors=(1, 1, 1),
    may_turn=True,
    wrong=0.0,
):
    """Drive a circle with fixes whose headings are those of a camera turned by `turned_rad`."""
    rng = np.random.default_rng(seed)
    pose = np.array([1.0, 2.0, 0.5])
    motion = np.array(motion)
    for _ in range(steps):
        pose = compose(pose, motion)
        seen = pose + [0.0, 0.0, turned_rad] + SIGMA * rng.standard_normal(3)
        seen += 0.4 * (rng.random() < wrong)
        measured = np.array(factors) * motion + 0.02 * motion * rng.standard_normal(3)
        monitor.update(measured, Fix(seen, np.diag(SIGMA**2)))
        assert may_turn or not monitor.turned
    return monitor


@pytest.mark.parametrize("degrees", [-20.0, 12.0, 20.0])
def test_a_turned_camera_is_noticed_with_its_angle(degrees):
    monitor = drive(MountMonitor(), np.radians(degrees))
    assert monitor.turned
    # Over 4.8 m with 1 cm of error every 16 cm the angle is known to about a degree.
    assert np.degrees(monitor.yaw) == pytest.approx(degrees, abs=4.0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("motion", [(0.04, 0.0, 0.03), (0.05, 0.0, -0.01), (-0.04, 0.0, 0.02)])
def test_a_camera_as_it_was_is_never_called_turned(seed, motion):
    drive(MountMonitor(), np.radians(1.0), 400, seed, motion, may_turn=False)


@pytest.mark.parametrize("seed", range(5))
def test_single_wrong_fixes_do_not_turn_the_camera(seed):
    drive(MountMonitor(), 0.0, 400, seed, may_turn=False, wrong=0.05)


def test_nothing_is_said_before_enough_was_driven_nor_after_a_reset():
    # Fixes are compared every 16 cm, each four steps; the first has none before it.
    assert not drive(MountMonitor(), 0.35, steps=4 * MIN_PAIRS).turned
    assert drive(MountMonitor(), 0.35, steps=4 * MIN_PAIRS + 1).turned
    monitor = drive(MountMonitor(), 0.35)
    monitor.reset()
    assert not monitor.turned
    assert monitor.yaw == 0.0


def test_reversed_wheels_and_a_robot_at_rest_are_no_turned_camera():
    assert not drive(MountMonitor(), 0.0, factors=(-1, -1, 1)).turned
    assert not drive(MountMonitor(), 0.35, motion=(0.0, 0.0, 0.0)).turned


def test_unknown_motion_and_missing_fixes_break_the_comparison_off():
    monitor = MountMonitor()
    for _ in range(50):
        drive(monitor, 0.35, steps=1)
        monitor.update(None, None)
        monitor.update(np.array([0.2, 0.0, 0.0]), None)
        monitor.update(np.array([1.0, 0.0, 0.0]), None)
    assert not monitor.turned
