"""Transforms of tf: the robot's odometry, and where the camera is mounted.

A small buffer stands in for tf2_ros, which PyPI does not have.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import Pose, TransformStamped
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose
from kbf_localization.ros.conversions import planar_pose
from kbf_localization.vision.camera.mount import MAX_MOUNT_M, Mount

MAX_FRAMES, MAX_LINKS, MAX_NAME_LENGTH = 10_000, 100, 1000
"""Limits of tf, whose frames come from the network: frames that are kept, links between two
frames, and characters of a name."""
MAX_TRANSLATION_M = float(np.finfo(np.float32).max)
"""Beyond which a number is taken for infinite."""
NORM_TOLERANCE = 0.01
Numbers = tuple[float, ...]


class FrameTree:
    """The parent of each frame by its newest transform; of too many the oldest is dropped."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._parents)

    def keep(self, child: str, parent: str) -> None:
        """Take a transform; the newest is the last."""
        self._parents.pop(child, None)
        self._parents[child] = parent

    def drop_oldest(self, needed: Collection[str]) -> str:
        """Drop the oldest frame that is not needed; return it."""
        dropped = next(frame for frame in self._parents if frame not in needed)
        del self._parents[dropped]
        return dropped

    def path(self, frame: str, root: str | None = None) -> list[str]:
        """Return the frames from `frame` up to `root`, or to the last known parent.

        It ends with a frame that it has already where the transforms loop, and after MAX_LINKS
        frames.
        """
        path = [frame]
        while path[-1] != root and path[-1] in self._parents and len(path) <= MAX_LINKS:
            path.append(self._parents[path[-1]])
            if path[-1] in path[:-1]:
                break
        return path


class TransformChain:
    """The pose of `base` in `odom` by the transforms of tf."""

    def __init__(self, odom: str, base: str) -> None:
        self._odom, self._base = odom, base
        self._tree = FrameTree()
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
        self._tree.keep(child, parent)
        self._poses[child] = pose
        path = self._tree.path(self._base, self._odom)
        if len(self._tree) > MAX_FRAMES:
            del self._poses[self._tree.drop_oldest(path)]
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
    """An optical frame in the base's: `translation` x, y, z in metres, `quaternion` x, y, z, w."""

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

    The newest transform between two frames counts.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._tree = FrameTree()
        self._transforms: dict[str, tuple[Numbers, Numbers]] = {}
        self._static: set[str] = set()

    def add(self, transform: TransformStamped, camera_frame: str, static: bool = False) -> None:
        """Keep a transform; frames between base and camera are never dropped for others.

        It is `static` where tf_static has it. ValueError for an invalid transform.
        """
        parent, child = frames_of(transform)
        at, turn = transform.transform.translation, transform.transform.rotation
        translation, quaternion = (at.x, at.y, at.z), (turn.x, turn.y, turn.z, turn.w)
        # A comparison with NaN is false.
        if not all(abs(number) <= MAX_TRANSLATION_M for number in translation):
            raise ValueError(f"the transform {parent}→{child} is not finite")
        if not abs(math.hypot(*quaternion) - 1.0) <= NORM_TOLERANCE:
            raise ValueError(f"the transform {parent}→{child} has no unit quaternion")
        self._tree.keep(child, parent)
        self._transforms[child] = quaternion, translation
        (self._static.add if static else self._static.discard)(child)
        if len(self._tree) > MAX_FRAMES:
            needed = {*self._tree.path(self._base), *self._tree.path(camera_frame)}
            dropped = self._tree.drop_oldest(needed)
            del self._transforms[dropped]
            self._static.discard(dropped)

    def find(self, camera_frame: str) -> MountTransform | None:
        """Return the camera's optical frame in the base's; None where no transforms connect them.

        The frame may be the camera's body (`Mount.of_frame`).
        """
        from_base, from_camera, common = self._connection(camera_frame)
        if common is None:
            return None
        base_turn, base_at = self._in_ancestor(from_base, common)
        turn, at = self._in_ancestor(from_camera, common)
        x, y, z = base_turn.inv().apply(at - base_at).tolist()
        if max(abs(x), abs(y), abs(z)) > MAX_MOUNT_M:
            raise ValueError(f"tf mounts {camera_frame} {math.hypot(x, y, z):.0f} m from the base")
        axes = (base_turn.inv() * turn).as_matrix()
        return MountTransform((x, y, z), Mount.of_frame((x, y, z), axes, camera_frame).quaternion)

    def may_move(self, camera_frame: str) -> bool:
        """Tell whether a transform between the base and the camera is not of tf_static."""
        from_base, from_camera, common = self._connection(camera_frame)
        if common is None:
            return False
        between = (
            *from_base[: from_base.index(common)],
            *from_camera[: from_camera.index(common)],
        )
        return not self._static.issuperset(between)

    def _connection(self, camera_frame: str) -> tuple[list[str], list[str], str | None]:
        """Return the paths up from base and camera, and the first frame common to both."""
        from_base, from_camera = self._tree.path(self._base), self._tree.path(camera_frame)
        common = next((frame for frame in from_camera if frame in from_base), None)
        return from_base, from_camera, common

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
