"""Every kind of drive says what its camera is, or that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kbf_localization.datasets.bag_topics import camera_info_names
from kbf_localization.datasets.bag_writer import (
    camera_info_message,
    mount_message,
    new,
    write_bag,
)
from kbf_localization.datasets.camera_file import read_camera_file, write_camera_file
from kbf_localization.datasets.cold import OTHER_CAMERA, SIMULATED_NOTE
from kbf_localization.datasets.drive import camera_of, mount_of
from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.parts import DrivePart, parse_part
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import DatasetError
from kbf_localization.vision.camera import (
    Camera,
    FisheyeCamera,
    Mount,
    PanoramaCamera,
    PinholeCamera,
)
from test.datasets import public_folders
from test.datasets.bags import (
    START_NS,
    MemoryDrive,
    drive_messages,
    write_messages,
    write_messages_ros1,
)
from test.datasets.cold_folders import make_cold_drive

CAMERA = PinholeCamera(32, 24, 30.0, 31.0, 15.0, 11.0, (-0.1, 0.01, 0.0, 0.0, 0.002))
MOUNT = Mount.from_angles([0.25, -0.03, 0.4], yaw=0.1, pitch=0.2)


@dataclass(frozen=True)
class CalibratedDrive(MemoryDrive):
    camera: Camera | None = CAMERA
    mount: Mount | None = MOUNT


def transform(parent: str, child: str, mount: Mount, stamp_ns: int = START_NS) -> Any:
    message = mount_message(stamp_ns, mount)
    message.transforms[0].header.frame_id = parent
    message.transforms[0].child_frame_id = child
    return message


def bag_of(path: Path, *more: tuple[str, int, Any], ros1: bool = False) -> RosbagDrive:
    write = write_messages_ros1 if ros1 else write_messages
    return RosbagDrive(write(path, [*drive_messages(MemoryDrive()), *more]))


def assert_same(mount: Mount | None, expected: Mount) -> None:
    assert mount is not None
    np.testing.assert_allclose(mount.rotation, expected.rotation, atol=1e-9)
    np.testing.assert_allclose(mount.translation, expected.translation, atol=1e-9)


# Bags.


@pytest.mark.parametrize(
    ("image", "info"),
    [
        ("/camera/image", "/camera/camera_info"),
        ("/camera/image/compressed", "/camera/camera_info"),
        ("/front/left/image_raw/compressed", "/front/left/camera_info"),
        ("/image", "/camera_info"),
        ("image", "/camera_info"),
        ("/camera/compressed", "/camera_info"),
    ],
)
def test_the_calibration_is_beside_the_images(image: str, info: str) -> None:
    assert camera_info_names(image)[0] == info


def test_a_converted_drive_keeps_its_camera_and_mount(tmp_path: Path) -> None:
    write_bag(CalibratedDrive(), tmp_path / "bag")
    read = RosbagDrive(tmp_path / "bag")
    assert read.camera == CAMERA
    assert_same(read.mount, MOUNT)


@pytest.mark.parametrize(
    "camera",
    [
        PanoramaCamera.level(32, 24),
        PanoramaCamera(32, 24, -12.0, 9.0, 3.0, 17.0, "linear"),
        FisheyeCamera(32, 24, 9.0, 9.0, 16.0, 12.0, (0.01, 0.0, 0.0, 0.0)),
    ],
)
def test_other_cameras_are_converted_too(tmp_path: Path, camera: Camera) -> None:
    write_bag(CalibratedDrive(camera=camera, mount=None), tmp_path / "bag")
    read = RosbagDrive(tmp_path / "bag")
    assert read.camera == camera and read.mount is None


@pytest.mark.parametrize("ros1", [False, True], ids=["ROS 2", "ROS 1"])
def test_a_bags_calibration_is_scaled_to_its_images(tmp_path: Path, ros1: bool) -> None:
    info = camera_info_message(START_NS, CAMERA.resized(64, 48))
    drive = bag_of(
        tmp_path / f"one{'.bag' if ros1 else ''}", ("/camera_info", START_NS, info), ros1=ros1
    )
    assert drive.camera is not None
    pixels = np.array([[3.0, 4.0], [30.0, 20.0]])
    np.testing.assert_allclose(drive.camera.rays(pixels), CAMERA.rays(pixels), atol=1e-9)


def test_a_calibration_that_cannot_be_used_is_said_and_the_drive_read(tmp_path: Path) -> None:
    info = camera_info_message(START_NS, CAMERA)
    info.k = np.zeros(9)
    drive = bag_of(tmp_path / "zero", ("/camera_info", START_NS, info))
    assert drive.camera is None
    assert any("not calibrated" in line for line in drive.warnings)
    wide = camera_info_message(START_NS, CAMERA.resized(64, 20))
    drive = bag_of(tmp_path / "wide", ("/camera_info", START_NS, wide))
    assert drive.camera is None and any("aspect" in line for line in drive.warnings)


def test_a_calibration_that_changes_is_said(tmp_path: Path) -> None:
    zoomed = PinholeCamera(32, 24, 40.0, 41.0, 15.0, 11.0)
    messages = [
        ("/camera_info", START_NS + k, camera_info_message(START_NS + k, camera))
        for k, camera in enumerate((CAMERA, CAMERA, zoomed, zoomed))
    ]
    drive = bag_of(tmp_path / "bag", *messages)
    assert drive.camera == CAMERA
    assert any("changes 1 times" in line for line in drive.warnings)


def test_a_mount_is_composed_along_the_static_transforms(tmp_path: Path) -> None:
    # base_link → mast → camera; the mast is turned and raised.
    mast = Mount(Rotation.from_euler("z", 0.5).as_matrix(), np.array([0.1, 0.2, 1.0]))
    messages = [
        ("/tf_static", START_NS, transform("base_link", "mast", mast)),
        ("/tf_static", START_NS + 1, transform("/mast", "/camera", MOUNT, 0)),
    ]
    drive = bag_of(tmp_path / "bag", *messages)
    expected = Mount(mast.rotation @ MOUNT.rotation, mast.to_base(MOUNT.translation[None])[0])
    assert_same(drive.mount, expected)


def test_a_base_below_the_link_that_carries_the_camera_is_found(tmp_path: Path) -> None:
    # base_link is the root here, and base_footprint, which has the camera, its child.
    down = Mount(np.eye(3), np.array([0.0, 0.0, -0.1]))
    messages = [
        ("/tf_static", START_NS, transform("base_link", "base_footprint", down)),
        ("/tf_static", START_NS + 1, transform("base_footprint", "camera", MOUNT)),
    ]
    drive = bag_of(tmp_path / "bag", *messages)
    lifted = Mount(MOUNT.rotation, MOUNT.translation - [0.0, 0.0, 0.1])
    assert_same(drive.mount, lifted)


def test_a_mount_may_be_published_on_tf(tmp_path: Path) -> None:
    stamps = [START_NS + 50_000_000 * k for k in range(5)]
    messages = [("/tf", stamp, transform("base_link", "camera", MOUNT, stamp)) for stamp in stamps]
    assert_same(bag_of(tmp_path / "bag", *messages).mount, MOUNT)


def test_a_camera_that_moves_on_the_robot_has_no_mount(tmp_path: Path) -> None:
    messages = []
    for k in range(5):
        stamp = START_NS + 50_000_000 * k
        panned = Mount.from_angles([0.0, 0.0, 1.0], yaw=0.2 * k)
        messages.append(("/tf", stamp, transform("base_link", "camera", panned, stamp)))
    drive = bag_of(tmp_path / "bag", *messages)
    assert drive.mount is None
    assert any("mount moves" in line for line in drive.warnings)


def test_a_frame_with_z_up_is_the_cameras_body(tmp_path: Path) -> None:
    body = Mount(Rotation.from_euler("ZY", (0.1, 0.2)).as_matrix(), MOUNT.translation)
    message = ("/tf_static", START_NS, transform("base_link", "camera", body))
    assert_same(bag_of(tmp_path / "bag", message).mount, MOUNT)


@pytest.mark.parametrize(
    "edges",
    [
        [("camera", "camera")],
        [("a", "camera"), ("camera", "a")],
        [("elsewhere", "camera")],
    ],
    ids=["itself", "circle", "elsewhere"],
)
def test_transforms_that_lead_nowhere_give_no_mount(
    tmp_path: Path, edges: list[tuple[str, str]]
) -> None:
    messages = [("/tf_static", START_NS, transform(*edge, MOUNT)) for edge in edges]
    assert bag_of(tmp_path / "bag", *messages).mount is None


def test_a_mount_beyond_the_robot_is_refused(tmp_path: Path) -> None:
    far = transform("base_link", "camera", MOUNT)
    far.transforms[0].transform.translation = new("geometry_msgs/msg/Vector3", x=5e3, y=0.0, z=0.0)
    drive = bag_of(tmp_path / "bag", ("/tf_static", START_NS, far))
    assert drive.mount is None and any("beyond" in line for line in drive.warnings)


# Folders.


def test_a_cold_sequence_has_the_cameras_field_of_view(tmp_path: Path) -> None:
    drive = open_drive(make_cold_drive(tmp_path / "seq"))
    assert drive.camera is not None
    left, right = drive.camera.rays(np.array([[-0.5, 59.5], [159.5, 59.5]]))
    top, bottom = drive.camera.rays(np.array([[79.5, -0.5], [79.5, 119.5]]))
    assert np.degrees(np.arccos(left @ right)) == pytest.approx(68.9)
    assert np.degrees(np.arccos(top @ bottom)) == pytest.approx(54.4)
    assert drive.mount is None
    part = DrivePart(drive, parse_part("0:0.5"))
    assert part.camera == drive.camera


def test_a_simulated_drive_that_says_so_has_no_known_camera(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "seq")
    (folder / SIMULATED_NOTE).write_text("Simulated.\n")
    assert open_drive(folder).mount == Mount.ahead(1.1)
    (folder / SIMULATED_NOTE).write_text(f"Simulated. {OTHER_CAMERA}.\n")
    assert open_drive(folder).camera is None and open_drive(folder).mount is None


@pytest.mark.parametrize(("name", "focal"), [("1", 517.3), ("2", 520.9), ("3", 535.4)])
def test_tums_cameras_are_known_by_the_folders_name(
    tmp_path: Path, name: str, focal: float
) -> None:
    folder = public_folders.make_tum(tmp_path / f"rgbd_dataset_freiburg{name}_desk", frames=4)
    camera = open_drive(folder, odometry="simulate").camera
    assert isinstance(camera, PinholeCamera)
    assert camera.fx == pytest.approx(focal / 10)  # the images are 64 x 48
    assert (
        open_drive(
            public_folders.make_tum(tmp_path / "own_desk", frames=4), odometry="simulate"
        ).camera
        is None
    )


def test_tums_cameras_are_known_by_the_name_of_the_bag_where_the_folder_was_renamed(
    tmp_path: Path,
) -> None:
    folder = public_folders.make_tum(
        tmp_path / "data", frames=4, bag="rgbd_dataset_freiburg3_cabinet"
    )
    camera = open_drive(folder, odometry="simulate").camera
    assert isinstance(camera, PinholeCamera)
    assert camera.fx == pytest.approx(53.54)


def test_a_cameras_own_poses_make_it_a_level_mount(tmp_path: Path) -> None:
    drive = open_drive(public_folders.make_tum(tmp_path / "desk", frames=8), odometry="simulate")
    assert drive.mount is not None
    np.testing.assert_allclose(drive.mount.rotation, Mount.ahead().rotation, atol=1e-3)


def test_seven_scenes_has_585_pixels_at_640(tmp_path: Path) -> None:
    folder = public_folders.make_seven_scenes(tmp_path / "seq-01", frames=4)
    camera = open_drive(folder, odometry="simulate").camera
    assert isinstance(camera, PinholeCamera) and camera.fx == pytest.approx(58.5)


def test_kittis_camera_is_that_of_its_calib_file(tmp_path: Path) -> None:
    sequence = public_folders.make_kitti(tmp_path)
    line = "P0: 71.8 0 31.5 0 0 71.8 23.5 0 0 0 1 0\n"
    (sequence / "calib.txt").write_text(line)
    drive = open_drive(sequence, odometry="simulate")
    assert drive.camera == PinholeCamera(64, 48, 71.8, 71.8, 31.5, 23.5)
    (sequence / "image_0").rename(sequence / "image_2")
    # t = K⁻¹ p4: camera 2 sees what is at camera 0's origin 0.06 m to its right.
    (sequence / "calib.txt").write_text(
        line + f"P2: 71.8 0 31.5 {71.8 * 0.06} 0 71.8 23.5 0 0 0 1 0\n"
    )
    moved = open_drive(sequence, odometry="simulate").mount
    assert moved is not None
    np.testing.assert_allclose(moved.translation, [0.0, 0.06, 0.0], atol=1e-6)


def test_a_damaged_calib_file_is_said(tmp_path: Path) -> None:
    sequence = public_folders.make_kitti(tmp_path)
    for text in ("P0: 1 2\n", "P0: " + "x " * 12, "P0:" + " nan" * 12, "P0:" + " 0" * 12, "\n"):
        (sequence / "calib.txt").write_text(text)
        drive = open_drive(sequence, odometry="simulate")
        assert drive.camera is None
        assert any("camera not used" in line for line in drive.warnings)


SENSORS = """%YAML:1.0
---
d400_color_optical_frame:
   sensor_type: camera
   fps: 30
   width: 640
   height: 480
   model: pinhole
   intrinsics: !!opencv-matrix
      rows: 1
      cols: 4
      dt: d
      data: [ 6.1145e+02, 3.1320e+02, 6.1148e+02, 2.4947e+02 ]
   distortion_model: radial-tangential
   distortion_coefficients: !!opencv-matrix
      rows: 1
      cols: 5
      dt: d
      data: [ 0., 0., 0., 0., 0. ]
