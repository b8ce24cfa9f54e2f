"""An image's life runs through the files that ARCHITECTURE.md names, and through no others."""

import array
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType

import pytest
import rclpy
from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import Odometry
from rclpy.context import Context
from rclpy.parameter import Parameter
from sensor_msgs.msg import CompressedImage

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.ros.conversions import header, nanoseconds, pose_message
from kbf_localization.ros.node import LocalizerNode
from kbf_localization.ros.node_process import spinning
from kbf_localization.training_map import TrainingMap, save_map

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "kbf_localization"

MAX_FILES = 25
"""That a reader opens to follow an image from its topic to a pose, before the numerics."""

NUMERICS = ("embeddings", "vision", "motion", "landmarks", "geometry.py", "input_checks.py")
"""The bottom layers: functions of arrays that know neither the map nor the filter."""

BEFORE = {"filters/registry.py"}
"""Named, for it leads to the filter; it makes it before the first image."""

IMAGES = 12
"""Enough for a first search, landmark fixes and kernel steps between which images only measure."""


class Trace:
    """The package's files in which a function is called, on threads that begin while it traces."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._recording = False

    def on_call(self, frame: FrameType, event: str, _: object) -> None:
        # A module's own code runs on its first import, which is no part of an image's life.
        if not self._recording or frame.f_code.co_name == "<module>":
            return
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            self.files.add(path.relative_to(PACKAGE).as_posix())

    @contextmanager
    def new_threads(self) -> Iterator[None]:
        threading.settrace(self.on_call)
        try:
            yield
        finally:
            threading.settrace(None)  # type: ignore[arg-type]

    @contextmanager
    def recording(self) -> Iterator[None]:
        self._recording = True
        try:
            yield
        finally:
            self._recording = False


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="module")
def executed(
    office_map: TrainingMap,
    office_drives: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> set[str]:
    assert office_map.landmarks is not None
    map_file = tmp_path_factory.mktemp("image-path") / "office.kbfmap"
    save_map(office_map, map_file)
    drive, trace, context = ColdDrive(office_drives[1]), Trace(), Context()
    rclpy.init(context=context)
    settings = {"map": str(map_file), "autostart": False}
    node = LocalizerNode(
        context=context,
        parameter_overrides=[Parameter(name, value=value) for name, value in settings.items()],
    )
    camera = rclpy.create_node("camera", context=context)
    odometry = camera.create_publisher(Odometry, "odom", 1000)
    images = camera.create_publisher(CompressedImage, "image/compressed", 10)
    answered: set[int] = set()
    camera.create_subscription(
        PoseWithCovarianceStamped,
        "pose",
        lambda message: answered.add(nanoseconds(message.header.stamp)),
        10,
    )
    try:
        with trace.new_threads():
            node.trigger_configure()
            node.trigger_activate()
        server = node._server
        assert server is not None
        with spinning(camera):
            wait_for(lambda: odometry.get_subscription_count() and images.get_subscription_count())
            wait_for(lambda: camera.count_publishers("pose"))
            for (_, data), stamp in islice(
                zip(drive.encoded_images(), drive.stamps_ns.tolist()), IMAGES
            ):
                for reading, pose in zip(drive.odometry.stamps_ns.tolist(), drive.odometry.poses):
                    newest = server.localizer.newest_odometry_ns
                    if reading > (newest or 0) and (newest or 0) < stamp:
                        message = Odometry(header=header("odom", reading))
                        message.child_frame_id = "base_footprint"
                        message.pose.pose = pose_message(pose)
                        odometry.publish(message)
                        wait_for(lambda at=reading: server.localizer.newest_odometry_ns == at)
                with trace.recording():
                    images.publish(
                        CompressedImage(
                            header=header("camera", stamp),
                            format="jpeg",
                            data=array.array("B", data),
                        )
                    )
                    wait_for(lambda at=stamp: at in answered)
    finally:
        node.trigger_deactivate()
        node.close()
        node.destroy_node()
        camera.destroy_node()
        context.try_shutdown()
    return trace.files


def section() -> tuple[set[str], set[str]]:
    """Return the files that ARCHITECTURE.md names on the path, and as numerics below it."""
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    life = text.partition("## Life of an image\n")[2].partition("\n## ")[0]
    path, _, numerics = life.partition("Numerics below")
    names = r"[\w/]+\.py"
    return set(re.findall(names, path)), {
        name for name in re.findall(names, numerics) if not name.startswith("test/")
    }


def is_numerics(name: str) -> bool:
    return name.partition("/")[0] in NUMERICS


def test_an_image_passes_few_files(executed: set[str]) -> None:
    assert len([name for name in executed if not is_numerics(name)]) <= MAX_FILES


def test_the_files_that_an_image_passes_are_those_that_are_named(executed: set[str]) -> None:
    path, numerics = section()
    assert path == {name for name in executed if not is_numerics(name)} | BEFORE
    assert numerics == {name for name in executed if is_numerics(name)}
