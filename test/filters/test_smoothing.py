"""The smoother against the posterior of all poses together, and on drives."""

import numpy as np
import pytest

from kbf_localization.filters.belief_filter import BeliefFilter
from kbf_localization.filters.hypothesis import Hypothesis, MeasuredPose, transition_matrix
from kbf_localization.filters.smoothing import Step, smooth
from kbf_localization.geometry import compose
from test.filters.synthetic_world import position_errors, run

MOTION = np.array([0.2, 0.0, 0.0])
NOISE = np.array([0.03, 0.02, 1e-9]) ** 2
BIAS_CORRELATION = 0.7


def step(before, predicted, after, **changed):
    """A step of hypotheses that go on as they are, but for what is `changed`."""
    numbers = [h.number for h in before]
    plain = {
        "begins": False,
        "motion": MOTION,
        "noise": NOISE,
        "bias_correlation": BIAS_CORRELATION,
        "predicted": {h.number: h for h in predicted},
        "after": {h.number: h for h in after},
        "log_elsewhere": np.log(1e-3),
        "survival": dict.fromkeys(numbers, 0.0),
        "leaks": dict.fromkeys(numbers, 0.0),
        "births": {},
        "merged_into": {h.number: h.number for h in (*before, *after)},
    }
    return Step(**{**plain, **changed})


def straight_drive(rng, count=6):
    """A drive along x whose heading is known: all is linear. Steps, and the batch's parts."""
    hypothesis = Hypothesis.from_prior(np.zeros(3), np.diag([0.3, 0.3, 1e-9]) ** 2, 1)
    steps, measurements = [step([], [hypothesis], [hypothesis], begins=True)], [None]
    for number in range(1, count):
        predicted = hypothesis.predict(MOTION, NOISE, BIAS_CORRELATION)
        pose = np.array([0.2 * number, 0.0, 0.0]) + rng.normal(0.0, 0.02, 3) * [1, 1, 0]
        measured = MeasuredPose(pose, np.array([0.1, 0.15, 1e-3]) ** 2, 0.6, 0.5)
        after, _ = predicted.update(measured)
        steps.append(step([hypothesis], [predicted], [after]))
        measurements.append(measured)
        hypothesis = after
    return steps, measurements


def test_agrees_with_the_posterior_of_all_poses_together():
    """Smoothing is conditioning: the dense joint Gaussian of all states, given all measurements."""
    steps, measurements = straight_drive(np.random.default_rng(1))
    count = len(steps)
    change = transition_matrix(np.zeros(3), MOTION, BIAS_CORRELATION)
    added = np.diag([*NOISE, *([1.0 - BIAS_CORRELATION**2] * 3)])
    mean, covariance = np.zeros(6 * count), np.zeros((6 * count, 6 * count))
    covariance[:6, :6] = next(iter(steps[0].after.values())).state_covariance
    for k in range(1, count):
        now, past = slice(6 * k, 6 * k + 6), slice(0, 6 * k)
        before = slice(6 * k - 6, 6 * k)
        mean[now] = mean[before]
        mean[6 * k] += MOTION[0]
        covariance[now, past] = change @ covariance[before, past]
        covariance[past, now] = covariance[now, past].T
        covariance[now, now] = change @ covariance[before, before] @ change.T + added
    design = np.zeros((3 * (count - 1), 6 * count))
    noise = np.zeros((3 * (count - 1), 3 * (count - 1)))
    values = np.zeros(3 * (count - 1))
    for k in range(1, count):
        rows, columns = slice(3 * k - 3, 3 * k), slice(6 * k, 6 * k + 6)
        _, part, error, _ = Hypothesis.from_prior(mean[6 * k : 6 * k + 3], np.eye(3), 1).innovation(
            measurements[k]
        )
        design[rows, columns], noise[rows, rows] = part, error
        values[rows] = measurements[k].pose
    innovation = design @ covariance @ design.T + noise
    gain = np.linalg.solve(innovation, design @ covariance).T
    expected = mean + gain @ (values - design @ mean)
    spread = covariance - gain @ design @ covariance
    found = smooth(steps)
    for k in range(count):
        np.testing.assert_allclose(found[k].pose, expected[6 * k : 6 * k + 3], atol=1e-7)
        np.testing.assert_allclose(
            found[k].covariance, spread[6 * k : 6 * k + 3, 6 * k : 6 * k + 3], atol=1e-7
        )
        assert found[k].probability == pytest.approx(1.0 / (1.0 + 1e-3))


