"""Poses with stamps as they come out of a bag, and what they say about other moments.

A bag's transforms give the robot's pose in the map, its odometry and the camera's pose.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.trajectory import Trajectory
from kbf_localization.errors import ParameterError
from kbf_localization.geometry import blend, compose, heading_of, interpolate, relative
from kbf_localization.limits import MAX_COORDINATE_M
from kbf_localization.vision.camera.mount import Mount

PlanarPose = tuple[float, float, float]

MAX_GAP_NS = 1_000_000_000
MAX_GAP_M = 0.5
END_TOLERANCE_NS = 100_000_000
SHORT_GAP_NS = 100_000_000
"""Between poses nearer than this, odometry is not needed."""
MAX_RECKONED_M = 3.0
"""So far (a radian counts as a metre) the odometry may carry a pose to the next."""


def pose_of(position: Any, orientation: Any) -> PlanarPose | None:
    """Return (x, y, heading) of a position and a quaternion; None where they mean no pose."""
    heading = heading_of(orientation.x, orientation.y, orientation.z, orientation.w)
    x, y = float(position.x), float(position.y)
    # A comparison with NaN is false.
    if heading is None or not (abs(x) <= MAX_COORDINATE_M and abs(y) <= MAX_COORDINATE_M):
        return None
    return x, y, heading


def pose_of_message(message: Any) -> PlanarPose | None:
    """Return the pose in a PoseStamped, PoseWithCovarianceStamped or Odometry."""
    pose = getattr(message.pose, "pose", message.pose)
    return pose_of(pose.position, pose.orientation)


class PoseLog:
    """Poses in the order of their stamps, 32 bytes each, and what further numbers come with them.

    What comes late or twice is refused.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._stamps = array("q")
        self._poses, self._further = array("d"), array("d")

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp_ns: int, pose: PlanarPose | None, further: Iterable[float] = ()) -> None:
        """Take the pose, or refuse it; `further` numbers are equally many for each."""
        newest = self._stamps[-1] if self._stamps else 0
        if pose is None or stamp_ns <= newest:
            self.refused += 1
            return
        self._stamps.append(stamp_ns)
        self._poses.extend(pose)
        self._further.extend(further)

    @property
    def further(self) -> Array:
        """(m, k) of the m poses."""
        return np.array(self._further).reshape(len(self), len(self._further) // max(len(self), 1))

    @property
    def log(self) -> OdometryLog:
        """Return the poses so far."""
        poses = np.array(self._poses, dtype=np.float64).reshape(-1, 3)
        return OdometryLog(np.array(self._stamps, dtype=np.int64), poses)


def largest_gaps(known: OdometryLog, at_ns: Stamps) -> str:
    """Describe the largest gap, in time and space, between known poses round an image."""
    before, after = _neighbours(known.stamps_ns, at_ns)
    metres = np.hypot(*(known.poses[after] - known.poses[before])[:, :2].T).max()
    seconds = (known.stamps_ns[after] - known.stamps_ns[before]).max() * 1e-9
    return f"largest gap {seconds:.1f} s, {metres:.2f} m"


def reckoned_poses(known: OdometryLog, odometry: OdometryLog, at_ns: Stamps) -> Array:
    """Return poses (t, 3) at the times `at_ns`, carried along the odometry between known poses.

    A pose between two known poses is reached by the odometry's motion from the earlier and, back,
    from the later; the two are blended by the path length between. AMCL publishes after every
    0.25 m: by time alone, a stop would be smeared over the path. Where the two disagree or the
    odometry is not known, poses are those of `known_poses`.
    """
    stamps_ns, poses = known.stamps_ns, known.poses
    result = known_poses(known, at_ns)
    before, after = _neighbours(stamps_ns, at_ns)
    first, last = stamps_ns[before], stamps_ns[after]
    covered = (first >= odometry.stamps_ns[0]) & (last <= odometry.stamps_ns[-1])
    moved = _path_length(odometry, last) - _path_length(odometry, first)
    rows = np.flatnonzero(covered & (last - first > SHORT_GAP_NS) & (moved <= MAX_RECKONED_M))
    if len(rows) == 0:
        return result
    here = interpolate(odometry.stamps_ns, odometry.poses, at_ns[rows])
    forward, backward = (
        compose(
            poses[near[rows]],
            relative(interpolate(odometry.stamps_ns, odometry.poses, stamps_ns[near[rows]]), here),
        )
        for near in (before, after)
    )
    path = _path_length(odometry, at_ns[rows]) - _path_length(odometry, first[rows])
    time = (at_ns[rows] - first[rows]) / (last[rows] - first[rows])
    fraction = np.where(moved[rows] > 1e-6, path / np.maximum(moved[rows], 1e-6), time)
    blended = blend(forward, backward, fraction[:, None])
    agreed = np.hypot(*(backward - forward)[:, :2].T) <= MAX_GAP_M
    result[rows[agreed]] = blended[agreed]
    return result


def _path_length(odometry: OdometryLog, at_ns: Stamps) -> Array:
    """Return the odometry's path length (t,) at these times, in metres; a radian counts as one."""
    motions = relative(odometry.poses[:-1], odometry.poses[1:])
    steps = np.hypot(motions[:, 0], motions[:, 1]) + np.abs(motions[:, 2])
    driven = np.concatenate([[0.0], np.cumsum(steps)])
    since = (odometry.stamps_ns - odometry.stamps_ns[0]).astype(np.float64)
    return np.asarray(np.interp((at_ns - odometry.stamps_ns[0]).astype(np.float64), since, driven))


def _neighbours(stamps_ns: Stamps, at_ns: Stamps) -> tuple[Rows, Rows]:
    """Return the rows of the known poses before and after each time; the same one outside."""
    right = np.searchsorted(stamps_ns, at_ns, side="left")
    last = len(stamps_ns) - 1
    return np.clip(right - 1, 0, last), np.clip(right, 0, last)


def known_poses(log: OdometryLog, at_ns: Stamps) -> Array:
    """Return poses (t, 3) at the times `at_ns`, interpolated in time, NaN where they are not known.

    Known is what lies between two poses that are near each other in time or in space (a robot that
    stands still may publish nothing for minutes), or within 0.1 s of the first or last pose.
    """
    stamps_ns, poses = log.stamps_ns, log.poses
    result = np.full((len(at_ns), 3), np.nan)
    before, after = _neighbours(stamps_ns, at_ns)
    gap_ns = stamps_ns[after] - stamps_ns[before]
    gap_m = np.hypot(*(poses[after] - poses[before])[:, :2].T)
    known = (gap_ns <= MAX_GAP_NS) | (gap_m <= MAX_GAP_M)
    known |= stamps_ns[after] == at_ns
    known &= at_ns >= stamps_ns[0] - END_TOLERANCE_NS
    known &= at_ns <= stamps_ns[-1] + END_TOLERANCE_NS
    result[known] = interpolate(stamps_ns, poses, at_ns[known])
    return result


GLOBAL_FRAME, ODOM_FRAME = "map", "odom"
BASE_FRAMES = ("base_footprint", "base_link")
MOVING_M, MOVING_RAD = 0.01, 0.01
"""Change of a transform beyond vibration and rounding: the mount moves."""


class TransformLog:
    """Collects the transforms of tf and tf_static messages, each pair of frames by itself."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str], PoseLog] = {}

    def add(self, message: Any, static: bool = False) -> None:
        for transform in message.transforms:
            stamp = transform.header.stamp
            stamp_ns = int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
            move, turn = transform.transform.translation, transform.transform.rotation
            edge = (transform.header.frame_id.lstrip("/"), transform.child_frame_id.lstrip("/"))
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
        A camera's body frame is taken for what it is (`Mount.of_frame`).
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
            return Mount.of_frame(place, rotation, camera_frame)
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
        """Return rotation (3, 3) and translation (3,) of the first frame in the last's parent."""
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
