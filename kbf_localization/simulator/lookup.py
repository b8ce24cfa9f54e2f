"""All textures in one atlas, and where in it the colour of each pixel of an image lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Flags, Floats, Image
from kbf_localization.datasets.known_cameras import SIMULATED_HEIGHT_M, SIMULATED_VIEW_RAD
from kbf_localization.simulator.textures import paste

LEVELS = 4
_PAD = 8


class Atlas:
    """Packs images into shelves; level k is the whole atlas reduced by 2^k, to the right of it.

    One remap of it, with the level that suits each pixel's distance, draws an image.
    `corners` (n, 2) are the x, y of each image's upper left pixel at level 0, `pixels`
    (h, w, 3) the colours, `shift` (LEVELS, 2) where each level lies in `pixels`.
    """

    def __init__(self, images: Sequence[Image]) -> None:
        width = max(4096, max(image.shape[1] for image in images) + 2 * _PAD)
        order = sorted(range(len(images)), key=lambda k: -images[k].shape[0])
        self.corners = np.zeros((len(images), 2), dtype=np.float32)
        x, y, shelf = 0, 0, 0
        for k in order:
            high, wide = images[k].shape[0] + 2 * _PAD, images[k].shape[1] + 2 * _PAD
            if x + wide > width:
                x, y, shelf = 0, y + shelf, 0
            self.corners[k] = (x + _PAD, y + _PAD)
            x, shelf = x + wide, max(shelf, high)
        height = -(-(y + shelf) // 16) * 16
        width = -(-width // 16) * 16
        self.pixels = np.zeros((height, width + width // 2, 3), dtype=np.uint8)
        self.shift = np.zeros((LEVELS, 2), dtype=np.float32)
        source = self.pixels[:, :width]
        for image, (left, top) in zip(images, self.corners.astype(int)):
            padded = cv2.copyMakeBorder(image, _PAD, _PAD, _PAD, _PAD, cv2.BORDER_REPLICATE)
            paste(source, np.asarray(padded, dtype=np.uint8), left - _PAD, top - _PAD)
        top = 0
        for level in range(1, LEVELS):
            size = (width >> level, height >> level)
            source = cv2.resize(source, size, interpolation=cv2.INTER_AREA)
            self.pixels[top : top + size[1], width : width + size[0]] = source
            self.shift[level] = (width, top)
            top += size[1]


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: image size in pixels, horizontal field of view, height above the floor."""

    width: int = 640
    height: int = 480
    view_deg: float = float(np.degrees(SIMULATED_VIEW_RAD))
    above_m: float = SIMULATED_HEIGHT_M

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return float(self.width / 2 / np.tan(np.radians(self.view_deg / 2)))


