"""How long the node takes from an image's arrival to its pose, and how much of a core it needs.

The frames of a simulated drive (640×480, JPEG) go to the node in its own process at 15 Hz, with
odometry at 50 Hz and service calls meanwhile; the same frames then go to the core in this
process. Both have one BLAS thread. Then a modern camera's frames, 1280×720 at 30 Hz, with odometry
at 100 Hz and at 200 Hz, on a map of such frames: driving, then standing. At last a map of 320×240
images and a node that runs for half of the time stand for a small computer: a camera of 10 Hz, then
of 30 Hz with `max_image_rate` 10.
"""

from __future__ import annotations

import array
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import Odometry
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import CompressedImage
from std_srvs.srv import Empty

from kbf_localization.benchmarks._timing import case, throttled
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.image_decoding import grey_from_compressed
from kbf_localization.errors import KbfError
from kbf_localization.geometry import interpolate
from kbf_localization.localization import Localizer
from kbf_localization.mapping import build_map
from kbf_localization.progress import Progress
from kbf_localization.ros.conversions import header, nanoseconds, pose_message
from kbf_localization.ros.node_process import NodeProcess, spinning
from kbf_localization.simulator.simulated_drives import simulate
from kbf_localization.threads import limit_threads
from kbf_localization.training_map import TrainingMap, save_map

IMAGE_HZ = 15.0
ODOMETRY_HZ = 50.0
SERVICE_HZ = 20.0
POSES = 1000
FRAMES = 300
HD_SIZE, HD_HZ, HD_POSES = (1280, 720), 30.0, 300
SMALL_SIZE, SMALL_POSES, SMALL_HZ = (320, 240), 300, 10.0
_WARM_UP = 30


def run(progress: Progress) -> dict[str, Any]:
    """Return the node's cases of `kbf bench`."""
    limit_threads(1)
    with tempfile.TemporaryDirectory(prefix="kbf-bench-") as name:
        folder = Path(name)
        drives = [
            ColdDrive(path)
            for path in simulate(folder, runs=2, seed=3, frames=600, progress=progress)
        ]
        training_map = build_map(drives, poses=POSES, progress=progress)
        save_map(training_map, folder / "office.kbfmap")
        frames, odometry = _played(drives[1])
        progress(0, 4, "core alone")
        core_ms = _core(training_map, frames, odometry)
        progress(1, 4, "through the node")
        with (
            NodeProcess({"map": str(folder / "office.kbfmap")}) as process,
            _client(process) as client,
        ):
            through = client.run(frames, odometry, IMAGE_HZ, ODOMETRY_HZ, call_services=True)
        progress(2, 4, "1280×720 at 30 Hz, driving and standing")
        driving, loaded, standing = _hd(folder / "hd", progress)
        progress(3, 4, "320×240 with half of a core")
        half, half_limited = _half_core(folder / "small")
        progress(4, 4, "done")
    alone = "decoding, describing and filtering the same images without ROS"
    return {
        "image_to_pose": case(through.latency_ms, core_ms, alone),
        "image_to_pose_allowed_ms": 1.5 * float(np.median(core_ms)) + 5.0,
        "image_to_pose_p99_ms": float(np.percentile(through.latency_ms, 99)),
        "frames_sent_15hz": len(frames),
        "frames_lost_15hz": through.frames_lost,
        "service_p50_ms": float(np.percentile(through.service_ms, 50)),
        "service_p99_ms": float(np.percentile(through.service_ms, 99)),
        **driving.metrics("hd30"),
        **loaded.metrics("hd30_odometry200", "poses_per_s", "frames_lost", "cpu_percent"),
        **standing.metrics("hd30_standing", "poses_per_s", "cpu_percent"),
        **half.metrics("half_core_10hz"),
        **half_limited.metrics("half_core_30hz_limited", "poses_per_s", "cpu_percent"),
    }


def _played(drive: ColdDrive) -> tuple[list[bytes], Any]:
    """Return a drive's first frames, encoded, and the odometry (FRAMES, 3) at each."""
    stamps_ns = drive.stamps_ns[:FRAMES]
    odometry = interpolate(drive.odometry.stamps_ns, drive.odometry.poses, stamps_ns)
    return [data for _, data in drive.encoded_images(range(FRAMES))], odometry


