"""A tracked pose that odometry alone carries."""

import pytest

from kbf_localization.localization import LocalizerSettings, State
from test.localization.test_localizer import SECOND, UNSEEN, drive_straight, localizer_with


def tracking(world_map, speed: float, until_s: float, **settings):
    """A localizer that tracks since its image at 0 s and drives on without images."""
    localizer, pose_filter = localizer_with(world_map, LocalizerSettings(**settings))
    assert localizer.add_odometry(-SECOND, [-speed, 0.0, 0.0])
    drive_straight(localizer, 0.0)
    localizer.add_described(0, UNSEEN)
    assert localizer.state is State.TRACKING
    for tenth in range(1, round(until_s * 10) + 1):
        assert localizer.add_odometry(tenth * SECOND // 10, [speed * tenth / 10.0, 0.0, 0.0])
    return localizer, pose_filter


def scales(world_map):
    similarity = world_map.calibration.similarity
    return similarity.distance_m, similarity.angle_rad


@pytest.mark.parametrize(
    ("speed_d0", "until_s", "expected"),
    [
        (0.0, 2.0, State.TRACKING),
        (0.0, 2.1, State.DEGRADED),
        (0.5, 2.0, State.TRACKING),
        (0.5, 2.1, State.DEGRADED),
        (4.0, 0.4, State.TRACKING),
        (4.0, 0.6, State.DEGRADED),
    ],
)
def test_degraded_after_two_seconds_or_two_of_the_maps_scales_without_an_image(
    world_map, speed_d0, until_s, expected
):
    d0, _ = scales(world_map)
    localizer, _ = tracking(world_map, speed_d0 * d0, until_s)
    assert localizer.state is expected
    assert localizer.dead_reckoned_s == pytest.approx(until_s)
    assert localizer.dead_reckoned_m == pytest.approx(speed_d0 * d0 * until_s)
    assert localizer.unconfirmed.travel == pytest.approx(speed_d0 * until_s)


@pytest.mark.parametrize(("turned_phi0", "expected"), [(1.9, "tracking"), (2.1, "degraded")])
def test_a_turn_counts_in_the_maps_scale_of_angles(world_map, turned_phi0, expected):
    _, phi0 = scales(world_map)
    localizer, _ = tracking(world_map, 0.0, 0.1)
    for step in range(2, 12):
        localizer.add_odometry(
            step * SECOND // 10, [0.0, 0.0, turned_phi0 * phi0 * (step - 1) / 10]
        )
    assert localizer.state.value == expected


def test_an_image_that_fits_ends_it_and_its_time_is_counted(world_map):
    localizer, _ = tracking(world_map, 0.0, 3.0)
    assert localizer.degraded_s == 0.0
    assert localizer.add_described(3 * SECOND, UNSEEN).state is State.TRACKING
    assert localizer.state is State.TRACKING
    assert localizer.degraded_s == pytest.approx(1.0)


def test_time_is_counted_from_where_the_travel_exceeded_its_bound(world_map):
    """At 4 d₀ a second two scales are passed after 0.5 s."""
    localizer, _ = tracking(world_map, 4.0 * scales(world_map)[0], 1.5)
    localizer.add_described(3 * SECOND // 2, UNSEEN)
    assert localizer.degraded_s == pytest.approx(1.0)


def test_images_that_do_not_confirm_the_pose_degrade_it_as_no_images_do(world_map):
    localizer, pose_filter = tracking(world_map, 0.0, 3.0, standing_update_s=0.1)
    pose_filter.confirmed = False
    states = [localizer.add_described(k * SECOND // 10, UNSEEN).state for k in range(1, 31)]
    assert states == [State.TRACKING] * 20 + [State.DEGRADED] * 10
    assert localizer.degraded_s == pytest.approx(1.0)
    assert localizer.dead_reckoned_s == 0.0
    assert localizer.unconfirmed.seconds == pytest.approx(3.0)


def test_what_confirms_the_pose_ends_a_stretch_of_images_that_do_not(world_map):
    localizer, pose_filter = tracking(world_map, 0.0, 4.0, standing_update_s=0.1)
    pose_filter.confirmed = False
    for tenth in range(1, 31):
        localizer.add_described(tenth * SECOND // 10, UNSEEN)
    pose_filter.confirmed = True
    assert localizer.add_described(31 * SECOND // 10, UNSEEN).state is State.TRACKING
    assert localizer.degraded_s == pytest.approx(1.1)


def test_the_covariance_of_a_degraded_pose_is_the_poses_own(world_map):
    """That of the whole belief is published where the place is in doubt."""
    localizer, pose_filter = tracking(world_map, 0.0, 3.0)
    pose_filter.confirmed = False
    found = localizer.add_described(3 * SECOND, UNSEEN)
    assert found.state is State.DEGRADED
    assert found.published_covariance is found.covariance


def test_an_image_that_does_not_fit_leads_from_degraded_to_lost(world_map):
    localizer, pose_filter = tracking(world_map, 0.5, 3.0)
    pose_filter.evidence = -2.0
    localizer.add_described(3 * SECOND, UNSEEN)
    assert localizer.state is State.LOST
    assert localizer.counts["lost"] == 1


def test_images_that_are_not_needed_keep_a_standing_robot_tracking(world_map):
    localizer, pose_filter = tracking(world_map, 0.0, 10.0, standing_update_s=100.0)
    for second in range(1, 11):
        localization = localizer.add_described(second * SECOND, UNSEEN)
        assert not localization.used
    assert localizer.state is State.TRACKING
    assert len(pose_filter.motions) == 1


def test_a_pose_that_was_never_tracked_does_not_degrade(world_map):
    localizer, _ = localizer_with(world_map, evidence=-0.5)
    drive_straight(localizer, 0.0)
    localizer.add_described(0, UNSEEN)
    assert localizer.add_odometry(9 * SECOND, [0.0, 0.0, 0.0])
    assert localizer.state is State.LOCALIZING


@pytest.mark.parametrize(
    "settings", [{"max_tracking_sigma_m": 0.2}, {"max_tracking_sigma_m": 0.31}]
)
def test_the_absolute_bound_of_the_standard_deviation_is_the_settings(world_map, settings):
    localizer, _ = localizer_with(world_map, LocalizerSettings(**settings), sigma=0.3)
    drive_straight(localizer, 0.0)
    localizer.add_described(0, UNSEEN)
    narrow = settings["max_tracking_sigma_m"] > 0.3
    assert localizer.state is (State.TRACKING if narrow else State.LOCALIZING)
