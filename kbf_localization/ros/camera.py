"""The camera as ROS describes it to the localizer: its calibration (CameraInfo) and mount (tf)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from geometry_msgs.msg import TransformStamped
from sensor_msgs.msg import CameraInfo

from kbf_localization.errors import ParameterError
from kbf_localization.events import Event
from kbf_localization.filters.base import Estimate
from kbf_localization.localization import Localizer
from kbf_localization.ros.transforms import MountLookup, MountTransform
from kbf_localization.sanitize import SanitizingLogger
from kbf_localization.vision.camera import Mount
from kbf_localization.vision.camera.camera_info import (
    camera_from_info,
    is_panorama,
    is_rectified,
)

INFO_PERIOD_S = 1.0
"""Period in which CameraInfo is read: it comes with every image and hardly ever changes."""
MOUNT_SEARCH_S = 30.0
"""Seconds for which /tf is searched for a mount that tf_static does not have."""
MOUNT_CHECK_PERIOD_S, MOUNT_CHECK_S = 10.0, 1.0
"""A mount by joints of /tf is looked at again for a second out of ten: does the camera move?"""
MAX_PIXELS, MAX_COEFFICIENTS, MAX_MODEL_LENGTH = 100_000, 100, 100
"""Limits of a CameraInfo: pixels of a side, distortion coefficients, characters of a name."""
MIN_FOCAL_FRACTION, MAX_FOCAL_FRACTION = 0.05, 100.0
"""Focal lengths that lenses have, in the larger side of the image."""
MAX_MOUNT_CHANGE_M, MAX_MOUNT_CHANGE_RAD = 0.01, 0.01
"""Larger differences are a mount that has changed."""
TILTED_DEG, TILTED_SIGMAS = 1.0, 3.0
"""Of pitch or roll against the map's images, and their deviations over these, from which on the
camera's mount is doubted."""
TRANSPORTS = ("compressed", "compressedDepth", "theora", "ffmpeg", "zstd")


@dataclass(frozen=True)
class Region:
    """A CameraInfo's region of interest in pixels."""

    x_offset: int
    y_offset: int
    width: int
    height: int


@dataclass(frozen=True)
class CameraInfoFields:
    """A CameraInfo without its stamp, with the message's own names of fields."""

    frame_id: str
    width: int
    height: int
    distortion_model: str
    d: tuple[float, ...]
    k: tuple[float, ...]
    r: tuple[float, ...]
    p: tuple[float, ...]
    binning_x: int
    binning_y: int
    roi: Region

    def __str__(self) -> str:
        size, model = f"{self.width}x{self.height}", self.distortion_model or "no distortion"
        if is_panorama(model):
            return f"{size}, {model}"
        return f"{size}, f {self.k[0]:.1f} and {self.k[4]:.1f} px, {model}"


def camera_info_name(image_topic: str) -> str:
    """Return the topic that, by convention, has the calibration of an image topic's camera.

    "/camera/image_raw/compressed" has "/camera/camera_info" beside it.
    """
    folder, _, last = image_topic.rpartition("/")
    if last in TRANSPORTS:
        folder = folder.rpartition("/")[0]
    return f"{folder}/camera_info"


def read_camera_info(message: CameraInfo) -> CameraInfoFields:
    """Return the fields of a CameraInfo; ValueError, with the reason, for no camera's."""
    width, height, k = int(message.width), int(message.height), tuple(map(float, message.k))
    if not 0 < width <= MAX_PIXELS or not 0 < height <= MAX_PIXELS:
        raise ValueError(f"its size is {width}x{height} pixels")
    model, d = str(message.distortion_model), tuple(map(float, message.d))
    if len(model) > MAX_MODEL_LENGTH or len(d) > MAX_COEFFICIENTS:
        raise ValueError("its distortion model or its coefficients are too long")
    r, p = tuple(map(float, message.r)), tuple(map(float, message.p))
    if not all(map(math.isfinite, (*k, *d, *r, *p))):
        raise ValueError("it has numbers that are not finite")
    if not is_panorama(model):
        _check_matrix(k, width, height)
    roi = message.roi
    region = Region(int(roi.x_offset), int(roi.y_offset), int(roi.width), int(roi.height))
    return CameraInfoFields(
        message.header.frame_id.lstrip("/"),
        width,
        height,
        model,
        d,
        k,
        r,
        p,
        int(message.binning_x),
        int(message.binning_y),
        region,
    )


