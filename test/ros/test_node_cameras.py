"""Calibrations and mounts that a robot may have, right and wrong, through the node on landmarks."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo
from tf2_msgs.msg import TFMessage

from kbf_localization.ros.node_process import NodeProcess
from kbf_localization.vision.camera.mount import OPTICAL_IN_BASE, rotation_of
from test.ros.robot import LATCHED, Robot, robot_with_node
from test.ros.test_camera import camera_info
from test.ros.test_transforms import placed
from test.ros.world import World

pytestmark = pytest.mark.ros

CAMERA_M = 1.2
"""Height of the world's camera above its base."""
PAN_RAD = 0.6
RIGHT_M = 0.15
"""Whole images measure a pose of this world to decimetres, landmarks to centimetres."""


class Watched:
    """A robot that publishes its camera's calibration and mount, and its node's process."""

    def __init__(self, robot: Robot, process: NodeProcess) -> None:
        self.robot, self.process = robot, process
        self.info, self.mount, self.frame = calibration(), mount(), "optical"
        self.static = True
        self.infos = robot.node.create_publisher(CameraInfo, "camera_info", LATCHED)
        assert robot.wait_for(self.infos.get_subscription_count), process.log()

    def publish(self) -> None:
        """Publish the calibration, and the mount on tf_static or tf."""
        self.info.header.frame_id = self.frame
        self.infos.publish(self.info)
        topic = self.robot.tf_static if self.static else self.robot.tf_out
        edge = placed("base_footprint", self.frame, self.mount)
        topic.publish(TFMessage(transforms=[edge]))

    def known(self, key: str = "camera_mount") -> bool:
        """Publish until the status has a value."""

        def reported() -> bool:
            self.publish()
            self.robot.frame()
            return bool(self.robot.value(key))

        return bool(self.robot.wait_for(reported))

    def drive(
        self,
        frames: int,
        seen: Callable[[np.ndarray], np.ndarray] | None = None,
        limit: float = RIGHT_M,
    ) -> list[tuple[str, float]]:
        """Drive on with what the camera sees at a pose; the states and errors (m) of the answers.

        Whatever comes, covariances are finite, and what is called tracking is within 4 σ, or within
        the `limit` (m).
        """
        robot, found = self.robot, []
        for _ in range(frames):
            robot.move()
            message = robot.image_message()
            if seen is not None:
                data = cv2.imencode(".jpg", seen(robot.pose))[1]
                message.data = array.array("B", data.tobytes())
            robot.compressed.publish(message)
            answer = robot.answer(robot.stamp_ns)
            assert answer is not None, self.process.log()
            covariance = np.reshape(answer.pose.covariance, (6, 6))[:2, :2]
            assert np.isfinite(covariance).all()
            state, error = robot.state_at(robot.stamp_ns), robot.error(answer)
            sigma = float(np.sqrt(np.linalg.eigvalsh(covariance)[-1]))
            assert state != "tracking" or error < max(4.0 * sigma, limit), (state, error, sigma)
            found.append((str(state), error))
        return found

    def says(self, line: str) -> None:
        """The line is in the status, and in one warning of the log."""
        assert self.robot.wait_for(lambda: line in self.robot.status.message), self.robot.status
        warnings = [entry for entry in self.process.log().splitlines() if "[WARN]" in entry]
        assert sum(line in entry for entry in warnings) == 1, warnings

    def tracks(self) -> float:
        """The median error (m) of a robot that tracks."""
        self.robot.drive_until_tracking()
        found = self.drive(15)
        assert sum(state == "tracking" for state, _ in found) >= 12, found
        return float(np.median([error for _, error in found]))


@pytest.fixture
def watched(world: World, landmark_map_file: Path) -> Iterator[Watched]:
    """A robot with a node on the map with landmarks."""
    with robot_with_node(world, {"map": str(landmark_map_file)}) as (robot, process):
        robot.wait_until_heard()
        yield Watched(robot, process)


def calibration(scale: int = 1, focal: float = 80.0 / np.tan(np.radians(35.0))) -> CameraInfo:
    """That of the world's camera: 160 columns are 70°, without distortion."""
    info = camera_info(scale * 160, scale * 120, scale * focal)
    info.d = [0.0] * 5
    return info


