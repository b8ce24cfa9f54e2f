"""The node as a child process: start, record, stop."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseWithCovarianceStamped
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile

from kbf_localization.arrays import Array, Rows
from kbf_localization.child_process import python_command
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.run import Run
from kbf_localization.ros.conversions import nanoseconds, planar_covariance, planar_pose
from kbf_localization.ros.lifecycle import wake

Value = bool | int | float | str
QUEUE_DEPTH = 1000
# What is no count of problems in a status.
_NOT_PROBLEMS = "active_poses", "odometry_received", "odometry_used"
_UNITS = "_ns", "_s", "_m", "_ms", "_hz"


class NodeProcess:
    """Start the localizer with these parameters; end it with the `with` block at the latest."""

    program = "kbf_localization.ros.localizer_node"

    def __init__(
        self,
        parameters: Mapping[str, Value],
        *,
        namespace: str = "",
        remap: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kbf-node-")
        folder = Path(self._folder.name)
        # JSON is YAML, and quotes every string.
        content = {"/**": {"ros__parameters": dict(parameters)}}
        (folder / "parameters.yaml").write_text(json.dumps(content), encoding="utf-8")
        command = python_command(
            "from kbf_localization.child_process import end_with_parent; end_with_parent(); "
            f"from {self.program} import main; sys.exit(main())"
        )
        command += ["--ros-args", "--params-file", str(folder / "parameters.yaml")]
        if namespace:
            command += ["-r", f"__ns:={namespace}"]
        for old, new in (remap or {}).items():
            command += ["-r", f"{old}:={new}"]
        self._log = folder / "log.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # whose end tells the node that we are gone
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                # A Ctrl-C at the terminal is for whoever started the node, who then ends it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def log(self) -> str:
        """Return what it has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout: float) -> int:
        """Wait until it ends by itself; return its exit code."""
        return self._process.wait(timeout)

    def interrupt(self, timeout: float = 5.0) -> int:
        """Stop it as Ctrl-C does, kill it after `timeout` seconds; return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        self.interrupt()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._folder.cleanup()

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True)
class NodePose:
    """A published pose (3,) with its covariance (3, 3)."""

    pose: Array
    covariance: Array


@dataclass
class Recording:
    """What the node published, by the stamp of the image; its counters as last published."""

    poses: dict[int, NodePose] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    evidence: dict[int, float] = field(default_factory=dict)
    step_ms: dict[int, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    degraded_s: list[float] = field(default_factory=list)

    def add_pose(self, message: PoseWithCovarianceStamped) -> None:
        pose = NodePose(planar_pose(message.pose.pose), planar_covariance(message.pose.covariance))
        self.poses[nanoseconds(message.header.stamp)] = pose

    def add_status(self, message: DiagnosticStatus) -> None:
        values = {pair.key: pair.value for pair in message.values}
        self.counts = _counts(values)
        self.degraded_s.append(float(values.get("degraded_s", "0")))
        stamp = int(values.get("stamp_ns", "0"))
        if stamp:
            self.states[stamp] = values.get("image_state", "")
            self.evidence[stamp] = float(values.get("evidence", "nan"))
            self.step_ms[stamp] = float(values.get("step_ms", "nan"))

    def run(self, drive: Drive, frames: Rows) -> Run:
        """Return the node's run over the frames of `drive` with these indices.

        A frame without a pose was dropped.
        """
        stamps = drive.stamps_ns[frames]
        answered = np.array([int(stamp) in self.poses for stamp in stamps], dtype=bool)
        known = [int(stamp) for stamp in stamps[answered]]
        published = [self.poses[stamp] for stamp in known]
        return Run(
            method="node",
            stamps_ns=np.array(known, dtype=np.int64),
            estimates=np.array([pose.pose for pose in published]).reshape(-1, 3),
            covariances=np.array([pose.covariance for pose in published]).reshape(-1, 3, 3),
            truth=None if drive.poses is None else drive.poses[frames][answered],
            states=tuple(self.states.get(stamp, "") for stamp in known),
            evidence=np.array([self.evidence.get(stamp, math.nan) for stamp in known]),
            step_ms=np.array([self.step_ms.get(stamp, math.nan) for stamp in known]),
            counts=dict(self.counts),
            frames_dropped=int((~answered).sum()),
            # The node counts since it was configured.
            degraded_s=self.degraded_s[-1] - self.degraded_s[0] if self.degraded_s else 0.0,
        )


class NodeRecorder:
    """Record the topics `pose` and `status`; the owner of `node` spins it."""

    def __init__(self, node: Node) -> None:
        self._lock = threading.Lock()
        self._recording = Recording()
        qos = QoSProfile(depth=QUEUE_DEPTH)
        self._pose = node.create_subscription(PoseWithCovarianceStamped, "pose", self._on_pose, qos)
        self._status = node.create_subscription(DiagnosticStatus, "status", self._on_status, qos)

    def is_connected(self) -> bool:
        """Return whether the node's poses and states would arrive."""
        return all(topic.get_publisher_count() for topic in (self._pose, self._status))

    def answered(self) -> int:
        """Return how many images have their pose and the status that follows it."""
        with self._lock:
            return len(self._recording.poses.keys() & self._recording.states.keys())

    def take(self) -> Recording:
        """Return what was recorded since the last call."""
        with self._lock:
            taken, self._recording = self._recording, Recording()
        return taken

    def _on_pose(self, message: PoseWithCovarianceStamped) -> None:
        with self._lock:
            self._recording.add_pose(message)

    def _on_status(self, message: DiagnosticStatus) -> None:
        with self._lock:
            self._recording.add_status(message)


def _counts(values: dict[str, Any]) -> dict[str, int]:
    return {
        key: int(value)
        for key, value in values.items()
        if value.isdigit() and key not in _NOT_PROBLEMS and not key.endswith(_UNITS)
    }


@contextmanager
def spinning(node: Node) -> Iterator[None]:
    """Spin a node on its own thread; after the block it can be destroyed."""
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    over = threading.Event()
    thread = threading.Thread(target=partial(_spin, executor, over), name="spin", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        wake(executor)
        thread.join()
        executor.shutdown()


def _spin(executor: Executor, over: threading.Event) -> None:
    with suppress(ExternalShutdownException):
        while executor.context.ok() and not over.is_set():
            executor.spin_once()
