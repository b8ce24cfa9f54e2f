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
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image
from tf2_msgs.msg import TFMessage

from kbf_localization.arrays import Array
from kbf_localization.events import Event
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.geometry import position_sigma
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.localization.image_worker import ImageWorker, PendingImage
from kbf_localization.localization.localizer import FilterReset
from kbf_localization.localization.startup import localizer_settings
from kbf_localization.localization.timeline import Timeline
from kbf_localization.ros.conversions import (
    ImageError,
    TransformChain,
    decode,
    nanoseconds,
    planar,
    planar_covariance,
    planar_pose,
)
from kbf_localization.ros.diagnostics import ImageHealth, Latency, Rate
from kbf_localization.ros.intake import UNREADABLE, Intake, Topic, read_odometry, stamp_of

logger = logging.getLogger(__name__)

_TRACE_PERIOD_S = 5.0
_DEEP_QUEUE = 100
_SURE = np.diag([0.01, 0.01, 0.01]) ** 2
"""Least covariance of a pose set by hand: one given with certainty would leave no way back."""


class RunningLocalizer:
    """Feeds the localizer, which has the state; calls `publish` for every processed image
    and `moved` for odometry and for a given pose.

    `values` are the node's parameters by name, `warn(kind, line)` logs a warning, of one kind not
    too often. All that is refused is counted in `localizer.counts`.
    """

    def __init__(
        self,
        localizer: Localizer,
        values: Mapping[str, Any],
        publish: Callable[[Localization], None],
        moved: Callable[[], None],
        log: Callable[[str], None],
        warn: Callable[[str, str], None],
    ) -> None:
        self.localizer = localizer
        self._values = values
        self._publish, self._moved, self._log, self._warn = publish, moved, log, warn
        self._latency, self._pose_rate = Latency(), Rate()
        self._last_step_ms, self._traced_at = math.nan, -math.inf
        self._odometry_received = self._odometry_used = 0
        self._timeline: Timeline[tuple[Array, Array | None]] = Timeline()
        self._camera = CompressedImage if values["image_transport"] == "compressed" else Image
        self._chain = TransformChain(values["odom_frame_id"], values["base_frame_id"])
        self._health = ImageHealth(localizer.counts)
        self._worker = ImageWorker(
            self._process,
            localizer.covers,
            self.failed,
            localizer.counts,
            values["image_queue_depth"],
            values["odometry_patience"],
        )

    def topics(self) -> tuple[Topic, ...]:
        """What the active node listens to; odometry comes first, images last."""
        self._health.used()
        values = self._values
        odom_qos = _qos(values["odom_queue_depth"], values["odom_reliability"])
        image_qos = _qos(max(5, values["image_queue_depth"]), values["image_reliability"])
        compressed = values["image_transport"] == "compressed"
        name = "image/compressed" if compressed else "image"
        images = Topic(name, self._camera, image_qos, self._on_image, serialized=True)
        if values["odom_source"] == "topic":
            # A short queue must be emptied at once.
            patient = values["odom_queue_depth"] >= _DEEP_QUEUE
            odometry = Topic(
                "odom", Odometry, odom_qos, self._on_odometry, serialized=True, patient=patient
            )
            return odometry, images
        static = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        return (
            Topic("/tf", TFMessage, odom_qos, self._on_transforms),
            Topic("/tf_static", TFMessage, static, self._on_transforms, steady=False),
            images,
        )

    def apply(self, values: Mapping[str, Any]) -> None:
        """Make parameters take effect that may change while it runs; the belief stays."""
        self._values = values
        self._worker.patience = values["odometry_patience"]
        self.localizer.settings = localizer_settings(values)

    def distrust(self) -> str | None:
        """Why map→odom must not be sent now; None while it can be trusted."""
        localizer, values = self.localizer, self._values
        given = localizer.rests_on_given_pose
        if localizer.state is not State.TRACKING and not given:
            return f"the state is {localizer.state.value}"
        known, seconds = localizer.pose_at(), localizer.dead_reckoned_s
        if known is None or seconds is None:
            return "there is no odometry"
        sigma = position_sigma(known[1])
        if sigma > values["dead_reckoning_max_sigma"] and not given:
            return (
                f"odometry alone has carried the pose to a standard deviation of {sigma:.2f} m, "
                "more than dead_reckoning_max_sigma"
            )
        if seconds > values["dead_reckoning_max_seconds"]:
            return f"no image for {seconds:.1f} s, more than dead_reckoning_max_seconds"
        return None

    def complaints(self, intake: Intake) -> dict[str, str]:
        """What is wrong with the inputs, a line for each kind of fault."""
        found = intake.silent(self._values["watchdog_timeout"])
        if not found:
            found = self._health.complaints(self._values)
        reason = self.distrust()
        if reason is not None and self.localizer.state is not State.UNINITIALIZED:
            found["transform"] = f"map→odom is not sent: {reason}"
        return found

    def time_jumped_back(self, why: str) -> None:
        """Start over, as when a bag is played again."""
        self._warn("time_jumped_back", f"{why}: starting over")
        self.localizer.counts[Event.ODOMETRY_STRAY] += self._timeline.reset()
        self._health.time_jumped()
        self.drop_images()
        self.localizer.reset()

    def drop_images(self) -> None:
        """Forget the images that wait."""
        self._worker.clear()

    def stop(self) -> None:
        self._worker.stop()

    def failed(self, error: Exception) -> None:
        """Something unforeseen happened in a thread."""
        self._trace("unexpected error", error)
        self.refuse(Event.UNEXPECTED_ERROR, f"unexpected {type(error).__name__}: {error}")

    def _trace(self, what: str, error: Exception) -> None:
        """Log where an error comes from; not too often, for it may come with every message."""
        if time.monotonic() - self._traced_at >= _TRACE_PERIOD_S:
            self._traced_at = time.monotonic()
            logger.error(what, exc_info=error)

    def refuse(self, event: Event, message: str) -> None:
        """Count what cannot be used or done, and warn of it."""
        self.localizer.counts[event] += 1
        self._warn(event, message)

    def figures(self, intake: Intake) -> dict[str, object]:
        """State, evidence, rates, ages, latencies, and how often what was refused or dropped."""
        last, dead_reckoned = self.localizer.last, self.localizer.dead_reckoned_s
        weights = None if last is None else last.estimate.weights
        p50, p99 = self._latency.percentiles_ms()
        odometry, *_, image = intake.watches.values()
        return {
            "state": self.localizer.state.value,
            "evidence": math.nan if last is None else last.evidence,
            "stamp_ns": 0 if last is None else last.stamp_ns,
            "step_ms": self._last_step_ms,
            "motion_noise": "odometry" if self.localizer.noise_is_reported else "map",
            "active_poses": 0 if weights is None else len(weights.rows),
            "latency_ms_p50": p50,
            "latency_ms_p99": p99,
            "odometry_stamp_ns": self.localizer.newest_odometry_ns or 0,
            "odometry_received": self._odometry_received,
            "odometry_used": self._odometry_used,
            "odometry_hz": odometry.hertz(),
            "image_hz": image.hertz(),
            "pose_hz": self._pose_rate.hertz(),
            "odometry_age_s": odometry.age,
            "image_age_s": image.age,
            "odometry_missing": odometry.missing,
            **self._health.figures(),
            "dead_reckoned_s": math.nan if dead_reckoned is None else dead_reckoned,
            **dict(sorted(dict(self.localizer.counts).items())),
        }

    def on_initial_pose(self, message: PoseWithCovarianceStamped) -> None:
        """Start from the pose that somebody has given."""
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
        self._moved()
        self._log(f"starting from the given pose ({pose[0]:.2f}, {pose[1]:.2f}, {pose[2]:.2f})")

    def _on_odometry(self, cdr: bytes) -> None:
        self._odometry_received += 1
        try:
            message = read_odometry(cdr)
            pose = planar(message.pose)
        except UNREADABLE as error:
            self.refuse(Event.ODOMETRY_INVALID, f"odometry is not used: {error}")
            return
        frame, expected = message.frame_id.lstrip("/"), self._values["odom_frame_id"]
        if frame and frame != expected:
            self.refuse(
                Event.ODOMETRY_WRONG_FRAME,
                f"odometry in frame '{frame}' is not used: odom_frame_id is '{expected}'",
            )
            return
        base, expected = message.child_frame_id.lstrip("/"), self._values["base_frame_id"]
        if base and base != expected:
            self.refuse(
                Event.ODOMETRY_OTHER_BASE,
                f"odometry is of '{base}', not of base_frame_id '{expected}': the pose will be "
                f"that of '{base}'",
            )
        self._add_odometry(message.stamp_ns, pose, message.covariance)

    def _on_transforms(self, message: TFMessage) -> None:
        for transform in message.transforms:
            try:
                pose = self._chain.add(transform)
            except ValueError as error:
                self._odometry_received += 1
                self.refuse(Event.ODOMETRY_INVALID, f"odometry from tf is not used: {error}")
                continue
            stamp_ns = nanoseconds(transform.header.stamp)
            if pose is not None and stamp_ns:
                self._odometry_received += 1
                self._add_odometry(stamp_ns, pose)

    def _add_odometry(self, stamp_ns: int, pose: Array, covariance: Array | None = None) -> None:
        admitted = self._timeline.admit(stamp_ns, (pose, covariance))
        self.localizer.counts[Event.ODOMETRY_STRAY] += admitted.strays
        if admitted.jumped_back:
            self.time_jumped_back("odometry's time has jumped back")
        for at_ns, reading in admitted.items:
            self._odometry_used += self.localizer.add_odometry(at_ns, *reading)
        self._moved()
        self._worker.odometry_arrived()

    def _on_image(self, cdr: bytes) -> None:
        try:
            stamp_ns = stamp_of(cdr, self._camera)
        except UNREADABLE as error:
            self.refuse(Event.IMAGE_INVALID, f"an image is not used: {error}")
            return
        correction_ns = round(self._values["camera_time_offset"] * 1e9)
        self._health.arrived(stamp_ns, correction_ns, self.localizer.newest_odometry_ns)
        self._worker.submit(stamp_ns + correction_ns, cdr)

    def _process(self, pending: PendingImage) -> None:
        """On the worker's thread: decode, localize, publish."""
        started = time.perf_counter()
        try:
            localization = self.localizer.add_image(
                pending.stamp_ns, lambda: decode(deserialize_message(pending.message, self._camera))
            )
        except (ImageError, *UNREADABLE) as error:
            self.refuse(Event.IMAGE_INVALID, f"an image is not used: {error}")
            return
        except FilterReset as error:
            self._trace("the filter starts anew", error)
            self._warn(Event.FILTER_RESET, str(error))
            return
        # Meanwhile the localizer may have been told to start anew: then this pose is of the past.
        if localization is None or localization is not self.localizer.last:
            return
        self._health.used()
        self._last_step_ms = 1e3 * (time.perf_counter() - started)
        self._publish(localization)
        self._latency.add(time.perf_counter() - pending.arrived)
        self._pose_rate.happened()


def _qos(depth: int, reliability: str) -> QoSProfile:
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy[reliability.upper()])
