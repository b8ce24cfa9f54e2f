"""A room with painted walls: small, fast to render at any pose, different in every direction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.datasets.camera_file import CAMERA_FILE, write_camera_file
from kbf_localization.geometry import compose, relative
from kbf_localization.vision.camera.pinhole import PinholeCamera

Array = NDArray[np.float64]

WIDTH, HEIGHT = 160, 120
FRAME_SECONDS = 0.1
MAP_POSES = 150
_PIXELS_PER_METRE = 60
_WALL_METRES = 3.0
_CAMERA_METRES = 1.2


class World:
    """A rectangular room, seen by a pinhole camera with a field of view of 70°."""

    def __init__(self, length: float = 9.0, width: float = 6.0, seed: int = 1) -> None:
        self.length, self.width = length, width
        self._walls = _painting(2.0 * (length + width), np.random.default_rng(seed))
        self._focal = 0.5 * WIDTH / float(np.tan(np.radians(35.0)))

    @property
    def camera(self) -> PinholeCamera:
        centre = (0.5 * WIDTH, 0.5 * HEIGHT)
        return PinholeCamera(WIDTH, HEIGHT, self._focal, self._focal, *centre)

    def route(self, metres: float) -> Array:
        """The pose (3,) after driving so far on an oval through the room."""
        across, along = 0.5 * self.width - 1.5, 0.5 * self.length - 1.5
        angle = metres / (0.5 * (across + along))
        x, y = along * np.cos(angle), across * np.sin(angle)
        heading = np.arctan2(across * np.cos(angle), -along * np.sin(angle))
        return np.array([x, y, heading])

    def image(self, pose: Array) -> NDArray[np.uint8]:
        """What the camera sees from `pose`: grey (HEIGHT, WIDTH)."""
        to_right = np.arctan2(np.arange(WIDTH) - 0.5 * WIDTH, self._focal)
        rows = (np.arange(HEIGHT) - 0.5 * HEIGHT)[:, None]
        return self.seen(pose, to_right, rows * np.cos(to_right) / self._focal)

    def seen(self, pose: Array, to_right: Array, fall: Array) -> NDArray[np.uint8]:
        """What a camera sees whose columns look `to_right` (w,) rad of ahead.

        `fall` (h, w) is how far its rays fall for each metre across the floor.
        """
        bearing = pose[2] - to_right
        cos, sin = np.cos(bearing), np.sin(bearing)
        half = 0.5 * np.array([self.length, self.width])
        with np.errstate(divide="ignore"):
            to_x = (np.sign(cos) * half[0] - pose[0]) / cos
            to_y = (np.sign(sin) * half[1] - pose[1]) / sin
        distance = np.minimum(to_x, to_y)
        x, y = pose[0] + distance * cos, pose[1] + distance * sin
        hits_x = to_x < to_y
        place = np.where(
            hits_x,
            np.where(cos > 0, y + half[1], 3 * half[1] + 2 * self.length - y),
            np.where(sin > 0, self.width + half[0] - x, 2 * self.width + self.length + half[0] + x),
        )
        height = _CAMERA_METRES - fall * distance
        map_x = np.broadcast_to(place[None, :] * _PIXELS_PER_METRE, height.shape)
        map_y = (_WALL_METRES - height) * _PIXELS_PER_METRE
        seen = cv2.remap(
            self._walls,
            map_x.astype(np.float32),
            map_y.astype(np.float32),
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=90.0,
        )
        return np.asarray(seen, dtype=np.uint8)

    def jpeg(self, pose: Array) -> bytes:
        return _encoded(self.image(pose))

    def write_cold(
        self,
        folder: Path,
        frames: int,
        start: float,
        offset: float,
        image: Callable[[Array], NDArray[np.uint8]] | None = None,
    ) -> Path:
        """A drive in COLD's layout, `offset` metres beside the route, with what `image` sees.

        Without an `image` the drive has the calibration of the world's own camera, not COLD's.
        """
        calibrated, image = image is None, image or self.image
        images = folder / "std_cam"
        images.mkdir(parents=True)
        (folder / "odom_scans").mkdir()
        if calibrated:
            write_camera_file(folder / CAMERA_FILE, self.camera)
        (folder / "localization").mkdir()
        places, odometry = [], []
        origin = compose(self.route(start), (0.0, offset, 0.0))
        for number in range(frames):
            pose = compose(self.route(start + 0.1 * number), (0.0, offset, 0.0))
            seconds = 1_000_000 + number * FRAME_SECONDS
            name = f"t{seconds:.6f}_x{pose[0]:.7f}_y{pose[1]:.7f}_a{pose[2]:.7f}.jpeg"
            (images / name).write_bytes(_encoded(image(pose)))
            places.append(f"{name} LAB-A")
            x, y, heading = relative(origin, pose)
            whole = int(seconds)
            micro = round((seconds - whole) * 1e6)
            odometry.append(f"o o o {whole} {micro} o o o {x:.7f} {y:.7f} 0 {heading:.7f}")
        (folder / "localization" / "places.lst").write_text("\n".join(places) + "\n")
        (folder / "odom_scans" / "odom.tdf").write_text("\n".join(odometry) + "\n")
        return folder


def _encoded(image: NDArray[np.uint8]) -> bytes:
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes())


def _painting(metres: float, random: np.random.Generator) -> NDArray[np.uint8]:
    """Blotches and rectangles of several sizes on a wall of this length."""
    columns, rows = int(metres * _PIXELS_PER_METRE), int(_WALL_METRES * _PIXELS_PER_METRE)
    wall = np.zeros((rows, columns), dtype=np.float32)
    for cell in (12, 30, 75):
        noise = random.normal(size=(rows // cell + 2, columns // cell + 2)).astype(np.float32)
        wall += cv2.resize(noise, (columns, rows), interpolation=cv2.INTER_CUBIC) * cell**0.5
    wall = 128.0 + 40.0 * wall / wall.std()
    for _ in range(int(metres * 4)):
        left, top = int(random.integers(columns)), int(random.integers(rows))
        right, bottom = left + int(random.integers(8, 60)), top + int(random.integers(8, 60))
        wall[top:bottom, left:right] = random.uniform(0, 255)
    return np.clip(wall, 0, 255).astype(np.uint8)
