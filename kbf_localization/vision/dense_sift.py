"""Dense SIFT descriptors (Lowe 2004) on a regular grid, without visiting keypoints one by one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from kbf_localization.arrays import Floats, Image
from kbf_localization.vision.settings import (
    CELLS_PER_SIDE,
    DESCRIPTOR_LENGTH,
    ORIENTATIONS,
    DescriberSettings,
)

_ROW_BITS = 9
_ROW = 1 << _ROW_BITS
"""A gradient (gx, gy) of an 8-bit image has the number 512 gy + gx, unique modulo 512²."""

_BLOCKS_AT_ONCE = 8

_MAX_COMPONENT = np.float32(0.2)
"""Lowe's bound on one component of a unit descriptor, against single strong edges."""


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
    _normalize(descriptors, settings)
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
    sideways = np.kron(window.T, np.eye(ORIENTATIONS, dtype=np.float32))
    wide = image.astype(np.int32)
    # A few blocks at a time, so that all that is made of them stays in the cache.
    numbers = np.zeros((_BLOCKS_AT_ONCE * size, (cell_columns + 1) * size), dtype=np.int32)
    votes = np.empty(numbers.shape, dtype=_orientation_table().dtype)
    halves = np.zeros((_BLOCKS_AT_ONCE + 1, 2, numbers.shape[1] * ORIENTATIONS), np.float32)
    cells = np.empty((cell_rows + 1, cell_columns, ORIENTATIONS), dtype=np.float32)
    for first in range(0, cell_rows + 1, _BLOCKS_AT_ONCE):
        blocks = min(_BLOCKS_AT_ONCE, cell_rows + 1 - first)
        pixels = slice(0, blocks * size)
        _number_gradients(wide, numbers[pixels], first * size - size // 2, size // 2)
        _orientation_table().take(numbers[pixels], out=votes[pixels], mode="wrap")
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
    wide: NDArray[np.int32], numbers: NDArray[np.int32], top: int, margin: int
) -> None:
    """Write the gradient numbers of image rows from `top` on, `margin` columns to the right.

    Outside the image, and at its border, where a pixel lacks a neighbour, the gradient is zero.
    """
    height, width = wide.shape
    first, last = max(top, 1), min(top + len(numbers), height - 1)
    columns = min(width - 2, numbers.shape[1] - margin - 1)
    numbers[: first - top] = 0
    numbers[last - top :] = 0
    inside = numbers[first - top : last - top, margin + 1 : margin + 1 + columns]
    np.subtract(
        wide[first + 1 : last + 1, 1 : columns + 1],
        wide[first - 1 : last - 1, 1 : columns + 1],
        out=inside,
    )
    inside <<= _ROW_BITS
    inside += wide[first:last, 2 : columns + 2]
    inside -= wide[first:last, :columns]


def write_gradient_votes(image: Image, votes: Floats) -> None:
    """Write each pixel's votes (h, w, 8) for the eight orientations, zero at the border."""
    numbers = np.zeros(image.shape, dtype=np.int32)
    _number_gradients(image.astype(np.int32), numbers, 0, 0)
    table = _orientation_table()
    rows = np.bitwise_and(numbers, len(table) - 1, dtype=np.intp)
    table.take(rows, mode="clip", out=votes.view(table.dtype)[..., 0])


@lru_cache(maxsize=1)
def _orientation_table() -> NDArray[np.void]:
    """Return the eight votes of every possible gradient, as one 32-byte item a gradient number."""
    steps = np.arange(-255.0, 256.0)
    gy, gx = np.meshgrid(steps, steps, indexing="ij")
    turns = np.arctan2(gy, gx) * (ORIENTATIONS / (2.0 * np.pi))
    distance = np.abs(turns[..., None] - np.arange(ORIENTATIONS)) % ORIENTATIONS
    distance = np.minimum(distance, ORIENTATIONS - distance)
    votes = np.hypot(gx, gy)[..., None] * np.maximum(0.0, 1.0 - distance)
    table = np.zeros((_ROW * _ROW, ORIENTATIONS), dtype=np.float32)
    # Numbers are taken modulo the table's length, so that no pixel needs an offset.
    table[(gy * _ROW + gx).astype(np.intp) % len(table)] = votes
    return table.view(np.dtype((np.void, 4 * ORIENTATIONS))).ravel()


@lru_cache(maxsize=8)
def _window_halves(size: int) -> Floats:
    """Return the rising and the falling half (2, size) of the triangular window of a cell."""
    rising = (np.arange(size) + 0.5 + (size % 2) * 0.5) / size
    return np.stack((rising, 1.0 - rising)).astype(np.float32)


@lru_cache(maxsize=1)
def _patch_window() -> Floats:
    """Lowe's Gaussian over the patch (128,), with a deviation of half its side, cell by cell."""
    offsets = (np.arange(CELLS_PER_SIDE) - (CELLS_PER_SIDE - 1) / 2.0) / (CELLS_PER_SIDE / 2.0)
    profile = np.exp(-0.5 * offsets**2)
    return np.repeat(np.outer(profile, profile), ORIENTATIONS).astype(np.float32)


def _normalize(descriptors: Floats, settings: DescriberSettings) -> None:
    """Bound the components by 0.2 of the length, then bring to unit length, in place.

    A descriptor that was shorter than a flat patch's stays as much shorter than one.
    """
    flat = settings.flat_gradient * settings.patch_size**2 / DESCRIPTOR_LENGTH**0.5
    lengths = np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))
    np.minimum(descriptors, _MAX_COMPONENT * lengths[:, None], out=descriptors)
    bounded = np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))
    # Bounded lengths of flat patches shrink in proportion to their true ones.
    scale = np.minimum(lengths / np.float32(max(flat, 1e-6)), np.float32(1.0))
    scale /= np.maximum(bounded, np.float32(1e-6))
    descriptors *= scale[:, None]
