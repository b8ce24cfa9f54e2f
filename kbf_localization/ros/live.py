"""The live page's subscriptions to a running localizer, while somebody watches."""

from __future__ import annotations

import base64
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import cv2
import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseArray, PoseWithCovarianceStamped
from nav_msgs.msg import OccupancyGrid
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import CompressedImage, Image, PointCloud2
from visualization_msgs.msg import MarkerArray

from kbf_localization.datasets.image_decoding import read_header
from kbf_localization.live.server import Board
from kbf_localization.ros.conversions import (
    ImageError,
    cloud_columns,
    decode,
    planar_covariance,
    planar_pose,
    pose_with_covariance,
)
from kbf_localization.ros.outputs import LATCHED

logger = logging.getLogger(__name__)

SEARCH_PERIOD_S = 1.0
"""Period of the search for the localizer in the ROS graph."""
IMAGE_PERIOD_S = 0.1
"""Shortest period between two camera images on the page."""
MAX_CELLS = 4_000_000
"""Cells of the largest floor plan that is shown."""
MAX_MATCHES = 200
"""Inlier matches that are shown."""
CLICKED_POSE_COVARIANCE = np.diag([0.5, 0.5, math.radians(15.0)]) ** 2
"""Covariance (m, m, rad) of a pose that was clicked, as RViz gives it."""
SENSOR = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
TRANSIENT_CHANNELS = ("camera", "match", "matches", "status", "pose", "hypotheses")
"""Channels without meaning once the localizer has gone."""

Topics = dict[str, list[str]]


