"""An office as it looks in one drive's light: surfaces, and the atlas of their lit textures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Flags, Floats, Image
from kbf_localization.simulator import textures
from kbf_localization.simulator.decoration import Decorator, Window
from kbf_localization.simulator.floor_plan import Face, FloorPlan
from kbf_localization.simulator.lighting import (
    Lighting,
    Sources,
    Sunlight,
    lamp_places,
    sources,
)
from kbf_localization.simulator.lookup import Atlas
from kbf_localization.simulator.people import Look, person_looks
from kbf_localization.simulator.textures import stained

_FLOORS = ((120, 138, 150), (96, 104, 122), (128, 120, 104), (92, 116, 140))

# A white wall in full light is stored at this fraction of 255, to leave room for windows and sun.
HEADROOM = 0.6


def floor_texture(plan: FloorPlan, pixels: float) -> Image:
    """Paint tiles in corridors, linoleum or carpet in rooms."""
    rng = np.random.default_rng([plan.seed, 7])
    size = plan.size_in(pixels)
    image = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    rooms = cv2.resize(plan.rooms, size, interpolation=cv2.INTER_NEAREST)
    tiles = _tiles(size, 0.5 * pixels, rng)
    for room, label in enumerate(plan.labels, 1):
        mask = rooms == room
        corridor = label.startswith("CR")
        image[mask] = _FLOORS[0 if corridor else 1 + room % 3]
        if corridor or label.startswith(("TL", "KT", "PA")):
            image[mask] = np.clip(image[mask].astype(np.int16) + tiles[mask][:, None], 0, 255)
    return stained(image, rng, 5.0, coarse=max(round(0.4 * pixels), 4))


def _tiles(size: tuple[int, int], pitch: float, rng: np.random.Generator) -> NDArray[np.int16]:
    """Return brightness differences of tiles and the dark joints between them."""
    across, down = int(size[0] / pitch) + 1, int(size[1] / pitch) + 1
    shades = rng.integers(-9, 10, (down, across))
    x = (np.arange(size[0]) / pitch).astype(int)
    y = (np.arange(size[1]) / pitch).astype(int)
    pattern = shades[y[:, None], x[None, :]].astype(np.int16)
    pattern[np.flatnonzero(np.diff(y, prepend=-1))] = -42
    pattern[:, np.flatnonzero(np.diff(x, prepend=-1))] = -42
    return np.asarray(pattern)


def ceiling_texture(plan: FloorPlan, pixels: float) -> Image:
    """Paint white panels in a grid of dark lines."""
    rng = np.random.default_rng([plan.seed, 8])
    size = plan.size_in(pixels)
    image = np.full((size[1], size[0], 3), (206, 210, 210), dtype=np.uint8)
    panel = 0.6 * pixels
    for k in range(int(max(size) / panel) + 1):
        image[:, min(round(k * panel), size[0] - 1)] = (140, 144, 146)
        image[min(round(k * panel), size[1] - 1)] = (140, 144, 146)
    return stained(image, rng, 3.0, coarse=max(round(0.5 * pixels), 4))


@dataclass(frozen=True)
class Surfaces:
    """The office's colours in even light (albedo), made once for all drives.

    Five images of each box: the sides at lesser and greater x, at lesser and greater y, the top.
    """

    faces: list[Face]
    walls: list[Image]
    windows: list[list[Window]]
    boxes: list[list[Image]]
    looks: list[Look]


@dataclass(frozen=True)
class Scene:
    """What the renderer needs.

    The atlas has the textures of the faces, five of each box, the people, floor and ceiling.
    """

    plan: FloorPlan
    faces: list[Face]
    looks: list[Look]
    atlas: Atlas
    wall_pixels: float
    floor_pixels: float
    ceiling_pixels: float

    def box_texture(self, box: int, side: int) -> int:
        return len(self.faces) + 5 * box + side

    def look_texture(self, look: int) -> int:
        return self.box_texture(len(self.plan.boxes), look)

    @property
    def floor_texture(self) -> int:
        return self.look_texture(len(self.looks))

    @property
    def ceiling_texture(self) -> int:
        return self.floor_texture + 1


def densities(width: int) -> tuple[float, float, float]:
    """Return pixels a metre of walls, floor and ceiling for images of this width."""
    scale = float(np.clip(width / 640, 0.35, 1.5))
    return 110 * scale, 60 * scale, 36 * scale


@lru_cache(maxsize=2)
def surfaces(plan: FloorPlan, wall_pixels: float) -> Surfaces:
    """Return the office's textures before any light falls on them."""
    decorator = Decorator(plan.seed, wall_pixels)
    faces = plan.faces()
    walls, windows = [], []
    for face in faces:
        image, openings = decorator.wall(face, plan.labels[face.room - 1])
        walls.append(image)
        windows.append(openings)
    boxes = []
    for box in plan.boxes:
        size = (box.x[1] - box.x[0], box.y[1] - box.y[0])
        front, flank = decorator.box_side(box, size[0]), decorator.box_side(box, size[1])
        boxes.append([flank, flank, front, front, decorator.box_top(box, size)])
    return Surfaces(faces, walls, windows, boxes, person_looks(plan.seed, wall_pixels))


