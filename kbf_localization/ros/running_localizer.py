"""The localizer with its worker, from configure to clean-up: messages in, localizations out."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import Odometry

from kbf_localization.filters.base import GaussianPrior
from kbf_localization.geometry import compose, invert
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.ros.conversions import (
    Array,
    nanoseconds,
    planar_covariance,
    planar_pose,
)
from kbf_localization.ros.images import decode
from kbf_localization.ros.statistics import Latency, Rate
from kbf_localization.ros.timeline import Timeline
from kbf_localization.ros.worker import ImageWorker, PendingImage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Frames:
    """The frame ids."""

    map: str
    odom: str
    base: str


class RunningLocalizer:
    """Feeds the localizer; calls `publish(localization, arrived)` for every processed image."""

    def __init__(
        self,
        localizer: Localizer,
        frames: Frames,
        publish: Callable[[Localization], None],
        warn: Callable[[str, str], None],
        queue_depth: int = 1,
        patience: float = 1.0,
    ) -> None:
        self.localizer = localizer
        self.counts: Counter[str] = Counter()
        self.latency = Latency()
        self.last_step_ms = float("nan")
        self.odometry_rate, self.image_rate, self.pose_rate = Rate(), Rate(), Rate()
        self.worker = ImageWorker(
            self._process, localizer.covers, self.failed, queue_depth, patience
        )
        self._frames = frames
        self._publish, self._warn = publish, warn
        self._timeline: Timeline[Array] = Timeline()
        self._newest_odometry: Array | None = None
        self._map_to_odom: Array | None = None
        self._pose_was_given = False
        self._epoch = 0

    @property
    def map_to_odom(self) -> Array | None:
        """The odometry's frame (3,) on the map as last trusted; None before."""
        return self._map_to_odom

    def all_counts(self) -> Counter[str]:
        """What was refused, dropped and reset so far, by reason."""
        strays = Counter({"odometry_stray": self._timeline.strays})
        return self.counts + self.worker.counts + self.localizer.counts + strays

    def odometry(self, message: Odometry) -> None:
        """Take an odometry message."""
        frame = message.header.frame_id
        if frame and frame != self._frames.odom:
            self._refuse(
                "odometry_wrong_frame",
                f"odometry in frame '{frame}' is not used: odom_frame_id is '{self._frames.odom}'",
            )
            return
        try:
            pose = planar_pose(message.pose.pose)
        except ValueError as error:
            self._refuse("odometry_invalid", f"odometry is not used: {error}")
            return
        admitted = self._timeline.admit(nanoseconds(message.header.stamp), pose)
        if admitted.jumped_back:
            self._warn("time_jumped_back", "odometry's time has jumped back: starting over")
            self._forget()
        for stamp_ns, reading in admitted.items:
            if self.localizer.add_odometry(stamp_ns, reading):
                self._newest_odometry = reading
        self.worker.odometry_arrived()

    def image(self, message: Any) -> None:
        """Take an image message."""
        self.worker.submit(nanoseconds(message.header.stamp), message)

    def initial_pose(self, message: PoseWithCovarianceStamped) -> None:
        """Start from the pose that somebody has given."""
        frame = message.header.frame_id.lstrip("/")
        if frame != self._frames.map:
            self._refuse(
                "initial_pose_wrong_frame",
                f"initial pose in frame '{frame}' is not used: it must be in '{self._frames.map}'",
            )
            return
        try:
            pose = planar_pose(message.pose.pose)
            covariance = planar_covariance(message.pose.covariance)
        except ValueError as error:
            self._refuse("initial_pose_invalid", f"initial pose is not used: {error}")
            return
        # A pose given with certainty would leave the filter no way back.
        floor = np.diag([0.01, 0.01, 0.01]) ** 2
        self.start_from(GaussianPrior(pose, covariance + floor), nanoseconds(message.header.stamp))

    def start_from(self, prior: GaussianPrior, stamp_ns: int = 0) -> None:
        """Localize from `prior`, valid at `stamp_ns` (0: now)."""
        self._epoch += 1
        odometry = self._newest_odometry
        self._pose_was_given = True
        if odometry is not None:
            self._map_to_odom = compose(prior.pose, invert(odometry))
        self.worker.run(lambda: self.localizer.set_pose(prior, stamp_ns or None))

    def reinitialize(self) -> None:
        """Localize from anywhere on the map."""
        self._epoch += 1
        self._pose_was_given = False
        self._map_to_odom = None
        self.worker.run(self.localizer.reinitialize)

    def force_update(self) -> None:
        """Use the next image even when the robot stands still."""
        self.worker.run(self.localizer.force_next_update)

    def time_jumped_back(self) -> None:
        """The clock was set back, as when a bag is played again."""
        self._timeline.reset()
        self._forget()

    def set_settings(self, **changes: Any) -> None:
        """Change the localizer's settings between two images; the belief stays."""

        def apply() -> None:
            self.localizer.settings = replace(self.localizer.settings, **changes)

        self.worker.run(apply)

    def stop(self) -> None:
        self.worker.stop()

    def failed(self, error: Exception) -> None:
        """Something unforeseen happened in a thread."""
        self.counts["unexpected_error"] += 1
        logger.error("unexpected error", exc_info=error)
        self._warn("unexpected_error", f"unexpected {type(error).__name__}: {error}")

    def _forget(self) -> None:
        self._epoch += 1
        self._map_to_odom = None
        self._pose_was_given = False
        self._newest_odometry = None
        self.worker.clear()
        self.localizer.reset()

    def _process(self, pending: PendingImage) -> None:
        epoch = self._epoch
        started = time.perf_counter()
        try:
            image = decode(pending.message)
        except ValueError as error:
            self._refuse("image_invalid", f"an image is not used: {error}")
            return
        localization = self.localizer.add_image(pending.stamp_ns, image)
        if localization is None or epoch != self._epoch:
            return
        self.last_step_ms = 1e3 * (time.perf_counter() - started)
        tracks = localization.state is State.TRACKING
        if tracks or (self._pose_was_given and localization.state is not State.LOST):
            self._map_to_odom = compose(localization.pose, invert(localization.odometry_pose))
        self._publish(localization)
        self.latency.add(time.perf_counter() - pending.arrived)
        self.pose_rate.happened()

    def _refuse(self, reason: str, said: str) -> None:
        self.counts[reason] += 1
        self._warn(reason, said)
