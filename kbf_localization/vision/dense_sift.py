"""Dense SIFT descriptors (Lowe 2004) on a regular grid, and the grid's settings.

The settings are those of the pyramid describer, equal for a map and its queries. The gradients of
a whole image are counted at once, not patch by patch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from kbf_localization.arrays import Floats, Image
from kbf_localization.limits import MAX_MAP_PATCHES, MAX_MAP_PIXELS

CELLS_PER_SIDE = 4
"""A descriptor has 4 by 4 cells."""

ORIENTATIONS = 8
"""A cell has 8 orientation bins."""

DESCRIPTOR_LENGTH = CELLS_PER_SIDE * CELLS_PER_SIDE * ORIENTATIONS

ALIGNED_COLUMNS = 40
"""Columns of words, at most, that are compared when images are aligned."""

LEVEL_WEIGHTS = {1: (1.0,), 2: (0.5, 0.5), 3: (0.25, 0.25, 0.5)}
"""Lazebnik's weights of the pyramid's levels 0 … L: 2^-L, then 2^-(L - l + 1)."""

_ROW_BITS = 9
_ROW = 1 << _ROW_BITS
"""A gradient (gx, gy) of an 8-bit image has the number 512 gy + gx, unique modulo 512²."""

_BLOCKS_AT_ONCE = 8

_MAX_COMPONENT = np.float32(0.2)
"""Lowe's bound on one component of a unit descriptor, against single strong edges."""


_FREED_BYTES = 31 << 20
"""glibc keeps memory for arrays up to the largest that it has freed, if that is below 32 MiB."""


