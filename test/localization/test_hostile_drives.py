"""Any odometry and any images on any map: no error, no NaN, no false tracking."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.belief_filter import BeliefFilter
from kbf_localization.geometry import wrap_angle
from kbf_localization.localization import Localizer
from kbf_localization.mapping.calibrate import calibrate_from_map
from kbf_localization.training_map import subset
from kbf_localization.vision.describer import ImageDescription
from test.conftest import learning_quickly
from test.filters.synthetic_world import (
    BLACK,
    SETTINGS,
    World,
    drive,
    localizer,
    loop,
    map_of,
    without_words,
)

pytestmark = pytest.mark.slow

STEP_NS = 100_000_000

MAPS = (
    "plain",
    "one pose",
    "one pose, calibrated on itself",
    "two equal poses",
    "one line",
    "no words",
    "one drive",
    "stood still",
    "five poses",
)


class Named(dict):
    """What fixtures give by name. Hypothesis writes the arguments of each example."""

    def __repr__(self):
        return f"Named({', '.join(self)})"


def calibrated(training_map):
    """The map with no more than a calibration on its own poses."""
    return replace(training_map, fitted=calibrate_from_map(training_map))


@pytest.fixture(scope="session")
def maps(world, world_map):
    """Maps by their names, some of them hardly maps at all."""
    along = np.column_stack((np.linspace(-3.0, 3.0, 80), np.ones(80), np.zeros(80)))
    few = drive(world, loop(120), 11)
    with learning_quickly():
        return Named(
            {
                "plain": world_map,
                "one pose": subset(world_map, np.array([7])),
                "one pose, calibrated on itself": calibrated(subset(world_map, np.array([7]))),
                "two equal poses": calibrated(subset(world_map, np.array([7, 7]))),
                "one line": map_of([drive(world, along, 12)], 40),
                "no words": without_words(world_map),
                "one drive": map_of([few], 60),
                "stood still": map_of([drive(world, np.tile(few.poses[3], (30, 1)), 13)], 20),
                "five poses": map_of([few], 5),
            }
        )


@pytest.fixture(scope="session")
def descriptions(world, world_drive):
    """Descriptions by their names."""
    generator = np.random.default_rng(3)
    noise = generator.integers(0, SETTINGS.words, SETTINGS.patches)
    one_word = np.full(SETTINGS.bins, 255, dtype=np.uint8)
    return Named(
        {
            "black": BLACK,
            "full": ImageDescription(one_word, np.zeros(SETTINGS.patches, dtype=np.uint8)),
            "strange": World(seed=5).view(world_drive.poses[9], generator),
            "noise": ImageDescription(
                generator.integers(0, 9, SETTINGS.bins, dtype=np.uint8), noise.astype(np.uint8)
            ),
            "wordless": ImageDescription(world_drive.views[30].features),
            "good": world_drive.views[0],
            "next": world_drive.views[1],
            "far": world_drive.views[100],
        }
    )


motions = st.one_of(
    st.none(),
    st.just([0.0, 0.0, 0.0]),
    st.lists(st.floats(-0.3, 0.3), min_size=3, max_size=3),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=3, max_size=3),
    st.sampled_from([[1e300, 0.0, 0.0], [1e160, 1e160, 0.0], [0.0, 0.0, 1e9], [1e-320, 0.0, 0.0]]),
)
names = st.sampled_from(["black", "full", "strange", "noise", "wordless", "good", "next", "far"])
steps = st.lists(st.tuples(motions, names), min_size=1, max_size=12)
anything = settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def assert_sound(estimate) -> None:
    assert np.isfinite(estimate.pose).all() and abs(estimate.pose[2]) <= np.pi + 1e-9
    assert np.isfinite(estimate.highest_weight_pose).all()
    for covariance in (estimate.covariance, estimate.whole_covariance):
        assert np.isfinite(covariance).all()
        scale = np.sqrt(np.diag(covariance))
        assert (scale > 0.0).all()
        assert np.linalg.eigvalsh(covariance / np.outer(scale, scale)).min() > 0.0
    assert np.isfinite(estimate.evidence)
    assert 0.0 <= estimate.confidence.probability <= 1.0
    assert np.isfinite(estimate.weights.values).all()
    for hypothese in estimate.hypotheses:
        assert np.isfinite(hypothese.pose).all() and np.isfinite(hypothese.covariance).all()


@pytest.mark.parametrize("name", MAPS)
@anything
@given(steps=steps, with_prior=st.booleans())
@example(steps=[([1e300, 0.0, 0.0], "good"), ([0.0, 0.0, 0.0], "next")], with_prior=True)
@example(steps=[(None, "good"), ([1e160, 1e160, 0.0], "next"), (None, "good")], with_prior=False)
@example(steps=[(None, "good")] + [(None, "far")] * 30, with_prior=False)
@example(steps=[([1e-320, 0.0, 0.0], "good"), ([1e-320, 0.0, 0.0], "next")], with_prior=False)
@example(steps=[(None, "good"), ([0.0, 0.0, 1e9], "next")], with_prior=False)
@example(steps=[(None, "black")] * 5 + [(None, "good")], with_prior=False)
def test_the_filter_survives_anything(maps, descriptions, name, steps, with_prior):
    training_map = maps[name]
    pose_filter = BeliefFilter(training_map)
    if with_prior:
        pose_filter.reset(GaussianPrior(training_map.poses[0], np.diag([0.2, 0.2, 0.1]) ** 2))
    for motion, image in steps:
        moved = None if motion is None else np.array(motion, dtype=float)
        assert_sound(pose_filter.step(moved, training_map.observe(descriptions[image])))


@pytest.mark.parametrize("name", MAPS)
@anything
@given(steps=steps)
def test_the_localizer_never_tracks_on_images_of_nowhere(maps, descriptions, name, steps):
    """Black, full, noise, and another building: nothing of it was ever at a place of the map."""
    training_map = maps[name]
    held = localizer(training_map)
    pose = np.zeros(3)
    for index, (motion, image) in enumerate(steps):
        if motion is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                pose = pose + np.array(motion)
            if np.isfinite(pose[2]):
                pose[2] = wrap_angle(pose[2])
        nowhere = {"good": "strange", "next": "noise", "far": "full", "wordless": "black"}
        held.add_odometry(index * STEP_NS, pose)
        observation = training_map.observe(descriptions[nowhere.get(image, image)])
        found = held.add_described(index * STEP_NS, observation)
        if found is not None:
            assert_sound(found.estimate)
            assert np.isfinite(found.published_covariance).all()
            assert found.state.value != "tracking"


def test_a_map_of_one_pose_finds_it(maps, world_map):
    single = maps["one pose"]
    estimate = BeliefFilter(single).step(None, single.observe(single.description(0)))
    offset = np.abs(estimate.pose - world_map.poses[7])
    assert (offset[:2] < 3.0 * np.sqrt(np.diag(estimate.covariance)[:2])).all()


@pytest.mark.parametrize("name", ["plain", "no words", "one drive"])
def test_recovers_on_a_good_drive_afterwards(maps, descriptions, world_drive, name):
    """After hostile steps the filter is as able as before."""
    training_map = maps[name]
    held = Localizer(training_map, BeliefFilter(training_map))
    stamps = iter(range(0, 10**12, STEP_NS))
    for pose in ([0.0, 0.0, 0.0], [900.0, 0.0, 0.0], [1e30, 0.0, 2.0], [np.nan, 0.0, 0.0]):
        for description in descriptions.values():
            stamp = next(stamps)
            held.add_odometry(stamp, pose)
            held.add_described(stamp, training_map.observe(description))
    errors = []
    for index, odometry in enumerate(world_drive.odometry.poses[:80]):
        stamp = next(stamps)
        held.add_odometry(stamp, odometry)
        found = held.add_described(stamp, training_map.observe(world_drive.views[index]))
        errors.append(np.hypot(*(found.pose - world_drive.poses[index])[:2]))
    assert np.median(errors[40:]) < 0.5
