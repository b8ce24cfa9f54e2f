"""What hangs on the walls: doors, windows, posters, boards; and how furniture looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Image
from kbf_localization.simulator import textures
from kbf_localization.simulator.floor_plan import Box, Face

_POSTERS = 16


@dataclass(frozen=True)
class Window:
    """A window in a face: metres from the face's left edge, and its height range."""

    left: float
    right: float
    sill: float = 0.9
    head: float = 2.25


class Decorator:
    """Paints faces and boxes of one office; its seed decides, and a small stock makes repetition.

    Corridors repeat one module (door, bare wall, one of few posters) along look-alike stretches;
    rooms differ by paint, boards and posters, but have the stock in common.
    """

    def __init__(self, seed: int, pixels: float) -> None:
        self.pixels = pixels
        self.rng = np.random.default_rng([seed, 3])
        self.posters = [textures.poster(pixels, self.rng) for _ in range(_POSTERS)]
        self.common = [self.posters[k] for k in self.rng.integers(_POSTERS, size=3)]
        self.doors = [textures.door(pixels, style, self.rng) for style in range(4)]
        self.door_style = int(self.rng.integers(4))
        self.boards = [textures.whiteboard(pixels, self.rng) for _ in range(6)]

    def _sized(self, metres: float, least: int = 1) -> int:
        """Return a length in pixels."""
        return max(round(metres * self.pixels), least)

    def _patch(self, high_m: float, wide_m: float, colour: textures.Colour) -> Image:
        return textures.flat(round(high_m * self.pixels), round(wide_m * self.pixels), colour)

    def _one_of(self, images: Sequence[Image]) -> Image:
        return images[int(self.rng.integers(len(images)))]

    def wall(self, face: Face, label: str) -> tuple[Image, list[Window]]:
        """Return the face's colours in even white light, and its windows."""
        corridor = label.startswith("CR")
        # Rooms of one kind are painted alike.
        kind = sum(label.rstrip("-AB0123456789").encode())
        tone = textures.PAINTS[0 if corridor else kind % len(textures.PAINTS)]
        bare = self._patch(face.top - face.bottom, face.length, tone)
        image = textures.stained(bare, self.rng, 2.2)
        if face.kind == "lintel":
            image[-self._sized(0.06) :] = (70, 80, 90)
            return image, []
        if not corridor and (kind + face.axis) % 4 == 0:
            self._bricks(image)
        image[-self._sized(0.09) :] = (88, 92, 98)
        if corridor:
            rail = image.shape[0] - round(0.95 * self.pixels)
            image[rail : rail + self._sized(0.07)] = (120, 150, 176)
        outer = face.kind == "exterior" and face.length > 1.5
        if outer and (not corridor or self.rng.random() < 0.35):
            return image, self._windows(image, face)
        if corridor:
            self._corridor_modules(image, face)
        else:
            self._room_wall(image, face)
        return image, []

    def _put(self, image: Image, patch: Image, left_m: float, top_m: float) -> None:
        """Paint a patch; `top_m` is the height above the floor of its upper edge."""
        top = image.shape[0] - round(top_m * self.pixels)
        textures.paste(image, patch, round(left_m * self.pixels), top)

    def _bricks(self, image: Image) -> None:
        high, wide = self._sized(0.12, 3), self._sized(0.36, 6)
        for k, top in enumerate(range(0, image.shape[0], high)):
            image[top] = (150, 150, 150)
            for left in range(-(wide // 2) * (k % 2), image.shape[1], wide):
                if left >= 0:
                    image[top : top + high, left] = (150, 150, 150)
                shade = int(self.rng.integers(-14, 15))
                block = image[top + 1 : top + high, max(left + 1, 0) : max(left + wide, 0)]
                clay = np.array([shade - 40, shade - 22, shade])
                block[:] = np.clip(block.astype(int) + clay, 0, 255)

    def _windows(self, image: Image, face: Face) -> list[Window]:
        count = max(int(face.length / 2.0), 1)
        pitch = face.length / count
        wide = min(1.35, pitch - 0.3)
        radiator = self._patch(0.6, wide - 0.2, (226, 230, 232))
        radiator[:, :: self._sized(0.06, 3)] = (168, 172, 176)
        found = []
        for k in range(count):
            left = (k + 0.5) * pitch - wide / 2
            found.append(Window(left, left + wide))
            self._put(image, radiator, left + 0.1, 0.75)
        return found

    def _corridor_modules(self, image: Image, face: Face) -> None:
        module = 2.8
        count = int(face.length / module)
        offset = (face.length - count * module) / 2
        for k in range(count):
            left = offset + k * module
            self._put(image, self.doors[self.door_style], left + 0.4, 2.1)
            plate = self._patch(0.14, 0.2, (210, 200, 190))
            high, wide = plate.shape[:2]
            textures.text_block(
                plate, 2, 2, wide - 2, high - 1, self._sized(0.04, 2), (40, 40, 40), self.rng
            )
            self._put(image, plate, left + 1.5, 1.6)
            chance = self.rng.random()
            if chance < 0.45:
                self._put(image, self._one_of(self.common), left + 1.85, 1.9)
            elif chance < 0.6:
                self._put(image, self._one_of(self.posters), left + 1.85, 1.95)
            elif chance < 0.7:  # a fire extinguisher with its sign above
                self._put(image, self._patch(0.5, 0.16, (30, 30, 190)), left + 2.2, 1.1)
                self._put(image, self._patch(0.2, 0.2, (40, 40, 215)), left + 2.2, 1.9)

    def _room_wall(self, image: Image, face: Face) -> None:
        position = float(self.rng.uniform(0.1, 0.6))
        while position < face.length - 0.5:
            kind = self.rng.random()
            if kind < 0.28:
                board = self._one_of(self.boards)
                self._put(image, board, position, 2.0)
                position += board.shape[1] / self.pixels
            elif kind < 0.75:
                sheet = self._one_of(self.posters)
                self._put(image, sheet, position, float(self.rng.choice([1.8, 1.95, 2.2])))
                position += sheet.shape[1] / self.pixels
            else:
                position += 0.6
            position += float(self.rng.uniform(0.15, 0.7))

    def box_side(self, box: Box, width_m: float) -> Image:
        """Return a side of a piece of furniture."""
        height, width = self._sized(box.top, 4), self._sized(width_m, 4)
        if box.look == "bookshelf" and width_m > 0.5:
            return textures.bookshelf(height, width, self.pixels, self.rng)
        image = textures.wood(height, width, box.style + 1, self.rng)
        if box.look in ("cabinet", "drawers", "wardrobe"):
            rows = 1 if box.look == "wardrobe" else 3
            for k in range(rows):
                top = k * height // rows
                image[top : top + 2] = image[top : top + 2] // 2
                grip = slice(width // 2 - width // 10, width // 2 + width // 10 + 1)
                image[top + height // (2 * rows) : top + height // (2 * rows) + 3, grip] = 40
        elif box.look == "copier":
            image[:] = (212, 210, 206)
            image[: height // 5] = (90, 86, 84)
            image[height // 2 : height // 2 + 3] = (120, 120, 120)
        elif box.look == "desk":
            image[height // 12 :, width // 12 : -width // 12] //= 3
        return image

    def box_top(self, box: Box, size_m: tuple[float, float]) -> Image:
        """Return the top of a piece of furniture, rows along y, with papers on desks."""
        width, height = (self._sized(side, 4) for side in size_m)
        image = textures.wood(height, width, box.style + 1, self.rng)
        if box.look in ("desk", "cabinet"):
            for _ in range(int(self.rng.integers(2, 6))):
                sheet = self._patch(0.3, 0.21, (235, 238, 240))
                high, wide = sheet.shape[:2]
                textures.text_block(sheet, 2, 2, wide - 2, high, 3, (60, 60, 60), self.rng)
                left, top = int(self.rng.integers(width)), int(self.rng.integers(height))
                textures.paste(image, sheet, left, top)
        return image
