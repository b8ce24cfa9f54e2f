"""Keyframes of drives: images every 0.2 m or 8°, cut into pieces where the wheels cannot be right.

A piece is a stretch of a drive along which odometry is continuous. It ends where odometry jumps or
stands still while the images move; closures, not the wheels, join what comes before and after.
Vectors of locally aggregated descriptors (VLAD) tell which keyframes may show the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Array, Flags, Floats, Rows, Stamps
from kbf_localization.datasets.drive import Drive, check_drive, grey_images
from kbf_localization.errors import MapError
from kbf_localization.geometry import interpolate, relative
from kbf_localization.landmarks.build import (
    KeypointStore,
    Numbered,
    collect_keypoints,
)
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.vision.keypoints import Keypoints, mutual_matches, squared_distances

KEYFRAME_M, KEYFRAME_RAD = 0.20, np.radians(8.0)
"""A keyframe is taken after this path or turn: neighbours overlap by most of their views."""
MAX_PATH_M, MAX_TURN_RAD = 1.5, 0.6
"""Keyframes farther along the path show another view."""
JUMP_M, JUMP_RAD = 0.5, np.radians(20.0)
"""Motion between two images that is suspect if it is `JUMP_SPEEDS` times the 90 % quantile too."""
JUMP_SPEEDS = 6.0
STILL_M, STILL_RAD, STILL_S = 0.01, np.radians(0.5), 2.0
"""Wheels that report less for longer stand still, or are not heard."""
MOVED_PX_WIDTHS = 0.04
"""Median displacement of keypoints, in image widths, by which a camera has moved: a robot that
starts or stops within the wheels' tolerance moves them by half as much."""
MIN_COMMON_MATCHES = 20
"""With fewer matches two images show different views, if both have many keypoints."""
MANY_KEYPOINTS = 50
MAX_PAUSE_S = 3.0
"""Without odometry for longer, the wheels' motion in between is not known."""


@dataclass(frozen=True)
class Keyframes:
    """The keyframes of all drives, drive after drive.

    `drive_of`, `image_of`, `piece_of` (n,): the drive, the image there, the piece; `stamps_ns`;
    `odometry` (n, 3) at the image; `path_m` (n,) driven before; `moving_s` (n,) for which the
    wheels moved before.
    """

    drive_of: Rows
    image_of: Rows
    piece_of: Rows
    stamps_ns: Stamps
    odometry: Array
    path_m: Array
    moving_s: Array

    def __len__(self) -> int:
        return len(self.drive_of)

    def scaled(self, scale: float) -> Keyframes:
        """Return the keyframes with distances times `scale`."""
        return replace(
            self, odometry=self.odometry * (scale, scale, 1.0), path_m=scale * self.path_m
        )

    def consecutive(self) -> Rows:
        """Return the rows that a next keyframe of the same piece follows."""
        return np.flatnonzero(self.piece_of[1:] == self.piece_of[:-1])


@dataclass(frozen=True)
class DriveOdometry:
    """A drive's odometry at its images: poses (t, 3), path (t,) in m, moving time (t,) in s.

    `covered` (t,) tells which images lie within the odometry; `cuts` are images before which the
    odometry is broken; `silent` are images between which nobody knows the motion. The images were
    taken `offset_s` later than their stamps say.
    """

    poses: Array
    path_m: Array
    moving_s: Array
    covered: Flags
    cuts: Rows
    silent: Flags
    offset_s: float = 0.0

    def scaled(self, scale: float) -> DriveOdometry:
        """Return the odometry with distances times `scale`."""
        return replace(self, poses=self.poses * (scale, scale, 1.0), path_m=scale * self.path_m)


def odometry_at_images(drive: Drive, scale: float = 1.0, offset_s: float = 0.0) -> DriveOdometry:
    """Return the odometry at a drive's images, with distances times `scale`.

    The images were taken `offset_s` later than their stamps say.
    """
    check_drive(drive)
    log = drive.odometry
    stamps = drive.stamps_ns + round(offset_s * 1e9)
    if len(log.stamps_ns) < 2:
        why = "".join(f"; {warning}" for warning in drive.warnings)
        raise MapError(
            f"{drive.path}: has no wheel odometry, so its poses cannot be estimated{why}"
        )
    poses = interpolate(log.stamps_ns, log.poses, stamps)
    poses = poses * np.array([scale, scale, 1.0])
    covered = (stamps >= log.stamps_ns[0]) & (stamps <= log.stamps_ns[-1])
    if not covered.any():
        raise MapError(f"{drive.path}: no image lies within the time of its odometry")
    steps = relative(poses[:-1], poses[1:])
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    seconds = np.diff(stamps) * 1e-9
    moving = (lengths > 1e-3) | (np.abs(steps[:, 2]) > 2e-3)
    path = np.r_[0.0, np.cumsum(lengths)]
    time = np.r_[0.0, np.cumsum(np.where(moving, seconds, 0.0))]
    speed = lengths / np.maximum(seconds, 1e-3)
    turning = np.abs(steps[:, 2]) / np.maximum(seconds, 1e-3)
    bounds = _q90(speed, moving), _q90(turning, moving)
    jumps = (lengths > JUMP_M) & (speed > JUMP_SPEEDS * bounds[0])
    jumps |= (np.abs(steps[:, 2]) > JUMP_RAD) & (turning > JUMP_SPEEDS * bounds[1])
    pauses = np.diff(log.stamps_ns) * 1e-9 > MAX_PAUSE_S
    for reading in np.flatnonzero(pauses):
        first, last = log.stamps_ns[reading], log.stamps_ns[reading + 1]
        jumps |= (stamps[1:] > first) & (stamps[:-1] < last)
    return DriveOdometry(
        poses,
        path,
        time,
        covered,
        np.flatnonzero(jumps) + 1,
        np.zeros(len(stamps), dtype=bool),
        offset_s,
    )


