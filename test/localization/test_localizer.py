from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.events import Event
from kbf_localization.filters.base import Confidence, Estimate, GaussianPrior
from kbf_localization.geometry import compose, relative
from kbf_localization.localization import Localizer, LocalizerSettings, State
from test.filters.synthetic_world import localizer as kbf_localizer

SECOND = 1_000_000_000

UNSEEN = SimpleNamespace(description=SimpleNamespace(tiny=None))
"""An image that its filter does not look at."""


class Recorder:
    """A filter that keeps what it is given and goes where odometry alone would lead."""

    def __init__(self, evidence=1.0, sigma=0.1):
        self.motions, self.priors, self.variances = [], [], []
        self.evidence, self.sigma, self.confirmed = evidence, sigma, True
        self.events, self.confident = ("seen",), True
        self.pose = np.zeros(3)

    def reset(self, prior=None):
        self.priors.append(prior)
        self.pose = np.zeros(3) if prior is None else np.array(prior.pose)

    def step(self, motion, observation, variances=None):
        self.motions.append(motion)
        self.variances.append(variances)
        if motion is not None:
            self.pose = compose(self.pose, motion)
        covariance = np.eye(3) * self.sigma**2
        return Estimate(
            self.pose,
            covariance,
            self.pose,
            None,
            self.evidence,
            self.events,
            whole_covariance=4.0 * covariance,
            confidence=Confidence(0.995, self.evidence, -1.0, 0.5, self.confirmed)
            if self.confident
            else None,
        )


def localizer_with(world_map, settings=None, **recorder):
    pose_filter = Recorder(**recorder)
    return Localizer(world_map, pose_filter, settings or LocalizerSettings()), pose_filter