"""
TRANSFORMS = """%YAML:1.0
---
trans_matrix:
   - { parent_frame: base_link, child_frame: laser, matrix: !!opencv-matrix
       { rows: 4, cols: 4, dt: d, data: [1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1] } }
   - { parent_frame: base_link, child_frame: d400_color_optical_frame, matrix: !!opencv-matrix
       { rows: 4, cols: 4, dt: d, data: [0,0,1,0.3, -1,0,0,0.02, 0,-1,0,1.1, 0,0,0,1] } }
"""


def test_openloris_has_its_camera_and_mount_in_its_files(tmp_path: Path) -> None:
    folder = public_folders.make_openloris(tmp_path)
    (folder / "sensors.yaml").write_text(SENSORS)
    (folder / "trans_matrix.yaml").write_text(TRANSFORMS)
    # OpenCV, which defines these files, reads the same numbers.
    storage = cv2.FileStorage(str(folder / "sensors.yaml"), cv2.FILE_STORAGE_READ)
    fx = storage.getNode("d400_color_optical_frame").getNode("intrinsics").mat().ravel()[0]
    drive = open_drive(folder)
    assert isinstance(drive.camera, PinholeCamera)
    assert drive.camera.fx == pytest.approx(float(fx) / 10)
    assert_same(drive.mount, Mount(Mount.ahead().rotation, np.array([0.3, 0.02, 1.1])))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:200],
        lambda text: text.replace("6.1145e+02", ".nan"),
        lambda text: text.replace("640", "0"),
        lambda text: text.replace("radial-tangential", "odd").replace("0., 0.", "0.5, 0."),
        lambda text: "- a list\n",
        lambda text: "d400_color_optical_frame: &a [*a]\n",
        lambda text: text.replace("]", ""),
    ],
    ids=range(7),
)
def test_damaged_sensor_files_leave_a_drive_without_camera(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    folder = public_folders.make_openloris(tmp_path, frames=4)
    (folder / "sensors.yaml").write_text(damage(SENSORS))
    drive = open_drive(folder)
    assert drive.camera is None
    assert any("camera not used" in line for line in drive.warnings)


# camera.yaml.


@pytest.mark.parametrize(
    "camera",
    [
        CAMERA,
        PinholeCamera(64, 48, 50.0, 50.0, 31.5, 23.5),
        PinholeCamera(64, 48, 50.0, 50.0, 31.5, 23.5, (0.8, -0.3, 0, 0, 0.02, 1.1, -0.2, 0.05)),
        FisheyeCamera(64, 48, 20.0, 20.0, 31.5, 23.5, (0.01, 0.0, 0.0, 0.0)),
        PanoramaCamera.level(64, 48, horizontal_rad=4.0),
        PanoramaCamera.level(64, 32, "linear"),
        PanoramaCamera(64, 48, -12.0, 9.0, 3.0, 17.0),
    ],
    ids=[
        *("plumb_bob", "pinhole", "rational", "fisheye"),
        *("cylinder", "equirectangular", "mirrored"),
    ],
)
def test_a_camera_file_comes_back_as_it_was(tmp_path: Path, camera: Camera) -> None:
    write_camera_file(tmp_path / "camera.yaml", camera, MOUNT)
    read, mount = read_camera_file(tmp_path / "camera.yaml")
    pixels = np.array([[3.0, 4.0], [20.0, 20.0]])
    np.testing.assert_allclose(read.rays(pixels), camera.rays(pixels), atol=1e-12)
    assert_same(mount, MOUNT)


ROS_FILE = """image_width: 640
image_height: 480
camera_name: narrow_stereo
camera_matrix:
  rows: 3
  cols: 3
  data: [520.0, 0.0, 311.0, 0.0, 515.0, 247.0, 0.0, 0.0, 1.0]