def _check_matrix(k: tuple[float, ...], width: int, height: int) -> None:
    """Refuse the matrix of no lens; that of a panorama may be zero, or mirrored."""
    if not any(k):
        raise ValueError("the camera is not calibrated, its matrix K is zero")
    for focal in (k[0], k[4]):
        fraction = focal / max(width, height)
        if not MIN_FOCAL_FRACTION <= fraction <= MAX_FOCAL_FRACTION:
            raise ValueError(
                f"a focal length of {focal:g} pixels fits no image of {width}x{height}"
            )
    if not (-width < k[2] < 2 * width and -height < k[5] < 2 * height):
        raise ValueError(f"its centre ({k[2]:g}, {k[5]:g}) is far outside of {width}x{height}")


class CameraMonitor:
    """Collect a camera's calibration and mount; the first of each counts.

    `found(info, mount)` is called when either becomes known. `warn(kind, line)` is called once for
    each kind of problem; `problems` has the lines.
    """

    def __init__(
        self,
        base_frame: str,
        found: Callable[[CameraInfoFields | None, MountTransform | None], None],
        warn: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info: CameraInfoFields | None = None
        self.mount: MountTransform | None = None
        self.problems: dict[str, str] = {}
        self._found, self._warn, self._clock = found, warn, clock
        self._lookup = MountLookup(base_frame)
        self._frame = ""
        self._info_at, self._frame_at = -math.inf, math.inf
        self._image_size = (0, 0)
        self._joints = False
        # Images come on another thread than the other messages.
        self._lock = threading.RLock()

    @property
    def wants_info(self) -> bool:
        """Whether it is time to read the next CameraInfo."""
        return self._clock() - self._info_at >= INFO_PERIOD_S

    @property
    def wants_tf(self) -> bool:
        """Whether /tf may have the mount, which tf_static does not have, or may have moved it."""
        since = self._clock() - self._frame_at
        if self.mount is None:
            return since < MOUNT_SEARCH_S
        return self._joints and since % MOUNT_CHECK_PERIOD_S < MOUNT_CHECK_S

    def on_info(self, message: CameraInfo) -> None:
        with self._lock:
            self._take_info(message)

    def _take_info(self, message: CameraInfo) -> None:
        self._info_at = self._clock()
        try:
            info = read_camera_info(message)
        except ValueError as error:
            self.report("camera_info", f"camera_info is not used: {error}")
            return
        if self.info is None:
            self.info = info
            self._compare_sizes()
            self._found(self.info, self.mount)
            self._set_frame(info.frame_id)
        elif info != self.info:
            self.report(
                "camera_info_changed",
                f"camera_info has changed from {self.info} to {info}, which is not used: "
                "configure the node again",
            )

    def on_transforms(self, transforms: list[TransformStamped], static: bool = False) -> None:
        with self._lock:
            for transform in transforms:
                try:
                    self._lookup.add(transform, self._frame, static)
                except ValueError as error:
                    self.report("camera_mount_invalid", f"tf is not used for the mount: {error}")
            self._find_mount()

    def on_image(self, frame: str, width: int, height: int) -> None:
        """Take an image's frame, which counts where there is no CameraInfo, and its size."""
        with self._lock:
            if (width, height) != self._image_size:
                self._image_size = width, height
                self._compare_sizes()
            if not self._frame:
                self._set_frame(frame.lstrip("/"))

    def _set_frame(self, frame: str) -> None:
        if frame and frame != self._frame:
            self._frame, self._frame_at = frame, self._clock()
            self._find_mount()

    def _find_mount(self) -> None:
        if not self._frame:
            return
        try:
            mount = self._lookup.find(self._frame)
        except ValueError as error:
            self.report("camera_mount_invalid", f"the mount is not used: {error}")
            return
        if mount is None:
            return
        self._joints = self._lookup.may_move(self._frame)
        if self.mount is None:
            self.mount = mount
            self._found(self.info, self.mount)
        elif not self.mount.is_close(mount, MAX_MOUNT_CHANGE_M, MAX_MOUNT_CHANGE_RAD):
            self.report(
                "camera_mount_changed",
                f"the camera's mount has changed from {self.mount} to {mount}, which is not used: "
                "a camera that moves on its robot is not supported",
            )

    def _compare_sizes(self) -> None:
        """Warn of images that are not those of the calibration, scaled or not."""
        info, (width, height) = self.info, self._image_size
        if info is None or not width:
            return
        full = (info.roi.width or info.width), (info.roi.height or info.height)
        ratio = (width / height) / (full[0] / full[1])
        if abs(ratio - 1.0) > 0.02 + 1.0 / min(width, height):
            self.report(
                "camera_info_size",
                f"camera_info is of images of {full[0]}x{full[1]} pixels, those that come have "
                f"{width}x{height}, of another aspect ratio",
            )

    def report(self, kind: str, line: str) -> None:
        """Keep a problem, and warn of it once."""
        if kind not in self.problems:
            self.problems[kind] = line
            self._warn(kind, line)


class CameraCalibration:
    """Give the localizer the camera's calibration and mount, and compare them with the map's.

    `monitor` collects them from messages.
    """

    def __init__(
        self,
        localizer: Localizer,
        base_frame: str,
        log: SanitizingLogger,
        warn: Callable[[str, str], None],
    ) -> None:
        self.monitor = CameraMonitor(base_frame, self._take, warn)
        self._localizer, self._log = localizer, log
        landmarks = localizer.training_map.landmarks
        self._map_mount = None if landmarks is None else landmarks.mount
        self._info: CameraInfoFields | None = None
        self._mount: MountTransform | None = None
        self._rectified = False
        self._tilt = (math.nan, math.nan)
        self._tilt_at: Estimate | None = None

    def expect_images(self, topic: str) -> None:
        """Take the resolved name of the images' topic, which says whether they are rectified."""
        self._rectified = is_rectified(topic)

    def _take(self, info: CameraInfoFields | None, mount: MountTransform | None) -> None:
        """Take the camera's calibration and its mount on the base, as far as they are known."""
        self._info, self._mount = info, mount
        known = f"calibration {self._text or 'unknown'}; mount {mount or 'unknown'}"
        self._log.info(f"camera: {known}")
        camera = placed = None
        try:
            if info is not None:
                camera = camera_from_info(info, rectified=self._rectified)
        except ParameterError as error:
            self.monitor.report("camera", f"camera_info is not used, but the map's camera: {error}")
        try:
            if mount is not None:
                placed = Mount.from_transform(mount.translation, mount.quaternion)
        except ParameterError as error:
            self.monitor.report("camera_mount", f"tf is not used, but the map's mount: {error}")
        if placed is not None and self._is_turned_over(placed):
            self.monitor.report(
                "camera_rolled",
                "the camera is mounted upside down compared with that of the map: its images match "
                "nothing; turn them by 180° in the driver, or correct base_frame → camera in tf",
            )
        self._localizer.set_camera(camera, placed)

    def _is_turned_over(self, mount: Mount) -> bool:
        """Tell whether the camera is upside down and that of the map's landmarks is not."""
        own = self._map_mount
        return own is not None and own.is_upside_down != mount.is_upside_down

    @property
    def _text(self) -> str:
        """The camera's calibration in words, empty where it is unknown."""
        if self._info is None:
            return ""
        return f"{self._info}{', rectified images' if self._rectified else ''}"

    def diagnostics(self) -> dict[str, str]:
        """Return a line for each kind of problem with the camera."""
        found, last = dict(self.monitor.problems), self._localizer.last
        if last is not None and Event.CAMERA_TURNED in last.estimate.events:
            found[Event.CAMERA_TURNED.value] = (
                f"the camera looks turned by {math.degrees(last.estimate.camera_yaw):.0f}° on its "
                "mount since the map was made: turn it back, or correct base_frame → camera in tf"
            )
        pitch, roll = self._tilt_deg()
        landmarks = self._localizer.training_map.landmarks
        if landmarks is not None:
            spread_deg = math.degrees(max(landmarks.description.attitude_sigma[1:]))
            if max(abs(pitch), abs(roll)) > max(TILTED_DEG, TILTED_SIGMAS * spread_deg):
                found["camera_tilted"] = (
                    f"the camera is pitched down by {pitch:.1f}° and rolled by {roll:.1f}° against "
                    "the map's images: fasten it, or correct base_frame → camera in tf"
                )
        return found

    def metrics(self) -> dict[str, object]:
        """Return the calibration and the mount in words, and the tilt."""
        pitch_deg, roll_deg = self._tilt_deg()
        return {
            "camera": self._text,
            "camera_mount": str(self._mount or ""),
            "camera_pitch_deg": pitch_deg,
            "camera_roll_deg": roll_deg,
        }

    def _tilt_deg(self) -> tuple[float, float]:
        """Return pitch and roll of the camera against the map's image that it matches best.

        NaN where landmarks do not show them.
        """
        last = self._localizer.last
        estimate = None if last is None else last.estimate
        if estimate is not self._tilt_at:
            pitch, roll = np.degrees(self._localizer.camera_tilt()).tolist()
            self._tilt_at, self._tilt = estimate, (pitch, roll)
        return self._tilt