def drive_straight(localizer, until_s, speed=0.5):
    for tenth in range(int(until_s * 10) + 1):
        assert localizer.add_odometry(tenth * SECOND // 10, [speed * tenth / 10.0, 0.0, 0.0])


def test_an_image_is_used_with_the_odometry_interpolated_at_its_stamp(world_map):
    localizer, pose_filter = localizer_with(world_map)
    drive_straight(localizer, 1.0)
    localizer.add_described(SECOND // 4, UNSEEN)
    localizer.add_described(SECOND // 2 + 1000, UNSEEN)
    assert pose_filter.motions[0] is None
    expected = 0.5 * (0.25 + 1e-6)
    np.testing.assert_allclose(pose_filter.motions[1], [expected, 0.0, 0.0], atol=1e-12)


def test_says_whether_odometry_covers_a_stamp(world_map):
    localizer, _ = localizer_with(world_map)
    assert not localizer.covers(0)
    localizer.add_odometry(5, [0.0, 0.0, 0.0])
    assert localizer.covers(5)
    assert not localizer.covers(6)


@pytest.mark.parametrize(
    ("stamp", "pose", "reason"),
    [
        (5, [0.0, 0.0, 0.0], "odometry_late"),
        (4, [0.0, 0.0, 0.0], "odometry_late"),
        (6, [np.nan, 0.0, 0.0], "odometry_not_finite"),
        (6, [0.0, np.inf, 0.0], "odometry_not_finite"),
    ],
)
def test_refuses_and_counts_bad_odometry(world_map, stamp, pose, reason):
    localizer, _ = localizer_with(world_map)
    assert localizer.add_odometry(5, [0.0, 0.0, 0.0])
    assert not localizer.add_odometry(stamp, pose)
    assert localizer.counts[reason] == 1


def test_an_image_without_odometry_is_counted_and_not_used(world_map):
    localizer, pose_filter = localizer_with(world_map)
    assert localizer.add_described(SECOND, UNSEEN) is None
    localizer.add_odometry(2 * SECOND, [0.0, 0.0, 0.0])
    assert localizer.add_described(SECOND, UNSEEN) is None
    assert localizer.add_described(5 * SECOND, UNSEEN) is None
    assert localizer.counts["image_without_odometry"] == 2
    assert localizer.counts["image_before_odometry"] == 1
    assert pose_filter.motions == []


def test_a_late_or_repeated_image_is_counted_and_not_used(world_map):
    localizer, _ = localizer_with(world_map)
    drive_straight(localizer, 1.0)
    assert localizer.add_described(SECOND // 2, UNSEEN) is not None
    assert localizer.add_described(SECOND // 2, UNSEEN) is None
    assert localizer.add_described(SECOND // 4, UNSEEN) is None
    assert localizer.counts["image_late"] == 2


def test_odometry_that_jumps_by_metres_is_no_motion(world_map):
    localizer, pose_filter = localizer_with(world_map)
    localizer.add_odometry(0, [0.0, 0.0, 0.0])
    localizer.add_described(0, UNSEEN)
    localizer.add_odometry(SECOND // 5, [40.0, 0.0, 0.0])
    localizer.add_described(SECOND // 5, UNSEEN)
    assert pose_filter.motions == [None, None]
    assert localizer.counts["odometry_jump"] == 1


def test_waits_until_the_robot_has_moved_enough(world_map):
    settings = LocalizerSettings(update_min_d=0.2, update_min_a=10.0)
    localizer, pose_filter = localizer_with(world_map, settings)
    drive_straight(localizer, 2.0)
    fixes = [localizer.add_described(tenth * SECOND // 10, UNSEEN) for tenth in range(20)]
    assert [fix.used for fix in fixes[:6]] == [True, False, False, False, True, False]
    np.testing.assert_allclose([fix.pose[0] for fix in fixes], 0.05 * np.arange(20), atol=1e-12)
    assert fixes[3].covariance[0, 0] > fixes[0].covariance[0, 0]
    assert len(pose_filter.motions) == 5


def test_an_update_can_be_asked_for_while_standing_still(world_map):
    localizer, pose_filter = localizer_with(world_map, LocalizerSettings(1.0, 1.0))
    drive_straight(localizer, 1.0, speed=0.0)
    localizer.add_described(0, UNSEEN)
    assert not localizer.add_described(SECOND // 10, UNSEEN).used
    localizer.force_next_update()
    assert localizer.add_described(2 * SECOND // 10, UNSEEN).used
    assert len(pose_filter.motions) == 2


def test_stands_until_it_moves_or_turns(world_map):
    localizer, _ = localizer_with(world_map)
    assert not localizer.stands
    drive_straight(localizer, 1.0, speed=0.0)
    fix = localizer.add_described(0, UNSEEN)
    assert localizer.state is State.TRACKING and localizer.stands
    pose, covariance = localizer.pose_at()
    np.testing.assert_array_equal(pose, fix.pose)
    np.testing.assert_array_equal(covariance, fix.covariance)
    localizer.add_odometry(2 * SECOND, [0.0, 0.0, 0.1])
    assert not localizer.stands
    localizer.add_described(2 * SECOND, UNSEEN)
    assert localizer.stands
    localizer.add_odometry(3 * SECOND, [0.1, 0.0, 0.1])
    assert not localizer.stands


@pytest.mark.parametrize(
    ("state", "used"),
    [
        # The image that finds the state, where it is not tracking another one that leaves it, and
        # then one a second.
        (State.TRACKING, [0, 30, 60]),
        (State.LOCALIZING, [0, 1, 31, 61]),
        (State.LOST, [0, 1, 31, 61]),
    ],
)
def test_a_standing_robot_uses_an_image_a_second_in_every_state(world_map, state, used):
    localizer, pose_filter = localizer_with(world_map)
    if state is State.LOST:
        localizer.add_odometry(-SECOND, np.zeros(3))
        assert localizer.add_described(-SECOND, UNSEEN).state is State.TRACKING
    pose_filter.evidence = 1.0 if state is State.TRACKING else -2.0
    stamps = [frame * SECOND // 30 for frame in range(90)]
    for stamp in stamps:
        localizer.add_odometry(stamp, [2.0, 1.0, 0.5])
    fixes = [localizer.add_described(stamp, UNSEEN) for stamp in stamps]
    assert {fix.state for fix in fixes} == {state}
    assert [number for number, fix in enumerate(fixes) if fix.used] == used
    assert localizer.stands


def test_where_the_images_jump_a_standing_robot_uses_the_next_one_at_once(world_map):
    localizer, pose_filter = localizer_with(world_map, evidence=-2.0)
    drive_straight(localizer, 3.0, speed=0.0)
    used = []
    for frame in range(60):
        # An image a second is compared with the one before: the second of them shows another view.
        pose_filter.events = (Event.IMAGE_DISCONTINUITY,) if len(used) == 2 else ()
        if localizer.add_described(frame * SECOND // 30, UNSEEN).used:
            used.append(frame)
    assert used == [0, 1, 31, 32]


def test_a_view_that_changes_while_the_robot_stands_is_used_at_once(world_map):
    """A robot is carried away with its wheels at rest, 1.5 s after the camera's first image."""
    localizer, _ = localizer_with(world_map)
    drive_straight(localizer, 3.0, speed=0.0)
    views = np.random.default_rng(0).integers(0, 256, (2, 120, 328), dtype=np.uint8)
    views = [cv2.GaussianBlur(view, (0, 0), 9.0, dst=None) for view in views]
    views = [cv2.normalize(view, None, 0, 255, cv2.NORM_MINMAX) for view in views]
    used, decoded = [], []
    for tenth in range(26):

        def decode(tenth=tenth):
            decoded.append(tenth)
            return views[tenth >= 15]

        if localizer.add_image(tenth * SECOND // 10, decode).used:
            used.append(tenth)
    # The first, one a second later, and the first that is looked at after the change.
    assert used == [0, 10, 16]
    assert decoded == list(range(0, 26, 2))


def test_a_filter_that_cannot_tell_its_confidence_uses_every_image(world_map):
    localizer, pose_filter = localizer_with(world_map)
    pose_filter.confident = False
    drive_straight(localizer, 1.0, speed=0.0)
    assert all(localizer.add_described(tenth * SECOND // 10, UNSEEN).used for tenth in range(10))
    assert not localizer.stands


@pytest.mark.parametrize("odometry_jump", [0.0, 0.4, 3.0])
def test_a_robot_that_stands_after_a_jump_uses_few_images(world_map, world_drive, odometry_jump):
    """Whatever the default filter makes of the jump, in images and in odometry."""
    localizer = kbf_localizer(world_map)
    odometry = world_drive.odometry.poses
    for index in range(60):
        stamp = index * SECOND // 10
        localizer.add_odometry(stamp, odometry[index])
        localizer.add_described(stamp, world_map.observe(world_drive.views[index]))
    assert localizer.state is State.TRACKING
    elsewhere = odometry[59] + [odometry_jump, 0.0, 0.0]
    used = 0
    for frame in range(90):
        stamp = 6 * SECOND + frame * SECOND // 30
        localizer.add_odometry(stamp, elsewhere)
        view = world_drive.views[150 if odometry_jump else 59]
        used += localizer.add_described(stamp, world_map.observe(view)).used
    # The first image, at most three until nothing changes, and one a second.
    assert used <= 6
    assert localizer.stands


def test_odometry_that_trembles_in_one_place_stands(world_map):
    localizer, _ = localizer_with(world_map)
    for reading in range(101):
        assert localizer.add_odometry(reading * SECOND // 100, [1e-3 * (reading % 2), 0.0, np.pi])
    fixes = [localizer.add_described(tenth * SECOND // 10, UNSEEN) for tenth in range(10)]
    assert [fix.used for fix in fixes] == [True] + 9 * [False]
    assert localizer.stands


def test_a_given_pose_is_moved_on_from_its_stamp(world_map):
    localizer, pose_filter = localizer_with(world_map)
    drive_straight(localizer, 2.0)
    prior = GaussianPrior(np.array([3.0, 1.0, 0.0]), 0.01 * np.eye(3))
    localizer.set_pose(prior, SECOND)
    fix = localizer.add_described(2 * SECOND, UNSEEN)
    np.testing.assert_allclose(fix.pose, [3.5, 1.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(pose_filter.priors[-1].pose, prior.pose)
    np.testing.assert_array_equal(pose_filter.priors[-1].covariance, prior.covariance)


def test_map_to_odom_takes_odometry_to_the_map(world_map):
    localizer, _ = localizer_with(world_map)
    assert localizer.map_to_odom() is None
    drive_straight(localizer, 1.0)
    localizer.set_pose(GaussianPrior(np.array([3.0, 1.0, 1.2]), 0.01 * np.eye(3)), 0)
    fix = localizer.add_described(SECOND // 2, UNSEEN)
    np.testing.assert_allclose(
        compose(localizer.map_to_odom(), fix.odometry_pose), fix.pose, atol=1e-12
    )


def test_dead_reckoning_adds_the_maps_motion_noise(world_map):
    localizer, _ = localizer_with(world_map)
    drive_straight(localizer, 2.0)
    localizer.add_described(SECOND, UNSEEN)
    _, covariance = localizer.pose_at(2 * SECOND)
    # Half a metre straight on: what the heading's error of 0.1 rad leads aside, and Q, whose
    # heading leads aside too: ∫(s − u)² q du = q s³/3 to the left, ∫(s − u) q du with the heading.
    jacobian = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    per_metre = world_map.calibration.motion_noise.per_metre
    noise = 0.5 * np.diag(per_metre)
    noise[1, 1] += per_metre[2] * 0.5**3 / 3.0
    noise[1, 2] = noise[2, 1] = per_metre[2] * 0.5**2 / 2.0
    np.testing.assert_allclose(covariance, 0.01 * jacobian @ jacobian.T + noise, atol=1e-12)


def test_dead_reckons_between_images_with_growing_covariance(world_map):
    localizer, _ = localizer_with(world_map)
    assert localizer.pose_at() is None
    drive_straight(localizer, 2.0)
    localizer.add_described(SECOND, UNSEEN)
    pose, covariance = localizer.pose_at(2 * SECOND)
    np.testing.assert_allclose(relative(localizer.last.pose, pose), [0.5, 0.0, 0.0], atol=1e-12)
    assert (np.diag(covariance) > np.diag(localizer.last.covariance)).all()
    newest, _ = localizer.pose_at()
    np.testing.assert_allclose(newest, pose)


def test_the_state_follows_the_filters_confidence(world_map):
    localizer, pose_filter = localizer_with(world_map)
    drive_straight(localizer, 20.0)
    assert localizer.state is State.UNINITIALIZED
    stamps = iter(range(0, 20 * SECOND, SECOND // 10))
    assert localizer.add_described(next(stamps), UNSEEN).state is State.TRACKING
    pose_filter.evidence = -2.0
    assert localizer.add_described(next(stamps), UNSEEN).state is State.LOST
    assert localizer.counts["lost"] == 1
    pose_filter.evidence = 1.0
    assert localizer.add_described(next(stamps), UNSEEN).state is State.TRACKING


def test_a_wide_belief_is_not_tracking(world_map):
    localizer, _ = localizer_with(world_map, sigma=3.0)
    drive_straight(localizer, 5.0)
    states = [localizer.add_described(tenth * SECOND // 10, UNSEEN).state for tenth in range(40)]
    assert set(states) == {State.LOCALIZING}


def test_others_get_the_whole_beliefs_covariance_unless_the_robot_tracks(world_map):
    localizer, pose_filter = localizer_with(world_map)
    drive_straight(localizer, 5.0)
    tracking = localizer.add_described(SECOND, UNSEEN)
    np.testing.assert_array_equal(tracking.published_covariance, 0.1**2 * np.eye(3))
    pose_filter.evidence = -2.0
    lost = localizer.add_described(2 * SECOND, UNSEEN)
    expected = 0.04 * np.eye(3) + np.diag([4.0, 4.0, 1.0])
    np.testing.assert_allclose(lost.published_covariance, expected)


def test_a_given_pose_is_rested_on_until_the_images_decide(world_map):
    localizer, pose_filter = localizer_with(world_map)
    drive_straight(localizer, 5.0)
    assert not localizer.rests_on_given_pose
    localizer.set_pose(GaussianPrior(np.zeros(3), 0.01 * np.eye(3)), 0)
    assert localizer.rests_on_given_pose
    pose_filter.evidence = -0.5
    localizer.add_described(SECOND, UNSEEN)
    assert localizer.rests_on_given_pose
    pose_filter.evidence = 1.0
    localizer.add_described(2 * SECOND, UNSEEN)
    assert not localizer.rests_on_given_pose


def test_a_given_pose_that_images_confirmed_is_not_rested_on_once_it_is_imprecise(world_map):
    localizer, _ = localizer_with(world_map)
    drive_straight(localizer, 5.0)
    localizer.set_pose(GaussianPrior(np.zeros(3), 0.01 * np.eye(3)), 0)
    assert localizer.add_described(SECOND, UNSEEN).state is State.TRACKING
    localizer.configure(LocalizerSettings(max_tracking_sigma_m=0.05))
    assert localizer.add_described(2 * SECOND, UNSEEN).state is State.LOCALIZING
    assert not localizer.rests_on_given_pose


def test_starts_again_anywhere_on_request_and_after_a_jump_of_time(world_map):
    localizer, pose_filter = localizer_with(world_map)
    drive_straight(localizer, 1.0)
    localizer.add_described(SECOND, UNSEEN)
    localizer.reinitialize()
    assert localizer.state is State.UNINITIALIZED and localizer.last is None
    localizer.reset()
    assert not localizer.covers(0)
    localizer.add_odometry(0, [0.0, 0.0, 0.0])
    assert localizer.add_described(0, UNSEEN) is not None
    assert pose_filter.motions == [None, None]


def test_counts_what_the_filter_reports(world_map):
    localizer, _ = localizer_with(world_map)
    drive_straight(localizer, 1.0)
    localizer.add_described(0, UNSEEN)
    localizer.add_described(SECOND, UNSEEN)
    assert localizer.counts["seen"] == 2


def test_the_order_of_arrival_does_not_matter(world_map, world_drive):
    odometry = world_drive.odometry

    def run(all_odometry_first):
        localizer = kbf_localizer(world_map)
        fed, poses = 0, []
        for index in range(60):
            needed = len(odometry.stamps_ns) if all_odometry_first else index + 2
            while fed < needed:
                localizer.add_odometry(int(odometry.stamps_ns[fed]), odometry.poses[fed])
                fed += 1
            stamp = int(world_drive.stamps_ns[index]) + 1000
            observation = world_map.observe(world_drive.views[index])
            poses.append(localizer.add_described(stamp, observation).pose)
        return np.array(poses)

    np.testing.assert_array_equal(run(True), run(False))


@pytest.mark.parametrize(
    "bad", [{"update_min_d": -1.0}, {"max_speed": 0.0}, {"estimate": "median"}]
)
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        LocalizerSettings(**bad)


def drive_with_covariance(localizer, grown):
    """Straight on by 0.1 m a reading; `grown` (3,) is added to the covariance each time."""
    covariance = np.diag([1e-3, 1e-3, 1e-3])
    for index in range(5):
        localizer.add_odometry(index * SECOND, [0.1 * index, 0.0, 0.0], covariance)
        lever = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.1], [0.0, 0.0, 1.0]])
        covariance = lever @ covariance @ lever.T + np.diag(grown)
    for half in range(8):
        localizer.add_described(half * SECOND // 2, UNSEEN)


def test_the_odometrys_own_covariance_is_the_motions_noise(world_map):
    calibration = world_map.calibration.motion_noise.variances(0.1, 0.0)
    localizer, pose_filter = localizer_with(world_map)
    drive_with_covariance(localizer, 4.0 * calibration)
    assert pose_filter.variances[0] is None
    # Images at every other half second: half of what a reading has added.
    np.testing.assert_allclose(
        pose_filter.variances[1:], np.tile(2.0 * calibration, (7, 1)), rtol=1e-6
    )
    assert localizer.noise_is_reported
    start, end = (localizer.pose_at(seconds * SECOND) for seconds in (3.5, 4))
    grown = np.diag(end[1] - start[1])
    assert grown[0] == pytest.approx(2.0 * calibration[0], rel=1e-6)
    assert grown[2] == pytest.approx(2.0 * calibration[2], rel=1e-6)


@pytest.mark.parametrize("fraction", [0.0, 0.01, 1e3, -0.01])
def test_a_covariance_that_is_not_sane_leaves_the_maps_noise(world_map, fraction):
    localizer, pose_filter = localizer_with(world_map)
    drive_with_covariance(
        localizer, fraction * world_map.calibration.motion_noise.variances(0.1, 0.0)
    )
    assert pose_filter.variances == [None] * 8
    assert not localizer.noise_is_reported


def test_one_reading_without_a_covariance_leaves_the_maps_noise_until_the_next_image(world_map):
    calibration = world_map.calibration.motion_noise.variances(0.1, 0.0)
    localizer, pose_filter = localizer_with(world_map)
    for index in range(6):
        reported = None if index == 2 else np.diag([1.0, 1.0, 0.0]) + index * np.diag(calibration)
        localizer.add_odometry(index * SECOND, [0.1 * index, 0.0, 0.0], reported)
        localizer.add_described(index * SECOND, UNSEEN)
    said = [variance is not None for variance in pose_filter.variances]
    assert said == [False, True, False, False, True, True]


class Looking(Recorder):
    """A filter that notes which images have keypoints."""

    def __init__(self, **recorder):
        super().__init__(**recorder)
        self.detected = []

    def step(self, motion, observation, variances=None):
        self.detected.append(observation.description.keypoints is not None)
        return super().step(motion, observation, variances)


@pytest.mark.parametrize(
    ("in_haste", "tracking", "step", "expected"),
    [
        (False, True, [0.06, 0.0, 0.0], [1, 1, 1, 1, 1, 1, 1]),
        (True, True, [0.06, 0.0, 0.0], [1, 0, 0, 1, 0, 0, 1]),
        (True, True, [0.0, 0.0, 0.08], [1, 0, 1, 0, 1, 0, 1]),
        (True, False, [0.06, 0.0, 0.0], [1, 1, 1, 1, 1, 1, 1]),
    ],
    ids=["in time", "driving", "turning", "not tracking"],
)
def test_in_haste_a_tracked_pose_has_landmarks_every_15_cm_or_9_degrees(
    office_map, in_haste, tracking, step, expected
):
    pose_filter = Looking(sigma=0.1 if tracking else 3.0)
    localizer = Localizer(office_map, pose_filter)
    image = np.random.default_rng(0).integers(0, 256, (240, 320), dtype=np.uint8)
    for number in range(len(expected)):
        localizer.add_odometry(number * SECOND, number * np.array(step))
        localizer.add_image(number * SECOND, image, in_haste)
        assert (localizer.state is State.TRACKING) == tracking
    assert pose_filter.detected == expected
