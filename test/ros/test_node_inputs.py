"""What a robot's topics may be like: rates, QoS, encodings, namespaces, clocks."""

import array
import time
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image

from kbf_localization.datasets.image_decoding import ENCODINGS
from kbf_localization.geometry import compose, relative
from kbf_localization.ros.conversions import header, planar_pose, time_message
from kbf_localization.ros.node_process import NodeProcess
from test.ros.robot import BEST_EFFORT, RELIABLE, Robot, robot_with_node
from test.ros.test_conversions_images import message as raw_message
from test.ros.world import World
from test.test_launch_files import installed_prefix as installed_prefix
from test.test_launch_files import launched, needs_launch


@pytest.mark.parametrize("qos", [BEST_EFFORT, RELIABLE], ids=["best effort", "reliable"])
def test_publishers_of_either_reliability_are_heard(
    world: World, node: NodeProcess, qos: QoSProfile
) -> None:
    robot = Robot(world, odom_qos=qos, image_qos=qos)
    robot.stamp_ns += 3_600_000_000_000
    robot.wait_until_heard()
    robot.call_empty("reinitialize_global_localization")
    for _ in range(4):
        robot.move()
    assert robot.drive(3)
    robot.close()


def test_stamps_that_start_again_as_in_a_bag_played_twice_reset(robot: Robot) -> None:
    robot.stamp_ns += 7_200_000_000_000
    for _ in range(4):
        robot.move()
    robot.drive_until_tracking()
    resets = robot.count("resets")
    robot.stamp_ns -= 60_000_000_000
    robot.metres = 0.0
    for _ in range(4):
        robot.move()
    assert robot.wait_for(lambda: robot.count("resets") == resets + 1)
    assert robot.wait_for(lambda: robot.state == "uninitialized")
    robot.drive_until_tracking()
    assert robot.error() < 0.5


def test_one_stamp_from_the_future_changes_nothing(robot: Robot) -> None:
    robot.drive_until_tracking()
    resets = robot.count("resets")
    robot.publish_odometry(stamp_ns=robot.stamp_ns + 86_400_000_000_000)
    assert len(robot.drive(5)) == 5
    assert robot.state == "tracking"
    assert robot.count("resets") == resets
    assert robot.count("odometry_stray") >= 1


def test_a_thousand_odometry_messages_do_not_starve_an_image(robot: Robot) -> None:
    """Sent at once behind the image, whose own odometry is there already."""
    robot.drive_until_tracking()
    for _ in range(5):
        robot.move()
        robot.wait_until_driven()
        stamp_ns = robot.stamp_ns
        robot.compressed.publish(robot.image_message())
        robot.move(0.0, seconds=1.0, readings=1000)
        assert robot.answer(stamp_ns) is not None, robot.status


def test_raw_and_compressed_images_give_the_same_pose(world: World, map_file: Path) -> None:
    poses: dict[str, list[np.ndarray]] = {}
    for transport in ("compressed", "raw"):
        parameters = {"map": str(map_file), "image_transport": transport}
        with robot_with_node(world, parameters) as (robot, process):
            robot.wait_until_heard(camera=transport)
            for _ in range(6):
                robot.move()
                compressed = robot.image_message()
                if transport == "compressed":
                    robot.compressed.publish(compressed)
                else:
                    robot.raw.publish(_raw(compressed, robot.stamp_ns))
                assert robot.answer(robot.stamp_ns) is not None, process.log()
            poses[transport] = [planar_pose(pose.pose.pose) for pose in robot.poses]
    np.testing.assert_array_equal(poses["raw"], poses["compressed"])


