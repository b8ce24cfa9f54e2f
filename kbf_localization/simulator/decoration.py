"""What hangs on the walls: doors, windows, posters, boards; and how furniture looks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Image
from kbf_localization.simulator import textures
from kbf_localization.simulator.floor_plan import Box, Face

_SILL_M, _HEAD_M = 0.9, 2.25
_POSTERS = 16


@dataclass(frozen=True)
class Window:
    """A window in a face: metres from the face's left edge, and its height range."""

    left: float
    right: float
    sill: float = _SILL_M
    head: float = _HEAD_M


class Decorator:
    """Paints faces and boxes of one office; its seed decides, and a small stock makes repetition.

    Corridors repeat one module (door, bare wall, one of few posters) along look-alike stretches;
    rooms differ by paint, boards and posters, but share the stock as well.
    """

    def __init__(self, seed: int, pixels: float) -> None:
        self.pixels = pixels
        self.rng = np.random.default_rng([seed, 3])
        self.posters = [textures.poster(pixels, self.rng) for _ in range(_POSTERS)]
        self.common = [int(k) for k in self.rng.integers(_POSTERS, size=3)]
        self.doors = [textures.door(pixels, style, self.rng) for style in range(4)]
        self.door_style = int(self.rng.integers(4))
        self.boards = [textures.whiteboard(pixels, self.rng) for _ in range(6)]

    def wall(self, face: Face, label: str) -> tuple[Image, list[Window]]:
        """The face's colours in even white light, and its windows."""
        height, width = (
            round((face.top - face.bottom) * self.pixels),
            round(face.length * self.pixels),
        )
        corridor = label.startswith("CR")
        # Rooms of one kind are painted alike.
        kind = sum(label.rstrip("-AB0123456789").encode())
        tone = textures.PAINTS[0 if corridor else kind % len(textures.PAINTS)]
        image = textures.stained(textures.flat(height, width, tone), self.rng, 2.2)
        if face.kind == "lintel":
            image[-max(round(0.06 * self.pixels), 1) :] = (70, 80, 90)
            return image, []
        if not corridor and (kind + face.axis) % 4 == 0:
            self._bricks(image)
        base = max(round(0.09 * self.pixels), 1)
        image[-base:] = (88, 92, 98)
        if corridor:
            rail = height - round(0.95 * self.pixels)
            image[rail : rail + max(round(0.07 * self.pixels), 1)] = (120, 150, 176)
        if (
            face.kind == "exterior"
            and face.length > 1.5
            and (not corridor or self.rng.random() < 0.35)
        ):
            return image, self._windows(image, face)
        if corridor:
            self._corridor_modules(image, face)
        else:
            self._room_wall(image, face)
        return image, []

    def _put(self, image: Image, patch: Image, left_m: float, top_m: float) -> None:
        """`top_m` is the height above the floor of the patch's upper edge."""
        top = image.shape[0] - round(top_m * self.pixels)
        textures.paste(image, patch, round(left_m * self.pixels), top)

    def _bricks(self, image: Image) -> None:
        high, wide = max(round(0.12 * self.pixels), 3), max(round(0.36 * self.pixels), 6)
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
        found = []
        for k in range(count):
            left = (k + 0.5) * pitch - wide / 2
            found.append(Window(left, left + wide))
            self._radiator(image, left + 0.1, wide - 0.2)
        return found

    def _radiator(self, image: Image, left: float, wide: float) -> None:
        patch = textures.flat(round(0.6 * self.pixels), round(wide * self.pixels), (226, 230, 232))
        patch[:, :: max(round(0.06 * self.pixels), 3)] = (168, 172, 176)
        self._put(image, patch, left, 0.75)

    def _corridor_modules(self, image: Image, face: Face) -> None:
        module = 2.8
        count = int(face.length / module)
        offset = (face.length - count * module) / 2
        for k in range(count):
            left = offset + k * module
            self._put(image, self.doors[self.door_style], left + 0.4, 2.1)
            plate = textures.flat(
                round(0.14 * self.pixels), round(0.2 * self.pixels), (210, 200, 190)
            )
            textures.text_block(
                plate,
                2,
                2,
                plate.shape[1] - 2,
                plate.shape[0] - 1,
                max(round(0.04 * self.pixels), 2),
                (40, 40, 40),
                self.rng,
            )
            self._put(image, plate, left + 1.5, 1.6)
            chance = self.rng.random()
            if chance < 0.45:
                self._put(
                    image, self.posters[self.common[int(self.rng.integers(3))]], left + 1.85, 1.9
                )
            elif chance < 0.6:
                self._put(image, self.posters[int(self.rng.integers(_POSTERS))], left + 1.85, 1.95)
            elif chance < 0.7:
                self._extinguisher(image, left + 2.2)

    def _extinguisher(self, image: Image, left: float) -> None:
        self._put(
            image,
            textures.flat(round(0.5 * self.pixels), round(0.16 * self.pixels), (30, 30, 190)),
            left,
            1.1,
        )
        self._put(
            image,
            textures.flat(round(0.2 * self.pixels), round(0.2 * self.pixels), (40, 40, 215)),
            left,
            1.9,
        )

    def _room_wall(self, image: Image, face: Face) -> None:
        position = float(self.rng.uniform(0.1, 0.6))
        while position < face.length - 0.5:
            kind = self.rng.random()
            if kind < 0.28:
                board = self.boards[int(self.rng.integers(len(self.boards)))]
                self._put(image, board, position, 2.0)
                position += board.shape[1] / self.pixels
            elif kind < 0.75:
                sheet = self.posters[int(self.rng.integers(_POSTERS))]
                self._put(image, sheet, position, float(self.rng.choice([1.8, 1.95, 2.2])))
                position += sheet.shape[1] / self.pixels
            else:
                position += 0.6
            position += float(self.rng.uniform(0.15, 0.7))

    def box_side(self, box: Box, width_m: float) -> Image:
        """A side of a piece of furniture."""
        height, width = max(round(box.top * self.pixels), 4), max(round(width_m * self.pixels), 4)
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
        """The top of a piece of furniture, rows along y, with papers on desks."""
        width, height = (max(round(side * self.pixels), 4) for side in size_m)
        image = textures.wood(height, width, box.style + 1, self.rng)
        if box.look in ("desk", "cabinet"):
            for _ in range(int(self.rng.integers(2, 6))):
                sheet = textures.flat(
                    round(0.3 * self.pixels), round(0.21 * self.pixels), (235, 238, 240)
                )
                textures.text_block(
                    sheet, 2, 2, sheet.shape[1] - 2, sheet.shape[0], 3, (60, 60, 60), self.rng
                )
                textures.paste(
                    image, sheet, int(self.rng.integers(width)), int(self.rng.integers(height))
                )
        return image
