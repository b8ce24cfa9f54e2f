"""Messages that no publisher of ROS makes, but anybody on the network can send."""

import array
import time

import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage
from tf2_msgs.msg import TFMessage

from kbf_localization.ros.conversions import header
from test.faults.survival import Survival

LITTLE_ENDIAN = b"\x00\x01\x00\x00"


def cut_short(survival: Survival) -> list[bytes]:
    robot = survival.robot
    whole = serialize_message(robot.odometry_message(np.zeros(3), robot.stamp_ns))
    return [whole[:10], whole[:60], whole[:200]]


def with_a_length_that_lies(survival: Survival) -> list[bytes]:
    """An image of 60 bytes that claims to have 4 GB, and a frame's name that does."""
    message = CompressedImage(header=header("camera", survival.robot.stamp_ns), format="jpeg")
    message.data = array.array("B", bytes(60))
    whole = serialize_message(message)
    at = whole.rindex((60).to_bytes(4, "little"))
    lie = b"\xf0\xff\xff\xff"
    return [whole[:at] + lie + whole[at + 4 :], whole[:12] + lie + whole[16:]]


def of_another_representation(_: Survival) -> list[bytes]:
    return [b"\x00\x07\x00\x00" + bytes(range(200)), b"\xff\xff\xff\xff" + bytes(400)]


def of_nothing(_: Survival) -> list[bytes]:
    return [LITTLE_ENDIAN, LITTLE_ENDIAN + b"\x01"]


@pytest.mark.parametrize(
    "made", [cut_short, with_a_length_that_lies, of_another_representation, of_nothing]
)
def test_bytes_that_are_no_message(survival: Survival, made) -> None:  # type: ignore[no-untyped-def]
    """They are refused and counted, the log tells it in few lines, and the node goes on."""
    robot, node = survival.robot, survival.node
    payloads, said = made(survival), len(node.log())
    odometry, images = robot.count("odometry_invalid"), robot.refused_images()

    def refused() -> bool:
        for payload in payloads:
            robot.odom.publish(payload)
            robot.compressed.publish(payload)
            robot.initialpose.publish(payload)
        time.sleep(0.05)
        more = robot.count("odometry_invalid") - odometry, robot.refused_images() - images
        return min(more) >= 20

    assert robot.wait_for(refused), robot.status
    survival.check()
    assert len(node.log()) - said < 10_000


def test_a_flood_of_bytes_that_are_no_calibration_or_transform(survival: Survival) -> None:
    """They are counted; images and odometry are read as before."""
    robot, refused = survival.robot, survival.robot.count("message_invalid")
    qos = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    publishers = [
        robot.node.create_publisher(kind, name, qos)
        for kind, name in ((CameraInfo, "camera_info"), (TFMessage, "/tf_static"))
    ]
    assert robot.wait_for(lambda: all(item.get_subscription_count() for item in publishers))
    for _ in range(20):
        for publisher in publishers:
            for size in range(4, 54):
                publisher.publish(LITTLE_ENDIAN + b"\xff" * size)
        robot.frame()
    assert robot.wait_for(lambda: robot.count("message_invalid") > refused), robot.status
    survival.check()
    for publisher in publishers:
        robot.node.destroy_publisher(publisher)


def test_a_name_as_long_as_a_message_does_not_fill_the_log(survival: Survival) -> None:
    robot, node = survival.robot, survival.node
    said, refused = len(node.log()), robot.count("odometry_wrong_frame")
    message = robot.odometry_message(np.zeros(3), robot.stamp_ns)
    message.header.frame_id = "wheels" * 50_000
    robot.odom.publish(message)
    assert robot.wait_for(lambda: robot.frame() and robot.count("odometry_wrong_frame") > refused)
    survival.check()
    assert len(node.log()) - said < 10_000
