"""Images that are broken, hostile, or show nothing."""

import array
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from sensor_msgs.msg import Image

from kbf_localization.ros.conversions import header
from kbf_localization.ros.node_process import NodeProcess
from test.faults.survival import Survival
from test.ros.robot import Robot


@pytest.fixture(scope="module")
def map_file(landmark_map_file: Path) -> Path:
    return landmark_map_file


def bomb() -> bytes:
    """A small JPEG that claims 65,000 × 65,000 pixels."""
    data = bytearray(cv2.imencode(".jpg", np.zeros((16, 16), np.uint8))[1].tobytes())
    start = data.index(b"\xff\xc0")
    data[start + 5 : start + 9] = (65000).to_bytes(2, "big") * 2
    return bytes(data)


def truncated() -> bytes:
    return cv2.imencode(".jpg", np.full((120, 160), 99, np.uint8))[1].tobytes()[:150]


BROKEN = {"empty": b"", "truncated": truncated(), "bomb": bomb(), "text": b"not an image" * 50}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_compressed_image_that_cannot_be_decoded(survival: Survival, data: bytes) -> None:
    """It is refused, counted and named in the log; the next one is used."""
    robot = survival.robot
    refused = robot.count("image_invalid")
    memory = resident_mb(survival.node.pid)
    for _ in range(3):
        robot.move()
        message = robot.image_message()
        message.data = array.array("B", data)
        robot.compressed.publish(message)
        time.sleep(0.05)
    survival.check(frames=3)
    assert robot.count("image_invalid") > refused
    assert resident_mb(survival.node.pid) - memory < 50.0


@pytest.mark.parametrize("size", [(1, 1), (3, 400), (16, 16), (120, 160), (480, 640), (1080, 1920)])
def test_images_of_changing_size(survival: Survival, size: tuple[int, int]) -> None:
    """Any size is brought to the map's; the pose stays right, or the image is refused."""
    robot = survival.robot
    robot.move()
    message = robot.image_message()
    resized = cv2.resize(robot.world.image(robot.pose), size[::-1])
    message.data = array.array("B", cv2.imencode(".jpg", resized)[1].tobytes())
    robot.compressed.publish(message)
    robot.answer(robot.stamp_ns, 1.0)
    survival.check(frames=15)


@pytest.mark.parametrize("level", [0, 255], ids=["black", "white"])
def test_covered_camera(survival: Survival, level: int) -> None:
    """The robot is not moved elsewhere on nonsense: each pose is within 3 σ of the truth."""
    robot = survival.robot
    data = cv2.imencode(".jpg", np.full((120, 160), level, np.uint8))[1].tobytes()
    for _ in range(15):
        robot.move()
        message = robot.image_message()
        message.data = array.array("B", data)
        robot.compressed.publish(message)
        answer = robot.answer(robot.stamp_ns)
        assert answer is not None
        covariance = np.reshape(answer.pose.covariance, (6, 6))[:2, :2]
        sigma = float(np.sqrt(np.linalg.eigvalsh(covariance)[-1]))
        assert robot.error(answer) < 3.0 * sigma
    survival.check(frames=15)


def test_burst_of_200_images_at_once(survival: Survival) -> None:
    """Most are dropped, by the transport or by the node; the next frame is answered in time."""
    robot = survival.robot
    messages = []
    for _ in range(200):
        robot.move(0.005, seconds=0.01)
        messages.append(robot.image_message())
    for message in messages:
        robot.compressed.publish(message)
    assert robot.frame() is not None
    survival.check(frames=15)


def raw_message(robot: Robot, **changes: object) -> Image:
    grey = robot.world.image(robot.pose)
    message = Image(header=header("camera", robot.stamp_ns), encoding="mono8")
    message.height, message.width = grey.shape
    message.step = message.width
    message.data = array.array("B", grey.tobytes())
    for name, value in changes.items():
        setattr(message, name, value)
    return message


RAW_FAULTS = {
    "unknown encoding": {"encoding": "rgb10k"},
    "float encoding": {"encoding": "32FC1"},
    "step too small": {"step": 3},
    "step too large": {"step": 2**31},
    "no data": {"data": array.array("B")},
    "too little data": {"data": array.array("B", bytes(100))},
    "enormous size": {"width": 2**32 - 1, "height": 2**32 - 1, "step": 2**32 - 1},
    "no size": {"width": 0, "height": 0, "step": 0},
    "encoding of other depth": {"encoding": "mono16"},
}


@pytest.mark.parametrize("changes", RAW_FAULTS.values(), ids=RAW_FAULTS.keys())
def test_raw_image_that_cannot_be(
    raw_pair: tuple[Robot, NodeProcess], changes: dict[str, object]
) -> None:
    """It is refused and counted; the next one is used."""
    robot, process = raw_pair
    refused = robot.count("image_invalid")
    robot.move()
    robot.raw.publish(raw_message(robot, **changes))
    assert robot.wait_for(lambda: robot.count("image_invalid") > refused)
    robot.move()
    robot.raw.publish(raw_message(robot))
    assert robot.answer(robot.stamp_ns) is not None
    assert robot.count("unexpected_error") == 0
    assert process.exit_code is None
    assert "Traceback" not in process.log()


def resident_mb(pid: int) -> float:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096 / 1e6
