"""What a bag's transforms say: the robot's pose in the map, its odometry, the camera's pose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.pose_log import PoseLog, pose_of
from kbf_localization.datasets.trajectory import Trajectory
from kbf_localization.errors import ParameterError
from kbf_localization.geometry import compose, interpolate
from kbf_localization.vision.camera.mount import OPTICAL_IN_BASE, Mount

GLOBAL_FRAME, ODOM_FRAME = "map", "odom"
BASE_FRAMES = ("base_footprint", "base_link")
MOVING_M, MOVING_RAD = 0.01, 0.01
"""Change of a transform beyond vibration and rounding: the mount moves."""
COS_BODY_TILT = 0.7
"""An optical frame's z looks ahead; one that points up within 45° is not optical."""


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
        """Return what there is, for an error message."""
        return ", ".join(f"{parent}→{child}" for parent, child in sorted(self._logs)) or "nothing"

    def base_in_map(
        self, odometry: OdometryLog, odom_frame: str, base_frame: str
    ) -> OdometryLog | None:
        """Return the base's pose in the global frame over time; None without such a transform.

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
        """Return the wheel odometry in odom→base with its two frames; None where there is none."""
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
        """Return the camera's poses in the root of its tree (6 DOF); None where nothing moves it.

        Motion capture knows a body on the robot (TUM's world→kinect), not the robot's base. A chain
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

    def mount(self, camera_frame: str, base_frames: Sequence[str]) -> Mount | None:
        """Return the camera's pose in the first of the base frames that a transform leads to.

        None where none does; ParameterError where the camera moves on the robot, as on a pan unit.
        A frame whose z axis points up is the camera's body (x ahead), not its optical frame.
        """
        parents = {edge[1]: edge for edge, log in self._logs.items() if len(log)}
        to_camera = self._ancestors(camera_frame, parents)
        for base in base_frames:
            to_base = self._ancestors(base, parents)
            common = next((frame for frame in to_camera if frame in to_base), None)
            if common is None or not camera_frame:
                continue
            camera = self._fixed(to_camera[: to_camera.index(common)], parents)
            below = self._fixed(to_base[: to_base.index(common)], parents)
            rotation = below[0].T @ camera[0]
            place = below[0].T @ (camera[1] - below[1])
            if rotation[2, 2] > COS_BODY_TILT and not camera_frame.endswith("optical_frame"):
                rotation = rotation @ OPTICAL_IN_BASE
            return Mount(rotation, place)
        return None

    @staticmethod
    def _ancestors(frame: str, parents: Mapping[str, tuple[str, str]]) -> list[str]:
        """Return the frame, its parent and so on; a circle ends where it closes."""
        chain = [frame]
        while chain[-1] in parents and parents[chain[-1]][0] not in chain:
            chain.append(parents[chain[-1]][0])
        return chain

    def _fixed(
        self, frames: Sequence[str], parents: Mapping[str, tuple[str, str]]
    ) -> tuple[Array, Array]:
        """Rotation (3, 3) and translation (3,) of the first frame in the parent of the last."""
        rotation, place = np.eye(3), np.zeros(3)
        for frame in frames:
            values = self._logs[parents[frame]].further
            turns = Rotation.from_quat(values[:, 3:])
            angles = (turns[0].inv() * turns).magnitude()
            moves = np.linalg.norm(values[:, :3] - values[0, :3], axis=1)
            if angles.max() > MOVING_RAD or moves.max() > MOVING_M:
                raise ParameterError(
                    f"the camera's mount moves: {parents[frame][0]}→{frame} changes by "
                    f"{moves.max():.3g} m and {angles.max():.3g} rad"
                )
            matrix = np.asarray(turns[0].as_matrix())
            rotation, place = matrix @ rotation, matrix @ place + values[0, :3]
        return rotation, place

    def _at(self, edge: tuple[str, str], at_ns: Stamps) -> tuple[Array, Rotation]:
        """Return translations (t, 3) and rotations of a transform at the given times."""
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