@lru_cache(maxsize=2)
def scene(plan: FloorPlan, lighting: Lighting, width: int) -> Scene:
    """Return the office in this light, for images `width` pixels wide."""
    wall_pixels, floor_pixels, ceiling_pixels = densities(width)
    bare = surfaces(plan, wall_pixels)
    middles, rooms = _window_middles(bare)
    lights, burning = sources(plan, lighting, middles, rooms)
    sun = Sunlight(bare.faces, bare.windows, lighting)
    images: list[Image] = []
    rng = np.random.default_rng([plan.seed, 6])
    for face, wall, openings in zip(bare.faces, bare.walls, bare.windows):
        shine = sun.on_wall(face, (wall.shape[1], wall.shape[0]))
        lit = _lit(wall, _wall_light(face, lights), lighting, shine)
        for opening in openings:
            _glaze(lit, opening, wall_pixels, lighting, rng)
        if plan.panel_m and face.room == 1 and face.axis == 1:
            _repeat(lit, plan.panel_m * wall_pixels)
        images.append(lit)
    for box, sides in zip(plan.boxes, bare.boxes):
        middle = np.array([[np.mean(box.x), np.mean(box.y), box.top]])
        level = float(lights.at(middle, box.room)[0])
        for level_factor, image in zip((0.8, 0.95, 0.9, 0.85, 1.05), sides):
            images.append(_lit(image, np.full((2, 2), level * level_factor, np.float32), lighting))
    shade = np.full((2, 2), float(np.mean(lights.ambient)) + 0.3, np.float32)
    images += [_lit(look.colours, shade, lighting) for look in bare.looks]
    floor = floor_texture(plan, floor_pixels)
    images.append(_lit_plane(floor, plan, lights, 0.0, lighting, sun))
    ceiling = ceiling_texture(plan, ceiling_pixels)
    images.append(_lit_plane(ceiling, plan, lights, 1.9, lighting))
    _draw_lamps(images[-1], plan, lamp_places(plan)[0], burning, ceiling_pixels)
    if plan.panel_m:
        for image, pixels in zip(images[-2:], (floor_pixels, ceiling_pixels)):
            _repeat(_first_room(image, plan), plan.panel_m * pixels)
    return Scene(
        plan, bare.faces, bare.looks, Atlas(images), wall_pixels, floor_pixels, ceiling_pixels
    )


def _first_room(image: Image, plan: FloorPlan) -> Image:
    """Return the part of a floor's or ceiling's texture, a view, that the first room takes."""
    rows, columns = np.nonzero(plan.rooms == 1)
    low, high = (rows.min(), columns.min()), (rows.max() + 1, columns.max() + 1)
    scale = np.divide(image.shape[:2], plan.rooms.shape)
    (top, left), (bottom, right) = (np.rint(corner * scale).astype(int) for corner in (low, high))
    return image[top:bottom, left:right]


def _repeat(image: Image, period: float) -> None:
    """Repeat the first `period` columns of a texture all over it."""
    panel = image[:, : round(period)].copy()
    for left in range(0, image.shape[1], panel.shape[1]):
        textures.paste(image, panel, left, 0)


