"""The localizer from configure to clean-up: ROS messages in, localizations out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import Odometry
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from kbf_localization.arrays import Array
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.ros.conversions import (
    decode,
    nanoseconds,
    planar_covariance,
    planar_pose,
)
from kbf_localization.ros.diagnostics import Event, Latency, Rate
from kbf_localization.ros.intake import Intake, Topic
from kbf_localization.ros.startup import localizer_settings
from kbf_localization.ros.timeline import Timeline
from kbf_localization.ros.worker import ImageWorker, PendingImage

logger = logging.getLogger(__name__)

_RELIABILITY = {
    "best_effort": ReliabilityPolicy.BEST_EFFORT,
    "reliable": ReliabilityPolicy.RELIABLE,
}
_SURE = np.diag([0.01, 0.01, 0.01]) ** 2
"""Least covariance of a pose set by hand: one given with certainty would leave no way back."""


class RunningLocalizer:
    """Feeds the localizer, which has the state; calls `publish` for every processed image.

    `values` are the node's parameters by name, `warn(kind, line)` logs a warning. All that is
    refused is counted in `localizer.counts`.
    """

    def __init__(
        self,
        localizer: Localizer,
        values: Mapping[str, Any],
        publish: Callable[[Localization], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self.localizer = localizer
        self._values = values
        self._publish, self._warn = publish, warn
        self._latency, self._pose_rate = Latency(), Rate()
        self._last_step_ms = math.nan
        self._timeline: Timeline[Array] = Timeline()
        self._worker = ImageWorker(
            self._process,
            localizer.covers,
            self.failed,
            localizer.counts,
            values["image_queue_depth"],
            values["odometry_patience"],
        )

    def topics(self) -> tuple[Topic, ...]:
        """What the active node listens to."""
        values = self._values
        odom_qos = QoSProfile(
            depth=values["odom_queue_depth"], reliability=_RELIABILITY[values["odom_reliability"]]
        )
        image_qos = QoSProfile(
            depth=max(5, values["image_queue_depth"]),
            reliability=_RELIABILITY[values["image_reliability"]],
        )
        images = (
            Topic("image/compressed", CompressedImage, image_qos, self._on_image)
            if values["image_transport"] == "compressed"
            else Topic("image", Image, image_qos, self._on_image)
        )
        by_hand = Topic(
            "initialpose",
            PoseWithCovarianceStamped,
            QoSProfile(depth=5),
            self._on_initial_pose,
            steady=False,
        )
        return Topic("odom", Odometry, odom_qos, self._on_odometry), by_hand, images

    def apply(self, values: Mapping[str, Any]) -> None:
        """Make parameters take effect that may change while it runs; the belief stays."""
        self._values = values
        self._worker.patience = values["odometry_patience"]
        self.localizer.settings = localizer_settings(values)

    def map_to_odom(self) -> Array | None:
        """The odometry's frame (3,) on the map; None while it is not to be trusted."""
        localizer = self.localizer
        if localizer.state is State.TRACKING or localizer.rests_on_given_pose:
            return localizer.map_to_odom()
        return None

    def time_jumped_back(self, why: str) -> None:
        """Start over, as when a bag is played again."""
        self._warn("time_jumped_back", f"{why}: starting over")
        self._timeline.reset()
        self.drop_images()
        self.localizer.reset()

    def drop_images(self) -> None:
        """Forget the images that wait."""
        self._worker.clear()

    def stop(self) -> None:
        self._worker.stop()

    def failed(self, error: Exception) -> None:
        """Something unforeseen happened in a thread."""
        logger.error("unexpected error", exc_info=error)
        self.refuse(Event.UNEXPECTED_ERROR, f"unexpected {type(error).__name__}: {error}")

    def refuse(self, event: Event, said: str) -> None:
        """Count what cannot be used or done, and warn of it."""
        self.localizer.counts[event.value] += 1
        self._warn(event.value, said)

    def figures(self, intake: Intake) -> dict[str, object]:
        """State, evidence, rates, ages, latencies, and how often what was refused or dropped."""
        last = self.localizer.last
        weights = None if last is None else last.estimate.weights
        odometry, _, image = intake.watches.values()
        return {
            "state": self.localizer.state.value,
            "evidence": math.nan if last is None else last.evidence,
            "stamp_ns": 0 if last is None else last.stamp_ns,
            "step_ms": self._last_step_ms,
            "active_poses": 0 if weights is None else len(weights.rows),
            "latency_ms_p50": self._latency.percentile_ms(50),
            "latency_ms_p99": self._latency.percentile_ms(99),
            "odometry_hz": odometry.hertz(),
            "image_hz": image.hertz(),
            "pose_hz": self._pose_rate.hertz(),
            "odometry_age_s": odometry.age,
            "image_age_s": image.age,
            **dict(sorted(dict(self.localizer.counts).items())),
        }

    def _on_odometry(self, message: Odometry) -> None:
        frame, expected = message.header.frame_id, self._values["odom_frame_id"]
        if frame and frame != expected:
            self.refuse(
                Event.ODOMETRY_WRONG_FRAME,
                f"odometry in frame '{frame}' is not used: odom_frame_id is '{expected}'",
            )
            return
        try:
            pose = planar_pose(message.pose.pose)
        except ValueError as error:
            self.refuse(Event.ODOMETRY_INVALID, f"odometry is not used: {error}")
            return
        admitted = self._timeline.admit(nanoseconds(message.header.stamp), pose)
        self.localizer.counts[Event.ODOMETRY_STRAY.value] += admitted.strays
        if admitted.jumped_back:
            self.time_jumped_back("odometry's time has jumped back")
        for stamp_ns, reading in admitted.items:
            self.localizer.add_odometry(stamp_ns, reading)
        self._worker.odometry_arrived()

    def _on_image(self, message: Image | CompressedImage) -> None:
        self._worker.submit(nanoseconds(message.header.stamp), message)

    def _on_initial_pose(self, message: PoseWithCovarianceStamped) -> None:
        frame, expected = message.header.frame_id.lstrip("/"), self._values["global_frame_id"]
        if frame != expected:
            self.refuse(
                Event.INITIAL_POSE_WRONG_FRAME,
                f"initial pose in frame '{frame}' is not used: it must be in '{expected}'",
            )
            return
        try:
            pose = planar_pose(message.pose.pose)
            covariance = planar_covariance(message.pose.covariance)
        except ValueError as error:
            self.refuse(Event.INITIAL_POSE_INVALID, f"initial pose is not used: {error}")
            return
        stamp_ns = nanoseconds(message.header.stamp)
        self.localizer.set_pose(GaussianPrior(pose, covariance + _SURE), stamp_ns or None)

    def _process(self, pending: PendingImage) -> None:
        """On the worker's thread: decode, localize, publish."""
        started = time.perf_counter()
        try:
            image = decode(pending.message)
        except ValueError as error:
            self.refuse(Event.IMAGE_INVALID, f"an image is not used: {error}")
            return
        localization = self.localizer.add_image(pending.stamp_ns, image)
        # Meanwhile the localizer may have been told to start anew: then this pose is of the past.
        if localization is None or localization is not self.localizer.last:
            return
        self._last_step_ms = 1e3 * (time.perf_counter() - started)
        self._publish(localization)
        self._latency.add(time.perf_counter() - pending.arrived)
        self._pose_rate.happened()
