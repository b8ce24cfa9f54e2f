"""Whether the camera's pictures follow each other."""

import numpy as np
import pytest

from kbf_localization.filters.film import NOTICED, Film
from kbf_localization.geometry import relative
from test.filters.synthetic_world import World, drive, loop


@pytest.fixture(scope="module")
def pictures(world_map, world_drive):
    return [world_map.observe(view) for view in world_drive.views]


def test_the_first_picture_begins_the_film(world_map, pictures):
    assert Film(world_map.learned).follow(None, pictures[0]).first


def test_pictures_along_a_drive_continue_it(world_map, world_drive, pictures):
    film = Film(world_map.learned)
    film.follow(None, pictures[0])
    cuts = [
        film.follow(motion, picture).cut
        for motion, picture in zip(world_drive.motions, pictures[1:], strict=True)
    ]
    assert np.mean(np.array(cuts) > NOTICED) < 0.01
    assert np.median(cuts) < 0.01


def test_a_picture_of_another_place_is_a_cut(world_map, world_drive, pictures):
    """Without a motion; and the film goes on from there."""
    resemblance = world_map.learned.resemblance
    generator = np.random.default_rng(0)
    cuts, after = [], []
    while len(cuts) < 60:
        first, second = generator.integers(0, len(pictures) - 1, 2)
        offset = relative(world_drive.poses[first], world_drive.poses[second])
        if resemblance.separation(offset) < 2.0:
            continue
        film = Film(world_map.learned)
        film.follow(None, pictures[first])
        cuts.append(film.follow(np.zeros(3), pictures[second]).cut)
        after.append(film.follow(world_drive.motions[second], pictures[second + 1]).cut)
    assert np.mean(np.array(cuts) > NOTICED) > 0.9
    assert np.mean(np.array(after) < NOTICED) > 0.9


def test_another_building_is_a_cut(world_map, pictures):
    other = drive(World(seed=5), loop(10), 1)
    for view in other.views:
        film = Film(world_map.learned)
        film.follow(None, pictures[30])
        assert film.follow(np.zeros(3), world_map.observe(view)).cut > NOTICED


def test_the_same_picture_again_is_frozen_however_far_the_wheels_turned(world_map, pictures):
    film = Film(world_map.learned)
    film.follow(None, pictures[0])
    for motion in (np.zeros(3), np.array([0.2, 0.0, 0.0]), np.array([3.0, 0.0, 1.0]), None):
        found = film.follow(motion, pictures[0])
        assert found.frozen and found.cut == 0.0


def test_a_picture_that_froze_between_two_references_is_frozen_too(
    world_map, world_drive, pictures
):
    for start in range(20, 30):
        film = Film(world_map.learned)
        film.follow(None, pictures[20])
        for index in range(20, start):
            film.follow(world_drive.motions[index], pictures[index + 1])
        assert film.follow(np.array([0.1, 0.0, 0.0]), pictures[start]).frozen


def test_a_camera_that_comes_alive_is_compared_with_where_it_froze(
    world_map, world_drive, pictures
):
    film = Film(world_map.learned)
    film.follow(None, pictures[40])
    for index in range(40, 44):
        assert film.follow(world_drive.motions[index], pictures[40]).frozen
    assert film.follow(world_drive.motions[44], pictures[45]).cut < NOTICED


def test_the_same_chance_at_any_frame_rate(world_map, world_drive, pictures):
    """Every fifth picture of the drive continues it as well as every one."""
    film = Film(world_map.learned)
    film.follow(None, pictures[0])
    odometry = world_drive.odometry.poses
    cuts = [
        film.follow(relative(odometry[at - 5], odometry[at]), pictures[at]).cut
        for at in range(5, len(pictures), 5)
    ]
    assert np.mean(np.array(cuts) > NOTICED) < 0.05
