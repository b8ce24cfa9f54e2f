"""The localizer from configure to clean-up: ROS messages in, localizations out.

The node owns the server, the server the reader of its topics; each calls only the next, and
reports to its owner by the functions that it was given.
"""

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
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from tf2_msgs.msg import TFMessage

from kbf_localization.arrays import Array
from kbf_localization.arrays import Image as GreyImage
from kbf_localization.events import Event
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.geometry import planar_block
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.localization.localizer import FilterReset
from kbf_localization.ros.camera import CameraCalibration, camera_info_name
from kbf_localization.ros.conversions import (
    ImageError,
    decode,
    nanoseconds,
    planar_covariance,
    planar_pose,
)
from kbf_localization.ros.diagnostics import ImageHealth, Latency, Rate, StateReport
from kbf_localization.ros.lifecycle import SafeLifecycleNode
from kbf_localization.ros.startup import localizer_settings
from kbf_localization.ros.subscription_reader import (
    ImageWorker,
    PendingImage,
    SubscriptionReader,
    Topic,
)
from kbf_localization.ros.timeline import RateLimit, Timeline
from kbf_localization.ros.transforms import TransformChain
from kbf_localization.sanitize import SanitizingLogger

logger = logging.getLogger(__name__)

_TRACE_PERIOD_S = 5.0
"""Shortest period between two tracebacks in the log."""
_MIN_PATIENT_DEPTH = 100
"""A queue of fewer messages is emptied at once, also while the robot stands."""
_MAX_OFF_MAP = 2.0
"""In units of d₀, beyond which the similarity of images is at background level."""
_MIN_PRIOR_COVARIANCE = np.diag([0.01, 0.01, 0.01]) ** 2
"""Added to a given pose (m, m, rad): from a certain one no image could lead away."""