def test_images_above_the_rate_get_no_pose_and_are_counted(robot: Robot) -> None:
    """The camera's images are 0.1 s apart; the limit changes while the node runs."""
    robot.drive_until_tracking()
    assert len(robot.drive(4)) == 4
    before = robot.count("image_above_rate")
    assert robot.set_parameter("max_image_rate", 5.0).successful
    sent = []
    for _ in range(8):
        robot.move()
        robot.wait_until_driven()
        sent.append(robot.stamp_ns)
        robot.compressed.publish(robot.image_message())
    assert robot.wait_for(lambda: robot.count("image_above_rate") == before + 4), robot.status
    answered = [bool(robot.answer(stamp_ns)) for stamp_ns in sent[::2]]
    assert all(answered) and not any(robot.answer(stamp_ns, 0.0) for stamp_ns in sent[1::2])
    assert robot.set_parameter("max_image_rate", 0.0).successful
    assert len(robot.drive(3)) == 3
    assert robot.state == "tracking"


def _encoded(grey: np.ndarray, encoding: str) -> Image:
    """A raw image of this luminance; big-endian where it has 16 bits."""
    if encoding in ("nv12", "nv21", "nv24"):
        chroma = np.full(grey.size * 2 if encoding == "nv24" else grey.size // 2, 128, np.uint8)
        planes = np.concatenate((grey.ravel(), chroma)).reshape(-1, grey.shape[1])
        message = raw_message(planes, encoding)
        message.height = grey.shape[0]
        return message
    if encoding in ("yuv422", "uyvy", "yuv422_yuy2", "yuyv"):
        pixels = np.full((*grey.shape, 2), 128, dtype=np.uint8)
        pixels[..., 1 if encoding in ("yuv422", "uyvy") else 0] = grey
        return raw_message(pixels, encoding)
    channels = {"rgb": 3, "bgr": 3, "rgba": 4, "bgra": 4}.get(encoding.rstrip("168"), 1)
    if "UC" in encoding:
        channels = int(encoding[-1])
    levels = grey.astype(np.uint16) * 257 if "16" in encoding else grey
    return raw_message(np.dstack([levels] * channels), encoding, padding=4, big_endian=True)


def test_raw_images_of_every_encoding_at_30_hz(world: World, map_file: Path) -> None:
    """One after the other from the same camera; each gets its pose, in the right place."""
    parameters = {"map": str(map_file), "image_transport": "raw", "image_queue_depth": 100}
    # Best effort may lose one of 300 kB, which is more than a socket's buffer holds.
    parameters["image_reliability"] = "reliable"
    with robot_with_node(world, parameters) as (robot, process):
        robot.wait_until_heard(camera="raw")
        sent, due = [], time.monotonic()
        for encoding in [*ENCODINGS[:1] * 8, *ENCODINGS]:
            robot.move(0.03, 1.0 / 30.0, 7)
            grey = cv2.imdecode(np.frombuffer(world.jpeg(robot.pose), np.uint8), 0)
            message = _encoded(grey, encoding)
            message.header = header("camera", robot.stamp_ns)
            due += 1.0 / 30.0
            time.sleep(max(0.0, due - time.monotonic()))
            robot.raw.publish(message)
            sent.append((encoding, robot.stamp_ns, robot.pose))
        for encoding, stamp_ns, pose in sent[8:]:
            answer = robot.answer(stamp_ns)
            assert answer is not None, (encoding, process.log())
            assert np.hypot(*(planar_pose(answer.pose.pose) - pose)[:2]) < 0.5, encoding
        assert robot.count("image_invalid") == 0


def _raw(compressed: object, stamp_ns: int) -> Image:
    data = np.frombuffer(compressed.data, dtype=np.uint8)
    grey = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)
    message = Image(header=header("camera", stamp_ns), encoding="mono8")
    message.height, message.width = grey.shape
    message.step = message.width + 7
    padded = np.pad(grey, ((0, 0), (0, 7)))
    message.data = array.array("B", padded.tobytes())
    return message