@dataclass(frozen=True)
class DescriberSettings:
    """The size to which images are brought, the grid of patches, and the pyramid over it.

    Lengths are in pixels. `flat_gradient` is the mean gradient (grey levels over two pixels) below
    which a patch counts as flat: its descriptor then keeps the small length that it has instead of
    length one.
    """

    image_width: int = 640
    image_height: int = 480
    patch_size: int = 16
    grid_step: int = 8
    levels: int = 3
    words: int = 200
    flat_gradient: float = 3.0

    def __post_init__(self) -> None:
        if self.patch_size % CELLS_PER_SIDE or self.patch_size < 2 * CELLS_PER_SIDE:
            raise ValueError(f"patch_size must be a multiple of 4 from 8, not {self.patch_size}")
        if self.grid_step < 1 or self.grid_step % self.cell_size:
            raise ValueError(
                f"grid_step must be a multiple of patch_size / 4, not {self.grid_step}"
            )
        if self.levels not in LEVEL_WEIGHTS:
            raise ValueError(f"levels must be 1, 2 or 3, not {self.levels}")
        if not 1 <= self.words <= 65535:
            raise ValueError(f"words must be between 1 and 65535, not {self.words}")
        if not 0.0 <= self.flat_gradient < 256.0:
            raise ValueError(f"flat_gradient must be in [0, 256), not {self.flat_gradient}")
        if min(self.grid_shape) < self.regions_per_side(self.levels - 1):
            raise ValueError(
                f"images of {self.image_width}x{self.image_height} are too small for a pyramid "
                f"of {self.levels} levels on patches of {self.patch_size} pixels"
            )
        if self.image_width * self.image_height > MAX_MAP_PIXELS:
            raise ValueError(f"images must have at most {MAX_MAP_PIXELS} pixels")
        if self.patches > MAX_MAP_PATCHES:
            raise ValueError(f"images must have at most {MAX_MAP_PATCHES} patches")

    @property
    def cell_size(self) -> int:
        """Return pixels a side of one of a patch's 4 by 4 cells."""
        return self.patch_size // CELLS_PER_SIDE

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Return rows and columns of patches that fit into the image."""
        return (
            max(0, (self.image_height - self.patch_size) // self.grid_step + 1),
            max(0, (self.image_width - self.patch_size) // self.grid_step + 1),
        )

    @property
    def reduced_grid_step(self) -> int:
        """Return the step between rows and columns of words that are kept for alignment."""
        return -(-self.grid_shape[1] // ALIGNED_COLUMNS)

    @property
    def reduced_grid_shape(self) -> tuple[int, int]:
        """Return rows and columns of the grid of words that is kept for alignment."""
        rows, columns = (-(-length // self.reduced_grid_step) for length in self.grid_shape)
        return rows, columns

    @property
    def word_type(self) -> str:
        """Return the smallest type of numbers that a word's number fits into."""
        return "|u1" if self.words <= 256 else "<u2"

    @property
    def patches(self) -> int:
        rows, columns = self.grid_shape
        return rows * columns

    @staticmethod
    def regions_per_side(level: int) -> int:
        """Level l cuts the image into 2^l by 2^l regions."""
        return int(2**level)

    def level_columns(self) -> list[slice]:
        """Return where each level's bins stand in a histogram; level 0 comes first."""
        bins = [self.words * self.regions_per_side(level) ** 2 for level in range(self.levels)]
        ends = accumulate(bins)
        return [slice(end - count, end) for count, end in zip(bins, ends, strict=True)]

    @property
    def bins(self) -> int:
        """Return the length of a histogram: 21 regions of 200 words are 4200."""
        return int(self.level_columns()[-1].stop)

    def level_divisors(self) -> list[int]:
        """Return how many patches one count stands for, a level.

        Counts are stored in eight bits. The divisor leaves room for a word that fills a quarter
        of a region; what is beyond (a bare wall) saturates, which keeps the kernel positive
        definite, since it is the intersection kernel of the stored counts.
        """
        divisors = []
        for level in range(self.levels):
            in_region = self.patches / self.regions_per_side(level) ** 2
            divisors.append(max(1, -int(-in_region // (4 * 255))))
        return divisors


def dense_sift(image: Image, settings: DescriberSettings) -> Floats:
    """Return descriptors (patches, 128) of a grey image (height, width), row after row of the grid.

    A descriptor has unit length, or less where the patch is flat. It does not change when the
    image's light does by a gain and an offset, up to rounding and saturation of the pixels.
    """
    cells = _cell_histograms(image, settings)
    rows, columns = settings.grid_shape
    step = settings.grid_step // settings.cell_size
    down, right, along = cells.strides
    descriptors: Floats = as_strided(
        cells,
        shape=(rows, columns, CELLS_PER_SIDE, CELLS_PER_SIDE * ORIENTATIONS),
        strides=(step * down, step * right, down, along),
        writeable=False,
    ).copy()
    descriptors = descriptors.reshape(-1, DESCRIPTOR_LENGTH)
    descriptors *= _patch_window()
    _normalize(settings, out=descriptors)
    return descriptors


def _cell_histograms(image: Image, settings: DescriberSettings) -> Floats:
    """Return orientation histograms (cell rows, cell columns, 8) of cells that tile the image.

    A pixel votes with its gradient's length, split linearly between the two nearest orientations
    and the nearest cells: the triangular window that two box filters make.
    """
    size = settings.cell_size
    rows, columns = settings.grid_shape
    step = settings.grid_step // size
    cell_rows = (rows - 1) * step + CELLS_PER_SIDE
    cell_columns = (columns - 1) * step + CELLS_PER_SIDE

    # A cell's window reaches half a cell to each side, so blocks of pixels start there, and a
    # cell is the rising half of the window over one block and the falling half over the next.
    window = _window_halves(size)
    sideways = _sideways_halves(size)
    wide = image.astype(np.int32)
    # A few blocks at a time, so that all that is made of them stays in the cache.
    numbers = np.zeros((_BLOCKS_AT_ONCE * size, (cell_columns + 1) * size), dtype=np.int32)
    votes = np.empty(numbers.shape, dtype=_orientation_table().dtype)
    halves = np.zeros((_BLOCKS_AT_ONCE + 1, 2, numbers.shape[1] * ORIENTATIONS), np.float32)
    cells = np.empty((cell_rows + 1, cell_columns, ORIENTATIONS), dtype=np.float32)
    for first in range(0, cell_rows + 1, _BLOCKS_AT_ONCE):
        blocks = min(_BLOCKS_AT_ONCE, cell_rows + 1 - first)
        pixels = slice(0, blocks * size)
        _number_gradients(wide, first * size - size // 2, size // 2, out=numbers[pixels])
        _take_votes(numbers[pixels], out=votes[pixels])
        planes = votes[pixels].view(np.float32).reshape(blocks, size, -1)
        np.matmul(window, planes, out=halves[1 : blocks + 1])
        strips = halves[:blocks, 0] + halves[1 : blocks + 1, 1]
        halves[0] = halves[blocks]
        across = (strips.reshape(-1, size * ORIENTATIONS) @ sideways).reshape(
            blocks, cell_columns + 1, 2, ORIENTATIONS
        )
        np.add(across[:, :-1, 0], across[:, 1:, 1], out=cells[first : first + blocks])
    # The first block lies half outside the image: it only completes the first row of cells.
    return cells[1:]


def _number_gradients(
    wide: NDArray[np.int32], top: int, margin: int, *, out: NDArray[np.int32]
) -> None:
    """Write the gradient numbers of image rows from `top` on, `margin` columns to the right.

    Outside the image, and at its border, where a pixel lacks a neighbour, the gradient is zero.
    """
    height, width = wide.shape
    first, last = max(top, 1), min(top + len(out), height - 1)
    columns = min(width - 2, out.shape[1] - margin - 1)
    out[: first - top] = 0
    out[last - top :] = 0
    inside = out[first - top : last - top, margin + 1 : margin + 1 + columns]
    np.subtract(
        wide[first + 1 : last + 1, 1 : columns + 1],
        wide[first - 1 : last - 1, 1 : columns + 1],
        out=inside,
    )
    inside <<= _ROW_BITS
    inside += wide[first:last, 2 : columns + 2]
    inside -= wide[first:last, :columns]


def write_gradient_votes(image: Image, *, out: Floats) -> None:
    """Write each pixel's votes (h, w, 8) for the eight orientations, zero at the border."""
    numbers = np.zeros(image.shape, dtype=np.int32)
    _number_gradients(image.astype(np.int32), 0, 0, out=numbers)
    _take_votes(numbers, out=out.view(_orientation_table().dtype)[..., 0])


def _take_votes(numbers: NDArray[np.int32], *, out: NDArray[np.void]) -> None:
    """Write the votes of gradient numbers, each as one 32-byte item."""
    table = _orientation_table()
    # NumPy wraps negative numbers too, one by one, in three times the time.
    rows = np.bitwise_and(numbers, len(table) - 1, dtype=np.intp)
    table.take(rows, mode="clip", out=out)


@lru_cache(maxsize=1)
def _orientation_table() -> NDArray[np.void]:
    """Return the eight votes of every possible gradient, as one 32-byte item a gradient number."""
    # Memory from the system comes page by page: of each image's arrays, two thousand pages.
    np.empty(_FREED_BYTES, dtype=np.uint8)
    steps = np.arange(-255.0, 256.0)
    gy, gx = steps[:, None], steps
    length, turns = np.hypot(gx, gy), np.arctan2(gy, gx) * (ORIENTATIONS / (2.0 * np.pi))
    table = np.zeros((_ROW * _ROW, ORIENTATIONS), dtype=np.float32)
    # Numbers are taken modulo the table's length, so that no pixel needs an offset.
    numbers = (gy * _ROW + gx).astype(np.intp) % len(table)
    below = np.floor(turns)
    for nearest in (below, below + 1.0):
        vote = length * np.maximum(0.0, 1.0 - np.abs(turns - nearest))
        table[numbers, nearest.astype(np.intp) % ORIENTATIONS] = vote
    return table.view(np.dtype((np.void, 4 * ORIENTATIONS))).ravel()


@lru_cache(maxsize=8)
def _window_halves(size: int) -> Floats:
    """Return the rising and the falling half (2, size) of the triangular window of a cell."""
    rising = (np.arange(size) + 0.5 + (size % 2) * 0.5) / size
    return np.stack((rising, 1.0 - rising)).astype(np.float32)


@lru_cache(maxsize=8)
def _sideways_halves(size: int) -> Floats:
    """Return the halves of the window (8 size, 16) for votes of eight orientations side by side."""
    return np.kron(_window_halves(size).T, np.eye(ORIENTATIONS, dtype=np.float32))


@lru_cache(maxsize=1)
def _patch_window() -> Floats:
    """Return Lowe's Gaussian over the patch (128,), a deviation of half its side, by cells."""
    offsets = (np.arange(CELLS_PER_SIDE) - (CELLS_PER_SIDE - 1) / 2.0) / (CELLS_PER_SIDE / 2.0)
    profile = np.exp(-0.5 * offsets**2)
    return np.repeat(np.outer(profile, profile), ORIENTATIONS).astype(np.float32)


def _normalize(settings: DescriberSettings, *, out: Floats) -> None:
    """Bound the components of `out` by 0.2 of the length, then bring it to unit length.

    A descriptor that was shorter than a flat patch's stays as much shorter than one. In place: a
    second array would make dense SIFT a tenth slower.
    """
    flat = settings.flat_gradient * settings.patch_size**2 / DESCRIPTOR_LENGTH**0.5
    lengths = np.sqrt(np.einsum("ij,ij->i", out, out))
    np.minimum(out, _MAX_COMPONENT * lengths[:, None], out=out)
    bounded = np.sqrt(np.einsum("ij,ij->i", out, out))
    # Bounded lengths of flat patches shrink in proportion to their true lengths.
    scale = np.minimum(lengths / np.float32(max(flat, 1e-6)), np.float32(1.0))
    scale /= np.maximum(bounded, np.float32(1e-6))
    out *= scale[:, None]