class LookUp:
    """Surfaces paint their atlas coordinates over each other, far to near; then one remap.

    The camera is level at `eye`; `ray` is the pair of x and y of each column's ray, which runs one
    metre of depth for each unit of its parameter.
    """

    def __init__(
        self,
        camera: Camera,
        atlas: Atlas,
        eye: tuple[float, float],
        ray: tuple[Array, Array],
        horizon: float,
    ) -> None:
        self._camera, self._atlas, self._eye, self._ray = camera, atlas, eye, ray
        self._horizon = horizon
        rows = np.arange(camera.height, dtype=np.float32)[:, None]
        # How far a row's ray falls for each metre of depth.
        self._fall = (rows - np.float32(horizon)) * np.float32(1 / camera.focal)
        self._x = np.empty((camera.height, camera.width), dtype=np.float32)
        self._y = np.empty_like(self._x)

    def image(self) -> Image:
        """Return the painted image (height, width, 3)."""
        how, border = cv2.INTER_LINEAR, cv2.BORDER_REPLICATE
        image = cv2.remap(self._atlas.pixels, self._x, self._y, how, borderMode=border)
        return np.asarray(image, dtype=np.uint8)

    def paint_walls(
        self, depth: Array, along: Array, number: NDArray[np.int64], top: float, pixels: float
    ) -> None:
        """Fill every column from top to bottom as if walls had no end."""
        x, slope, offset = self._upright(depth, along, number, top, pixels)
        self._x[:] = x
        np.multiply(self._fall, slope, out=self._y)
        self._y += offset

    def paint_plane(
        self,
        height: float,
        number: int,
        pixels: float,
        corner: tuple[float, float],
        near: Array,
        far: Array | None = None,
    ) -> None:
        """Paint a horizontal plane where it lies nearer than `near`, or between `near` and `far`.

        `corner` is the x and y at the texture's first pixel.
        """
        drop = self._camera.above_m - height
        columns = slice(None)
        if far is None:
            first, last = self._rows_between(drop / near.max(), float(np.sign(drop)) * np.inf)
        else:
            columns = _span(near < far)
            near, far = near[columns], far[columns]
            first, last = self._rows_between(drop / far.max(), drop / near.min())
        if first >= last:
            return
        # Rows at the horizon would see the plane at infinity, or behind the camera.
        fall = self._fall[first:last, 0].astype(np.float64) * np.sign(drop)
        reach = abs(drop) / np.maximum(fall, 1e-4)
        away = reach[:, None]
        inside = away < near if far is None else (away >= near) & (away <= far)
        level = self._level(reach, pixels)
        shrink = pixels / 2.0**level
        origin, shift = self._atlas.corners[number], self._atlas.shift[level]
        gain = (reach * shrink).astype(np.float32)[:, None]
        for axis, target in enumerate((self._x, self._y)):
            start = (self._eye[axis] - corner[axis]) * shrink + origin[axis] / 2.0**level
            start += shift[:, axis] - 0.5
            ray = self._ray[axis][columns].astype(np.float32)
            values = start.astype(np.float32)[:, None] + gain * ray
            np.copyto(target[first:last, columns], values, where=inside)

    def paint_upright(
        self,
        depth: Array,
        along: Array,
        number: NDArray[np.int64] | int,
        bottom: float,
        top: float,
        pixels: float,
        shown: Flags,
        opaque: Flags | None = None,
    ) -> None:
        """Paint an upright surface where it is `shown` (width,) and, if given, `opaque`."""
        columns = _span(shown)
        shown = shown[columns]
        if not shown.any():
            return
        depth, along = np.where(shown, depth[columns], 1.0), np.where(shown, along[columns], 0.0)
        number = np.broadcast_to(number, self._camera.width)[columns]
        above = self._camera.above_m
        nearest, farthest = depth[shown].min(), depth[shown].max()
        upper = min((above - top) / nearest, (above - top) / farthest)
        lower = max((above - bottom) / nearest, (above - bottom) / farthest)
        first, last = self._rows_between(upper, lower)
        if first >= last:
            return
        x, slope, offset = self._upright(depth, along, number, top, pixels)
        fall = self._fall[first:last]
        z = np.float32(above) - fall * depth.astype(np.float32)
        inside = (z <= top) & (z > bottom) & shown
        if opaque is not None:
            rows = np.clip((top - z) * pixels, 0, opaque.shape[0] - 1).astype(np.int32)
            across = np.clip(along * pixels, 0, opaque.shape[1] - 1).astype(np.int32)
            inside &= opaque[rows, across]
        np.copyto(self._x[first:last, columns], x, where=inside)
        np.copyto(self._y[first:last, columns], fall * slope + offset, where=inside)

    def _rows_between(self, first: float, other: float) -> tuple[int, int]:
        """Return the rows, first and one past the last, whose fall lies between the two."""
        height = self._camera.height
        rows = np.sort([first, other]) * self._camera.focal + self._horizon
        upper, lower = np.clip(rows, -1.0, height)
        return max(int(np.floor(upper)), 0), min(int(np.ceil(lower)) + 1, height)

    def _level(self, depth: Array, pixels: float) -> NDArray[np.int64]:
        """Return the halving of the atlas whose pixels are about as large as the image's."""
        ratio = np.log2(np.maximum(pixels * np.abs(depth) / self._camera.focal, 1e-3))
        return np.clip(np.floor(ratio + 0.3), 0, LEVELS - 1).astype(np.int64)

    def _upright(
        self, depth: Array, along: Array, number: NDArray[np.int64], top: float, pixels: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return atlas x of each column, and slope and offset of atlas y over the rays' fall."""
        level = self._level(depth, pixels)
        shrink = 1.0 / 2.0**level
        corner, shift = self._atlas.corners[number], self._atlas.shift[level]
        x = (corner[:, 0] + along * pixels) * shrink + shift[:, 0] - 0.5
        slope = depth * pixels * shrink
        offset = (corner[:, 1] + (top - self._camera.above_m) * pixels) * shrink + shift[:, 1] - 0.5
        return x.astype(np.float32), slope.astype(np.float32), offset.astype(np.float32)


def _span(shown: Flags) -> slice:
    """Return the slice from the first to the last column that is shown."""
    columns = np.flatnonzero(shown)
    return slice(int(columns[0]), int(columns[-1]) + 1) if len(columns) else slice(0)
