"""The default filter on drives whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.evaluation.run import replay
from kbf_localization.events import Event
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.belief_filter import Ablation, BeliefFilter
from kbf_localization.geometry import compose
from test.filters.synthetic_world import (
    BLACK,
    World,
    drive,
    localizer,
    loop,
    position_errors,
    run,
)


@pytest.fixture(scope="module")
def short_drive(world_drive):
    """Its first 60 images: more than it takes to track."""
    first = slice(60)
    return replace(
        world_drive,
        poses=world_drive.poses[first],
        motions=world_drive.motions[:59],
        views=world_drive.views[first],
    )


@pytest.fixture(scope="module")
def estimates(world_map, world_drive):
    return run(BeliefFilter(world_map), world_map, world_drive)


def test_is_better_than_the_best_match(estimates, world_map, world_drive):
    best = [world_map.poses[world_map.observe(view).best_rows(1)[0]] for view in world_drive.views]
    matched = np.linalg.norm(np.array(best)[:, :2] - world_drive.poses[:, :2], axis=1)
    assert np.median(position_errors(estimates, world_drive.poses)) < 0.5 * np.median(matched)


def test_the_whole_belief_is_never_narrower_than_its_moments(estimates):
    """Law of total covariance: within and between the hypotheses, round the published pose."""
    for estimate in estimates:
        within = sum(h.probability * h.covariance[:2, :2] for h in estimate.hypotheses)
        offsets = [(h.pose - estimate.pose)[:2] for h in estimate.hypotheses]
        between = sum(
            h.probability * np.outer(offset, offset)
            for h, offset in zip(estimate.hypotheses, offsets, strict=True)
        )
        excess = estimate.whole_covariance[:2, :2] - within - between
        assert np.linalg.eigvalsh(excess).min() > -1e-9


def test_is_deterministic_prepared_or_not(estimates, world_map, short_drive):
    prepared = BeliefFilter(world_map)
    prepared.prepare()
    run(prepared, world_map, short_drive)
    prepared.reset()
    again = run(prepared, world_map, short_drive)
    np.testing.assert_allclose(
        [estimate.pose for estimate in again],
        [estimate.pose for estimate in estimates[: len(again)]],
        atol=1e-9,
    )


@pytest.mark.parametrize("error", [[0.0, 0.0, 0.0], [0.3, -0.2, 0.1]])
def test_starts_from_a_given_pose(world_map, world_drive, error):
    pose_filter = BeliefFilter(world_map)
    given = compose(world_drive.poses[100], error)
    pose_filter.reset(GaussianPrior(given, np.diag([0.3, 0.3, 0.1]) ** 2))
    first = pose_filter.step(None, world_map.observe(world_drive.views[100]))
    assert np.hypot(*(first.pose - world_drive.poses[100])[:2]) < 0.4


def test_a_wrong_given_pose_is_overruled_by_the_images(world_map, world_drive):
    pose_filter = BeliefFilter(world_map)
    pose_filter.reset(GaussianPrior(world_drive.poses[0], np.diag([0.1, 0.1, 0.1]) ** 2))
    found = [
        pose_filter.step(
            None if index == 100 else world_drive.motions[index - 1],
            world_map.observe(world_drive.views[index]),
        )
        for index in range(100, 160)
    ]
    errors = position_errors(found, world_drive.poses[100:160])
    assert np.median(errors[30:]) < 0.4


def test_recovers_from_kidnapping(world_map, world_drive, short_drive):
    pose_filter = BeliefFilter(world_map)
    run(pose_filter, world_map, short_drive)
    found = [
        pose_filter.step(world_drive.motions[i - 1], world_map.observe(world_drive.views[i]))
        for i in range(110, 170)
    ]
    assert Event.IMAGE_DISCONTINUITY in found[0].events
    errors = position_errors(found, world_drive.poses[110:170])
    assert np.median(errors[20:]) < 0.3


def test_a_black_image_keeps_the_prediction(world_map, short_drive):
    pose_filter = BeliefFilter(world_map)
    before = run(pose_filter, world_map, short_drive)[-1]
    black = pose_filter.step(np.array([0.1, 0.0, 0.0]), world_map.observe(BLACK))
    expected = compose(before.pose, [0.1, 0.0, 0.0])
    assert np.hypot(*(black.pose - expected)[:2]) < 0.1
    assert Event.UNRECOGNIZED_IMAGE in black.events


def test_a_frozen_image_never_reduces_the_covariance(world_map, short_drive):
    """Odometry goes on while the camera repeats itself: the covariance grows, step by step."""
    pose_filter = BeliefFilter(world_map)
    last = run(pose_filter, world_map, short_drive)[-1]
    frozen = world_map.observe(short_drive.views[-1])
    for _ in range(20):
        step = pose_filter.step(np.array([0.1, 0.0, 0.02]), frozen)
        assert Event.FROZEN_IMAGE in step.events
        np.testing.assert_allclose(step.pose, compose(last.pose, [0.1, 0.0, 0.02]), atol=1e-9)
        assert np.trace(step.covariance) > np.trace(last.covariance)
        last = step


def test_images_of_a_robot_at_rest_do_not_reduce_the_covariance(world, world_map, short_drive):
    """Each image has other noise, but the view is the same."""
    pose_filter = BeliefFilter(world_map)
    last = run(pose_filter, world_map, short_drive)[-1]
    generator = np.random.default_rng(8)
    for _ in range(100):
        view = world.view(short_drive.poses[-1], generator)
        step = pose_filter.step(np.zeros(3), world_map.observe(view))
    np.testing.assert_allclose(step.covariance, last.covariance, atol=1e-3 * last.covariance.max())
    np.testing.assert_allclose(step.pose, last.pose, atol=1e-3)


def test_never_tracks_in_another_building(world_map):
    strangers = drive(World(seed=5), loop(100), 3).described.part(slice(None, None, 2))
    assert "tracking" not in replay(strangers, localizer(world_map)).states


@pytest.mark.parametrize("odometry", [True, False])
def test_without_odometry_only_the_length_of_a_motion_counts(world_map, short_drive, odometry):
    opposite = replace(short_drive, motions=-short_drive.motions)
    poses = [
        [
            estimate.pose
            for estimate in run(
                BeliefFilter(world_map, ablation=Ablation(odometry=odometry)), world_map, driven
            )
        ]
        for driven in (short_drive, opposite)
    ]
    assert np.array_equal(*poses) is not odometry


def test_without_the_null_mass_a_drive_is_tracked_too(world_map, world_drive):
    found = run(BeliefFilter(world_map, ablation=Ablation(null_mass=False)), world_map, world_drive)
    assert np.median(position_errors(found, world_drive.poses)) < 1.0
