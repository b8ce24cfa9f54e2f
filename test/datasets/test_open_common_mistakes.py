"""The commonest mistakes in recorded data are named, each with what is expected."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from test.datasets.cold_folders import make_cold_drive
from test.datasets.public_folders import make_kitti, make_tum, planar_path, tum_lines, write_image

Rows = np.ndarray
FRAMES = 100
START_S = 1305031526.0


def table(camera: bool) -> Rows:
    """Stamps, positions and quaternions (FRAMES, 8) of an arc of 10 m at 10 images a second."""
    lines = tum_lines(planar_path(FRAMES, step=0.05), 10.0, camera=camera).splitlines()
    return np.array([[float(field) for field in line.split()] for line in lines])


def own_folder(folder: Path, truth: Rows, stamps: Rows | None = None) -> Path:
    """Anybody's data: images.txt, groundtruth.txt and the odometry of the true path."""
    stamps = table(camera=False)[:, 0] if stamps is None else stamps
    write_image(folder / "a.png", 0)
    (folder / "images.txt").write_text("".join(f"{stamp:.6f} a.png\n" for stamp in stamps))
    for name, rows in (("groundtruth", truth), ("odometry", table(camera=False))):
        lines = (" ".join(f"{value:.6f}" for value in row) for row in rows)
        (folder / f"{name}.txt").write_text("\n".join(lines))
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(DatasetError) as error:
        open_drive(folder)
    return str(error.value)


def warnings(folder: Path) -> str:
    return "\n".join(open_drive(folder).warnings)


@pytest.mark.parametrize("camera", [True, False])
def test_what_is_right_is_not_doubted(tmp_path: Path, camera: bool) -> None:
    assert "?" not in warnings(own_folder(tmp_path, table(camera)))


def test_missing_columns_are_counted_and_the_expected_named(tmp_path: Path) -> None:
    message = refusal(own_folder(tmp_path, table(camera=False)[:, :3]))
    assert (
        "groundtruth.txt: 100 lines hold no pose, the first is line 1: 3 columns; expected"
        in message
    )
    assert "'stamp tx ty tz qx qy qz qw'" in message


def test_an_empty_trajectory_names_the_expected_columns(tmp_path: Path) -> None:
    folder = own_folder(tmp_path, table(camera=False))
    (folder / "groundtruth.txt").write_text("# a header alone\n")
    assert "holds no pose; expected are the 8 columns" in refusal(folder)


@pytest.mark.parametrize("camera", [True, False])
def test_a_quaternion_with_the_scalar_first_is_known_by_its_tilt(
    tmp_path: Path, camera: bool
) -> None:
    rows = table(camera)
    rows[:, 4:] = rows[:, [7, 4, 5, 6]]
    message = refusal(own_folder(tmp_path, rows))
    assert "level (within 5°) as 'qw qx qy qz'" in message and "qx qy qz qw'" in message


@pytest.mark.parametrize(("factor", "unit"), [(1e3, "milliseconds"), (1e6, "microseconds")])
def test_stamps_in_another_unit_are_named(tmp_path: Path, factor: float, unit: str) -> None:
    rows = table(camera=False)
    rows[:, 0] *= factor
    assert f"looks like {unit}; write seconds" in refusal(own_folder(tmp_path, rows))


def test_a_clock_from_zero_in_milliseconds_is_known_by_the_duration(tmp_path: Path) -> None:
    rows = table(camera=False)
    stamps = rows[:, 0] - START_S + 1.0
    rows[:, 0] = 1e3 * stamps
    message = refusal(own_folder(tmp_path, rows, stamps + 30.0))
    assert "are the trajectory's stamps in milliseconds? Both must be in seconds" in message


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e3, "millimetres"), (1e2, "centimetres"), (1 / 0.3048, "feet")]
)
def test_positions_in_another_unit_are_known_by_the_odometry(
    tmp_path: Path, factor: float, unit: str
) -> None:
    rows = table(camera=False)
    rows[:, 1:4] *= factor
    message = warnings(own_folder(tmp_path, rows))
    assert f"{factor:.3g} times as far as the odometry" in message
    assert f"are the known positions in {unit}?" in message


