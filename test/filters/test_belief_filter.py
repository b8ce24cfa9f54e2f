"""The filter on a kernel mean of Gaussian points, on drives whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.events import Event
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.belief_filter import Ablation, BeliefFilter
from kbf_localization.filters.parameters import BeliefParameters
from kbf_localization.filters.smoothing import smooth
from kbf_localization.training_map.training_map import MapObservation
from test.filters.synthetic_world import (
    BLACK,
    Fix,
    World,
    drive,
    loop,
    map_of,
    position_errors,
    run,
)


@pytest.fixture(scope="module")
def estimates(world_map, world_drive):
    return run(BeliefFilter(world_map), world_map, world_drive)


def first_views(world_drive, count):
    return replace(
        world_drive,
        poses=world_drive.poses[:count],
        motions=world_drive.motions[: count - 1],
        views=world_drive.views[:count],
    )


def test_tracks_a_drive_from_anywhere(estimates, world_drive):
    errors = position_errors(estimates, world_drive.poses)
    assert np.median(errors) < 0.15
    assert np.mean(errors[20:] > 1.0) == 0.0
    assert estimates[-1].confidence.probability > 0.9


def test_probabilities_are_those_of_a_distribution(estimates):
    for estimate in estimates:
        total = sum(hypothesis.probability for hypothesis in estimate.hypotheses)
        assert 0.0 <= total <= 1.0 + 1e-9
        assert (
            estimate.weights.values.sum() <= 1.0 + 1e-9 and (estimate.weights.values >= 0.0).all()
        )
        assert len(estimate.hypotheses) <= 9
        numbers = [hypothesis.number for hypothesis in estimate.hypotheses]
        assert len(set(numbers)) == len(numbers)
        assert np.linalg.eigvalsh(estimate.covariance).min() > 0.0


def test_the_same_images_give_the_same_estimates(estimates, world_map, world_drive):
    pose_filter = BeliefFilter(world_map)
    for _ in range(2):
        pose_filter.reset()
        again = run(pose_filter, world_map, first_views(world_drive, 20))
        np.testing.assert_array_equal(
            [estimate.pose for estimate in again], [estimate.pose for estimate in estimates[:20]]
        )


def test_smoothing_its_steps_reduces_the_error(estimates, world_drive):
    found = smooth([estimate.step for estimate in estimates])
    errors = position_errors(found, world_drive.poses)
    filtered = position_errors(estimates, world_drive.poses)
    assert np.sqrt(np.mean(errors**2)) < np.sqrt(np.mean(filtered**2))


def test_finds_itself_again_after_a_kidnapping(world_map, world_drive):
    views = [*world_drive.views[:40], *world_drive.views[100:140]]
    motions = [None, *world_drive.motions[:39], np.zeros(3), *world_drive.motions[100:139]]
    pose_filter = BeliefFilter(world_map)
    found = [
        pose_filter.step(motion, world_map.observe(view))
        for motion, view in zip(motions, views, strict=True)
    ]
    truth = np.concatenate((world_drive.poses[:40], world_drive.poses[100:140]))
    errors = position_errors(found, truth)
    assert errors[39] < 0.5
    assert (errors[55:] < 0.5).all()
    assert found[-1].confidence.probability > 0.9


def test_another_worlds_images_are_not_believed(world_map):
    elsewhere = drive(World(seed=77), loop(80, phase=1.0), seed=5)
    found = run(BeliefFilter(world_map), world_map, elsewhere)
    confident = [
        estimate.confidence.probability > 0.9 and estimate.evidence > 0.0 for estimate in found
    ]
    assert np.mean(confident) < 0.05


class SeenLandmarks(MapObservation):
    """An image whose landmarks measure the true pose to a centimetre, near to it alone."""

    truth: np.ndarray
    matched = 0

    @property
    def has_landmarks(self):
        return True

    def landmark_fix(self, rows, pose, covariance):
        self.matched += 1
        if np.hypot(*(pose - self.truth)[:2]) > 1.0:
            return None
        return Fix(self.truth + 0.005, np.diag([0.01, 0.01, 0.005]) ** 2, 120, 4.0)


def run_with_landmarks(world_map, world_drive, count, turned=0.0):
    pose_filter = BeliefFilter(world_map)
    found = []
    for index, view in enumerate(world_drive.views[:count]):
        observation = SeenLandmarks(world_map, view)
        observation.truth = world_drive.poses[index] + np.array([0.0, 0.0, turned])
        motion = None if index == 0 else world_drive.motions[index - 1]
        found.append(pose_filter.step(motion, observation))
    return found


def test_a_camera_turned_on_its_mount_is_named_and_not_trusted(world_map, world_drive):
    found = run_with_landmarks(world_map, world_drive, 40, turned=0.35)
    assert all(Event.CAMERA_TURNED in estimate.events for estimate in found[30:])
    assert all(estimate.confidence.probability == 0.0 for estimate in found[30:])
    assert found[-1].camera_yaw == pytest.approx(0.35, abs=0.1)


def test_landmarks_that_fit_at_the_first_image_make_its_place_probable(world_map, world_drive):
    """Evidence e⁴ for a place that is on the map with probability ½, before any motion."""
    with_landmarks = run_with_landmarks(world_map, world_drive, 1)[0]
    assert 0.9 < with_landmarks.confidence.probability < 1.0
    assert with_landmarks.confidence.confirmed


def test_odometry_is_no_longer_blamed_once_landmarks_agree_with_it(world_map, world_drive):
    """Right fixes shrink the motion noise that earlier surprises have inflated."""
    pose_filter, uncertain = BeliefFilter(world_map), []
    for index, view in enumerate(world_drive.views[:100]):
        observation = SeenLandmarks(world_map, view)
        observation.truth = world_drive.poses[index]
        motion = None if index == 0 else world_drive.motions[index - 1]
        if 20 <= index < 30:  # the wheels stand, the robot does not
            motion = np.array([0.0, 0.3, 0.2])
        estimate = pose_filter.step(motion, observation)
        uncertain.append(estimate.confidence.probability == 0.0)
    assert any(uncertain[20:40])
    assert not any(uncertain[80:])


def test_a_confirmed_pose_that_landmarks_measure_is_searched_for_nowhere_else(
    world_map, world_drive
):
    pose_filter, matched = BeliefFilter(world_map), []
    for index, view in enumerate(world_drive.views[:60]):
        observation = SeenLandmarks(world_map, view)
        observation.truth = world_drive.poses[index]
        pose_filter.step(None if index == 0 else world_drive.motions[index - 1], observation)
        matched.append(observation.matched)
    assert matched[0] > 1  # the whole map at first
    assert set(matched[30:]) == {1}


class SameEverywhere(SeenLandmarks):
    """An image whose landmarks fit wherever they are looked for."""

    def landmark_fix(self, rows, pose, covariance):
        return Fix(pose.copy(), np.diag([0.01, 0.01, 0.005]) ** 2, 120, 4.0)


def test_places_whose_landmarks_fit_alike_keep_their_odds_however_many_there_are(
    world_map, world_drive
):
    """Also those that are not among the four heaviest, which every image measures."""
    pose_filter, found = BeliefFilter(world_map), []
    for index, view in enumerate(world_drive.views[:8]):
        motion = None if index == 0 else world_drive.motions[index - 1]
        found.append(pose_filter.step(motion, SameEverywhere(world_map, view)))
    before, after = (
        {item.number: np.log(item.probability) for item in estimate.hypotheses}
        for estimate in (found[0], found[-1])
    )
    likely = [number for number, log_weight in before.items() if log_weight > np.log(0.01)]
    assert len(likely) > 4 and set(likely) <= set(after)
    # What merges with another gains; nothing loses half of its probability.
    assert min(after[number] - before[number] for number in likely) > -np.log(2.0)


def test_landmarks_give_centimetres(world_map, world_drive):
    found = run_with_landmarks(world_map, world_drive, 60)
    assert not any(Event.CAMERA_TURNED in estimate.events for estimate in found)
    errors = position_errors(found, world_drive.poses[:60])
    assert np.median(errors) < 0.015
    assert found[-1].confidence.probability > 0.99


def test_an_image_that_landmarks_measure_is_recognized(world_map, world_drive):
    """Its words alone, those of a black image, fit nowhere."""
    pose_filter = BeliefFilter(world_map)
    run(pose_filter, world_map, first_views(world_drive, 20))
    observation = SeenLandmarks(world_map, BLACK)
    observation.truth = world_drive.poses[20]
    found = pose_filter.step(world_drive.motions[19], observation)
    assert Event.UNRECOGNIZED_IMAGE not in found.events


def test_without_odometry_the_error_is_larger(world_map, world_drive, estimates):
    part = first_views(world_drive, 60)
    walk = BeliefFilter(world_map, ablation=Ablation(odometry=False))
    errors = position_errors(run(walk, world_map, part), part.poses)
    assert np.mean(errors[20:]) > 1.3 * np.mean(position_errors(estimates[:60], part.poses)[20:])


@pytest.mark.parametrize(
    "parameters",
    [
        {"rule": "plain"},
        {"rule": "importance-weighted", "delta": 5.0},
        {"power": 1.0},
        {"power": 20.0},
        {"delta": 0.005},
    ],
)
def test_every_form_of_the_rule_tracks(world_map, world_drive, parameters):
    part = first_views(world_drive, 60)
    pose_filter = BeliefFilter(world_map, BeliefParameters(**parameters))
    assert np.median(position_errors(run(pose_filter, world_map, part), part.poses)) < 0.3


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("count", [1, 2])
def test_maps_of_one_or_two_equal_poses_work(count, world_drive):
    world = World()
    still = drive(world, np.repeat(loop(2)[:1], max(count, 2), axis=0), seed=3)
    _survives(map_of([still], count, select="random"), world_drive)


@pytest.mark.usefixtures("quick_learning")
def test_a_map_on_a_line_works(world_drive):
    line = np.column_stack((np.linspace(-2.0, 2.0, 40), np.full(40, 2.0), np.zeros(40)))
    _survives(map_of([drive(World(), line, seed=3)], 30), world_drive)


def _survives(training_map, world_drive):
    """Random sequences of unknown, huge and missing motions and images that fit nothing."""
    rng = np.random.default_rng(0)
    pose_filter = BeliefFilter(training_map)
    motions = [None, np.full(3, np.nan), np.array([1e9, 0.0, 0.0]), np.array([0.1, 0.0, 0.02])]
    for number in range(40):
        view = BLACK if rng.random() < 0.4 else world_drive.views[int(rng.integers(60))]
        if number == 20:
            pose_filter.reset(GaussianPrior(np.zeros(3), np.diag([100.0, 100.0, 10.0])))
        estimate = pose_filter.step(motions[int(rng.integers(4))], training_map.observe(view))
        assert np.isfinite(estimate.pose).all()
        assert np.isfinite(estimate.covariance).all()
        assert np.linalg.eigvalsh(estimate.covariance).min() > 0.0
        assert 0.0 <= estimate.confidence.probability <= 1.0
