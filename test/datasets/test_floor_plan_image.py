"""Floor plans of map_server: read, written, refused."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.floor_plan_image import (
    FREE,
    OCCUPIED,
    read_floor_plan,
    write_floor_plan,
)
from kbf_localization.errors import DatasetError
from kbf_localization.simulator.plans import plan_office

POSES = np.array([[1.0, 1.0, 0.0], [2.0, 1.5, 3.0]])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 255, (40, 60), dtype=np.uint8)
    plan = read_floor_plan(write_floor_plan(tmp_path, image, 0.05, (-0.5, 0.25)), POSES)
    np.testing.assert_array_equal(plan.image, image)
    assert plan.origin == (-0.5, 0.25, 0.0)
    assert plan.size_m == pytest.approx((3.0, 2.0))


@pytest.mark.parametrize("suffix", ["pgm", "png"])
def test_sixteen_bits_a_pixel_become_eight(tmp_path: Path, suffix: str) -> None:
    """Pillow by itself makes everything above 255 of 65535 white, which is free."""
    image = np.random.default_rng(1).integers(0, 255, (4, 6), dtype=np.uint8)
    path = write_floor_plan(tmp_path, image, 1.0, (0.0, 0.0))
    path.write_text(path.read_text().replace("floor_plan.pgm", f"deep.{suffix}"))
    deep = image.astype(np.uint16) * 257
    if suffix == "pgm":
        content = b"P5\n6 4\n65535\n" + deep.astype(">u2").tobytes()
        (tmp_path / "deep.pgm").write_bytes(content)
    else:
        assert cv2.imwrite(str(tmp_path / "deep.png"), deep)
    np.testing.assert_array_equal(read_floor_plan(path, POSES).image, image)


def test_floating_point_numbers_are_no_plan(tmp_path: Path) -> None:
    path = write_floor_plan(tmp_path, np.zeros((4, 6), np.uint8), 1.0, (0.0, 0.0))
    (tmp_path / "floor_plan.pgm").write_bytes(b"Pf\n6 4\n-1.0\n" + np.zeros(24, "<f4").tobytes())
    with pytest.raises(DatasetError, match="is no image in PGM"):
        read_floor_plan(path, POSES)


def test_a_turned_plan_knows_what_lies_on_it(tmp_path: Path) -> None:
    path = write_floor_plan(tmp_path, np.full((10, 20), FREE, dtype=np.uint8), 1.0, (0.0, 0.0))
    path.write_text(path.read_text().replace("- 0.0\nnegate", "- 1.5707963267948966\nnegate"))
    # Turned by a quarter to the left, the 20 m wide plan reaches from x = -10 to 0, y = 0 to 20.
    plan = read_floor_plan(path, np.array([[-5.0, 15.0, 0.0]]))
    outside = plan.distances_to(np.array([[-5.0, 15.0, 0.0], [2.0, 5.0, 0.0], [-5.0, 24.0, 0.0]]))
    np.testing.assert_allclose(outside, [0.0, 2.0, 4.0], atol=1e-9)


def test_the_simulators_plan_is_free_where_it_drives_and_walled_around() -> None:
    plan = plan_office(3)
    image, pixel_m = plan.image()
    for route in plan.routes:
        column, row = ((route - np.array(plan.origin)) / pixel_m).astype(int).T
        assert (image[::-1][row, column] == FREE).all()
    columns = np.flatnonzero((image[::-1] == FREE).any(axis=0))
    assert (image == OCCUPIED).any()
    for column in columns:
        free = np.flatnonzero(image[:, column] == FREE)
        assert free[0] > 0
        assert image[free[0] - 1, column] == OCCUPIED


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("image: floor_plan.pgm", "image: nowhere.pgm", "nowhere.pgm: cannot be read"),
        ("image: floor_plan.pgm", "image: floor_plan.yaml", "is no image in PGM, PNG or BMP"),
        ("image: floor_plan.pgm", "picture: floor_plan.pgm", "names no image"),
        ("resolution: 0.05", "resolution: 0", "resolution must be"),
        ("resolution: 0.05", "resolution: [", "is not YAML"),
        ("origin:", "corner:", "origin must be"),
        ("- -1.0", "- 11.0", "the nearest is 9.0 m outside"),
    ],
)
def test_a_bad_plan_is_one_line(tmp_path: Path, before: str, after: str, says: str) -> None:
    image = np.full((100, 100), FREE, dtype=np.uint8)
    path = write_floor_plan(tmp_path, image, 0.05, (-1.0, 0.0))
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(DatasetError, match=says):
        read_floor_plan(path, POSES)