def test_a_list_of_images_that_are_elsewhere_names_the_first(tmp_path: Path) -> None:
    folder = own_folder(tmp_path, table(camera=False))
    (folder / "a.png").rename(folder / "b.png")
    message = f"none of its 100 images is there: {folder / 'a.png'}"
    assert refusal(folder).endswith(f"{message}; of other names there are 1, such as b.png")
    (folder / "b.png").rename(folder / "b.txt")
    assert refusal(folder).endswith(message)


def test_inverse_poses_are_known_by_the_odometry(tmp_path: Path) -> None:
    """COLMAP stores poses from world to camera."""
    rows = table(camera=False)
    inverse = Rotation.from_quat(rows[:, 4:]).inv()
    rows[:, 1:4], rows[:, 4:] = -inverse.apply(rows[:, 1:4] + [20.0, 5.0, 0.0]), inverse.as_quat()
    assert "as COLMAP stores them" in warnings(own_folder(tmp_path, rows))


def test_a_camera_that_looks_down_is_not_blamed_on_stamps(tmp_path: Path) -> None:
    rows = table(camera=True)
    down = Rotation.from_euler("x", -90, degrees=True)
    rows[:, 4:] = (Rotation.from_quat(rows[:, 4:]) * down).as_quat()
    folder = make_tum(tmp_path, FRAMES)
    text = "\n".join(" ".join(f"{value:.6f}" for value in row) for row in rows)
    (folder / "groundtruth.txt").write_text(text)
    message = refusal(folder)
    assert "the stamps agree, but no pose has a heading" in message
    assert "up or down by more than 75°" in message


def test_a_robots_trajectory_with_tum_images_has_its_axes_found(tmp_path: Path) -> None:
    folder = make_tum(tmp_path, FRAMES)
    path = planar_path(FRAMES, step=0.05)
    (folder / "groundtruth.txt").write_text(tum_lines(path, 30.0, camera=False))
    message = refusal(folder)
    assert "read as a robot's (x forward) they are level" in message and "images.txt" in message


def test_mirrored_axes_are_known_by_their_turns(tmp_path: Path) -> None:
    """ARKit's and Blender's cameras have y up and z backward."""
    rows = table(camera=True)
    flipped = Rotation.from_matrix(np.diag([1.0, -1.0, -1.0]))
    rows[:, 4:] = (Rotation.from_quat(rows[:, 4:]) * flipped).as_quat()
    message = warnings(own_folder(tmp_path, rows))
    assert "turn left where the odometry turns right" in message and "ARKit" in message


def test_poses_of_a_body_that_looks_aside_differ_from_the_bases(tmp_path: Path) -> None:
    rows = table(camera=False)
    aside = Rotation.from_euler("z", 90, degrees=True)
    rows[:, 4:] = (Rotation.from_quat(rows[:, 4:]) * aside).as_quat()
    message = warnings(own_folder(tmp_path, rows))
    assert "heading differs from the odometry's by -90°" in message


def test_a_matrix_of_another_size_names_the_expected_size(tmp_path: Path) -> None:
    sequence = make_kitti(tmp_path)
    poses = next(tmp_path.rglob("poses/*.txt"))
    poses.write_text("1 2 3\n" * 20)
    with pytest.raises(DatasetError, match="20 lines hold no pose .12 numbers"):
        open_drive(sequence, odometry="simulate")


def test_cold_headings_in_degrees_are_refused(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path)
    for image in (folder / "std_cam").iterdir():
        image.rename(image.with_name(image.name.replace("_a", "_a9")))
    with pytest.raises(DatasetError, match="is beyond 2π; a name has seconds, metres and radians"):
        open_drive(folder)
