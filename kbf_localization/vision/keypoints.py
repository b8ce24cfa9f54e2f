"""Local features of an image: where they are, and bytes that tell them apart.

Upright SIFT (Lowe 2004) in whole-image operations: extrema of differences of Gaussians are found at
three octaves. Descriptors are read from planes of gradient votes, one for each orientation,
smoothed over a cell, as dense SIFT has them. They are not turned to a dominant orientation: a
robot's camera does not roll, and upright descriptors tell more apart.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Floats, Image, Rows
from kbf_localization.vision.dense_sift import (
    CELLS_PER_SIDE,
    DESCRIPTOR_LENGTH,
    ORIENTATIONS,
    write_gradient_votes,
)

OCTAVES = 3
INTERVALS = 3
"""Scales an octave at which extrema are searched for."""
FIRST_SIGMA_PX = 1.0
"""Smoothing of an octave's first scale; Lowe's 1.6 on an image doubled in size is 0.8."""
CAMERA_SIGMA_PX = 0.5
"""Smoothing that an image has already (Lowe)."""
MIN_EXTREMUM = 1.0
"""Least difference of Gaussians in grey levels: OpenCV's 0.04 / 3 of 255 is 3.4."""
EDGE_RATIO = 10.0
"""Largest ratio of principal curvatures (Lowe)."""
CELL_SIGMAS = 3.0
"""A descriptor's cell is 3 σ wide (Lowe)."""
WINDOW_PX = 5
"""Votes are summed over two boxes of 5 pixels: cells of an octave are 4 to 6 pixels wide."""
MAX_COMPONENT = 0.2
"""Lowe's bound on a component of a unit descriptor."""
MIN_SIDE_PX = 24
BORDER_PX = 4


@dataclass(frozen=True)
class Features:
    """`pixels` (k, 2) x, y; raw `descriptors` (k, 128), not normalized."""

    pixels: Floats
    descriptors: Floats


@dataclass(frozen=True)
class _Extrema:
    """Places (k,) in an octave's pixels, scales in pixels, and absolute differences."""

    x: Floats
    y: Floats
    sigma: Floats
    strength: Floats

    def __getitem__(self, rows: Rows) -> _Extrema:
        return _Extrema(self.x[rows], self.y[rows], self.sigma[rows], self.strength[rows])