def mount(yaw: float = 0.0, roll: float = 0.0) -> np.ndarray:
    """The optical frame (4, 4) in the base's."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation_of(yaw, 0.0, roll)
    matrix[2, 3] = CAMERA_M
    return matrix


@pytest.mark.parametrize("frame", ["camera_rgb_optical_frame", "camera_link"])
def test_the_cameras_body_frame_serves_as_well_as_its_optical_one(
    watched: Watched, frame: str
) -> None:
    watched.frame = frame
    if "optical" not in frame:
        watched.mount[:3, :3] = watched.mount[:3, :3] @ OPTICAL_IN_BASE.T
    assert watched.known()
    assert watched.tracks() < RIGHT_M / 3.0


def test_a_camera_upside_down_on_a_map_of_an_upright_one_is_said_and_never_tracks(
    watched: Watched,
) -> None:
    watched.mount = mount(roll=np.pi)
    assert watched.known()
    found = watched.drive(25, lambda pose: watched.robot.world.image(pose)[::-1, ::-1])
    watched.says("the camera is mounted upside down compared with that of the map")
    assert all(state != "tracking" for state, _ in found[5:]), found


def test_a_camera_on_a_pan_unit_is_said_when_it_moves_and_does_not_track(
    watched: Watched,
) -> None:
    """It moves by a joint of /tf, and its images with it; landmarks need metres to notice."""
    watched.static = False
    assert watched.known()
    assert watched.tracks() < RIGHT_M / 3.0
    watched.mount = mount(PAN_RAD)
    turned = np.array([0.0, 0.0, PAN_RAD])
    found = watched.drive(32, lambda pose: watched.robot.world.image(pose + turned), limit=0.5)
    assert all(state != "tracking" for state, _ in found[28:]), found

    def noticed() -> bool:
        watched.publish()
        return "the camera's mount has changed" in watched.process.log()

    assert watched.robot.wait_for(noticed)
    watched.says("a camera that moves on its robot is not supported")


def test_a_mount_that_nobody_publishes_is_the_maps(watched: Watched) -> None:
    watched.frame = "unknown_optical"
    watched.static = False
    for _ in range(3):
        watched.infos.publish(watched.info)
        watched.robot.frame()
    assert watched.tracks() < RIGHT_M / 3.0
    assert watched.robot.value("camera_mount") == ""


def test_a_calibration_of_another_size_is_scaled(watched: Watched) -> None:
    watched.info = calibration(4)
    assert watched.known("camera")
    assert watched.tracks() < RIGHT_M / 3.0


def of_another_shape(info: CameraInfo) -> str:
    info.width = 320
    return "of another aspect ratio"


def absurd_distortion(info: CameraInfo) -> str:
    info.d = [-30.0, 0.0, 0.0, 0.0, 0.0]
    return "camera_info is not used, but the map's camera"


def unknown_model(info: CameraInfo) -> str:
    info.distortion_model = "brown"
    info.d = [0.1] * 20
    return "camera_info is not used, but the map's camera"


@pytest.mark.parametrize("spoil", [of_another_shape, absurd_distortion, unknown_model])
def test_a_calibration_that_cannot_be_is_said_and_the_robot_located_all_the_same(
    watched: Watched, spoil: Callable[[CameraInfo], str]
) -> None:
    line = spoil(watched.info)
    assert watched.known("camera")
    watched.drive(40)
    watched.says(line)
    assert watched.robot.value("camera_mount")
    assert watched.robot.error() < 0.5


def test_a_calibration_that_changes_while_it_drives_is_said_and_the_first_counts(
    watched: Watched,
) -> None:
    assert watched.known("camera")
    assert watched.tracks() < RIGHT_M / 3.0
    watched.info = calibration(focal=200.0)

    def noticed() -> bool:
        watched.publish()
        watched.drive(1)
        return "camera_info has changed" in watched.process.log()

    assert watched.robot.wait_for(noticed)
    watched.says("camera_info has changed")
    assert watched.tracks() < RIGHT_M
    assert str(watched.robot.value("camera")).startswith("160x120, f 114.3 and 114.3 px")


@pytest.mark.parametrize(("pitch_deg", "roll_deg"), [(0.0, 0.0), (3.0, 0.0), (0.0, 5.0)])
def test_a_camera_that_is_tilted_since_the_map_was_made_is_said_with_the_angles(
    watched: Watched, pitch_deg: float, roll_deg: float
) -> None:
    """The image of a camera pitched down, or rolled clockwise: a homography of the level one's."""
    focal = calibration().k[0]
    lens = np.array([[focal, 0.0, 80.0], [0.0, focal, 60.0], [0.0, 0.0, 1.0]])
    tilt = rotation_of(0.0, np.radians(pitch_deg), np.radians(roll_deg))
    seen = lens @ tilt.T @ OPTICAL_IN_BASE @ np.linalg.inv(lens)
    assert watched.known()
    watched.robot.drive_until_tracking()
    errors, tilts, said = [], [], []
    for _ in range(15):
        errors += watched.drive(
            1,
            lambda pose: cv2.warpPerspective(watched.robot.world.image(pose), seen, (160, 120)),
            limit=0.5 if roll_deg else RIGHT_M,
        )
        tilts.append(
            [float(watched.robot.value(f"camera_{axis}_deg")) for axis in ("pitch", "roll")]
        )
        said.append("the camera is pitched down by" in watched.robot.status.message)
    if not roll_deg:
        assert np.median([error for _, error in errors]) < RIGHT_M / 2.0
    assert np.nanmedian(tilts, axis=0) == pytest.approx([pitch_deg, roll_deg], abs=0.4)
    assert any(said) == (pitch_deg + roll_deg > 0.0)