distortion_model: plumb_bob
distortion_coefficients:
  rows: 1
  cols: 5
  data: [-0.28, 0.09, 0.001, -0.0007, -0.012]
"""


def test_a_file_of_ros_camera_calibration_is_read_beside_images(tmp_path: Path) -> None:
    folder = public_folders.make_folder(tmp_path)
    (folder / "camera.yaml").write_text(ROS_FILE)
    drive = open_drive(folder)
    expected = PinholeCamera(640, 480, 520, 515, 311, 247, (-0.28, 0.09, 0.001, -0.0007, -0.012))
    assert drive.camera == expected.resized(64, 48)


def test_a_panorama_is_declared_without_a_matrix(tmp_path: Path) -> None:
    path = tmp_path / "camera.yaml"
    path.write_text("image_width: 800\nimage_height: 120\ndistortion_model: cylindrical\n")
    assert read_camera_file(path) == (PanoramaCamera.level(800, 120), None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "image_width: 640\n",
        ROS_FILE.replace("520.0", ".inf"),
        ROS_FILE.replace("520.0", "[]"),
        ROS_FILE.replace("640", "-1"),
        ROS_FILE.replace("plumb_bob", "odd"),
        ROS_FILE.replace("-0.28", "1" + "0" * 400),
        ROS_FILE + "mount: up\n",
        ROS_FILE + "mount: {translation: [0, 0, 1], quaternion: [0, 0, 0, 0]}\n",
        "image_width: &a 640\nimage_height: *a\n",
        "\x00",
    ],
    ids=range(12),
)
def test_a_damaged_camera_file_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    folder = public_folders.make_folder(tmp_path, frames=4)
    (folder / "camera.yaml").write_text(text)
    with pytest.raises(DatasetError, match="camera.yaml"):
        read_camera_file(folder / "camera.yaml")
    drive = open_drive(folder)
    assert drive.camera is None
    assert any("camera not used" in line for line in drive.warnings)


def test_a_drive_of_somebodys_own_need_not_know_cameras() -> None:
    assert camera_of(MemoryDrive()) is None and mount_of(MemoryDrive()) is None
