import numpy as np

from kbf_localization.landmarks import pose_solver
from kbf_localization.landmarks.bearings import bearings_of, spatial
from kbf_localization.landmarks.pose_solver import MapImages, match_images
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
    matches = match_images(bearings, found.descriptors, images)
    assert set(matches.images) == {0, 1, 2, 3}
    np.testing.assert_allclose(
        matches.pairs.points.T, room.points[rows[matches.keypoints]], atol=1e-3
    )
    for number, image in enumerate(images):
        own = matches.images == number
        np.testing.assert_array_equal(
            matches.pairs.points.T[own], image.points[matches.landmarks[own]]
        )