def _hd(folder: Path, progress: Progress) -> tuple[_Through, _Through, _Through]:
    """Run a node on a modern camera's frames: driving, with faster odometry, and standing."""
    mapped = simulate(folder, runs=1, seed=3, frames=HD_POSES, size=HD_SIZE, progress=progress)
    save_map(build_map([ColdDrive(mapped[0])], poses=HD_POSES), folder / "hd.kbfmap")
    played = simulate(
        folder / "played",
        runs=1,
        seed=3,
        first_drive=3,
        frames=FRAMES,
        size=HD_SIZE,
        period_s=1.0 / HD_HZ,
        progress=progress,
    )
    frames, odometry = _played(ColdDrive(played[0]))
    with NodeProcess({"map": str(folder / "hd.kbfmap")}) as process, _client(process) as client:
        driving = client.run(frames, odometry, HD_HZ, 100.0)
        # Back along its path, as the robot's odometry goes on.
        back = odometry[::-1]
        loaded = client.run(frames[::-1], back, HD_HZ, 200.0)
        still = np.repeat(back[-1:], FRAMES, axis=0)
        standing = client.run(frames[:1] * FRAMES, still, HD_HZ, 100.0)
    return driving, loaded, standing


def _half_core(folder: Path) -> tuple[_Through, _Through]:
    """Run a node on small images for half of the time: at 10 Hz, and at 30 Hz limited to 10."""
    drives = [
        ColdDrive(path) for path in simulate(folder, runs=2, seed=3, frames=FRAMES, size=SMALL_SIZE)
    ]
    save_map(build_map(drives, poses=SMALL_POSES), folder / "small.kbfmap")
    frames, odometry = _played(drives[1])
    with (
        NodeProcess({"map": str(folder / "small.kbfmap"), "max_image_rate": SMALL_HZ}) as process,
        _client(process) as client,
    ):
        client.connect()
        with throttled(process.pid, 0.5):
            all_used = client.run(frames, odometry, SMALL_HZ, ODOMETRY_HZ)
            # Each frame thrice, so that the robot drives no faster.
            thrice = [data for data in frames[: FRAMES // 3] for _ in range(3)]
            in_between = np.repeat(odometry[: FRAMES // 3], 3, axis=0)
            limited = client.run(thrice, in_between, 3.0 * SMALL_HZ, 3.0 * SMALL_HZ)
    return all_used, limited


def _core(training_map: TrainingMap, frames: list[bytes], odometry: Any) -> list[float]:
    """Return milliseconds for each frame in this process, paced as the node is."""
    localizer = Localizer(training_map)
    times = []
    for number, (data, pose) in enumerate(zip(frames, odometry, strict=True)):
        stamp_ns = int((number + 1) * 1e9 / IMAGE_HZ)
        localizer.add_odometry(stamp_ns, pose)
        started = time.perf_counter()
        image = grey_from_compressed(data)
        if image is None or localizer.add_image(stamp_ns, image) is None:
            raise KbfError("the benchmark's own image cannot be used")
        times.append(1e3 * (time.perf_counter() - started))
        # As idle between two frames as the node, whose caches and clock rates cool down too.
        time.sleep(max(0.0, 1.0 / IMAGE_HZ - times[-1] / 1e3))
    return times[_WARM_UP:]


@dataclass(frozen=True)
class _Through:
    """What was measured through the node; `cpu_percent` of one core."""

    latency_ms: list[float]
    service_ms: list[float]
    frames_lost: int
    poses_per_s: float
    cpu_percent: float

    def metrics(self, name: str, *figures: str) -> dict[str, float]:
        """Return these figures, or all, under keys that begin with `name`."""
        known = {
            "poses_per_s": self.poses_per_s,
            "frames_lost": self.frames_lost,
            "latency_p50_ms": float(np.percentile(self.latency_ms, 50)),
            "latency_p95_ms": float(np.percentile(self.latency_ms, 95)),
            "cpu_percent": self.cpu_percent,
        }
        return {f"{name}_{figure}": known[figure] for figure in figures or known}


@contextmanager
def _client(process: NodeProcess) -> Iterator[_Client]:
    context = Context()
    rclpy.init(context=context)
    try:
        node = rclpy.create_node("benchmark", context=context)
        client = _Client(process, node)
        with spinning(node):
            yield client
    finally:
        context.try_shutdown()


class _Client:
    """The robot's side of the benchmark."""

    def __init__(self, process: NodeProcess, node: Node) -> None:
        self._process = process
        self._odom = node.create_publisher(Odometry, "odom", QoSProfile(depth=100))
        self._image = node.create_publisher(CompressedImage, "image/compressed", 10)
        self._service = node.create_client(Empty, "request_nomotion_update")
        self._arrived: dict[int, float] = {}
        latched = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        node.create_subscription(PoseWithCovarianceStamped, "pose", self._on_pose, latched)

    def run(
        self,
        frames: list[bytes],
        odometry: Any,
        image_hz: float,
        odometry_hz: float,
        call_services: bool = False,
    ) -> _Through:
        """Send the frames at their rate, and odometry between them."""
        messages = [CompressedImage(format="jpeg", data=array.array("B", data)) for data in frames]
        self.connect()
        stop = threading.Event()
        service_ms: list[float] = []
        caller = threading.Thread(target=self._call_services, args=(stop, service_ms), daemon=True)
        if call_services:
            caller.start()
        sent: dict[int, float] = {}
        start_ns, start = time.time_ns(), time.perf_counter()
        between = round(odometry_hz / image_hz)
        cpu_s = self._cpu_seconds()
        for number, message in enumerate(messages):
            before = odometry[max(number - 1, 0)]
            for part in range(1, between + 1):
                at = (number + part / between) / image_hz
                time.sleep(max(0.0, start + at - time.perf_counter()))
                pose = before + part / between * (odometry[number] - before)
                stamp_ns = start_ns + int(at * 1e9)
                self._odom.publish(_odometry_message(stamp_ns, pose))
            message.header = header("camera", stamp_ns)
            sent[stamp_ns] = time.perf_counter()
            self._image.publish(message)
        seconds = time.perf_counter() - start
        cpu_s = self._cpu_seconds() - cpu_s
        time.sleep(1.0)
        stop.set()
        if call_services:
            caller.join()
        latency = [
            1e3 * (self._arrived[stamp] - when)
            for stamp, when in list(sent.items())[_WARM_UP:]
            if stamp in self._arrived
        ]
        if not latency:
            raise KbfError(f"the node gave no pose: {self._process.log()}")
        answered = sum(stamp in self._arrived for stamp in sent)
        return _Through(
            latency,
            service_ms,
            frames_lost=len(sent) - answered,
            poses_per_s=answered / seconds,
            cpu_percent=100.0 * cpu_s / seconds,
        )

    def _cpu_seconds(self) -> float:
        """Return what the node's process has used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self) -> None:
        """Wait until the node is subscribed, then let the topics settle."""
        for attempt in count():
            if self._image.get_subscription_count() and self._service.service_is_ready():
                break
            if attempt > 300 or self._process.exit_code is not None:
                raise KbfError(f"the node does not start: {self._process.log()}")
            time.sleep(0.1)
        time.sleep(1.0)

    def _call_services(self, stop: threading.Event, times_ms: list[float]) -> None:
        while not stop.is_set():
            started = time.perf_counter()
            done = threading.Event()
            self._service.call_async(Empty.Request()).add_done_callback(lambda _: done.set())  # noqa: B023
            done.wait(5.0)
            times_ms.append(1e3 * (time.perf_counter() - started))
            time.sleep(1.0 / SERVICE_HZ)

    def _on_pose(self, message: PoseWithCovarianceStamped) -> None:
        self._arrived[nanoseconds(message.header.stamp)] = time.perf_counter()


def _odometry_message(stamp_ns: int, pose: Any) -> Odometry:
    message = Odometry(header=header("odom", stamp_ns), child_frame_id="base_footprint")
    message.pose.pose = pose_message(pose)
    return message
