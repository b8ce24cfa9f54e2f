"""Public data sets in their real layouts are read; each fault of theirs is one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.public import (
    READERS,
    FolderDrive,
    KittiDrive,
    OpenLorisDrive,
    SevenScenesDrive,
    TumDrive,
)
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import relative
from test.datasets.public_folders import (
    make_folder,
    make_kitti,
    make_openloris,
    make_seven_scenes,
    make_tum,
    planar_path,
    stamp,
    write_image,
)

Maker = Callable[[Path], Path]
ALL = [make_tum, make_openloris, make_seven_scenes, make_kitti, make_folder]


@pytest.mark.parametrize("make", ALL)
def test_poses_are_those_of_the_path_up_to_where_the_world_begins(
    make: Maker, tmp_path: Path
) -> None:
    drive = open_drive(make(tmp_path / "drive"), odometry="simulate")
    expected = planar_path(20)
    assert len(drive) == 20 and drive.poses is not None
    # Relative to its first pose, whatever axes the data set's world has. Four decimals of
    # quaternion components are good to 2e-4 rad; that over 1 m of path is 2e-4 m.
    np.testing.assert_allclose(
        relative(drive.poses[0], drive.poses), relative(expected[0], expected), atol=5e-4
    )
    assert (np.diff(drive.stamps_ns) > 0).all()
    assert all(image is not None for _, image in drive.images())


@pytest.mark.parametrize(
    ("make", "kind"),
    list(zip(ALL, [TumDrive, OpenLorisDrive, SevenScenesDrive, KittiDrive, FolderDrive])),
)
def test_the_kind_is_seen_from_the_folder(make: Maker, kind: type, tmp_path: Path) -> None:
    folder = make(tmp_path / "drive")
    assert next(reader for reader in READERS if reader.recognizes(folder)) is kind


@pytest.mark.parametrize("make", [make_tum, make_seven_scenes, make_kitti])
def test_without_odometry_a_drive_is_refused_unless_it_is_to_be_simulated(
    make: Maker, tmp_path: Path
) -> None:
    folder = make(tmp_path / "drive")
    with pytest.raises(DatasetError, match="no wheel odometry; --odometry simulate"):
        open_drive(folder)
    drive = open_drive(folder, odometry="simulate")
    assert drive.odometry_origin == "simulated"
    assert any("odometry simulated (simulate:0.02,0.05,0)" in line for line in drive.warnings)


@pytest.mark.parametrize("make", [make_openloris, make_folder])
def test_measured_odometry_is_read(make: Maker, tmp_path: Path) -> None:
    drive = open_drive(make(tmp_path / "drive"))
    assert drive.odometry_origin == "measured"
    expected = planar_path(20)
    np.testing.assert_allclose(
        relative(drive.odometry.poses[0], drive.odometry.poses),
        relative(expected[0], expected),
        atol=5e-4,
    )


def test_stamps_keep_every_microsecond(tmp_path: Path) -> None:
    drive = open_drive(make_tum(tmp_path), odometry="simulate")
    assert [int(stamp_ns) for stamp_ns in drive.stamps_ns[:2]] == [
        int(stamp(index).replace(".", "")) * 1000 for index in range(2)
    ]


def test_a_scene_of_seven_scenes_points_to_its_sequences(tmp_path: Path) -> None:
    make_seven_scenes(tmp_path / "seq-01")
    (tmp_path / "TrainSplit.txt").write_text("sequence1\n")
    with pytest.raises(DatasetError, match="give one of its sequences"):
        open_drive(tmp_path)


def scale(path: Path, columns: slice, factor: float) -> None:
    """Multiply some columns of a trajectory."""
    lines = [line.split() for line in path.read_text().splitlines()]
    for fields in lines:
        fields[columns] = [f"{factor * float(field):.4f}" for field in fields[columns]]
    path.write_text("\n".join(map(" ".join, lines)))


def warnings(folder: Path) -> str:
    return "\n".join(open_drive(folder, odometry="simulate").warnings)


def test_images_missing_on_disk_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = make_tum(tmp_path)
    (folder / "rgb" / f"{stamp(3)}.png").unlink()
    assert "1 of 20 images are not on disk" in warnings(folder)
    assert len(open_drive(folder, odometry="simulate")) == 19


def test_images_without_a_pose_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = make_tum(tmp_path)
    for index in (60, 61):  # 1.4 s after the trajectory's end
        write_image(folder / "rgb" / f"{stamp(index)}.png", index)
    with (folder / "rgb.txt").open("a") as file:
        file.writelines(f"{stamp(index)} rgb/{stamp(index)}.png\n" for index in (60, 61))
    drive = open_drive(folder, odometry="simulate")
    assert drive.poses is not None and np.isnan(drive.poses[-2:]).all()
    assert "2 of 22 images have no known pose within 1 s or 0.5 m" in warnings(folder)


def test_stamps_of_another_clock_are_refused_with_the_offset(tmp_path: Path) -> None:
    folder = make_tum(tmp_path)
    lines = (folder / "groundtruth.txt").read_text().replace("13050315", "13050415")
    (folder / "groundtruth.txt").write_text(lines)
    with pytest.raises(DatasetError, match=r"no image has a known pose: they were taken -10000\.0"):
        open_drive(folder, odometry="simulate")


def test_quaternions_of_another_length_are_normalized_and_counted(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    before = open_drive(folder).poses
    scale(folder / "groundtruth.txt", slice(4, 8), 3.0)
    assert "20 quaternions are not of unit length; normalized" in warnings(folder)
    np.testing.assert_allclose(open_drive(folder).poses, before, atol=5e-4)


def test_a_trajectory_in_millimetres_is_doubted(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    scale(folder / "groundtruth.txt", slice(1, 4), 1e3)
    assert "are its positions in metres" in warnings(folder)


def test_images_of_several_sizes_are_counted(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    write_image(folder / "images" / f"{stamp(0)}.png", 0, size=(24, 32))
    assert "images of several sizes, 64x48 (19), 32x24 (1)" in warnings(folder)


def test_lines_that_say_nothing_are_counted(tmp_path: Path) -> None:
    folder = make_tum(tmp_path)
    with (folder / "groundtruth.txt").open("a") as file:
        file.write("nonsense\n1305031526.7 1 2\n1305031526.8 nan 0 0 0 0 0 1\n")
    with (folder / "rgb.txt").open("a") as file:
        file.write("1305031999.0 ../../etc/passwd\nx\n")
    message = warnings(folder)
    assert "groundtruth.txt: 3 lines hold no pose" in message
    assert "rgb.txt: 2 lines name no image" in message


def test_a_drive_is_as_long_as_its_images_where_the_poses_go_on(tmp_path: Path) -> None:
    folder = make_kitti(tmp_path, frames=21)
    for image in sorted((folder / "image_0").iterdir())[11:]:
        image.unlink()
    length_m = np.linalg.norm(np.diff(planar_path(21)[:11, :2], axis=0), axis=1).sum()
    assert f"03: {length_m:.1f} m in 1 s, seen from above" in warnings(folder)


def test_a_kitti_sequence_with_images_missing_keeps_their_numbers(tmp_path: Path) -> None:
    sequence = make_kitti(tmp_path)
    whole = open_drive(sequence, odometry="simulate")
    (sequence / "image_0" / "000004.png").unlink()
    fewer = open_drive(sequence, odometry="simulate")
    assert "19 images, 20 times, 20 poses" in "\n".join(fewer.warnings)
    assert whole.poses is not None
    np.testing.assert_array_equal(fewer.poses, np.delete(whole.poses, 4, axis=0))


def test_a_list_that_is_a_fifo_does_not_block(tmp_path: Path) -> None:
    folder = make_tum(tmp_path)
    (folder / "groundtruth.txt").unlink()
    os.mkfifo(folder / "groundtruth.txt")
    with pytest.raises(DatasetError):
        open_drive(folder, odometry="simulate")


def test_an_image_that_is_a_fifo_or_endless_is_one_that_cannot_be_decoded(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    for index, make in ((1, os.mkfifo), (2, lambda path: path.symlink_to("/dev/zero"))):
        path = folder / "images" / f"{stamp(index)}.png"
        path.unlink()
        make(path)
    images = dict(open_drive(folder, follow_links=True).images())
    assert [index for index, image in images.items() if image is None] == [1, 2]
