import h5py
import numpy as np
import pytest

from kbf_localization.errors import MapError
from kbf_localization.landmarks.bearings import spatial
from kbf_localization.landmarks.table import COLUMNS, ImageLandmarks, LandmarkTable
from test.landmarks.scene import Room

POSES = np.array([[1.0, 2.0, 0.3], [1.2, 2.1, -0.4], [40.0, 40.0, 0.0]])


def drawn(seed, count):
    rng = np.random.default_rng(seed)
    factor = rng.normal(0.0, 0.05, (count, 3, 3))
    return ImageLandmarks(
        rng.integers(0, 256, (count, 128)).astype(np.uint8),
        rng.uniform(-30, 30, (count, 3)),
        factor @ np.swapaxes(factor, 1, 2) + 1e-6 * np.eye(3),
        rng.normal(0, 0.01, 3),
    )


def test_what_is_stored_is_found_again_to_a_millimetre():
    images = [drawn(1, 50), ImageLandmarks.none(), drawn(2, 200)]
    table = LandmarkTable.of_images(images)
    assert table.counts().tolist() == [50, 0, 200]
    assert [table.max_count(np.array(rows, int)) for rows in ([0, 1], [1], [])] == [50, 0, 0]
    for row, image in enumerate(images):
        found = table.image(row)
        np.testing.assert_array_equal(found.descriptors, image.descriptors)
        np.testing.assert_allclose(found.offsets, image.offsets, atol=5.01e-4)
        np.testing.assert_allclose(found.covariances, image.covariances, rtol=5e-3, atol=3e-6)
        np.testing.assert_allclose(found.attitude, image.attitude, atol=1e-8)


def test_a_full_image_takes_less_than_30_kb():
    table = LandmarkTable.of_images([drawn(3, 200)])
    size = sum(np.asarray(column).nbytes for column in table.columns.values())
    assert size + table.attitudes.nbytes + table.starts.nbytes <= 30_000


def test_placed_landmarks_are_where_the_points_are():
    room = Room.of_seed(4)
    poses = np.array([[0.2, -0.3, 0.15], [0.0, 0.1, -0.1]])
    table = room.table(poses)
    placed = table.place(np.array([1, 0]), poses[[1, 0]])
    truth = []
    for pose in poses[[1, 0]]:
        truth.append(room.points[room.image(spatial(pose))[1][:200]])
    np.testing.assert_allclose(placed.points, np.concatenate(truth), atol=1e-3)
    assert placed.starts.tolist() == [0, len(truth[0]), len(truth[0]) + len(truth[1])]


def test_only_the_rows_that_are_asked_for_are_read(tmp_path):
    table = LandmarkTable.of_images([drawn(5, 20), drawn(6, 30), drawn(7, 10)])
    with h5py.File(tmp_path / "map.h5", "w") as file:
        for name, column in table.columns.items():
            file[name] = column

    class Spy:
        def __init__(self, data):
            self.data, self.asked = data, []
            self.dtype, self.shape = data.dtype, data.shape

        def __len__(self):
            return len(self.data)

        def __getitem__(self, key):
            self.asked.append(key)
            return self.data[key]

    with h5py.File(tmp_path / "map.h5") as file:
        spies = {name: Spy(file[name]) for name in COLUMNS}
        read = LandmarkTable(table.starts, table.attitudes, spies)
        np.testing.assert_array_equal(read.image(1).offsets, table.image(1).offsets)
        assert all(spy.asked == [slice(20, 50)] for spy in spies.values())


@pytest.mark.parametrize(
    "damage", ["starts", "total", "huge", "type", "missing", "attitude", "height"]
)
def test_a_damaged_table_is_refused(damage):
    table = LandmarkTable.of_images([drawn(8, 20), drawn(9, 30)])
    starts, attitudes, columns = table.starts.copy(), table.attitudes.copy(), dict(table.columns)
    if damage == "starts":
        starts[1] = 60
    elif damage == "total":
        starts[-1] = 40
    elif damage == "huge":
        starts[:] = [0, 0, 50]
        columns = {
            name: np.resize(column, (500, *column.shape[1:])) for name, column in columns.items()
        }
        starts[-1] = 500
    elif damage == "type":
        columns["offsets_mm"] = columns["offsets_mm"].astype(np.float64)
    elif damage == "missing":
        del columns["factors"]
    else:
        attitudes[0, 1] = {"attitude": np.nan, "height": 3e38}[damage]
    with pytest.raises(MapError):
        LandmarkTable(starts, attitudes, columns)


@pytest.mark.parametrize("damaged", [slice(None), 1, 5])
def test_a_landmark_with_a_number_that_is_not_finite_measures_nothing(damaged):
    table = LandmarkTable.of_images([drawn(10, 5)])
    columns = dict(table.columns)
    columns["factors"] = columns["factors"].copy()
    columns["factors"][0, damaged] = np.nan
    found = LandmarkTable(table.starts, table.attitudes, columns).image(0)
    assert np.linalg.eigvalsh(found.covariances[0]).min() > 1e6
    np.testing.assert_array_equal(found.covariances[1:], table.image(0).covariances[1:])