def _window_middles(bare: Surfaces) -> tuple[Array, NDArray[np.int64]]:
    places, rooms = [], []
    for face, openings in zip(bare.faces, bare.windows):
        for opening in openings:
            x, y = face.along((opening.left + opening.right) / 2)
            places.append((x, y, (opening.sill + opening.head) / 2))
            rooms.append(face.room)
    return np.array(places).reshape(-1, 3), np.array(rooms, dtype=np.int64)


def _wall_light(face: Face, lights: Sources) -> Floats:
    """Return the brightness over a face on a coarse grid, top row first."""
    across = max(int(face.length / 0.4), 2)
    spots = np.array([face.along(d) for d in (np.arange(across) + 0.5) * face.length / across])
    heights = np.linspace(face.top, face.bottom, 6)
    points = np.dstack([np.tile(spots, (6, 1, 1)), np.repeat(heights[:, None], across, axis=1)])
    side = 0.92 if face.axis == 0 else 1.04
    return np.asarray(side * lights.at(points, face.room), dtype=np.float32)


def _lit_plane(
    texture: Image,
    plan: FloorPlan,
    lights: Sources,
    height: float,
    lighting: Lighting,
    sun: Sunlight | None = None,
) -> Image:
    """Light a floor or ceiling, room by room: a wall lets no light through to the next room."""
    ny, nx = plan.rooms.shape
    x = plan.origin[0] + (np.arange(nx) + 0.5) * plan.cell_m
    y = plan.origin[1] + (np.arange(ny) + 0.5) * plan.cell_m
    points = np.stack([*np.meshgrid(x, y), np.full((ny, nx), height)], axis=-1)
    size = (texture.shape[1], texture.shape[0])
    owners = cv2.resize(plan.rooms, size, interpolation=cv2.INTER_NEAREST)
    light = np.zeros((texture.shape[0], texture.shape[1]), dtype=np.float32)
    for room in range(1, len(plan.labels) + 1):
        here = cv2.resize(lights.at(points, room), size, interpolation=cv2.INTER_LINEAR)
        np.copyto(light, here, where=owners == room)
    return _lit(texture, light, lighting, None if sun is None else sun.on_floor(plan, size))


def _lit(albedo: Image, light: Floats, lighting: Lighting, sun: Floats | None = None) -> Image:
    """Light a texture by a coarse grid of lamps' light, and by the sun's at full resolution."""
    size = (albedo.shape[1], albedo.shape[0])
    factor = cv2.resize(light, size, interpolation=cv2.INTER_LINEAR)
    factor = (factor if sun is None else factor + sun) * np.float32(HEADROOM)
    tint = np.array(lighting.warmth, dtype=np.float32)
    return np.asarray(np.clip(albedo * factor[..., None] * tint, 0, 255), dtype=np.uint8)


def _glaze(
    lit: Image, opening: Window, pixels: float, lighting: Lighting, rng: np.random.Generator
) -> None:
    """Put the view through a window into a lit wall: it shines by itself."""
    wide = round((opening.right - opening.left) * pixels)
    high = round((opening.head - opening.sill) * pixels)
    night = lighting.condition == "night"
    view = textures.outdoors(high, wide, night, rng).astype(np.float32)
    shine = 0.4 if night else min(0.75 * lighting.daylight + 0.3, 1.2)
    view = np.clip(view * shine, 0, 255).astype(np.uint8)
    top = lit.shape[0] - round(opening.head * pixels)
    textures.paste(lit, view, round(opening.left * pixels), top)


def _draw_lamps(lit: Image, plan: FloorPlan, lamps: Array, burning: Flags, pixels: float) -> None:
    half = np.array([0.3, 0.6]) * pixels / 2
    for lamp, on in zip(lamps, burning):
        centre = (lamp[:2] - plan.origin) * pixels
        low, high = (
            tuple(corner.astype(int).tolist()) for corner in (centre - half, centre + half)
        )
        cv2.rectangle(lit, low, high, (255,) * 3 if on else (110,) * 3, -1)
