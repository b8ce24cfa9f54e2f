"""Where a camera sits on its robot: the optical frame in the base's frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array
from kbf_localization.errors import ParameterError
from kbf_localization.geometry import NORM_TOLERANCE
from kbf_localization.limits import shortened

MAX_MOUNT_M = 100.0
"""A camera further from its robot's base is an error of the transforms, not a mount."""
OPTICAL_IN_BASE = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
"""A level camera that looks ahead: its z is the robot's x, its x to the right, its y down."""
BODY_TILT_COS = 0.7
"""An optical frame's z looks ahead; one that is upright within 45° is the camera's body."""
_ORTHONORMAL = 1e-6


@dataclass(frozen=True, eq=False)
class Mount:
    """The pose of the optical frame in the robot's base frame (x ahead, y left, z up).

    `rotation` (3, 3) has the optical axes as columns; `translation` (3,) is the optical centre in
    metres. Both are read-only.
    """

    rotation: Array
    translation: Array

    def __post_init__(self) -> None:
        try:
            rotation = np.array(self.rotation, dtype=np.float64)
            translation = np.array(self.translation, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ParameterError("the camera's mount is not made of numbers") from error
        if rotation.shape != (3, 3) or translation.shape != (3,):
            raise ParameterError(
                f"the camera's mount has a rotation of the shape {rotation.shape} and a "
                f"translation of {translation.shape}: give (3, 3) and (3,)"
            )
        # Comparisons with NaN are false.
        if not (np.abs(translation) <= MAX_MOUNT_M).all():
            raise ParameterError(
                f"the camera's mount is {shortened(translation.tolist())}: not finite, or beyond "
                f"{MAX_MOUNT_M:g} m from the base"
            )
        skew = np.abs(rotation @ rotation.T - np.eye(3)).max()
        if not skew <= _ORTHONORMAL or np.linalg.det(rotation) < 0.0:
            raise ParameterError("the camera's mount has a rotation that is none")
        rotation.flags.writeable = translation.flags.writeable = False
        object.__setattr__(self, "rotation", rotation)
        object.__setattr__(self, "translation", translation)

    @classmethod
    def ahead(cls, height: float = 0.0) -> Mount:
        """Return a level camera above the base's origin, looking ahead."""
        return cls(OPTICAL_IN_BASE, np.array([0.0, 0.0, height]))

    @classmethod
    def from_angles(
        cls, translation: ArrayLike, yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0
    ) -> Mount:
        """Return a camera turned from looking ahead: yaw to the left, pitch down, roll clockwise.

        The angles are REP 103's, in radians, of the camera's body (x ahead, y left, z up), about
        its z, then y, then x axis.
        """
        return cls(rotation_of(yaw, pitch, roll), np.asarray(translation, dtype=np.float64))

    @classmethod
    def from_transform(cls, translation: ArrayLike, quaternion: ArrayLike) -> Mount:
        """Return a tf transform from the base's frame to the optical frame.

        `translation` (x, y, z) in metres; `quaternion` (x, y, z, w) of about unit length.
        """
        turn = np.asarray(quaternion, dtype=np.float64)
        if turn.shape != (4,) or not abs(float(np.linalg.norm(turn)) - 1.0) <= NORM_TOLERANCE:
            raise ParameterError("the camera's mount has a quaternion that is no rotation")
        x, y, z, w = turn / np.linalg.norm(turn)
        rotation = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
            ]
        )
        return cls(rotation, np.asarray(translation, dtype=np.float64))

    @classmethod
    def of_frame(cls, translation: ArrayLike, rotation: Array, frame: str) -> Mount:
        """Return the mount of a camera whose `frame` of tf has these axes (3, 3) in the base's.

        A frame whose z axis is upright, or upside down, is the camera's body (x ahead) and not its
        optical frame, unless its name says so.
        """
        axes = np.asarray(rotation, dtype=np.float64)
        if abs(axes[2, 2]) > BODY_TILT_COS and "optical" not in frame.lower():
            axes = axes @ OPTICAL_IN_BASE
        return cls(axes, np.asarray(translation, dtype=np.float64))

    @classmethod
    def from_dict(cls, values: object) -> Mount:
        """Return a stored mount; ParameterError for what is none."""
        if not isinstance(values, Mapping) or not {"rotation", "translation"} <= set(values):
            raise ParameterError("the stored mount has no rotation or no translation")
        return cls(values["rotation"], values["translation"])

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers, for `from_dict`."""
        return {"rotation": self.rotation.tolist(), "translation": self.translation.tolist()}

    def to_base(self, points: ArrayLike) -> Array:
        """Return points (k, 3) of the optical frame in the base's frame."""
        return np.asarray(np.asarray(points, dtype=np.float64) @ self.rotation.T + self.translation)

    def to_optical(self, points: ArrayLike) -> Array:
        """Return points (k, 3) of the base's frame in the optical frame."""
        return np.asarray((np.asarray(points, dtype=np.float64) - self.translation) @ self.rotation)

    @property
    def angles(self) -> tuple[float, float, float]:
        """(yaw, pitch, roll) as `from_angles` takes them."""
        body = self.rotation @ OPTICAL_IN_BASE.T
        yaw = math.atan2(body[1, 0], body[0, 0])
        pitch = math.asin(min(max(-body[2, 0], -1.0), 1.0))
        return yaw, pitch, math.atan2(body[2, 1], body[2, 2])

    @property
    def quaternion(self) -> tuple[float, float, float, float]:
        """(x, y, z, w) as `from_transform` takes them."""
        # A copy: SciPy 1.11 refuses read-only arrays.
        x, y, z, w = Rotation.from_matrix(self.rotation.copy()).as_quat().tolist()
        return x, y, z, w

    @property
    def is_upside_down(self) -> bool:
        """Whether the image's lower edge points up: images would have to be turned by π."""
        return bool(self.rotation[2, 1] > 0.5)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mount) and (
            np.array_equal(self.rotation, other.rotation)
            and np.array_equal(self.translation, other.translation)
        )

    def __hash__(self) -> int:
        return hash((self.rotation.tobytes(), self.translation.tobytes()))


def rotation_of(yaw: float, pitch: float, roll: float) -> Array:
    """Return the optical axes (3, 3) in the base's frame of a camera turned as in `from_angles`."""
    (cy, cp, cr), (sy, sp, sr) = np.cos([yaw, pitch, roll]), np.sin([yaw, pitch, roll])
    about_z = np.array([[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]])
    about_y = np.array([[cp, 0.0, sp], [0.0, 1.0, 0.0], [-sp, 0.0, cp]])
    about_x = np.array([[1.0, 0.0, 0.0], [0.0, cr, -sr], [0.0, sr, cr]])
    return np.asarray(about_z @ about_y @ about_x @ OPTICAL_IN_BASE)
