"""Floor plans in the format of Nav2's map_server: an image and a YAML file with its place."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.files import MAX_IMAGE_BYTES, read_regular, read_yaml
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import compose, invert
from kbf_localization.limits import (
    MAX_COORDINATE_M,
    MAX_PLAN_PIXELS,
    PLAN_RESOLUTIONS,
    check_number,
)

if TYPE_CHECKING:
    from PIL import Image as PillowImage

MAX_YAML_BYTES = 100_000
FLOOR_PLAN = "floor_plan.yaml"
"""The plan in a simulated drive's folder."""
FREE, UNKNOWN, OCCUPIED = 254, 205, 0
"""The grey levels that map_server itself writes."""
FREE_THRESHOLD, OCCUPIED_THRESHOLD = 0.196, 0.65
"""Of 1 − grey/255, below and above which map_server takes a cell as free and occupied. Unknown is
0.1961: with map_saver's 0.25 it is read as free."""


@dataclass(frozen=True)
class FloorPlanImage:
    """A grey image (h, w), bright where a robot can go, and the place of its lower left corner.

    `resolution` is in metres per pixel, `origin` (3,) the corner's x, y (m) and heading (rad).
    """

    image: Image
    resolution: float
    origin: tuple[float, float, float]

    @property
    def size_m(self) -> tuple[float, float]:
        """Return width and height of the plan."""
        height, width = self.image.shape
        return width * self.resolution, height * self.resolution

    def distances_to(self, poses: Array) -> Array:
        """Return how far outside the plan each of the poses (n, 3) lies, in metres; 0 within it."""
        inverse = np.broadcast_to(invert(np.array(self.origin)), poses.shape)
        within = compose(inverse, poses)[:, :2]
        beyond = np.maximum(np.maximum(-within, within - np.array(self.size_m)), 0.0)
        return np.asarray(np.hypot(beyond[:, 0], beyond[:, 1]))


def read_floor_plan(path: Path, poses: Array) -> FloorPlanImage:
    """Read the plan that a YAML file describes; some of the poses (n, 3) must lie on it."""
    plan = load_floor_plan(path)
    nearest = float(plan.distances_to(poses).min())
    if nearest > 0.0:
        raise DatasetError(
            f"{path}: the floor plan does not overlap the poses, the nearest is {nearest:.1f} m "
            "outside; is it of another frame or building?"
        )
    return plan


def load_floor_plan(path: Path) -> FloorPlanImage:
    """Read the plan that a YAML file describes, wherever it lies."""
    content = read_yaml(path, MAX_YAML_BYTES)
    if not (isinstance(content, dict) and isinstance(content.get("image"), str)):
        raise DatasetError(f"{path}: names no image; a floor plan is a map.yaml of map_server")
    try:
        resolution = check_number("resolution", content.get("resolution"), PLAN_RESOLUTIONS)
    except ValueError as error:
        raise DatasetError(f"{path}: resolution must be metres per pixel, above 0") from error
    origin = content.get("origin")
    try:
        if not (isinstance(origin, list) and len(origin) in (2, 3)):
            raise ValueError
        numbers = (
            check_number("origin", value, (-MAX_COORDINATE_M, MAX_COORDINATE_M)) for value in origin
        )
        x, y, heading = (*numbers, 0.0)[:3]
    except ValueError as error:
        raise DatasetError(
            f"{path}: origin must be [x, y, heading] of the lower left corner"
        ) from error
    image = _read_image(path.parent / content["image"])
    if content.get("negate") in (1, True):
        image = 255 - image
    return FloorPlanImage(image, resolution, (x, y, heading))


def write_floor_plan(
    folder: Path, image: Image, resolution: float, origin: tuple[float, float]
) -> Path:
    """Write `floor_plan.pgm` and `floor_plan.yaml`; the YAML file's path."""
    plan = FloorPlanImage(image, resolution, (float(origin[0]), float(origin[1]), 0.0))
    path = folder / FLOOR_PLAN
    pgm, text = plan_files(plan, "floor_plan.pgm")
    (folder / "floor_plan.pgm").write_bytes(pgm)
    path.write_text(text, encoding="ascii")
    return path


def plan_files(plan: FloorPlanImage, image_name: str) -> tuple[bytes, str]:
    """Return the bytes of the PGM image and the text of the YAML file that map_server reads."""
    height, width = plan.image.shape
    pgm = f"P5\n{width} {height}\n255\n".encode("ascii")
    described = {
        "image": image_name,
        "mode": "trinary",
        "resolution": float(plan.resolution),
        "origin": [float(value) for value in plan.origin],
        "negate": 0,
        "occupied_thresh": OCCUPIED_THRESHOLD,
        "free_thresh": FREE_THRESHOLD,
    }
    text = yaml.safe_dump(described, sort_keys=False)
    return pgm + np.ascontiguousarray(plan.image).tobytes(), text


def _read_image(path: Path) -> Image:
    data = read_regular(path, MAX_IMAGE_BYTES)
    # Here, for the node reads no plans and need not have it.
    from PIL import Image as PillowImage
    from PIL import UnidentifiedImageError

    try:
        with PillowImage.open(io.BytesIO(data), formats=("PPM", "PNG", "BMP")) as image:
            if image.width * image.height > MAX_PLAN_PIXELS:
                raise PillowImage.DecompressionBombError
            return _grey_levels(image)
    except PillowImage.DecompressionBombError as error:
        megapixels = MAX_PLAN_PIXELS // 1_000_000
        raise DatasetError(f"{path}: has more than {megapixels} megapixels") from error
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise DatasetError(f"{path}: is no image in PGM, PNG or BMP") from error


def _grey_levels(image: PillowImage.Image) -> Image:
    """Return the image in 8 bits; what it has of 16, Pillow by itself cuts off at 255."""
    if image.mode.startswith("F"):
        raise ValueError("an image of floating-point numbers")
    if image.mode.startswith("I"):
        return (np.asarray(image, dtype=np.int64) // 257).astype(np.uint8)
    return np.asarray(image.convert("L"))