def test_the_past_follows_the_surviving_hypothesis():
    """Two hypotheses, the better of which turns out wrong: the smoother never follows it."""
    wrong = Hypothesis.from_prior(np.array([0.0, 9.0, 0.0]), np.eye(3) * 0.01, 1).with_log_weight(
        np.log(0.8)
    )
    right = Hypothesis.from_prior(np.zeros(3), np.eye(3) * 0.01, 2).with_log_weight(np.log(0.199))
    first = step([], [wrong, right], [wrong, right], begins=True)
    moved = [h.predict(MOTION, NOISE, BIAS_CORRELATION) for h in (wrong, right)]
    after = [moved[0].with_log_weight(np.log(0.01)), moved[1].with_log_weight(np.log(0.98))]
    survival = {1: np.log(0.01 / 0.8), 2: np.log(0.98 / 0.199)}
    found = smooth([first, step([wrong, right], moved, after, survival=survival)])
    np.testing.assert_allclose(found[0].pose, right.pose, atol=1e-9)
    assert found[0].probability > 0.9


def test_before_its_birth_a_hypothesis_is_dead_reckoned_back():
    lost = step([], [], [], begins=True, log_elsewhere=0.0, merged_into={})
    new = Hypothesis.from_prior(np.array([3.0, 1.0, 0.5]), np.eye(3) * 0.01, 7).with_log_weight(
        np.log(0.95)
    )
    motion = np.array([0.5, 0.1, 0.3])
    born = step([], [], [new], motion=motion, births={7: np.log(19.0)}, log_elsewhere=np.log(0.05))
    found = smooth([lost, born])
    np.testing.assert_allclose(compose(found[0].pose, motion), new.pose, atol=1e-12)
    assert np.linalg.eigvalsh(found[0].covariance - new.covariance).max() > 0.0
    assert found[0].probability == pytest.approx(0.95)


def test_a_kidnapped_robot_was_where_it_was_before():
    """All weight leaks to elsewhere and is born there: the past does not follow."""
    old = Hypothesis.from_prior(np.zeros(3), np.eye(3) * 0.01, 1).with_log_weight(np.log(0.999))
    new = Hypothesis.from_prior(np.array([20.0, 5.0, 1.0]), np.eye(3) * 0.01, 2).with_log_weight(
        np.log(0.99)
    )
    first = step([], [old], [old], begins=True)
    moved = old.predict(MOTION, NOISE, BIAS_CORRELATION)
    carried = step(
        [old],
        [moved],
        [new, moved.with_log_weight(np.log(1e-4))],
        leaks={1: 0.5},
        survival={1: np.log(1e-4)},
        births={2: np.log(2.0)},
    )
    found = smooth([first, carried])
    np.testing.assert_allclose(found[0].pose, old.pose)
    np.testing.assert_allclose(found[1].pose, new.pose)


def test_without_hypotheses_there_is_no_pose():
    assert smooth([step([], [], [], begins=True, log_elsewhere=0.0, merged_into={})]) == [None]
    assert smooth([]) == []


def test_smoothing_reduces_the_error_of_a_drive(world_map, world_drive):
    """From anywhere on the map; a second segment, after a reset, is smoothed by itself."""
    pose_filter = BeliefFilter(world_map)
    forward = run(pose_filter, world_map, world_drive)
    steps = [estimate.step for estimate in forward]
    found = smooth(steps)
    assert len(found) == len(forward)
    errors = position_errors(found, world_drive.poses)
    filtered = position_errors(forward, world_drive.poses)
    assert np.sqrt(np.mean(errors**2)) < np.sqrt(np.mean(filtered**2))
    squares = [
        offset[:2] @ np.linalg.solve(smoothed.covariance[:2, :2], offset[:2])
        for smoothed, pose in zip(found, world_drive.poses, strict=True)
        for offset in [smoothed.pose - pose]
    ]
    assert np.mean(np.array(squares) < 11.8) > 0.97
    pose_filter.reset()
    once, again = len(steps), run(pose_filter, world_map, world_drive)
    twice = smooth([*steps, *(estimate.step for estimate in again)])
    np.testing.assert_allclose(
        [smoothed.pose for smoothed in twice[once:]],
        [smoothed.pose for smoothed in found],
        atol=1e-9,
    )
    np.testing.assert_allclose(
        [smoothed.pose for smoothed in twice[:once]],
        [smoothed.pose for smoothed in found],
        atol=1e-9,
    )