def upright_sift(image: Image, count: int) -> Features:
    """Return the `count` strongest features of a grey image."""
    octaves: list[tuple[Image, _Extrema]] = []
    for _ in range(OCTAVES):
        if min(image.shape) < MIN_SIDE_PX:
            break
        octaves.append((image, _extrema(image, count)))
        size = (image.shape[1] // 2, image.shape[0] // 2)
        image = np.asarray(
            cv2.resize(image[: 2 * size[1], : 2 * size[0]], size, interpolation=cv2.INTER_AREA)
        )
    strength = np.concatenate([np.empty(0, np.float32), *(e.strength for _, e in octaves)])
    excess = len(strength) - count
    weakest = np.partition(strength, excess)[excess] if excess > 0 else np.float32(0.0)
    pixels = [np.empty((0, 2), np.float32)]
    descriptors = [np.empty((0, DESCRIPTOR_LENGTH), np.float32)]
    for number, (level, extrema) in enumerate(octaves):
        kept = extrema[np.flatnonzero(extrema.strength >= weakest)]
        if not len(kept.x):
            continue
        place = np.stack((kept.x, kept.y), axis=1)
        # A halved pixel covers 2 by 2: its centre lies between theirs.
        pixels.append((place + np.float32(0.5)) * np.float32(2**number) - np.float32(0.5))
        descriptors.append(_describe(level, kept))
    return Features(np.concatenate(pixels), np.concatenate(descriptors))


def bound_components(descriptors: Floats) -> Floats:
    """Return descriptors (k, 128) whose components are at most 0.2 of their lengths."""
    lengths = np.sqrt(np.einsum("ij,ij->i", descriptors, descriptors))
    bounded = np.minimum(descriptors, np.float32(MAX_COMPONENT) * lengths[:, None])
    return np.asarray(bounded, dtype=np.float32)


def _extrema(image: Image, count: int) -> _Extrema:
    """Return at most about `count` extrema of one octave, to fractions of a pixel."""
    scales = FIRST_SIGMA_PX * 2.0 ** (np.arange(INTERVALS + 3) / INTERVALS)
    differences = _differences(image, scales)
    found = _peaks(differences[1 : INTERVALS + 1]) + differences[0].size
    at = _peaks_in_scale(differences, found)
    flat = differences.ravel()
    if len(at) > 2 * count:
        # More than enough: edges and weak extrema go soon.
        excess = len(at) - 2 * count
        at = at[np.argpartition(np.abs(flat[at]), excess)[excess:]]
    return _interpolate(differences, at)


def _peaks(planes: Floats) -> NDArray[np.intp]:
    """Return pixels that are as high as their neighbours and above the threshold, or pits."""
    # As one tall image, for few calls: across the seams only pixels of the border are compared.
    tall = planes.reshape(-1, planes.shape[2])
    kernel = np.ones((3, 3), np.uint8)
    tops = tall >= np.maximum(np.asarray(cv2.dilate(tall, kernel)), np.float32(MIN_EXTREMUM))
    tops |= tall <= np.minimum(np.asarray(cv2.erode(tall, kernel)), np.float32(-MIN_EXTREMUM))
    inner = tops.reshape(planes.shape)
    inner[:, :BORDER_PX] = inner[:, -BORDER_PX:] = False
    inner[:, :, :BORDER_PX] = inner[:, :, -BORDER_PX:] = False
    return np.flatnonzero(inner)


def _peaks_in_scale(differences: Floats, at: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the peaks `at` that exceed their nine neighbours in the scales beside theirs."""
    _, height, width = differences.shape
    flat, step = differences.ravel(), height * width
    # Most fail at the first neighbours: the pixel itself in the other scales.
    around = (np.array([0]), np.array([-1, 1, -width, width]), np.array([-1, 1]) + width)
    for offsets in (*around, np.array([-1, 1]) - width):
        offsets = np.concatenate((offsets - step, offsets + step))
        value = flat.take(at)
        others = flat.take(at + offsets[:, None])
        others *= np.where(value > 0, np.float32(1.0), np.float32(-1.0))
        at = at[(np.abs(value) >= others).all(axis=0)]
    return at


def _differences(image: Image, scales: Array) -> Floats:
    """Return differences of Gaussians (s - 1, h, w), in a buffer that the next call overwrites."""
    smooth = image.astype(np.float32)
    before = CAMERA_SIGMA_PX
    out = _buffer("differences", (len(scales) - 1, *image.shape))
    for k, sigma in enumerate(scales):
        last = smooth
        blurred = cv2.GaussianBlur(last, (0, 0), float(np.sqrt(sigma**2 - before**2)))
        smooth = np.asarray(blurred, dtype=np.float32)
        if k:
            cv2.subtract(smooth, last, dst=out[k - 1])
        before = sigma
    return out


def _interpolate(differences: Floats, at: NDArray[np.intp]) -> _Extrema:
    """Return extrema of the quadratics through the neighbours, without those on edges.

    Place and scale are interpolated apart from each other: their mixed derivatives are small.
    """
    _, height, width = differences.shape
    flat, step = differences.ravel(), height * width
    value = flat[at]
    right, left = flat[at + 1], flat[at - 1]
    below, above = flat[at + width], flat[at - width]
    coarser, finer = flat[at + step], flat[at - step]
    xx, yy, ss = right + left - 2 * value, below + above - 2 * value, coarser + finer - 2 * value
    xy = (flat[at + width + 1] + flat[at - width - 1]) / 4
    xy -= (flat[at + width - 1] + flat[at - width + 1]) / 4
    gx, gy, gs = (right - left) / 2, (below - above) / 2, (coarser - finer) / 2
    determinant = xx * yy - xy * xy
    curved = determinant * (EDGE_RATIO + 1) ** 2 > (xx + yy) ** 2 * EDGE_RATIO
    curved &= determinant > 0
    rows = np.flatnonzero(curved)
    xx, yy, xy, ss = xx[rows], yy[rows], xy[rows], ss[rows]
    gx, gy, gs, determinant = gx[rows], gy[rows], gs[rows], determinant[rows]
    dx = np.clip((xy * gy - yy * gx) / determinant, -0.7, 0.7)
    dy = np.clip((xy * gx - xx * gy) / determinant, -0.7, 0.7)
    flat_in_scale = np.abs(ss) < 1e-6
    ds = np.clip(-gs / np.where(flat_in_scale, 1.0, ss), -0.7, 0.7)
    strength = np.abs(value[rows] + 0.5 * (gx * dx + gy * dy + gs * ds))
    level, place = np.divmod(at[rows], step)
    y, x = np.divmod(place, width)
    sigma = FIRST_SIGMA_PX * np.exp2((level + ds) / INTERVALS)
    return _Extrema(
        (x + dx).astype(np.float32),
        (y + dy).astype(np.float32),
        sigma.astype(np.float32),
        strength.astype(np.float32),
    )


def _describe(image: Image, extrema: _Extrema) -> Floats:
    """Return raw descriptors (k, 128): 4 by 4 cells of 8 orientations round each extremum."""
    smooth = cv2.GaussianBlur(image, (0, 0), FIRST_SIGMA_PX)
    votes = _buffer("votes", (*image.shape, ORIENTATIONS))
    write_gradient_votes(np.asarray(smooth, dtype=np.uint8), out=votes)
    planes = _buffer("planes", votes.shape)
    cv2.sepFilter2D(votes, -1, _window(), _window(), dst=planes)
    height, width = image.shape
    offsets = (np.arange(CELLS_PER_SIDE) - (CELLS_PER_SIDE - 1) / 2.0).astype(np.float32)
    reach = offsets * (np.float32(CELL_SIGMAS) * extrema.sigma)[:, None]
    columns = np.clip(np.rint(extrema.x[:, None] + reach), 0, width - 1).astype(np.intp)
    lines = np.clip(np.rint(extrema.y[:, None] + reach), 0, height - 1).astype(np.intp)
    cells = lines[:, :, None] * width + columns[:, None, :]
    found: Floats = planes.reshape(-1, ORIENTATIONS).take(cells, axis=0)
    profile = np.exp(-0.5 * (offsets / (CELLS_PER_SIDE / 2.0)) ** 2)
    found *= np.outer(profile, profile)[:, :, None]
    return found.reshape(-1, DESCRIPTOR_LENGTH)


@lru_cache(maxsize=1)
def _window() -> Floats:
    """Return the window of two boxes of 5 pixels, one after the other: a triangle of 9."""
    box = np.full(WINDOW_PX, 1.0 / WINDOW_PX)
    return np.asarray(np.convolve(box, box), dtype=np.float32)


_kept = threading.local()


def _buffer(name: str, shape: tuple[int, ...]) -> Floats:
    """Return an array of this thread with undefined content, the same memory for every image.

    Memory from the system comes page by page, which takes longer than what is computed in it.
    """
    buffers: dict[str, Floats] = vars(_kept)
    size = math.prod(shape)
    if name not in buffers or buffers[name].size < size:
        buffers[name] = np.empty(size, np.float32)
    return buffers[name][:size].reshape(shape)


MAX_AREA_PX2 = 480 * 360
"""Larger images are halved: on real images half the size matched more precisely than all of it.
By area, wide images and portraits keep as much detail as others."""

MAX_RATIO = 0.85
"""Lowe's ratio of the distances to the nearest and the second nearest descriptor."""

_BYTE_SCALE = 512.0
"""A RootSIFT component is at most 1; those that occur are below 0.5."""


@dataclass(frozen=True)
class Keypoints:
    """Keypoints of an image: `pixels` (k, 2) x, y in that image, `descriptors` (k, 128) bytes."""

    pixels: Floats
    descriptors: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.pixels)

    @classmethod
    def none(cls) -> Keypoints:
        return cls(np.empty((0, 2), np.float32), np.empty((0, 128), np.uint8))


def detect_keypoints(image: Image) -> Keypoints:
    """Return the 400 strongest upright keypoints of a grey image, 800 where it had to be halved."""
    small, halvings = _halved(image)
    found = upright_sift(small, 800 if halvings else 400)
    pixels = (found.pixels + np.float32(0.5)) * np.float32(2**halvings) - np.float32(0.5)
    return Keypoints(pixels, root_sift(bound_components(found.descriptors)))


def root_sift(descriptors: Floats) -> NDArray[np.uint8]:
    """Return roots of the L1-normalized descriptors (Arandjelović, Zisserman 2012), in bytes."""
    total = np.maximum(descriptors.sum(axis=1, keepdims=True), np.float32(1e-6))
    rooted = np.sqrt(descriptors / total)
    scaled = np.minimum(rooted * np.float32(_BYTE_SCALE) + np.float32(0.5), np.float32(255.0))
    return np.asarray(scaled, dtype=np.uint8)


def _halved(image: Image) -> tuple[Image, int]:
    halvings = 0
    while image.shape[0] * image.shape[1] > MAX_AREA_PX2 and min(image.shape[:2]) >= 2:
        size = (image.shape[1] // 2, image.shape[0] // 2)
        image = np.asarray(
            cv2.resize(image[: 2 * size[1], : 2 * size[0]], size, interpolation=cv2.INTER_AREA),
            dtype=np.uint8,
        )
        halvings += 1
    return image, halvings


def squared_distances(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> Floats:
    """Return squared distances (k, l) of descriptors (k, 128), (l, 128) by one matrix product."""
    found: Floats = distance_rows(first) @ distance_columns(second).T
    return found


def distance_rows(descriptors: NDArray[np.uint8]) -> Floats:
    """Return (k, 130): their products with those of `distance_columns` are squared distances.

    x · (−2 y) + |x|² · 1 + 1 · |y|²: whole numbers below 2²⁴, so exact in any order of summation.
    """
    found = np.ones((len(descriptors), DESCRIPTOR_LENGTH + 2), dtype=np.float32)
    values = found[:, :DESCRIPTOR_LENGTH]
    values[:] = descriptors
    np.einsum("ij,ij->i", values, values, out=found[:, DESCRIPTOR_LENGTH])
    return found


def distance_columns(descriptors: NDArray[np.uint8]) -> Floats:
    """Return (l, 130): see `distance_rows`."""
    found = distance_rows(descriptors)[:, [*range(DESCRIPTOR_LENGTH), -1, -2]]
    found[:, :DESCRIPTOR_LENGTH] *= np.float32(-2.0)
    return found


def mutual_matches(distances: Floats, max_ratio: float = MAX_RATIO) -> tuple[Rows, Rows, Floats]:
    """Return rows and columns that are each other's nearest, with the ratio to the second nearest.

    `distances` (k, l) are squared; the ratio is of distances, and bounded by `max_ratio`.
    """
    count, others = distances.shape
    if count == 0 or others < 2:
        empty = np.empty(0, dtype=np.intp)
        return empty, empty, np.empty(0, dtype=np.float32)
    best = distances.argmin(axis=1)
    least = distances.min(axis=0)
    if np.count_nonzero(distances == least) == others:
        rows = np.flatnonzero(distances[np.arange(count), best] == least[best])
    else:  # Of equal distances the first counts.
        rows = np.flatnonzero(distances.argmin(axis=0)[best] == np.arange(count))
    part = distances[rows]
    columns = best[rows]
    nearest = part[np.arange(len(rows)), columns]
    part[np.arange(len(rows)), columns] = np.inf
    second = part.min(axis=1)
    ratio = np.sqrt(np.maximum(nearest, 0.0) / np.maximum(second, 1e-6))
    kept = ratio < max_ratio
    return rows[kept], columns[kept], np.asarray(ratio[kept], dtype=np.float32)