def test_two_robots_in_two_namespaces_do_not_meet(world: World, map_file: Path) -> None:
    """Not even on tf, with the same frames: /tf is remapped to tf, as nav2_bringup does."""
    parameters = {"map": str(map_file)}
    with (
        robot_with_node(world, parameters) as (anna, _),
        robot_with_node(world, parameters) as (bert, _),
    ):
        bert.metres = 5.0
        anna.wait_until_heard()
        bert.wait_until_heard()
        for _ in range(8):
            anna.frame()
            bert.frame()
        assert anna.error() < 0.5
        assert bert.error() < 0.5
        assert len(anna.poses) == len(bert.poses) == 8
        anna.drive_until_tracking()
        bert.drive_until_tracking()
        for robot in (anna, bert):
            assert robot.transform_comes()
            where = compose(robot.tf.lookup(robot.stamp_ns), relative(robot.origin, robot.pose))
            assert np.hypot(*(where[:2] - robot.pose[:2])) < 0.5


def test_frames_may_begin_with_a_slash_as_in_ros_1(world: World, map_file: Path) -> None:
    """In odometry and in parameters; tf2 knows them without."""
    parameters = {"map": str(map_file), "odom_frame_id": "/odom", "global_frame_id": "/map"}
    with robot_with_node(world, parameters) as (robot, _):
        robot.odom_frame, robot.base_frame = "/odom", "/base_footprint"
        robot.wait_until_heard()
        robot.drive_until_tracking()
        assert robot.transform_comes()
        assert robot.poses[-1].header.frame_id == "map"
        assert robot.count("odometry_wrong_frame") == robot.count("odometry_other_base") == 0


def check_clock_that_jumps_back(robot: Robot) -> None:
    """As of a bag that is played again: it starts over, and finds itself by the new stamps."""
    clock = robot.node.create_publisher(Clock, "/clock", 10)
    robot.stamp_ns = 100_000_000_000
    robot.wait_until_heard()
    robot.wait_for(lambda: clock.get_subscription_count() > 0)

    def tick() -> None:
        clock.publish(Clock(clock=time_message(robot.stamp_ns)))

    def drive_until_tracking() -> None:
        for _ in range(40):
            tick()
            robot.frame()
            if robot.state == "tracking":
                break
        assert robot.state == "tracking"

    drive_until_tracking()
    tick()
    assert robot.transform_comes()
    robot.stamp_ns = 10_000_000_000
    tick()
    assert robot.wait_for(lambda: robot.count("resets") == 1)
    assert robot.wait_for(lambda: robot.state == "uninitialized")
    robot.tf.clear()
    drive_until_tracking()
    assert robot.transform_comes()


def test_clock_that_jumps_back_resets_under_simulated_time(world: World, map_file: Path) -> None:
    with robot_with_node(world, {"map": str(map_file), "use_sim_time": True}) as (robot, _):
        check_clock_that_jumps_back(robot)


@pytest.mark.slow
@needs_launch
def test_launched_node_starts_over_when_the_clock_jumps_back(
    installed_prefix: Path, world: World, map_file: Path
) -> None:
    path = installed_prefix / "share" / "kbf_localization" / "launch" / "localization.launch.xml"
    arguments = {"map": str(map_file), "namespace": "looped", "use_sim_time": "true"}
    with launched(path, **arguments) as log, closing(Robot(world, "/looped")) as robot:
        check_clock_that_jumps_back(robot)
        assert "Traceback" not in log.read_text()


def test_watchdog_names_the_topic_and_the_reason(world: World, map_file: Path) -> None:
    parameters = {
        "map": str(map_file),
        "watchdog_timeout": 0.5,
        "odom_reliability": "reliable",
        "image_reliability": "reliable",
    }
    with robot_with_node(world, parameters, odom_qos=BEST_EFFORT) as (robot, process):
        assert robot.wait_for(
            lambda: (
                f"no message on {robot.odom.topic_name}" in process.log()
                # The publisher's name is known a while after the publisher.
                and "robot offers reliability BEST_EFFORT" in process.log()
            ),
        ), process.log()
        assert robot.wait_for(
            lambda: "/image/compressed" in process.log() and "sends nothing" in process.log()
        )
