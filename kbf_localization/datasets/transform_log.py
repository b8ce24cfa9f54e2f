"""What a bag's transforms say: the robot's pose in the map, its odometry, the camera's pose."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.pose_log import PoseLog, pose_of
from kbf_localization.datasets.trajectory import Trajectory
from kbf_localization.geometry import compose, interpolate

GLOBAL_FRAME, ODOM_FRAME = "map", "odom"
BASE_FRAMES = ("base_footprint", "base_link")


class TransformLog:
    """Collects the transforms of tf and tf_static messages, each pair of frames by itself."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], PoseLog] = {}

    def add(self, message: Any, static: bool = False) -> None:
        for one in message.transforms:
            stamp = one.header.stamp
            stamp_ns = int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
            move, turn = one.transform.translation, one.transform.rotation
            edge = (one.header.frame_id.lstrip("/"), one.child_frame_id.lstrip("/"))
            # A static transform holds at all times and is often stamped with zero.
            self._logs.setdefault(edge, PoseLog()).add(
                max(stamp_ns, int(static)),
                pose_of(move, turn),
                (move.x, move.y, move.z, turn.x, turn.y, turn.z, turn.w),
            )

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
            return direct
        to_odom = self._parent_of(odom_frame, but=base_frame)
        if to_odom is None:
            return None
        stamps, poses = to_odom.stamps_ns, to_odom.poses
        within = (odometry.stamps_ns >= stamps[0]) & (odometry.stamps_ns <= stamps[-1])
        if len(stamps) == 1:
            within = np.ones_like(within)
        at = odometry.stamps_ns[within]
        return OdometryLog(at, compose(interpolate(stamps, poses, at), odometry.poses[within]))

    def odometry(self) -> tuple[OdometryLog, str, str] | None:
        """The wheel odometry in odom→base with its two frames; None where there is none."""
        found = {
            edge: log
            for edge, log in self._logs.items()
            if edge[0].rpartition("/")[2] == ODOM_FRAME and len(log) > 1
        }
        by_name = [edge for edge in found if edge[1].rpartition("/")[2] in BASE_FRAMES]
        candidates = by_name or list(found)
        if len(candidates) != 1:
            return None
        return found[candidates[0]].log, *candidates[0]

    def camera_in_world(self, camera_frame: str, odom_frame: str) -> Trajectory | None:
        """The camera's poses in the root of its tree, in six degrees; None where nothing moves it.

        Motion capture knows a body on the robot (TUM's world→kinect), not the robot's base. A way
        through the odometry's frame is odometry, and no known pose.
        """
        chain: list[tuple[str, str]] = []
        frame = camera_frame
        parents = {edge[1]: edge for edge, log in self._logs.items() if len(log)}
        while frame in parents and len(chain) < len(parents):
            chain.append(parents[frame])
            frame = parents[frame][0]
        if frame in (odom_frame, ODOM_FRAME) or any(odom_frame in edge for edge in chain):
            return None
        moving = max(chain, key=lambda edge: len(self._logs[edge]), default=None)
        if moving is None or len(self._logs[moving]) < 2:
            return None
        stamps = self._logs[moving].log.stamps_ns
        positions, rotations = np.zeros((len(stamps), 3)), Rotation.identity(len(stamps))
        for edge in chain:  # from the camera up to the root
            moves, turns = self._at(edge, stamps)
            positions = turns.apply(positions) + moves
            rotations = turns * rotations
        return Trajectory(stamps, positions, rotations.as_matrix())

    def _at(self, edge: tuple[str, str], at_ns: Stamps) -> tuple[Array, Rotation]:
        """Translations (t, 3) and rotations of a transform at the given times."""
        values, stamps = self._logs[edge].further, self._logs[edge].log.stamps_ns
        turns = Rotation.from_quat(values[:, 3:])
        if len(values) == 1:
            return np.tile(values[0, :3], (len(at_ns), 1)), turns[np.zeros(len(at_ns), int)]
        at = np.clip(at_ns, stamps[0], stamps[-1])
        seconds, wanted = (stamps - stamps[0]) * 1e-9, (at - stamps[0]) * 1e-9
        moves = [np.interp(wanted, seconds, values[:, axis]) for axis in range(3)]
        return np.stack(moves, axis=-1), Slerp(seconds, turns)(wanted)

    def _parent_of(self, frame: str, but: str) -> OdometryLog | None:
        found = {
            parent: log.log
            for (parent, child), log in self._logs.items()
            if child == frame and parent != but and len(log)
        }
        if GLOBAL_FRAME in found:
            return found[GLOBAL_FRAME]
        return next(iter(found.values())) if len(found) == 1 else None