class LiveListener:
    """Put what the localizer `name` ("/localizer") publishes on a board; send poses to it.

    Topics are found by the localizer's own names, remapped or not. A localizer that restarts is
    found again.
    """

    def __init__(self, node: Node, name: str, board: Board) -> None:
        self._node, self._board = node, board
        self._namespace, _, self._name = name.rpartition("/")
        self._full_name = f"{self._namespace}/{self._name}"
        self._subscriptions: dict[str, tuple[str, Any]] = {}
        self._poses: Any = None
        self._frame = "map"
        self._searched_at = -math.inf
        self._image_at = -math.inf

    def tick(self) -> None:
        """Search for the localizer and update the subscriptions; called between two spins."""
        watched = self._board.watched
        if not watched and self._subscriptions:
            self._listen({})
            self._board.forget(*TRANSIENT_CHANNELS)
            self._searched_at = -math.inf
        if watched and time.monotonic() - self._searched_at >= SEARCH_PERIOD_S:
            self._searched_at = time.monotonic()
            self._search()

    def set_pose(self, x: float, y: float, angle: float) -> None:
        """Send a pose to the localizer; on any thread."""
        publisher = self._poses
        if publisher is not None:
            # Without a stamp: as of the newest odometry.
            publisher.publish(
                pose_with_covariance(
                    self._frame, 0, np.array([x, y, angle]), CLICKED_POSE_COVARIANCE
                )
            )

    def _search(self) -> None:
        where = self._name, self._namespace or "/"
        present = where in self._node.get_node_names_and_namespaces()
        self._board.put("node", {"name": self._full_name, "present": present})
        if not present:
            self._board.forget(*TRANSIENT_CHANNELS)
            return
        published = dict(self._node.get_publisher_names_and_types_by_node(*where))
        taken = dict(self._node.get_subscriber_names_and_types_by_node(*where))
        self._listen(self._wanted(published, taken))
        given = _find(taken, PoseWithCovarianceStamped)
        if given and (self._poses is None or self._poses.topic_name != given):
            if self._poses is not None:
                self._node.destroy_publisher(self._poses)
            self._poses = self._node.create_publisher(PoseWithCovarianceStamped, given, 5)

    def _wanted(self, published: Topics, taken: Topics) -> dict[str, tuple[str, Any, Any, Any]]:
        """Return topic, type, QoS and callback of each channel."""
        channels: list[tuple[str, str | None, Any, Any, Callable[[Any], None]]] = [
            ("status", _find(published, DiagnosticStatus), DiagnosticStatus, 10, self._on_status),
            (
                "pose",
                _find(published, PoseWithCovarianceStamped),
                PoseWithCovarianceStamped,
                LATCHED,
                self._on_pose,
            ),
            (
                "hypotheses",
                _find(published, MarkerArray, "hypotheses"),
                MarkerArray,
                1,
                self._on_hypotheses,
            ),
            ("match", _find(published, CompressedImage), CompressedImage, 1, self._on_match),
            ("matches", _find(published, PointCloud2), PointCloud2, 1, self._on_matches),
            ("poses", _find(published, PoseArray, "map_poses"), PoseArray, LATCHED, self._on_map),
            ("plan", _find(published, OccupancyGrid), OccupancyGrid, LATCHED, self._on_plan),
        ]
        for kind in (CompressedImage, Image):
            if camera := _find(taken, kind):
                channels.append(("camera", camera, kind, SENSOR, self._on_camera))
                break
        return {
            channel: (topic, kind, qos, callback)
            for channel, topic, kind, qos, callback in channels
            if topic is not None
        }

    def _listen(self, wanted: dict[str, tuple[str, Any, Any, Any]]) -> None:
        for channel, (topic, subscription) in list(self._subscriptions.items()):
            if channel not in wanted or wanted[channel][0] != topic:
                self._node.destroy_subscription(subscription)
                del self._subscriptions[channel]
        for channel, (topic, kind, qos, callback) in wanted.items():
            if channel not in self._subscriptions:
                made = self._node.create_subscription(kind, topic, _ignoring_errors(callback), qos)
                self._subscriptions[channel] = topic, made

    def _on_status(self, message: DiagnosticStatus) -> None:
        values = {pair.key: pair.value for pair in message.values}
        level = int.from_bytes(message.level, "little")
        self._board.put("status", {"message": message.message, "level": level, "values": values})

    def _on_pose(self, message: PoseWithCovarianceStamped) -> None:
        self._frame = message.header.frame_id or self._frame
        pose = planar_pose(message.pose.pose)
        covariance = planar_covariance(message.pose.covariance)
        variances, axes = np.linalg.eigh(covariance[:2, :2])
        sigma = np.sqrt(np.maximum(variances, 0.0))
        along = math.atan2(axes[1, 1], axes[0, 1])
        ellipse = [float(sigma[1]), float(sigma[0]), along]
        self._board.put("pose", {"pose": pose.tolist(), "sigma": ellipse})

    def _on_hypotheses(self, message: MarkerArray) -> None:
        found: dict[int, dict[str, Any]] = {}
        for marker in message.markers:
            hypothesis = found.setdefault(int(marker.id), {})
            x, y, angle = planar_pose(marker.pose).tolist()
            if marker.ns == "heading":
                hypothesis["pose"] = [x, y, angle]
                hypothesis["probability"] = round(float(marker.color.a), 4)
            elif marker.ns == "ellipse":
                hypothesis["sigma"] = [marker.scale.x / 4.0, marker.scale.y / 4.0, angle]
        complete = [
            {"number": number, **hypothesis}
            for number, hypothesis in found.items()
            if "pose" in hypothesis
        ]
        self._board.put("hypotheses", {"hypotheses": complete})

    def _on_match(self, message: CompressedImage) -> None:
        self._board.put("match", bytes(message.data))

    def _on_matches(self, message: PointCloud2) -> None:
        if message.width == 0:
            self._board.put("matches", {"inliers": 0})
            return
        try:
            table = cloud_columns(message, MAX_MATCHES)
        except ValueError:
            return
        if not {"x", "y", "u", "v", "map_u", "map_v", "map_image"} <= set(table):
            return
        if not all(np.isfinite(values).all() for values in table.values()):
            return
        column = {name: values.tolist() for name, values in table.items()}
        own = [row for row, u in zip(column["map_image"], column["map_u"], strict=True) if u >= 0]
        self._board.put(
            "matches",
            {
                "inliers": message.width,
                "row": int(own[0]) if own else -1,
                "camera": _places(column["u"], column["v"]),
                "map": _places(column["map_u"], column["map_v"]),
                "points": _pairs(column["x"], column["y"]),
            },
        )

    def _on_map(self, message: PoseArray) -> None:
        self._frame = message.header.frame_id or self._frame
        poses = [round(value, 3) for pose in message.poses for value in planar_pose(pose).tolist()]
        self._board.put("poses", {"poses": poses})

    def _on_plan(self, message: OccupancyGrid) -> None:
        info = message.info
        if info.width * info.height != len(message.data) or len(message.data) > MAX_CELLS:
            return
        cells = np.frombuffer(message.data, dtype=np.int8).reshape(info.height, info.width)
        # Black, grey and white; an image's first row is at the top.
        grey = np.where(cells < 0, 128, np.where(cells > 50, 0, 255)).astype(np.uint8)[::-1]
        packed = cv2.imencode(".png", grey)[1].tobytes()
        origin = planar_pose(info.origin).tolist()
        image = base64.b64encode(packed).decode("ascii")
        self._board.put(
            "plan", {"image": image, "origin": origin, "resolution": float(info.resolution)}
        )

    def _on_camera(self, message: CompressedImage | Image) -> None:
        if time.monotonic() - self._image_at < IMAGE_PERIOD_S:
            return
        self._image_at = time.monotonic()
        if isinstance(message, CompressedImage):
            data = bytes(message.data)
            known = read_header(data)
            if known is not None and known.is_bounded and known.format in ("JPEG", "PNG"):
                self._board.put("camera", data)
                return
        try:
            grey = decode(message)
        except ImageError:
            return
        self._board.put("camera", cv2.imencode(".jpg", grey)[1].tobytes())


def _pairs(first: list[float], second: list[float]) -> list[list[float]]:
    return [[round(a, 4), round(b, 4)] for a, b in zip(first, second, strict=True)]


def _places(across: list[float], down: list[float]) -> list[list[float] | None]:
    """Return places in an image; None for what it does not show."""
    return [place if place[0] >= 0.0 else None for place in _pairs(across, down)]


def _ignoring_errors(callback: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap a callback: a message that cannot be shown is ignored."""

    def called(message: Any) -> None:
        with suppress(ValueError, ArithmeticError, cv2.error):
            callback(message)

    return called


def _find(topics: Topics, kind: Any, suffix: str = "") -> str | None:
    """Return the topic of a message class whose name has this suffix."""
    package, _, _ = kind.__module__.partition(".")
    type_name = f"{package}/msg/{kind.__name__}"
    return next(
        (name for name, types in topics.items() if type_name in types and name.endswith(suffix)),
        None,
    )


@contextmanager
def listening(name: str, board: Board) -> Iterator[LiveListener]:
    """Run a listener on its own thread and in its own context."""
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("kbf_live", context=context, use_global_arguments=False)
    listener = LiveListener(node, name, board)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            try:
                executor.spin_once(timeout_sec=0.2)
                listener.tick()
            except Exception as error:  # such as a node that goes while it is asked for its topics
                logger.error("unexpected error", exc_info=error)
                over.wait(1.0)

    thread = threading.Thread(target=spin, name="live listener", daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        over.set()
        thread.join()
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown(context=context)
