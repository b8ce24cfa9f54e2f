"""Cameras other than a level pinhole over the base: mounts, lenses and clocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import cv2
import numpy as np

from kbf_localization.arrays import Array, Floats, Image, Stamps
from kbf_localization.datasets.known_cameras import SIMULATED_HEIGHT_M, simulated_camera
from kbf_localization.errors import ParameterError
from kbf_localization.geometry import compose, interpolate
from kbf_localization.simulator.floor_plan import CEILING_M
from kbf_localization.simulator.lookup import Camera
from kbf_localization.vision.camera.mount import Mount
from kbf_localization.vision.camera.pinhole import PinholeCamera

MAX_LEVER_M = 2.0
"""Of the camera from its default place; farther, it would stand in walls."""
MAX_PITCH_RAD, MAX_TIME_OFFSET_S = 0.7, 10.0
MAX_RAY_SLOPE = 4.0
"""Of a ray against the level direction ahead (76°): beyond, the level image would be huge."""
CLEARANCE_M = 0.2
"""From floor and ceiling."""


@dataclass(frozen=True)
class SimulatedCamera:
    """How a simulated camera differs from COLD's, 1.1 m above the base, looking ahead.

    `offset_m` (x, y, z) moves it in the base's frame; `yaw_rad` turns it to the left and
    `pitch_rad` down; `distortion` holds k1 or k1, k2. Its stamps are `time_offset_s` late: an image
    stamped t was taken at t - `time_offset_s`. With `write_info` the drive gets a `camera.yaml`.
    """

    offset_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw_rad: float = 0.0
    pitch_rad: float = 0.0
    distortion: tuple[float, ...] = ()
    time_offset_s: float = 0.0
    write_info: bool = False

    def __post_init__(self) -> None:
        numbers = (*self.offset_m, self.yaw_rad, self.pitch_rad, self.time_offset_s)
        if len(self.offset_m) != 3 or len(self.distortion) > 2:
            raise ParameterError("a camera's offset has x, y and z, its distortion k1 and k2")
        if not all(isfinite(value) for value in (*numbers, *self.distortion)):
            raise ParameterError("a camera's offset, turn, distortion and time must be finite")
        if max(map(abs, self.offset_m)) > MAX_LEVER_M:
            raise ParameterError(f"a camera's offset is at most {MAX_LEVER_M:g} m")
        height = SIMULATED_HEIGHT_M + self.offset_m[2]
        if not CLEARANCE_M <= height <= CEILING_M - CLEARANCE_M:
            raise ParameterError(f"the camera would be at a height of {height:g} m")
        if abs(self.yaw_rad) > np.pi or abs(self.pitch_rad) > MAX_PITCH_RAD:
            raise ParameterError(
                f"a camera's yaw is at most pi, its pitch {MAX_PITCH_RAD:g} rad; give radians"
            )
        if abs(self.time_offset_s) > MAX_TIME_OFFSET_S:
            raise ParameterError(f"a camera's time offset is at most {MAX_TIME_OFFSET_S:g} s")

    @property
    def is_default(self) -> bool:
        """Whether lens and mount are those that a reader of simulated drives assumes."""
        return self.mount == DEFAULT_MOUNT and not any(self.distortion)

    @property
    def mount(self) -> Mount:
        x, y, z = self.offset_m
        place = [x, y, SIMULATED_HEIGHT_M + z]
        return Mount.from_angles(place, self.yaw_rad, self.pitch_rad)

    def lens(self, width: int, height: int) -> PinholeCamera:
        """Return the calibrated camera for images of this size."""
        plain = simulated_camera(width, height)
        if not any(self.distortion):
            return plain
        coefficients = (*self.distortion, 0.0, 0.0, 0.0)[:4]
        return PinholeCamera.from_focal(width, height, plain.fx, coefficients)

    def eyes(self, stamps_ns: Stamps, poses: Array) -> Array:
        """Return where (t, 3) the camera was, and its heading, when the images were taken."""
        taken = stamps_ns - round(self.time_offset_s * 1e9)
        bases = interpolate(stamps_ns, poses, taken) if self.time_offset_s else poses
        return compose(bases, np.array([*self.offset_m[:2], self.yaw_rad]))


DEFAULT_CAMERA = SimulatedCamera()
DEFAULT_MOUNT = DEFAULT_CAMERA.mount


class Optics:
    """Looks through a lens, and along a pitched axis, at the image of a level pinhole camera.

    `level` is that camera, as wide as the view needs; the default camera is its own.
    """

    def __init__(self, camera: SimulatedCamera, width: int, height: int) -> None:
        above = SIMULATED_HEIGHT_M + camera.offset_m[2]
        self.level = Camera(width, height, above_m=above)
        self._maps: tuple[Floats, Floats] | None = None
        lens = camera.lens(width, height)
        if lens.distortion or camera.pitch_rad:
            self._look_through(lens, camera.pitch_rad, above)

    def _look_through(self, lens: PinholeCamera, pitch: float, above: float) -> None:
        rows, columns = np.mgrid[0 : lens.height, 0 : lens.width]
        rays = lens.rays(np.column_stack([columns.ravel(), rows.ravel()]))
        turned = Mount.from_angles(np.zeros(3), pitch=pitch).rotation @ rays.T
        ahead, left, up = turned
        with np.errstate(divide="ignore", invalid="ignore"):
            right, fall = -left / ahead, -up / ahead
        if not np.nanmin(ahead) > 0.0 or not np.nanmax(np.abs((right, fall))) < MAX_RAY_SLOPE:
            raise ParameterError("a camera's pitch and distortion show what is not rendered")
        # As wide as the steepest ray, at the lens's own focal length; a pixel more for rounding.
        # Odd where the image is odd, so that the pixels in the middle coincide.
        width = 2 * int(np.ceil(np.nanmax(np.abs(right)) * lens.fx)) + 2 + lens.width % 2
        height = 2 * int(np.ceil(np.nanmax(np.abs(fall)) * lens.fx)) + 2 + lens.height % 2
        view = 2.0 * np.degrees(np.arctan(0.5 * width / lens.fx))
        self.level = Camera(width, height, float(view), above)
        shape = (lens.height, lens.width)
        at = ((width - 1) / 2 + lens.fx * right, (height - 1) / 2 + lens.fx * fall)
        # What the lens does not reach is black.
        x, y = (np.nan_to_num(item, nan=-10.0).reshape(shape).astype(np.float32) for item in at)
        self._maps = x, y

    def image(self, level: Image) -> Image:
        """Return what the camera sees of the level camera's image."""
        if self._maps is None:
            return level
        x, y = self._maps
        return np.asarray(cv2.remap(level, x, y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT))
