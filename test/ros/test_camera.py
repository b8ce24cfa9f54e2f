"""The camera's calibration and mount, as ROS describes them."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo
from tf2_msgs.msg import TFMessage

from kbf_localization.ros.camera import (
    CameraCalibration,
    CameraMonitor,
    camera_info_name,
    read_camera_info,
)
from kbf_localization.vision.camera import Mount
from test.ros.robot import LATCHED, Robot, robot_with_node
from test.ros.test_transforms import placed
from test.ros.world import World


def camera_info(width: int = 160, height: int = 120, focal: float = 116.0) -> CameraInfo:
    info = CameraInfo(width=width, height=height, distortion_model="plumb_bob")
    info.header.frame_id = "optical"
    info.k = np.array([focal, 0, width / 2 - 0.5, 0, focal, height / 2 - 0.5, 0, 0, 1.0])
    info.d = [0.1, -0.2, 0.0, 0.0, 0.0]
    return info


@pytest.mark.parametrize(
    ("image_topic", "expected"),
    [
        ("/camera/image_raw/compressed", "/camera/camera_info"),
        ("/camera/image_raw", "/camera/camera_info"),
        ("/robot/front/image_rect/theora", "/robot/front/camera_info"),
        ("/image/compressed", "/camera_info"),
        ("/image", "/camera_info"),
    ],
)
def test_calibration_is_beside_the_images(image_topic: str, expected: str) -> None:
    assert camera_info_name(image_topic) == expected


def test_fields_are_the_messages_without_its_stamp() -> None:
    message = camera_info()
    first = read_camera_info(message)
    message.header.stamp.sec = 7
    assert read_camera_info(message) == first
    assert (first.frame_id, first.width, first.height) == ("optical", 160, 120)
    assert (first.k[0], first.k[5], first.d) == (116.0, 59.5, (0.1, -0.2, 0.0, 0.0, 0.0))


def zero_matrix(info: CameraInfo) -> None:
    info.k = np.zeros(9)


def tiny_focal(info: CameraInfo) -> None:
    info.k[0] = 1e-3


def negative_focal(info: CameraInfo) -> None:
    info.k[4] = -116.0


def not_finite(info: CameraInfo) -> None:
    info.d = [math.nan]


def no_size(info: CameraInfo) -> None:
    info.width = 0


def huge(info: CameraInfo) -> None:
    info.height = 4_000_000_000


def far_centre(info: CameraInfo) -> None:
    info.k[2] = 1e6


def many_coefficients(info: CameraInfo) -> None:
    info.d = [0.0] * 1000


@pytest.mark.parametrize("matrix", [np.zeros(9), np.array([-25.0, 0, 3, 0, 9, 7, 0, 0, 1])])
def test_a_panorama_needs_no_matrix_and_may_be_mirrored(matrix: np.ndarray) -> None:
    message = camera_info()
    message.distortion_model, message.k, message.d = "cylindrical", matrix, []
    found = read_camera_info(message)
    assert found.k == tuple(matrix) and str(found) == "160x120, cylindrical"


BAD = (
    zero_matrix,
    tiny_focal,
    negative_focal,
    not_finite,
    no_size,
    huge,
    far_centre,
    many_coefficients,
)


class Watched:
    """A monitor whose clock, findings and warnings a test sees."""

    def __init__(self) -> None:
        self.now = 0.0
        self.found: list[tuple] = []
        self.warnings: list[tuple[str, str]] = []
        self.monitor = CameraMonitor(
            "base",
            lambda *camera: self.found.append(camera),
            lambda *warning: self.warnings.append(warning),
            lambda: self.now,
        )

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.warnings]


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("spoil", BAD)
def test_bad_calibration_is_one_warning(
    watched: Watched, spoil: Callable[[CameraInfo], None]
) -> None:
    info = camera_info()
    spoil(info)
    for _ in range(3):
        watched.monitor.on_info(info)
    assert watched.kinds == ["camera_info"]
    assert watched.monitor.info is None
    assert watched.found == []


def test_calibration_that_changes_is_one_warning_and_the_first_counts(watched: Watched) -> None:
    for focal in (116.0, 116.0, 120.0, 121.0):
        watched.monitor.on_info(camera_info(focal=focal))
    assert watched.kinds == ["camera_info_changed"]
    assert watched.monitor.info == read_camera_info(camera_info())
    assert len(watched.found) == 1


@pytest.mark.parametrize(
    ("width", "height", "warned"), [(160, 120, False), (80, 60, False), (160, 90, True)]
)
@pytest.mark.parametrize("image_first", [False, True])
def test_images_of_another_aspect_ratio_are_one_warning(
    watched: Watched, width: int, height: int, warned: bool, image_first: bool
) -> None:
    if image_first:
        watched.monitor.on_image("optical", width, height)
    watched.monitor.on_info(camera_info())
    for _ in range(3):
        watched.monitor.on_image("optical", width, height)
    assert watched.kinds == ["camera_info_size"] * warned


def test_calibration_is_read_once_a_second(watched: Watched) -> None:
    assert watched.monitor.wants_info
    watched.monitor.on_info(camera_info())
    assert not watched.monitor.wants_info
    watched.now = 1.0
    assert watched.monitor.wants_info


def test_mount_is_found_whatever_comes_first_and_one_that_changes_is_one_warning(
    watched: Watched,
) -> None:
    high, higher = np.eye(4), np.eye(4)
    high[2, 3], higher[2, 3] = 1.2, 1.3
    watched.monitor.on_transforms([placed("base", "optical", high)])
    assert watched.monitor.mount is None
    watched.monitor.on_image("/optical", 160, 120)
    assert watched.monitor.mount.translation == (0.0, 0.0, 1.2)
    watched.monitor.on_info(camera_info())
    assert watched.found[-1] == (watched.monitor.info, watched.monitor.mount)
    for _ in range(3):
        watched.monitor.on_transforms([placed("base", "optical", higher)])
    assert watched.kinds == ["camera_mount_changed"]
    assert watched.monitor.mount.translation == (0.0, 0.0, 1.2)


def test_tf_is_searched_for_half_a_minute_only(watched: Watched) -> None:
    watched.now = 100.0
    assert watched.monitor.wants_tf
    watched.monitor.on_image("optical", 160, 120)
    watched.now = 129.0
    assert watched.monitor.wants_tf
    watched.now = 131.0
    assert not watched.monitor.wants_tf


@pytest.mark.parametrize("static", [True, False])
def test_a_mount_by_a_joint_of_tf_is_looked_at_again_every_ten_seconds(
    watched: Watched, static: bool
) -> None:
    watched.monitor.on_image("optical", 160, 120)
    watched.monitor.on_transforms([placed("base", "optical", np.eye(4))], static)
    wanted = []
    for now in np.arange(0.5, 40.0, 1.0):
        watched.now = now
        wanted.append(watched.monitor.wants_tf)
    expected = [not static and number % 10 == 0 for number in range(40)]
    assert wanted == expected


class Calibrated:
    """A calibration for a localizer on a map of a level camera, without images yet."""

    def __init__(self) -> None:
        self.cameras: list[tuple[Any, Any]] = []
        self.warnings: list[str] = []
        landmarks = SimpleNamespace(
            mount=Mount.ahead(1.1), description=SimpleNamespace(attitude_sigma=(0.02, 0.008, 0.008))
        )
        localizer = SimpleNamespace(
            training_map=SimpleNamespace(landmarks=landmarks),
            last=None,
            set_camera=lambda *camera: self.cameras.append(camera),
        )
        self.calibration = CameraCalibration(
            localizer,  # type: ignore[arg-type]
            "base",
            SimpleNamespace(info=lambda _: None),  # type: ignore[arg-type]
            lambda kind, _: self.warnings.append(kind),
        )

    def place(self, mount: Mount) -> None:
        edge = np.eye(4)
        edge[:3, :3], edge[:3, 3] = mount.rotation, mount.translation
        self.calibration.monitor.on_transforms([placed("base", "optical", edge)])


def test_calibration_and_mount_reach_the_localizer_and_the_status() -> None:
    calibrated, mount = Calibrated(), Mount.from_angles([0.2, 0.0, 1.1], yaw=0.1)
    assert calibrated.calibration.metrics()["camera"] == ""
    calibrated.calibration.expect_images("/camera/image_raw")
    calibrated.calibration.monitor.on_info(camera_info())
    calibrated.place(mount)
    camera, found = calibrated.cameras[-1]
    assert (camera.fx, camera.distortion) == (116.0, (0.1, -0.2, 0.0, 0.0))
    np.testing.assert_allclose(found.rotation, mount.rotation, atol=1e-12)
    np.testing.assert_allclose(found.translation, mount.translation)
    metrics = calibrated.calibration.metrics()
    assert metrics["camera"] == "160x120, f 116.0 and 116.0 px, plumb_bob"
    assert str(metrics["camera_mount"]).startswith("(0.200, 0.000, 1.100) m")
    assert math.isnan(float(str(metrics["camera_pitch_deg"])))
    assert calibrated.calibration.diagnostics() == {}


def test_rectified_images_take_the_projection() -> None:
    calibrated, info = Calibrated(), camera_info()
    info.p = [100.0, 0.0, 79.5, 0.0, 0.0, 100.0, 59.5, 0.0, 0.0, 0.0, 1.0, 0.0]
    calibrated.calibration.expect_images("/camera/image_rect")
    calibrated.calibration.monitor.on_info(info)
    camera, _ = calibrated.cameras[-1]
    assert (camera.fx, camera.distortion) == (100.0, ())
    assert str(calibrated.calibration.metrics()["camera"]).endswith(", rectified images")


@pytest.mark.parametrize(("roll", "kinds"), [(0.0, []), (np.pi, ["camera_rolled"])])
def test_a_camera_upside_down_on_a_map_of_an_upright_camera_is_a_problem(
    roll: float, kinds: list[str]
) -> None:
    calibrated = Calibrated()
    calibrated.calibration.monitor.on_image("optical", 160, 120)
    calibrated.place(Mount.from_angles([0.0, 0.0, 1.1], roll=roll))
    assert calibrated.warnings == list(calibrated.calibration.diagnostics()) == kinds


@pytest.mark.ros
@pytest.mark.parametrize("source", ["topic", "tf"])
def test_node_reports_calibration_and_mount(world: World, map_file: Path, source: str) -> None:
    """The calibration beside the images; the mount over tf and tf_static."""
    parameters = {"map": str(map_file), "odom_source": source}
    with robot_with_node(world, parameters) as (robot, process):
        robot.drives_by_tf = source == "tf"
        infos = robot.node.create_publisher(CameraInfo, "camera_info", 10)
        assert robot.wait_for(infos.get_subscription_count), process.log()
        robot.wait_until_heard()
        mast, lens = np.eye(4), np.eye(4)
        mast[2, 3], lens[0, 3] = 1.0, 0.25
        # Fixed frames and a joint.
        robot.tf_static.publish(TFMessage(transforms=[placed("base_footprint", "mast", mast)]))

        def reported() -> bool:
            infos.publish(camera_info())
            robot.tf_out.publish(TFMessage(transforms=[placed("mast", "optical", lens)]))
            robot.frame()
            return bool(robot.value("camera") and robot.value("camera_mount"))

        assert robot.wait_for(reported), (robot.status, process.log())
        assert str(robot.value("camera")).startswith("160x120, f 116.0 and 116.0 px, plumb_bob")
        assert str(robot.value("camera_mount")).startswith("(0.250, 0.000, 1.000) m")


@pytest.mark.ros
def test_node_survives_bad_calibrations_with_one_warning(robot: Robot, node) -> None:
    infos = robot.node.create_publisher(CameraInfo, "camera_info", LATCHED)
    assert robot.wait_for(infos.get_subscription_count)

    def warned() -> bool:
        for spoil in BAD:
            info = camera_info()
            spoil(info)
            infos.publish(info)
        robot.frame()
        return "camera_info is not used" in node.log()

    assert robot.wait_for(warned)
    warned()
    assert robot.wait_for(lambda: "camera_info is not used" in robot.status.message)
    assert robot.frame() is not None
