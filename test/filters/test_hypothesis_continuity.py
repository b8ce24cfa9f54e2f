"""Whether each image continues the sequence, as the odometry predicts."""

import numpy as np
import pytest
from scipy.special import expit, logit

from kbf_localization.filters.hypothesis import (
    CONTINUING_MATCHED,
    KEYPOINT_DISCONTINUITY,
    MIN_DISCONTINUITY,
    MIN_MATCHED,
    PRIOR_DISCONTINUITY,
    ContinuityMonitor,
)
from kbf_localization.geometry import relative
from kbf_localization.training_map.training_map import MapObservation
from test.filters.synthetic_world import World, drive, loop


@pytest.fixture(scope="module")
def observations(world_map, world_drive):
    return [world_map.observe(view) for view in world_drive.views]


def test_the_first_image_starts_the_sequence(world_map, observations):
    assert ContinuityMonitor(world_map.calibration).update(None, observations[0]).first


def test_images_along_a_drive_continue_the_sequence(world_map, world_drive, observations):
    monitor = ContinuityMonitor(world_map.calibration)
    monitor.update(None, observations[0])
    probabilities = [
        monitor.update(motion, observation).discontinuity
        for motion, observation in zip(world_drive.motions, observations[1:], strict=True)
    ]
    assert np.mean(np.array(probabilities) > MIN_DISCONTINUITY) < 0.01
    assert np.median(probabilities) < 0.01


def test_an_image_of_another_place_is_a_discontinuity(world_map, world_drive, observations):
    """Without a motion; the next image continues from there."""
    similarity = world_map.calibration.similarity
    generator = np.random.default_rng(0)
    probabilities, after = [], []
    while len(probabilities) < 60:
        first, second = generator.integers(0, len(observations) - 1, 2)
        offset = relative(world_drive.poses[first], world_drive.poses[second])
        if similarity.separation(offset) < 2.0:
            continue
        monitor = ContinuityMonitor(world_map.calibration)
        monitor.update(None, observations[first])
        probabilities.append(monitor.update(np.zeros(3), observations[second]).discontinuity)
        after.append(
            monitor.update(world_drive.motions[second], observations[second + 1]).discontinuity
        )
    assert np.mean(np.array(probabilities) > MIN_DISCONTINUITY) > 0.9
    assert np.mean(np.array(after) < MIN_DISCONTINUITY) > 0.9


def test_an_image_of_another_building_is_a_discontinuity(world_map, observations):
    other = drive(World(seed=5), loop(10), 1)
    for view in other.views:
        monitor = ContinuityMonitor(world_map.calibration)
        monitor.update(None, observations[30])
        assert (
            monitor.update(np.zeros(3), world_map.observe(view)).discontinuity > MIN_DISCONTINUITY
        )


def test_a_repeated_image_is_frozen_whatever_the_odometry(world_map, observations):
    monitor = ContinuityMonitor(world_map.calibration)
    monitor.update(None, observations[0])
    for motion in (np.zeros(3), np.array([0.2, 0.0, 0.0]), np.array([3.0, 0.0, 1.0]), None):
        found = monitor.update(motion, observations[0])
        assert found.frozen and found.discontinuity == 0.0


def test_an_image_repeated_between_two_references_is_frozen_too(
    world_map, world_drive, observations
):
    for start in range(20, 30):
        monitor = ContinuityMonitor(world_map.calibration)
        monitor.update(None, observations[20])
        for index in range(20, start):
            monitor.update(world_drive.motions[index], observations[index + 1])
        assert monitor.update(np.array([0.1, 0.0, 0.0]), observations[start]).frozen


def test_a_recovering_camera_is_compared_with_the_frozen_reference(
    world_map, world_drive, observations
):
    monitor = ContinuityMonitor(world_map.calibration)
    monitor.update(None, observations[40])
    for index in range(40, 44):
        assert monitor.update(world_drive.motions[index], observations[40]).frozen
    assert (
        monitor.update(world_drive.motions[44], observations[45]).discontinuity < MIN_DISCONTINUITY
    )


def test_discontinuity_does_not_depend_on_the_frame_rate(world_map, world_drive, observations):
    """Every fifth image of the drive continues it as well as every image does."""
    monitor = ContinuityMonitor(world_map.calibration)
    monitor.update(None, observations[0])
    odometry = world_drive.odometry.poses
    probabilities = [
        monitor.update(relative(odometry[at - 5], odometry[at]), observations[at]).discontinuity
        for at in range(5, len(observations), 5)
    ]
    assert np.mean(np.array(probabilities) > MIN_DISCONTINUITY) < 0.05


class Keypoints(MapObservation):
    """An image of which the fraction `matched` of the keypoints matches any other image's."""

    matched = None

    def matched_fraction(self, other):
        return self.matched


def keypoints(world_map, view, matched):
    observation = Keypoints(world_map, view)
    observation.matched = matched
    return observation


