"""The floor plan of an office: rooms on a fine grid, and the wall faces between them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Flags, Image
from kbf_localization.datasets.floor_plan_image import FREE, OCCUPIED, UNKNOWN

PIXELS_PER_CELL = 8
CEILING_M = 2.75
DOOR_TOP_M = 2.05


@dataclass(frozen=True)
class Face:
    """One side of an upright wall parallel to an axis, seen from one room.

    `axis` 0: the wall is at x = `at` and runs along y from `low` to `high`; `axis` 1 with x and y
    exchanged. `side` is +1 where it is seen from greater coordinates. `kind` is "interior",
    "exterior" (daylight behind it) or "lintel" (the wall above an open door).
    """

    axis: int
    at: float
    low: float
    high: float
    side: int
    bottom: float
    top: float
    room: int
    kind: str

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def rightward(self) -> int:
        """The sign of the direction that is rightward for whoever looks at the face."""
        return self.side if self.axis == 0 else -self.side

    def along(self, distance: float) -> tuple[float, float]:
        """Return the point (x, y) `distance` metres from the face's left edge as seen."""
        run = self.low + distance if self.rightward > 0 else self.high - distance
        return (self.at, run) if self.axis == 0 else (run, self.at)


@dataclass(frozen=True)
class Box:
    """Something that stands on the floor: x and y ranges, height, and what it looks like."""

    x: tuple[float, float]
    y: tuple[float, float]
    top: float
    room: int
    look: str
    style: int


@dataclass(frozen=True, eq=False)
class FloorPlan:
    """Rooms as cells of a grid, what stands in them, and the routes a robot may take.

    `rooms` (rows along y, columns along x) holds 0 for solid and k for the room with the label
    `labels[k - 1]`. `open_x[j, i]` says that one can pass between the cells (j, i - 1) and (j, i);
    `open_y[j, i]` between (j - 1, i) and (j, i). `routes` are lines of waypoints (k, 2). Unless
    `panel_m` is zero, walls along x, floor and ceiling of the first room repeat every `panel_m`.
    """

    origin: tuple[float, float]
    cell_m: float
    rooms: NDArray[np.int16]
    labels: tuple[str, ...]
    open_x: Flags
    open_y: Flags
    boxes: tuple[Box, ...]
    routes: tuple[Array, ...]
    seed: int
    panel_m: float = 0.0

    @cached_property
    def _content(self) -> bytes:
        """A digest, by which a plan that was sent to another process is known again."""
        numbers = (self.origin, self.cell_m, self.labels, self.seed, self.boxes, self.panel_m)
        grids = b"".join(grid.tobytes() for grid in (self.rooms, self.open_x, self.open_y))
        return hashlib.sha256(repr(numbers).encode() + grids).digest()

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloorPlan) and other._content == self._content

    def size_in(self, pixels: float) -> tuple[int, int]:
        """Return width and height at so many `pixels` a metre."""
        ny, nx = self.rooms.shape
        return round(nx * self.cell_m * pixels), round(ny * self.cell_m * pixels)

    def room_at(self, points: Array) -> NDArray[np.int16]:
        """Return the room (0: solid) at each point (…, 2)."""
        ny, nx = self.rooms.shape
        i = np.clip(((points[..., 0] - self.origin[0]) / self.cell_m).astype(int), 0, nx - 1)
        j = np.clip(((points[..., 1] - self.origin[1]) / self.cell_m).astype(int), 0, ny - 1)
        return np.asarray(self.rooms[j, i])

    def image(self) -> tuple[Image, float]:
        """Return the plan as map_server draws it, greatest y first, and its metres per pixel."""
        image = np.where(self.rooms > 0, FREE, UNKNOWN).astype(np.uint8)
        image = image.repeat(PIXELS_PER_CELL, axis=0).repeat(PIXELS_PER_CELL, axis=1)
        for flat, rooms, passages in (
            (image, self.rooms, self.open_x),
            (image.T, self.rooms.T, self.open_y.T),
        ):
            walls = (rooms[:, 1:] != rooms[:, :-1]) & ~passages[:, 1:-1]
            walls = walls.repeat(PIXELS_PER_CELL, axis=0)
            for side in (-1, 0):
                at = PIXELS_PER_CELL * np.arange(1, rooms.shape[1]) + side
                flat[:, at] = np.where(walls, OCCUPIED, flat[:, at])
        pixel_m = self.cell_m / PIXELS_PER_CELL
        for box in self.boxes:
            across, along = (
                slice(
                    max(0, round((low - start) / pixel_m)), max(0, round((high - start) / pixel_m))
                )
                for (low, high), start in zip((box.x, box.y), self.origin)
            )
            image[along, across] = OCCUPIED
        return image[::-1], pixel_m

    def faces(self) -> list[Face]:
        """Return all wall faces, runs of equal cells merged."""
        outside = _outside(self.rooms)
        found = list(self._faces_along(0, self.rooms, self.open_x, outside))
        found += self._faces_along(1, self.rooms.T, self.open_y.T, outside.T)
        return found

    def _faces_along(
        self, axis: int, rooms: NDArray[np.int16], passages: Flags, outside: Flags
    ) -> Iterator[Face]:
        runs, columns = rooms.shape
        start_across, start_along = self.origin[axis], self.origin[1 - axis]
        for i in range(1, columns):
            for side in (1, -1):
                here, behind = (rooms[:, i], rooms[:, i - 1])[::side]
                void = (outside[:, i - 1], outside[:, i])[0 if side == 1 else 1]
                code = np.where((here > 0) & (here != behind), here.astype(int) * 4, 0)
                code += np.where(code > 0, np.where(passages[:, i], 2, 0) + np.where(void, 1, 0), 0)
                edges = np.flatnonzero(np.diff(code)) + 1
                for low, high in zip(np.r_[0, edges], np.r_[edges, runs]):
                    if code[low] == 0:
                        continue
                    lintel = bool(code[low] & 2)
                    yield Face(
                        axis=axis,
                        at=start_across + i * self.cell_m,
                        low=start_along + float(low) * self.cell_m,
                        high=start_along + float(high) * self.cell_m,
                        side=side,
                        bottom=DOOR_TOP_M if lintel else 0.0,
                        top=CEILING_M,
                        room=int(code[low] >> 2),
                        kind="lintel" if lintel else "exterior" if code[low] & 1 else "interior",
                    )


def _outside(rooms: NDArray[np.int16]) -> Flags:
    """Return solid cells from which one of the four directions leads to the open air."""
    solid = rooms == 0
    seen = np.zeros_like(solid)
    for axis in (0, 1):
        for step in (1, -1):
            forward = np.flip(solid, axis) if step == -1 else solid
            clear = np.logical_and.accumulate(forward, axis=axis)
            seen |= np.flip(clear, axis) if step == -1 else clear
    return np.asarray(seen)