def _q90(rates: Array, moving: Flags) -> float:
    """Return the rate that 90 % of the moving steps do not exceed."""
    return float(np.quantile(rates[moving], 0.9)) if moving.any() else 0.0


def still_stretches(drive: Drive, odometry: DriveOdometry) -> list[tuple[int, int]]:
    """Return first and last images of stretches in which the wheels report no motion."""
    found = []
    first = 0
    for last in range(1, len(odometry.poses) + 1):
        away = (
            None
            if last == len(odometry.poses)
            else relative(odometry.poses[first], odometry.poses[last])
        )
        if away is not None and np.hypot(*away[:2]) < STILL_M and abs(away[2]) < STILL_RAD:
            continue
        if (drive.stamps_ns[last - 1] - drive.stamps_ns[first]) * 1e-9 >= STILL_S:
            found.append((first, last - 1))
        first = last
    return found


def has_moved(keypoints: Keypoints, other: Keypoints, width: int) -> bool | None:
    """Tell whether the camera moved between two images; None where they show too little."""
    if min(len(keypoints), len(other)) < MIN_COMMON_MATCHES:
        return None
    rows, columns, _ = mutual_matches(squared_distances(keypoints.descriptors, other.descriptors))
    if len(rows) < MIN_COMMON_MATCHES:
        return True if min(len(keypoints), len(other)) >= MANY_KEYPOINTS else None
    away = np.linalg.norm(keypoints.pixels[rows] - other.pixels[columns], axis=1)
    return bool(np.median(away) > MOVED_PX_WIDTHS * width)


def choose_keyframes(drives: Sequence[Drive], odometry: Sequence[DriveOdometry]) -> Keyframes:
    """Choose the keyframes: every 0.2 m or 8°, the first and last image of each piece."""
    parts: list[tuple[Any, ...]] = []
    pieces = 0
    for number, (drive, wheels) in enumerate(zip(drives, odometry)):
        usable = np.flatnonzero(wheels.covered & ~wheels.silent)
        turned = np.r_[0.0, np.cumsum(np.abs(relative(wheels.poses[:-1], wheels.poses[1:])[:, 2]))]
        piece = np.searchsorted(wheels.cuts, usable, side="right")
        for own in np.unique(piece):
            images = usable[piece == own]
            chosen = [int(images[0])]
            for image in images[1:]:
                driven = wheels.path_m[image] - wheels.path_m[chosen[-1]]
                if driven >= KEYFRAME_M or turned[image] - turned[chosen[-1]] >= KEYFRAME_RAD:
                    chosen.append(int(image))
            if chosen[-1] != images[-1]:
                chosen.append(int(images[-1]))
            rows = np.array(chosen, dtype=np.intp)
            parts.append(
                (
                    np.full(len(rows), number),
                    rows,
                    np.full(len(rows), pieces),
                    drive.stamps_ns[rows],
                    wheels.poses[rows],
                    wheels.path_m[rows],
                    wheels.moving_s[rows],
                )
            )
            pieces += 1
    columns = [np.concatenate(column) for column in zip(*parts)]
    return Keyframes(*columns)


def detect(
    drives: Sequence[Drive], drive_of: Rows, image_of: Rows, workers: Workers, progress: Progress
) -> tuple[list[Keypoints], tuple[int, int] | None]:
    """Return the keypoints of some images, none for those that cannot be read; and their size.

    MapError where the drives' first images have different sizes: they are not of one camera.
    """
    sizes: dict[str, tuple[int, int]] = {}

    def images() -> Iterator[Numbered]:
        for number, drive in enumerate(drives):
            rows = np.flatnonzero(drive_of == number)
            wanted = [int(image) for image in image_of[rows]]
            for row, (_, image) in zip(rows, grey_images(drive, wanted)):
                if image is not None:
                    if drive.name not in sizes:
                        sizes[drive.name] = image.shape[1], image.shape[0]
                        _check_one_size(sizes)
                    yield int(row), image

    with KeypointStore() as store:
        collect_keypoints(images(), len(drive_of), store, workers, progress)
        found = [store[row] if row in store else Keypoints.none() for row in range(len(drive_of))]
    return found, next(iter(sizes.values()), None)