def probabilities_of(world_map, world_drive, fractions, first=30):
    """Return the probabilities of a discontinuity along a drive whose keypoints match so."""
    monitor = ContinuityMonitor(world_map.calibration)
    found = []
    for index, matched in enumerate(fractions, first):
        motion = None if index == first else world_drive.motions[index - 1]
        observation = keypoints(world_map, world_drive.views[index], matched)
        found.append(monitor.update(motion, observation).discontinuity)
    return found


def test_keypoints_that_cease_to_match_are_a_discontinuity(world_map, world_drive):
    found = probabilities_of(world_map, world_drive, [0.5, 0.5, 0.5, 0.02, 0.5])
    assert found[3] > MIN_DISCONTINUITY
    assert found[4] == found[2] == 0.0


def test_keypoints_that_never_matched_say_nothing(world_map, world_drive):
    """Neither does a dark lens after the first of its images."""
    found = probabilities_of(world_map, world_drive, [0.5, 0.02, 0.02, 0.02])
    by_words = probabilities_of(world_map, world_drive, [None] * 4)
    assert found[2:] == by_words[2:]


def test_matching_keypoints_outweigh_unlike_words(world_map, world_drive, observations):
    """The same image of another place is a discontinuity by its words alone."""
    similarity = world_map.calibration.similarity
    offsets = relative(world_drive.poses[30], world_drive.poses)
    far = world_drive.views[int(np.argmax(similarity.separation(offsets)))]
    for matched, expected in ((0.5, False), (None, True)):
        monitor = ContinuityMonitor(world_map.calibration)
        monitor.update(None, keypoints(world_map, world_drive.views[29], matched))
        monitor.update(
            world_drive.motions[29], keypoints(world_map, world_drive.views[30], matched)
        )
        jumped = monitor.update(np.zeros(3), keypoints(world_map, far, matched))
        assert (jumped.discontinuity > MIN_DISCONTINUITY) is expected


class Passed(MapObservation):
    """Images that pass a standing robot: with each, a fifth of the keypoints goes out of view."""

    number = 0

    def matched_fraction(self, other):
        return max(0.9 - 0.2 * abs(self.number - other.number), 0.0)


@pytest.mark.parametrize(("moves", "jumps"), [(False, [4, 8]), (True, [])])
def test_a_view_that_passes_step_by_step_is_a_discontinuity_where_the_odometry_stands(
    world_map, world_drive, moves, jumps
):
    """Each image matches the one before; the fourth after the reference no longer matches that."""
    monitor = ContinuityMonitor(world_map.calibration)
    found = []
    for number in range(10):
        observation = Passed(world_map, world_drive.views[40 + number])
        observation.number = number
        motion = world_drive.motions[39 + number] if moves else np.zeros(3)
        found.append(monitor.update(motion, observation).discontinuity > MIN_DISCONTINUITY)
    assert np.flatnonzero(found).tolist() == jumps


class Compared:
    """An image of which `matched` keypoints match, and whose words resemble others' by a number."""

    def __init__(self, matched: float | None, likeness: float) -> None:
        self.matched, self.likeness, self.comparisons = matched, likeness, 0

    def same_as(self, other: "Compared") -> bool:
        return False

    def matched_fraction(self, other: "Compared") -> float | None:
        return self.matched

    def compared_with(self, other: "Compared") -> tuple[float, float]:
        self.comparisons += 1
        return self.likeness - abs(self.likeness - other.likeness), self.likeness


def test_words_are_compared_only_where_keypoints_leave_the_question_open(world_map):
    """The probability is that of all comparisons by the plain rule."""
    calibration = world_map.calibration
    coverage = float(calibration.similarity.relative_similarity(0.0))

    def by_words(image: Compared, earlier: Compared) -> float:
        features = Compared(None, image.likeness).compared_with(earlier)
        log_ratio = calibration.continuity.log_ratio(*features, coverage)
        return float(expit(logit(PRIOR_DISCONTINUITY) - log_ratio))

    generator = np.random.default_rng(3)
    monitor = ContinuityMonitor(calibration)
    last = reference = Compared(None, 0.0)
    monitor.update(None, last)
    before, outcomes = None, set()
    for _ in range(300):
        matched = None if generator.random() < 0.1 else float(generator.uniform(0.0, 0.6))
        image = Compared(matched, float(generator.uniform(-1.0, 3.0)))
        expected = max(by_words(image, reference), by_words(image, last))
        compared = matched is not None and before is not None
        continues = compared and matched > CONTINUING_MATCHED
        if continues:
            expected = 0.0
        elif compared and matched < MIN_MATCHED and before > CONTINUING_MATCHED:
            expected = max(expected, KEYPOINT_DISCONTINUITY)
        assert monitor.update(np.zeros(3), image).discontinuity == expected
        assert (image.comparisons == 0) is continues
        outcomes.add((continues, expected > MIN_DISCONTINUITY))
        reference = image if expected > MIN_DISCONTINUITY else reference
        last, before = image, matched
    assert outcomes == {(True, False), (False, False), (False, True)}