class LocalizerServer:
    """Feed the localizer, which has the state, with messages.

    `values` are the node's parameters by name. `publish` is called for every processed image,
    `moved` for odometry and for a given pose; `warn(kind, line)` logs a warning, of one kind at
    most every few seconds. All that is refused is counted in `localizer.counts`. The `report`
    has the state with its reasons.
    """

    def __init__(
        self,
        localizer: Localizer,
        values: Mapping[str, Any],
        publish: Callable[[Localization], None],
        moved: Callable[[], None],
        log: SanitizingLogger,
        warn: Callable[[str, str], None],
    ) -> None:
        self.localizer = localizer
        self._values = values
        self._publish, self._moved, self._log, self._warn = publish, moved, log, warn
        self._latency, self._pose_rate = Latency(), Rate()
        self._last_step_ms, self._traced_at = math.nan, -math.inf
        self._odometry_received = self._odometry_used = 0
        self._image_rate = RateLimit()
        self._timeline: Timeline[tuple[Array, Array | None]] = Timeline()
        self._image_type = CompressedImage if values["image_transport"] == "compressed" else Image
        self._chain = TransformChain(values["odom_frame_id"], values["base_frame_id"])
        self._health = ImageHealth(localizer.counts)
        self._calibration = CameraCalibration(localizer, values["base_frame_id"], log, warn)
        self._camera = self._calibration.monitor
        self._odometry_topic = "odom" if values["odom_source"] == "topic" else "/tf"
        self._image_topic = "image"
        if values["image_transport"] == "compressed":
            self._image_topic = "image/compressed"
        self._reader: SubscriptionReader | None = None
        self.report = StateReport(localizer, values, log, self._odometry_age_s)
        self._worker = ImageWorker(
            self._process,
            localizer.covers,
            self.failed,
            localizer.count,
            values["image_queue_depth"],
            values["odometry_patience"],
        )

    @property
    def is_reading(self) -> bool:
        """Whether it is subscribed to odometry and images."""
        return self._reader is not None

    def start_reading(self, node: SafeLifecycleNode) -> None:
        """Subscribe to odometry and images."""
        self._calibration.expect_images(node.resolve_topic_name(self._image_topic))
        self._health.used()
        self.report.restart()
        self._reader = SubscriptionReader(
            node, self._topics(node), self.failed, lambda: self.localizer.stands
        )

    def stop_reading(self) -> None:
        """End the subscriptions and drop the images that wait."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
            self._worker.clear()

    def _topics(self, node: SafeLifecycleNode) -> tuple[Topic, ...]:
        """Return the topics to read; odometry comes first."""
        values = self._values
        odom_qos = _qos(values["odom_queue_depth"], values["odom_reliability"])
        image_qos = _qos(max(5, values["image_queue_depth"]), values["image_reliability"])
        images = Topic(
            self._image_topic,
            self._image_type,
            image_qos,
            self._on_image,
            self._on_unreadable_image,
        )
        # A short queue must be emptied at once.
        patient = values["odom_queue_depth"] >= _MIN_PATIENT_DEPTH
        odometry = Topic(
            "odom",
            Odometry,
            odom_qos,
            self._on_odometry,
            self._on_unreadable_odometry,
            patient=patient,
            finished=self._odometry_taken,
        )
        static_qos = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        info_name = values["camera_info_topic"] or camera_info_name(
            node.resolve_topic_name(self._image_topic)
        )
        info = Topic(
            info_name,
            CameraInfo,
            _qos(1, "best_effort"),
            self._camera.on_info,
            self._on_unreadable,
            steady=False,
            wanted=lambda: self._camera.wants_info,
        )
        static = Topic(
            "/tf_static",
            TFMessage,
            static_qos,
            self._on_static_transforms,
            self._on_unreadable,
            steady=False,
        )
        if values["odom_source"] == "tf":
            odometry = Topic(
                "/tf",
                TFMessage,
                odom_qos,
                self._on_transforms,
                self._on_unreadable,
                finished=self._odometry_taken,
            )
            return odometry, static, images, info
        moving = Topic(
            "/tf",
            TFMessage,
            _qos(100, "best_effort"),
            self._on_mount_transforms,
            self._on_unreadable,
            steady=False,
            wanted=lambda: self._camera.wants_tf,
        )
        return odometry, images, info, static, moving

    def apply(self, values: Mapping[str, Any]) -> None:
        """Apply the live parameters; the belief stays."""
        self._values = values
        self.report.apply(values)
        self._worker.set_patience(values["odometry_patience"])
        self.localizer.configure(localizer_settings(values))

    def _odometry_age_s(self) -> float:
        reader = self._reader
        return math.nan if reader is None else reader.watches[self._odometry_topic].age

    def reinitialize(self) -> None:
        """Forget the pose: start from anywhere on the map."""
        self.report.restart()
        self.localizer.reinitialize()
        self.report.log_change()

    def diagnostics(self) -> dict[str, str]:
        """Return a line for each kind of problem with the inputs."""
        reader, timeout_s = self._reader, self._values["watchdog_timeout"]
        found = {} if reader is None else reader.silent_topics(timeout_s)
        if not found:
            found = self._health.diagnostics(self._values)
        found.update(self._calibration.diagnostics())
        reason = self.report.transform_veto()
        if reason is not None and self.localizer.state is not State.UNINITIALIZED:
            found["transform"] = f"map→odom is not sent: {reason}"
        return found

    def time_jumped_back(self, why: str) -> None:
        """Start over, as when a bag is played again."""
        self._warn("time_jumped_back", f"{why}: starting over")
        self.localizer.count(Event.ODOMETRY_STRAY, self._timeline.reset())
        self._health.time_jumped()
        self._worker.clear()
        self.localizer.reset()

    def stop(self) -> None:
        """End all threads."""
        self.stop_reading()
        self._worker.stop()

    def failed(self, error: Exception) -> None:
        """Count and log an unexpected error."""
        self._trace("unexpected error", error)
        self.refuse(Event.UNEXPECTED_ERROR, f"unexpected {type(error).__name__}: {error}")

    def _trace(self, what: str, error: Exception) -> None:
        """Log an error's traceback, at a bounded rate: every message may cause one."""
        if time.monotonic() - self._traced_at >= _TRACE_PERIOD_S:
            self._traced_at = time.monotonic()
            logger.error(what, exc_info=error)

    def refuse(self, event: Event, message: str) -> None:
        """Count an event and warn of it."""
        self.localizer.count(event)
        self._warn(event, message)

    def metrics(self) -> dict[str, object]:
        """Return state, evidence, rates, ages, latencies, and the counts of events."""
        last, seconds = self.localizer.last, self.localizer.dead_reckoned_s
        metres, gap = self.localizer.dead_reckoned_m, self.localizer.unconfirmed
        weights = None if last is None else last.estimate.weights
        p50, p99 = self._latency.percentiles_ms()
        x_m, y_m, yaw_rad, sigma_m = self.report.newest().tolist()
        return {
            "state": self.report.state.value,
            "state_since_s": self.report.since_s,
            "image_state": "" if last is None else last.state.value,
            "x_m": x_m,
            "y_m": y_m,
            "yaw_rad": yaw_rad,
            "sigma_m": sigma_m,
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
            "pose_hz": self._pose_rate.hertz(),
            **self._calibration.metrics(),
            **self._topic_metrics(),
            **self._health.metrics(),
            "dead_reckoned_s": math.nan if seconds is None else seconds,
            "dead_reckoned_m": math.nan if metres is None else metres,
            "unconfirmed_s": math.nan if gap is None else gap.seconds,
            "unconfirmed_m": math.nan if gap is None else gap.metres,
            "degraded_s": self.localizer.degraded_s,
            **dict(sorted(dict(self.localizer.counts).items())),
        }

    def _topic_metrics(self) -> dict[str, object]:
        reader = self._reader
        if reader is None:
            return {}
        odometry, image = reader.watches[self._odometry_topic], reader.watches[self._image_topic]
        return {
            "odometry_hz": odometry.hertz(),
            "image_hz": image.hertz(),
            "odometry_age_s": odometry.age,
            "image_age_s": image.age,
            "odometry_missing": odometry.missing,
        }

    def on_initial_pose(self, message: PoseWithCovarianceStamped) -> None:
        """Start from a given pose."""
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
        self.localizer.set_pose(
            GaussianPrior(pose, covariance + _MIN_PRIOR_COVARIANCE), stamp_ns or None
        )
        self.warn_off_map(pose)
        self._moved()
        self._log.info(
            f"starting from the given pose ({pose[0]:.2f}, {pose[1]:.2f}, {pose[2]:.2f})"
        )

    def warn_off_map(self, pose: Array) -> None:
        """Warn of a given pose at which no image of the map resembles the camera's."""
        training_map = self.localizer.training_map
        distance = training_map.distance_m(pose)
        if distance > _MAX_OFF_MAP * training_map.calibration.similarity.distance_m:
            self.refuse(
                Event.INITIAL_POSE_OFF_MAP,
                f"the given pose ({pose[0]:.2f}, {pose[1]:.2f}, {pose[2]:.2f}) is {distance:.1f} m "
                "from the nearest map pose: images cannot confirm it there",
            )

    def _on_odometry(self, message: Odometry) -> None:
        self._odometry_received += 1
        try:
            pose = planar_pose(message.pose.pose)
        except ValueError as error:
            self.refuse(Event.ODOMETRY_INVALID, f"odometry is not used: {error}")
            return
        frame, expected = message.header.frame_id.lstrip("/"), self._values["odom_frame_id"]
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
        stamp_ns = nanoseconds(message.header.stamp)
        self._add_odometry(stamp_ns, pose, planar_block(message.pose.covariance))

    def _on_unreadable_odometry(self, error: Exception) -> None:
        self._odometry_received += 1
        self.refuse(Event.ODOMETRY_INVALID, f"odometry is not used: {error}")

    def _on_unreadable_image(self, error: Exception) -> None:
        self.refuse(Event.IMAGE_INVALID, f"an image is not used: {error}")

    def _on_unreadable(self, error: Exception) -> None:
        self.refuse(
            Event.MESSAGE_INVALID, f"a message of camera_info or tf cannot be read: {error}"
        )

    def _on_mount_transforms(self, message: TFMessage) -> None:
        self._camera.on_transforms(message.transforms)

    def _on_static_transforms(self, message: TFMessage) -> None:
        self._camera.on_transforms(message.transforms, static=True)
        if self._values["odom_source"] == "tf":
            self._chain_transforms(message)

    def _on_transforms(self, message: TFMessage) -> None:
        if self._camera.wants_tf:
            self._camera.on_transforms(message.transforms)
        self._chain_transforms(message)

    def _chain_transforms(self, message: TFMessage) -> None:
        """Take the odometry of tf, as far as these transforms change it."""
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
        self.localizer.count(Event.ODOMETRY_STRAY, admitted.strays)
        if admitted.jumped_back:
            self.time_jumped_back("odometry's time has jumped back")
        for at_ns, reading in admitted.items:
            self._odometry_used += self.localizer.add_odometry(at_ns, *reading)

    def _odometry_taken(self) -> None:
        """Pass on that there is new odometry."""
        self._moved()
        self._worker.odometry_arrived()

    def _on_image(self, message: Image | CompressedImage) -> None:
        stamp_ns = nanoseconds(message.header.stamp)
        correction_ns = round(self._values["camera_time_offset"] * 1e9)
        newest_ns = self.localizer.newest_odometry_ns
        missing = self._health.arrived(stamp_ns, correction_ns, newest_ns)
        self.localizer.count(Event.IMAGES_MISSING, missing)
        if not self._image_rate.admits(stamp_ns, self._values["max_image_rate"]):
            self.localizer.count(Event.IMAGE_ABOVE_RATE)
            return
        self._worker.submit(stamp_ns + correction_ns, message)

    def _decode(self, pending: PendingImage) -> GreyImage:
        image = decode(pending.message)
        height, width = image.shape
        self._camera.on_image(pending.message.header.frame_id, width, height)
        return image

    def _process(self, pending: PendingImage) -> None:
        """Decode, localize, publish; on the worker's thread."""
        started = time.perf_counter()
        try:
            localization = self.localizer.add_image(
                pending.stamp_ns, lambda: self._decode(pending), in_haste=pending.overtakes
            )
        except ImageError as error:
            self.refuse(Event.IMAGE_INVALID, f"an image is not used: {error}")
            return
        except FilterReset as error:
            self._trace("the filter restarts", error)
            self._warn(Event.FILTER_RESET, str(error))
            return
        # The localizer may have been reset meanwhile: then this pose is obsolete.
        if localization is None or localization is not self.localizer.last:
            return
        self._health.used()
        self.report.log_change()
        self._last_step_ms = 1e3 * (time.perf_counter() - started)
        self._publish(localization)
        self._latency.add(time.perf_counter() - pending.arrived)
        self._pose_rate.happened()


def _qos(depth: int, reliability: str) -> QoSProfile:
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy[reliability.upper()])