def _check_one_size(sizes: Mapping[str, tuple[int, int]]) -> None:
    """Refuse drives whose images have not all one size."""
    if len(set(sizes.values())) > 1:
        found = " and ".join(
            f"{name} of {width}x{height}" for name, (width, height) in sizes.items()
        )
        raise MapError(
            f"the drives have images of different sizes, {found}; bring them to one size"
        )


WORDS = 64
SAMPLED_DESCRIPTORS = 20_000
"""On which k-means finds the words."""
KMEANS_ROUNDS = 12
OWN_CANDIDATES, OTHER_CANDIDATES = 2, 1
"""Most similar keyframes that are verified, of a keyframe's own drive and of each other piece:
there, closures are plenty."""
MIN_PATH_M = 5.0
"""Keyframes of one drive nearer along the path are neighbours, not closures."""
SUPPRESSED_M = 1.0
"""Of a run of similar keyframes only the best is a candidate."""
ROWS_AT_ONCE = 512


def describe(keypoints: Sequence[Keypoints], seed: int = 0) -> Floats:
    """Return VLAD vectors (n, 64 · 128) of unit length; zero for images without keypoints."""
    words = _words(keypoints, seed)
    found = np.zeros((len(keypoints), len(words) * 128), dtype=np.float32)
    half = 0.5 * np.einsum("ij,ij->i", words, words)
    for row, image in enumerate(keypoints):
        if not len(image):
            continue
        descriptors = image.descriptors.astype(np.float32)
        nearest = (descriptors @ words.T - half).argmax(axis=1)
        summed = np.zeros_like(words)
        np.add.at(summed, nearest, descriptors - words[nearest])
        # Each word's sum counts the same (intra-normalization), so repeated texture does not rule.
        lengths = np.linalg.norm(summed, axis=1, keepdims=True)
        summed /= np.maximum(lengths, 1e-6)
        found[row] = summed.ravel() / max(float(np.linalg.norm(summed)), 1e-6)
    return found


def _words(keypoints: Sequence[Keypoints], seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    per_image = max(1, -(-SAMPLED_DESCRIPTORS // max(len(keypoints), 1)))
    drawn = [
        image.descriptors[rng.permutation(len(image))[:per_image]]
        for image in keypoints
        if len(image)
    ]
    if not drawn:
        return np.zeros((1, 128), dtype=np.float32)
    sample = np.concatenate(drawn).astype(np.float32)
    count = min(WORDS, len(sample))
    cv2.setRNGSeed(seed)
    criteria = (cv2.TERM_CRITERIA_MAX_ITER, KMEANS_ROUNDS, 0.0)
    none = np.empty((0, 1), dtype=np.int32)
    _, _, words = cv2.kmeans(sample, count, none, criteria, 1, cv2.KMEANS_RANDOM_CENTERS)
    return np.asarray(words, dtype=np.float32)


def candidates(vectors: Floats, keyframes: Keyframes) -> tuple[Rows, Rows]:
    """Return rows of keyframes and of those that look most like them, best first.

    They are of different pieces or more than 5 m of path apart.
    """
    queries: list[int] = []
    found: list[int] = []
    described = np.flatnonzero(np.any(vectors[:, :: max(1, vectors.shape[1] // 256)], axis=1))
    described = described[np.linalg.norm(vectors[described], axis=1) > 0.5]
    for start in range(0, len(described), ROWS_AT_ONCE):
        rows = described[start : start + ROWS_AT_ONCE]
        similarity = vectors[rows] @ vectors.T
        for row, scores in zip(rows, similarity):
            same_drive = keyframes.drive_of == keyframes.drive_of[row]
            apart = np.abs(keyframes.path_m - keyframes.path_m[row]) > MIN_PATH_M
            usable = apart | ~same_drive | (keyframes.piece_of != keyframes.piece_of[row])
            for piece in np.unique(keyframes.piece_of):
                own = np.flatnonzero(usable & (keyframes.piece_of == piece))
                count = OWN_CANDIDATES if same_drive[own].any() else OTHER_CANDIDATES
                for _ in range(count):
                    if not len(own):
                        break
                    best = int(own[np.argmax(scores[own])])
                    queries.append(int(row))
                    found.append(best)
                    gap = np.abs(keyframes.path_m[own] - keyframes.path_m[best])
                    own = own[gap > SUPPRESSED_M]
    return np.array(queries, dtype=np.intp), np.array(found, dtype=np.intp)
