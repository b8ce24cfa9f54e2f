"""The robot's pose in the map from the transforms of a bag: map→base, or map→odom→base."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbf_localization.datasets.bag_messages import pose_of
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.pose_log import PoseLog
from kbf_localization.geometry import compose, interpolate

GLOBAL_FRAME = "map"


class TransformLog:
    """Collects the transforms of tf and tf_static messages, each pair of frames by itself."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], PoseLog] = {}

    def add(self, message: Any, static: bool = False) -> None:
        for one in message.transforms:
            stamp = one.header.stamp
            stamp_ns = int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
            pose = pose_of(one.transform.translation, one.transform.rotation)
            edge = (one.header.frame_id.lstrip("/"), one.child_frame_id.lstrip("/"))
            # A static transform holds at all times and is often stamped with zero.
            self._logs.setdefault(edge, PoseLog()).add(max(stamp_ns, int(static)), pose)

    def frames(self) -> str:
        """What there is, for an error message."""
        return ", ".join(f"{parent}→{child}" for parent, child in sorted(self._logs)) or "nothing"

    def base_in_map(
        self, odometry: OdometryLog, odom_frame: str, base_frame: str
    ) -> OdometryLog | None:
        """The base's pose in the global frame over time; None where no transform leads there.

        A direct transform to the base is taken as it is; otherwise the transform to the odometry's
        frame, interpolated at the stamps of the odometry, is composed with the odometry.
        """
        direct = self._parent_of(base_frame, but=odom_frame)
        if direct is not None:
            return OdometryLog(direct.stamps_ns, direct.poses)
        to_odom = self._parent_of(odom_frame, but=base_frame)
        if to_odom is None:
            return None
        stamps, poses = to_odom.stamps_ns, to_odom.poses
        within = (odometry.stamps_ns >= stamps[0]) & (odometry.stamps_ns <= stamps[-1])
        if len(stamps) == 1:
            within = np.ones_like(within)
        at = odometry.stamps_ns[within]
        return OdometryLog(at, compose(interpolate(stamps, poses, at), odometry.poses[within]))

    def _parent_of(self, frame: str, but: str) -> PoseLog | None:
        found = {
            parent: log
            for (parent, child), log in self._logs.items()
            if child == frame and parent != but and len(log)
        }
        if GLOBAL_FRAME in found:
            return found[GLOBAL_FRAME]
        return next(iter(found.values())) if len(found) == 1 else None
