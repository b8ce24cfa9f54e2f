"""Which images are used: the gate compares them with the last used image."""

from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from kbf_localization.events import Event
from kbf_localization.localization.image_gate import VIEW_PERIOD_S, ImageGate
from kbf_localization.localization.result import LocalizerSettings
from kbf_localization.motion.odometry_buffer import OdometryBuffer, OdometryReading
from kbf_localization.vision.describer import TINY_SIZE

SECOND = 10**9


VIEW, OTHER_VIEW = np.random.default_rng(1).integers(0, 256, (2, *TINY_SIZE[::-1]), dtype=np.uint8)


def same_view() -> NDArray[np.uint8]:
    return np.asarray(VIEW)


def gate_after(
    pose: tuple[float, float, float], settled: bool = True, **settings: float
) -> ImageGate:
    """A gate whose last used image, `VIEW`, was taken at second 1, at this pose of the odometry."""
    odometry = OdometryBuffer(60.0)
    for second in (1, 2, 3):
        odometry.append(second * SECOND, np.array(pose))
    gate = ImageGate(odometry, LocalizerSettings(**settings))
    gate.seen(SECOND)
    gate.used(reading(pose, 1.0), settled, VIEW)
    return gate


def reading(pose: tuple[float, float, float], seconds: float) -> OdometryReading:
    return OdometryReading(round(seconds * SECOND), np.array(pose), 0.0, 0.0, np.zeros(3), 0.0)


@pytest.mark.parametrize(
    ("offset", "stands"),
    [
        ((0.0, 0.0, 0.0), True),
        ((0.003, 0.0035, 0.0), True),  # 4.6 mm
        ((0.0045, 0.004, 0.0), False),  # 6 mm
        ((0.0, 0.0, 0.004), True),
        ((0.0, 0.0, 0.006), False),
        ((0.0, 0.0, 2 * np.pi), True),
    ],
)
def test_a_robot_within_5_mm_and_5_mrad_of_the_last_used_image_stands(
    offset: tuple[float, float, float], stands: bool
) -> None:
    pose = (2.0, -1.0, 3.0)
    gate = gate_after(pose)
    now = reading(tuple(np.add(pose, offset)), 1.2)
    assert gate.stood(now) is stands
    # Once an image has nothing new to tell, a standing robot needs one a second; others need each.
    assert gate.needs(now, same_view) is not stands
    assert gate_after(pose, settled=False).needs(now, same_view)


def test_a_standing_robot_needs_an_image_after_a_while_or_when_asked_for() -> None:
    gate = gate_after((0.0, 0.0, 0.0), standing_update_s=5.0)
    assert not gate.needs(reading((0.0, 0.0, 0.0), 5.9), same_view)
    assert gate.needs(reading((0.0, 0.0, 0.0), 6.0), same_view)
    gate.force()
    assert gate.needs(reading((0.0, 0.0, 0.0), 1.1), same_view)


@pytest.mark.parametrize(
    ("metres", "radians", "needed"), [(0.19, 0.0, 0), (0.21, 0.0, 1), (0.0, 0.31, 1)]
)
def test_a_moving_robot_needs_an_image_after_the_asked_motion(
    metres: float, radians: float, needed: int
) -> None:
    gate = gate_after((0.0, 0.0, 0.0), update_min_d=0.2, update_min_a=0.3)
    assert gate.needs(reading((metres, 0.0, radians), 1.5), same_view) is bool(needed)


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        (1.0, Event.IMAGE_LATE),
        (0.5, Event.IMAGE_LATE),
        (1.5, None),
        (3.4, None),
        (3.6, Event.IMAGE_WITHOUT_ODOMETRY),
    ],
)
def test_images_are_refused_by_their_stamps(seconds: float, reason: Event | None) -> None:
    gate = gate_after((0.0, 0.0, 0.0), max_odometry_age_s=0.5)
    assert gate.refusal(round(seconds * SECOND)) is reason


def test_images_before_the_odometry_are_refused() -> None:
    gate = gate_after((0.0, 0.0, 0.0))
    gate.forget_stamps()
    assert gate.refusal(SECOND // 2) is Event.IMAGE_BEFORE_ODOMETRY


def test_a_motion_faster_than_any_robot_is_not_known() -> None:
    gate = gate_after((0.0, 0.0, np.pi / 2), max_speed=2.0, max_turn_rate=1.0)
    motion, jumped = gate.motion(reading((0.0, 1.9, np.pi / 2), 2.0))
    # One second ahead of a robot that looks along y.
    np.testing.assert_allclose(motion, [1.9, 0.0, 0.0], atol=1e-12)
    assert not jumped
    assert gate.motion(reading((0.0, 2.1, np.pi / 2), 2.0)) == (None, True)
    assert gate.motion(reading((0.0, 0.0, np.pi / 2 + 1.1), 2.0)) == (None, True)


def test_a_view_that_changes_while_the_robot_stands_needs_its_image_at_once() -> None:
    """The wheels of a robot that is carried away stand still."""
    standing = (0.0, 0.0, 0.0)
    gate = gate_after(standing)
    carried = reading(standing, 1.2)
    assert gate.needs(carried, lambda: OTHER_VIEW)
    # Asked again once the image is described, the gate does not change its mind.
    assert gate.needs(carried, lambda: OTHER_VIEW)
    gate.used(carried, True, OTHER_VIEW)
    assert not gate.needs(reading(standing, 1.4), lambda: OTHER_VIEW)
    assert gate.needs(reading(standing, 1.6), same_view)


def test_a_view_that_changes_counts_however_far_the_robot_has_to_move_for_an_image() -> None:
    gate = gate_after((0.0, 0.0, 0.0), update_min_d=0.25, update_min_a=0.2)
    assert gate.needs(reading((0.0, 0.0, 0.0), 9.0), lambda: OTHER_VIEW)
    assert not gate.needs(reading((0.0, 0.0, 0.0), 9.3), same_view)


@pytest.mark.parametrize(("hertz", "every"), [(2, 1), (5, 1), (10, 2), (15, 4), (30, 8)])
def test_a_standing_robot_is_looked_at_before_the_period_is_over_where_it_has_images(
    hertz: int, every: int
) -> None:
    """After as many images as fit into the period, 0.28 s; each where none does."""
    gate = gate_after((0.0, 0.0, 0.0), standing_update_s=60.0)
    looks: list[int] = []

    def look(frame: int) -> NDArray[np.uint8]:
        looks.append(frame)
        return same_view()

    for frame in range(1, 41):
        now = reading((0.0, 0.0, 0.0), 1.0 + frame / hertz)
        assert not gate.needs(now, partial(look, frame))
        gate.seen(now.stamp_ns)
    assert looks == list(range(every, 41, every))
    assert every == max(1, int(VIEW_PERIOD_S * hertz))


def test_without_a_tiny_image_to_compare_with_no_view_has_changed() -> None:
    """As of descriptions that were made without one."""
    gate = gate_after((0.0, 0.0, 0.0))
    assert not gate.needs(reading((0.0, 0.0, 0.0), 1.2), lambda: None)
    gate.used(reading((0.0, 0.0, 0.0), 1.2), True, None)
    assert not gate.needs(reading((0.0, 0.0, 0.0), 1.5), lambda: OTHER_VIEW)
