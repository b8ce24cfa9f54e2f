import numpy as np

from kbf_localization.landmarks import pose_solver
from kbf_localization.landmarks.bearings import bearings_of, spatial
from kbf_localization.landmarks.pose_solver import ImageMatcher, LandmarkSolver, MapImages
from kbf_localization.vision.keypoints import mutual_matches
from test.landmarks.scene import CAMERA, LEVEL, Room

MAP = np.array([[0.0, 0.0, 0.0], [0.3, 0.1, 0.1], [-0.2, -0.1, -0.1], [0.1, 0.2, 0.05]])


class CountingTable:
    def __init__(self, table):
        self.table, self.read = table, []

    def place(self, rows, poses):
        self.read.extend(rows.tolist())
        return self.table.place(rows, poses)


def test_a_kept_image_is_what_the_table_places_and_is_read_once(monkeypatch):
    monkeypatch.setattr(pose_solver, "MAX_IMAGES", 2)
    table = CountingTable(Room.of_seed(31).table(MAP))
    images = MapImages(table, MAP)
    for row in (0, 1, 0, 2, 0, 1):
        placed = table.table.place(np.array([row]), MAP[[row]])
        found = images.image(row)
        np.testing.assert_array_equal(found.points, placed.points)
        np.testing.assert_array_equal(found.covariances.transpose(2, 0, 1), placed.covariances)
    # The third image takes the place of the second, which was used before the first.
    assert table.read == [0, 1, 2, 1]


def test_matches_name_the_points_that_the_keypoints_are_of():
    room = Room.of_seed(32)
    found, rows = room.image(spatial(np.array([0.1, 0.0, 0.02])))
    bearings = bearings_of(found.pixels, CAMERA, LEVEL)
    table = room.table(MAP)
    images = [MapImages(table, MAP).image(row) for row in range(4)]
    matches = ImageMatcher(bearings, found.descriptors).match(np.arange(4), images)
    assert set(matches.images) == {0, 1, 2, 3}
    np.testing.assert_allclose(
        matches.pairs.points.T, room.points[rows[matches.keypoints]], atol=1e-3
    )
    for number, image in enumerate(images):
        own = matches.images == number
        np.testing.assert_array_equal(
            matches.pairs.points.T[own], image.points[matches.landmarks[own]]
        )


def test_an_image_is_matched_with_a_map_image_once(monkeypatch):
    room = Room.of_seed(33)
    found, _ = room.image(spatial(np.array([0.1, 0.0, 0.02])), 0.3, np.random.default_rng(34))
    bearings = bearings_of(found.pixels, CAMERA, LEVEL)
    images = [MapImages(room.table(MAP), MAP).image(row) for row in range(4)]
    counted = []

    def matches(distances):
        counted.append(distances.shape)
        return mutual_matches(distances)

    monkeypatch.setattr(pose_solver, "mutual_matches", matches)
    kept = ImageMatcher(bearings, found.descriptors)
    for rows in ([0, 1], [2, 1], [3, 2, 0]):
        again = kept.match(np.array(rows), [images[row] for row in rows])
        new = ImageMatcher(bearings, found.descriptors)
        first = new.match(np.array(rows), [images[row] for row in rows])
        for name in ("keypoints", "images", "landmarks", "covariances", "ratios"):
            np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
        np.testing.assert_array_equal(again.pairs.points, first.pairs.points)
    assert len(counted) == 4 + 7


def test_a_solver_does_not_mistake_one_image_for_another():
    """To the bit as one that has seen no image before."""
    room = Room.of_seed(35)
    seen = [room.image(spatial(pose))[0] for pose in MAP[:2]]
    bearings = [bearings_of(found.pixels, CAMERA, LEVEL) for found in seen]
    used = LandmarkSolver(room.table(MAP), MAP)
    for number in (0, 1, 0):
        image = bearings[number], seen[number].descriptors, np.arange(4), MAP[2], np.eye(3)
        fix, expected = used.measure(*image), LandmarkSolver(room.table(MAP), MAP).measure(*image)
        np.testing.assert_array_equal(fix.state, expected.state)
        np.testing.assert_allclose(fix.pose, MAP[number], atol=1e-3)
