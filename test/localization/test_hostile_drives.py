"""Whatever the wheels and the camera say, on whatever map: no error, no NaN, no false claim."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.hypothesis_filter import HypothesisFilter
from kbf_localization.geometry import wrap_angle
from kbf_localization.localization import Localizer
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
    "usual",
    "one pose",
    "one pose, nothing known",
    "two equal poses",
    "one line",
    "no words",
    "one drive",
    "stood still",
    "five poses",
)


@pytest.fixture(scope="session")
def maps(world, world_map):
    """Maps by their names, some of them hardly maps at all."""
    along = np.column_stack((np.linspace(-3.0, 3.0, 80), np.ones(80), np.zeros(80)))
    few = drive(world, loop(120), 11)
    with learning_quickly():
        return {
            "usual": world_map,
            "one pose": subset(world_map, np.array([7])),
            "one pose, nothing known": replace(subset(world_map, np.array([7])), known=None),
            "two equal poses": replace(subset(world_map, np.array([7, 7])), known=None),
            "one line": map_of([drive(world, along, 12)], 40),
            "no words": without_words(world_map),
            "one drive": map_of([few], 60),
            "stood still": map_of([drive(world, np.tile(few.poses[3], (30, 1)), 13)], 20),
            "five poses": map_of([few], 5),
        }


@pytest.fixture(scope="session")
def pictures(world, world_drive):
    """Descriptions by their names."""
    generator = np.random.default_rng(3)
    noise = generator.integers(0, SETTINGS.words, SETTINGS.patches)
    one_word = np.full(SETTINGS.bins, 255, dtype=np.uint8)
    return {
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
    max_examples=3,
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
    for one in estimate.hypotheses:
        assert np.isfinite(one.pose).all() and np.isfinite(one.covariance).all()


@pytest.mark.parametrize("name", MAPS)
@anything
@given(steps=steps, told=st.booleans())
@example(steps=[([1e300, 0.0, 0.0], "good"), ([0.0, 0.0, 0.0], "next")], told=True)
@example(steps=[(None, "good"), ([1e160, 1e160, 0.0], "next"), (None, "good")], told=False)
@example(steps=[(None, "good")] + [(None, "far")] * 30, told=False)
@example(steps=[([1e-320, 0.0, 0.0], "good"), ([1e-320, 0.0, 0.0], "next")], told=False)
@example(steps=[(None, "good"), ([0.0, 0.0, 1e9], "next")], told=False)
@example(steps=[(None, "black")] * 5 + [(None, "good")], told=False)
def test_the_filter_survives_anything(maps, pictures, name, steps, told):
    training_map = maps[name]
    pose_filter = HypothesisFilter(training_map)
    if told:
        pose_filter.reset(GaussianPrior(training_map.poses[0], np.diag([0.2, 0.2, 0.1]) ** 2))
    for motion, picture in steps:
        moved = None if motion is None else np.array(motion, dtype=float)
        assert_sound(pose_filter.step(moved, training_map.observe(pictures[picture])))


@pytest.mark.parametrize("name", MAPS)
@anything
@given(steps=steps)
def test_the_localizer_never_tracks_on_pictures_of_nowhere(maps, pictures, name, steps):
    """Black, full, noise, and another building: nothing of it was ever at a place of the map."""
    training_map = maps[name]
    held = localizer(training_map)
    pose = np.zeros(3)
    for index, (motion, picture) in enumerate(steps):
        if motion is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                pose = pose + np.array(motion)
            if np.isfinite(pose[2]):
                pose[2] = wrap_angle(pose[2])
        nowhere = {"good": "strange", "next": "noise", "far": "full", "wordless": "black"}
        held.add_odometry(index * STEP_NS, pose)
        observation = training_map.observe(pictures[nowhere.get(picture, picture)])
        found = held.add_described(index * STEP_NS, observation)
        if found is not None:
            assert_sound(found.estimate)
            assert np.isfinite(found.published_covariance).all()
            assert found.state.value != "tracking"


def test_a_map_of_one_pose_finds_it(maps, world_map):
    single = maps["one pose"]
    estimate = HypothesisFilter(single).step(None, single.observe(single.description(0)))
    offset = np.abs(estimate.pose - world_map.poses[7])
    assert (offset[:2] < 3.0 * np.sqrt(np.diag(estimate.covariance)[:2])).all()


@pytest.mark.parametrize("name", ["usual", "no words", "one drive"])
def test_in_the_end_a_good_drive_is_followed_after_all_that(maps, pictures, world_drive, name):
    """After hostile steps the filter is as able as before."""
    training_map = maps[name]
    held = Localizer(training_map, HypothesisFilter(training_map))
    stamps = iter(range(0, 10**12, STEP_NS))
    for pose in ([0.0, 0.0, 0.0], [900.0, 0.0, 0.0], [1e30, 0.0, 2.0], [np.nan, 0.0, 0.0]):
        for picture in pictures.values():
            stamp = next(stamps)
            held.add_odometry(stamp, pose)
            held.add_described(stamp, training_map.observe(picture))
    errors = []
    for index, odometry in enumerate(world_drive.odometry.poses[:120]):
        stamp = next(stamps)
        held.add_odometry(stamp, odometry)
        found = held.add_described(stamp, training_map.observe(world_drive.views[index]))
        errors.append(np.hypot(*(found.pose - world_drive.poses[index])[:2]))
    assert np.median(errors[60:]) < 0.5
