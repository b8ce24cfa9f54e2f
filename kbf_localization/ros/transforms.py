"""Transforms of tf: the robot's odometry, and where the camera is mounted.

A small buffer of its own in place of tf2_ros, which PyPI does not have.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import Pose, TransformStamped
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose
from kbf_localization.ros.conversions import planar_pose

MAX_FRAMES, MAX_LINKS, MAX_NAME_LENGTH = 10_000, 100, 1000
"""Limits of tf, whose frames come from the network: frames that are kept, links between two
frames, and characters of a name."""
MAX_MOUNT_M = 100.0
"""No camera is mounted further from its robot's base."""
MAX_TRANSLATION_M = float(np.finfo(np.float32).max)
"""Beyond which a number is taken for infinite."""
NORM_TOLERANCE = 0.01
Numbers = tuple[float, ...]


class TransformChain:
    """The pose of `base` in `odom` by the transforms of tf."""

    def __init__(self, odom: str, base: str) -> None:
        self._odom, self._base = odom, base
        self._parents: dict[str, str] = {}
        self._poses: dict[str, Array] = {}

    def add(self, transform: TransformStamped) -> Array | None:
        """Return the pose (3,) where this transform changes it and the chain is complete.

        ValueError for an invalid transform and for a loop.
        """
        parent, child = frames_of(transform)
        moved = Pose(orientation=transform.transform.rotation)
        moved.position.x = transform.transform.translation.x
        moved.position.y = transform.transform.translation.y
        pose = planar_pose(moved)
        _keep_newest(self._parents, child, parent)
        self._poses[child] = pose
        path = path_to_root(self._parents, self._base, self._odom)
        if len(self._parents) > MAX_FRAMES:
            del self._poses[_drop_oldest(self._parents, path)]
        if path[-1] in path[:-1]:
            raise ValueError(f"tf loops: {' → '.join(path)}")
        if len(path) > MAX_LINKS:
            raise ValueError(f"tf has more than {MAX_LINKS} frames above {self._base}")
        if path[-1] != self._odom or child not in path[:-1]:
            return None
        pose = np.zeros(3)
        for frame in path[:-1]:
            pose = compose(self._poses[frame], pose)
        return pose


@dataclass(frozen=True)
class MountTransform:
    """A camera frame in the base's: `translation` x, y, z in metres, `quaternion` x, y, z, w."""

    translation: tuple[float, float, float]
    quaternion: tuple[float, float, float, float]

    def __str__(self) -> str:
        x, y, z = self.translation
        return f"({x:.3f}, {y:.3f}, {z:.3f}) m, {np.round(self.quaternion, 4).tolist()}"

    def is_close(self, other: MountTransform, metres: float, radians: float) -> bool:
        """Return whether the two differ by no more than this."""
        far = math.dist(self.translation, other.translation) > metres
        turn = Rotation.from_quat(self.quaternion).inv() * Rotation.from_quat(other.quaternion)
        return not far and float(turn.magnitude()) <= radians


class MountLookup:
    """Where frames are in that of `base`, by the transforms of tf and tf_static.

    The newest transform between two frames counts: a mount does not move.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._parents: dict[str, str] = {}
        self._transforms: dict[str, tuple[Numbers, Numbers]] = {}

    def add(self, transform: TransformStamped, camera_frame: str) -> None:
        """Keep a transform; frames between base and camera are never dropped for others.

        ValueError for an invalid transform.
        """
        parent, child = frames_of(transform)
        at, turn = transform.transform.translation, transform.transform.rotation
        translation, quaternion = (at.x, at.y, at.z), (turn.x, turn.y, turn.z, turn.w)
        # A comparison with NaN is false.
        if not all(abs(number) <= MAX_TRANSLATION_M for number in translation):
            raise ValueError(f"the transform {parent}→{child} is not finite")
        if not abs(math.hypot(*quaternion) - 1.0) <= NORM_TOLERANCE:
            raise ValueError(f"the transform {parent}→{child} has no unit quaternion")
        _keep_newest(self._parents, child, parent)
        self._transforms[child] = quaternion, translation
        if len(self._parents) > MAX_FRAMES:
            needed = {*self._path(self._base), *self._path(camera_frame)}
            del self._transforms[_drop_oldest(self._parents, needed)]

    def find(self, camera_frame: str) -> MountTransform | None:
        """Return the camera's frame in the base's; None where no transforms connect them."""
        from_base, from_camera = self._path(self._base), self._path(camera_frame)
        common = next((frame for frame in from_camera if frame in from_base), None)
        if common is None:
            return None
        base_turn, base_at = self._in_ancestor(from_base, common)
        turn, at = self._in_ancestor(from_camera, common)
        quaternion = (base_turn.inv() * turn).as_quat()
        x, y, z = base_turn.inv().apply(at - base_at).tolist()
        if max(abs(x), abs(y), abs(z)) > MAX_MOUNT_M:
            raise ValueError(f"tf mounts {camera_frame} {math.hypot(x, y, z):.0f} m from the base")
        qx, qy, qz, qw = quaternion.tolist()
        return MountTransform((x, y, z), (qx, qy, qz, qw))

    def _path(self, frame: str) -> list[str]:
        return path_to_root(self._parents, frame)

    def _in_ancestor(self, path: list[str], ancestor: str) -> tuple[Rotation, Array]:
        """Return rotation and position (3,) of the path's first frame in one of its ancestors."""
        turn, at = Rotation.identity(), np.zeros(3)
        for frame in path[: path.index(ancestor)]:
            quaternion, offset = self._transforms[frame]
            step = Rotation.from_quat(quaternion)
            turn, at = step * turn, step.apply(at) + np.array(offset)
        return turn, at


def frames_of(transform: TransformStamped) -> tuple[str, str]:
    """Return parent and child of a transform; ValueError for names that are too long."""
    child, parent = transform.child_frame_id.lstrip("/"), transform.header.frame_id.lstrip("/")
    if max(len(child), len(parent)) > MAX_NAME_LENGTH:
        raise ValueError(f"a frame's name has more than {MAX_NAME_LENGTH} characters")
    return parent, child


def path_to_root(parents: Mapping[str, str], frame: str, root: str | None = None) -> list[str]:
    """Return the frames from `frame` up to `root`, or to the last known parent.

    It ends with a frame that it has already where the transforms loop, and after MAX_LINKS frames.
    """
    path = [frame]
    while path[-1] != root and path[-1] in parents and len(path) <= MAX_LINKS:
        path.append(parents[path[-1]])
        if path[-1] in path[:-1]:
            break
    return path


def _keep_newest(parents: dict[str, str], child: str, parent: str) -> None:
    parents.pop(child, None)
    parents[child] = parent  # the newest is the last


def _drop_oldest(parents: dict[str, str], needed: Collection[str]) -> str:
    """Drop the oldest frame that is not needed; return it."""
    dropped = next(frame for frame in parents if frame not in needed)
    del parents[dropped]
    return dropped
