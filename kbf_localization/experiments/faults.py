"""What can go wrong on a drive: images, odometry, the map, the place. Each fault makes cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate

import cv2
import numpy as np

from kbf_localization.arrays import Array, Flags, Image
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.errors import ParameterError
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.frame_pool import FramePool, map_coverage, pose_coverage
from kbf_localization.experiments.recovery import covered_by, joined, kidnappings
from kbf_localization.geometry import compose, interpolate, relative
from kbf_localization.mapping.build import build_map
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import ImageDescription

NOISE_GREY_LEVELS = 4.0
"""Standard deviation, in grey levels, of the sensor's noise in little light."""

MAX_BLOBS = 400
"""People of a crowd, of whom most overlap."""

TEXTURE_SIDE = 512
"""Pixels after which the pattern of clothes repeats."""

BEGIN_S = 30.0
"""When a fault that passes begins."""

LATENESS_S = 0.5
"""By how much late images are stamped too late."""

ODOMETRY_SCALE = 1.3
"""Of a wheel whose diameter is set wrong."""

OFF_THE_MAP_S, REMOVED_COVERAGE = 35.0, 0.05
"""How long the drive is off the map; views that a pose of that stretch covers better than this are
removed from the map."""

MIN_POSES = 50
"""Frames that must be left for a map."""

OFF_MAP_COVERAGE = 0.2
"""Coverage below which the robot is still off the map."""

IMAGES_BEFORE_KIDNAPPING, MAX_IMAGES_AFTER_KIDNAPPING, MIN_IMAGES_AFTER_KIDNAPPING = 60, 150, 60
"""Images before and after the robot is carried away, fewer where its drive ends; on the map, it is
at least so many after."""

Disturbance = Callable[[Image, float, np.random.Generator], Image]
"""An image and the seconds since the fault began, to the image that the camera gives instead."""


def covered(image: Image, _: float, rng: np.random.Generator) -> Image:
    """Put a hand before the lens: dark, without contours, with the sensor's noise."""
    return _noisy(np.full(image.shape, 12.0), rng)


def in_the_dark(image: Image, _: float, rng: np.random.Generator) -> Image:
    """Dim to a hundredth of the light, which the camera amplifies with its noise."""
    return _noisy(0.01 * image.astype(np.float64), rng, 3.0)


def dimmed(image: Image, _: float, rng: np.random.Generator) -> Image:
    """Dim to a quarter of the light, with noise."""
    return _noisy(0.25 * image.astype(np.float64), rng)


def mirrored(image: Image, _: float, __: np.random.Generator) -> Image:
    """Exchange left and right, as a wrong setting of the driver does."""
    return np.ascontiguousarray(image[:, ::-1])


def upside_down(image: Image, _: float, __: np.random.Generator) -> Image:
    """Turn the image as a camera mounted head down does."""
    return np.ascontiguousarray(image[::-1, ::-1])


def crowd(fraction: float, image: Image, seconds: float, _: np.random.Generator) -> Image:
    """Hide `fraction` of the pixels behind opaque textured blobs that move."""
    height, width = image.shape
    within = np.ix_(np.arange(height) % TEXTURE_SIDE, np.arange(width) % TEXTURE_SIDE)
    rng = np.random.default_rng(1)
    seen, hidden = image.copy(), np.zeros(image.shape, dtype=np.uint8)
    for number in range(MAX_BLOBS):
        place, speed = rng.uniform(0, 1, 2), rng.uniform(-0.25, 0.25)
        reach = rng.uniform(0.08, 0.2, 2) * height
        x = int(((place[0] + speed * seconds) % 1.0) * width)
        y = int(place[1] * height)
        blob = np.zeros(image.shape, dtype=np.uint8)
        cv2.ellipse(blob, (x, y), (int(reach[0]), int(1.6 * reach[1])), 0, 0, 360, 1, -1)
        # The texture moves with its blob.
        shifted = np.roll(_texture(), (y + 37 * number, x + 91 * number), (0, 1))
        seen = np.where(blob > 0, shifted[within], seen)
        hidden |= blob
        if hidden.mean() >= fraction:
            break
    return np.asarray(seen)


@cache
def _texture() -> Image:
    """Return coarse and fine patterns of a crowd's clothes."""
    rng = np.random.default_rng(0)
    side = (TEXTURE_SIDE, TEXTURE_SIDE)
    coarse = rng.uniform(0, 255, (64, 64)).astype(np.float32)
    fine = rng.uniform(-60, 60, side).astype(np.float32)
    both = cv2.resize(coarse, side, interpolation=cv2.INTER_NEAREST) + fine
    return np.clip(cv2.GaussianBlur(both, (0, 0), 1.5), 0, 255).astype(np.uint8)


def _noisy(image: Array, rng: np.random.Generator, gain: float = 1.0) -> Image:
    noisy = gain * (image + rng.normal(0.0, NOISE_GREY_LEVELS, image.shape))
    return np.asarray(np.clip(np.round(noisy), 0, 255), dtype=np.uint8)


@dataclass(frozen=True)
class Case:
    """A drive under a fault. `disturbed` (t,) says when; all True for a fault that never ends.

    On another building's map there is no right pose: `no_pose_is_right`.
    """

    drive: DescribedDrive
    training_map: TrainingMap
    disturbed: Flags
    no_pose_is_right: bool = False


@dataclass(frozen=True)
class Building:
    """A building with its map, test drives (described too), and further drives by their fault."""

    name: str
    pool: FramePool
    poses: int
    seed: int
    training_map: TrainingMap
    tests: tuple[Drive, ...]
    described: tuple[DescribedDrive, ...]
    further: Mapping[str, tuple[Drive, ...]]


Fault = Callable[[Building, Building], Iterator[Case]]
"""The cases of one fault in a building, with another building beside it."""


def seconds_of(drive: DescribedDrive) -> Array:
    """Return (t,) seconds since the first image."""
    return np.asarray((drive.stamps_ns - drive.stamps_ns[0]) * 1e-9)


def _always(drive: DescribedDrive) -> Flags:
    return np.ones(len(drive), dtype=bool)


def _span(drive: DescribedDrive, seconds: float) -> Flags:
    """Flag the images from `BEGIN_S` on for so many seconds; all for infinitely many."""
    if np.isinf(seconds):
        return _always(drive)
    clock = seconds_of(drive)
    return np.asarray((clock >= BEGIN_S) & (clock < BEGIN_S + seconds))


# Images


def disturbed_images(
    disturb: Disturbance, seconds: float, here: Building, _: Building
) -> Iterator[Case]:
    """Disturb images for so many seconds, before they are described."""
    for number, (drive, described) in enumerate(zip(here.tests, here.described, strict=True)):
        disturbed = _span(described, seconds)
        rows = np.flatnonzero(disturbed).tolist()
        clock = seconds_of(described) - seconds_of(described)[rows[0]]
        rng = np.random.default_rng((here.seed, number))
        describer = here.training_map.image_describer
        seen: dict[int, ImageDescription | None] = {}
        for row, image in drive.images(rows):
            if image is not None:
                image = disturb(image, float(clock[row]), rng)
            seen[row] = None if image is None else describer.describe(image)
        yield Case(_seeing(described, seen), here.training_map, disturbed)


def _seeing(drive: DescribedDrive, seen: Mapping[int, ImageDescription | None]) -> DescribedDrive:
    """Return the drive with other descriptions of some of its images."""
    descriptions = dict(enumerate(drive.descriptions)) | dict(seen)
    return replace(drive, descriptions=tuple(descriptions.values()))


def frozen(seconds: float, here: Building, _: Building) -> Iterator[Case]:
    """Repeat one camera image."""
    for drive in here.described:
        disturbed = _span(drive, seconds)
        rows = np.flatnonzero(disturbed).tolist()
        seen = dict.fromkeys(rows, drive.descriptions[rows[0]])
        yield Case(_seeing(drive, seen), here.training_map, disturbed)


def late(seconds: float, here: Building, _: Building) -> Iterator[Case]:
    """Stamp images so many seconds after they were taken."""
    for drive in here.described:
        assert drive.truth is not None
        stamps = drive.stamps_ns + round(seconds * 1e9)
        known = stamps <= drive.stamps_ns[-1]
        truth = interpolate(drive.stamps_ns, drive.truth, stamps[known])
        late_drive = replace(drive.part(known), stamps_ns=stamps[known], truth=truth)
        yield Case(late_drive, here.training_map, _always(late_drive))


# Odometry


def odometry(
    factors: Sequence[float], seconds: float, here: Building, _: Building
) -> Iterator[Case]:
    """Scale the readings' increments (x, y, heading) by `factors` for so many seconds."""
    for drive in here.described:
        disturbed = _span(drive, seconds)
        inside = drive.stamps_ns[disturbed]
        stamps, poses = drive.odometry.stamps_ns, drive.odometry.poses
        steps = relative(poses[:-1], poses[1:])
        faulty = (stamps[1:] > inside[0]) & (stamps[1:] <= inside[-1])
        if disturbed.all():
            faulty[:] = True
        steps[faulty] *= factors
        log = OdometryLog(stamps, np.array([*accumulate(steps, compose, initial=poses[0])]))
        yield Case(replace(drive, odometry=log), here.training_map, disturbed)


# The map and the place


def undisturbed(here: Building, _: Building) -> Iterator[Case]:
    """Leave the drives as they are."""
    for drive in here.described:
        yield Case(drive, here.training_map, _always(drive))


def other_drives(which: str, here: Building, _: Building) -> Iterator[Case]:
    """Take further drives, such as those by night, on the map as it is."""
    for drive in here.further[which]:
        described = describe_drive(drive, here.training_map.image_describer)
        yield Case(described, here.training_map, _always(described))


def wrong_map(here: Building, there: Building) -> Iterator[Case]:
    """Take another building's map, with its own vocabulary."""
    for drive in here.tests:
        described = describe_drive(drive, there.training_map.image_describer)
        yield Case(described, there.training_map, _always(described), no_pose_is_right=True)


def wrong_map_same_words(here: Building, there: Building) -> Iterator[Case]:
    """Take another building's map, built with this building's vocabulary."""
    drives, like = there.pool.frames.drives, here.training_map
    wrong = build_map(drives, poses=there.poses, seed=there.seed, like=like)
    for drive in here.described:
        yield Case(drive, wrong, _always(drive), no_pose_is_right=True)


def off_the_map(begin_s: float, here: Building, _: Building) -> Iterator[Case]:
    """Remove from the map all views like those of a stretch of the drive.

    A drive of whose building that leaves nearly nothing is left out; the table counts the runs.
    """
    similarity = here.training_map.calibration.similarity
    for drive in here.described:
        assert drive.truth is not None
        clock = seconds_of(drive)
        stretch = (clock >= begin_s) & (clock < begin_s + OFF_THE_MAP_S)
        coverage = pose_coverage(similarity, drive.truth[stretch], here.pool.frames.poses)
        away = np.flatnonzero(coverage < REMOVED_COVERAGE)
        if len(away) < MIN_POSES:
            continue
        rest = here.pool.map_of(away, here.poses, "coverage", here.seed)
        uncovered = map_coverage(rest, drive.truth) < OFF_MAP_COVERAGE
        last = int(np.flatnonzero(stretch)[-1])
        while last + 1 < len(drive) and uncovered[last + 1]:
            last += 1
        stretch[: last + 1] |= clock[: last + 1] >= begin_s
        yield Case(drive, rest, stretch)


def kidnapped(times: int, here: Building, _: Building) -> Iterator[Case]:
    """Carry the robot elsewhere on the map with its wheels at rest, so many times a building."""
    drives = here.described
    for before, after in kidnappings(
        drives,
        times,
        here.seed,
        before=IMAGES_BEFORE_KIDNAPPING,
        after=MIN_IMAGES_AFTER_KIDNAPPING,
        covered=covered_by(here.training_map, drives),
    ):
        count = min(MAX_IMAGES_AFTER_KIDNAPPING, len(drives[after.drive]) - after.first)
        drive = joined(drives, (before, replace(after, count=count)))
        disturbed = np.arange(len(drive)) == IMAGES_BEFORE_KIDNAPPING
        yield Case(drive, here.training_map, disturbed)


def all_faults(kidnappings_each: int) -> Mapping[str, Fault]:
    """Return the faults by name; the robot is kidnapped so many times in each building."""
    forever = float("inf")
    return {
        "undisturbed": undisturbed,
        "covered": partial(disturbed_images, covered, 20.0),
        "lights_out": partial(disturbed_images, in_the_dark, 30.0),
        "dim": partial(disturbed_images, dimmed, 30.0),
        "frozen_picture": partial(frozen, 30.0),
        "late_pictures": partial(late, LATENESS_S),
        "mirrored": partial(disturbed_images, mirrored, forever),
        "upside_down": partial(disturbed_images, upside_down, forever),
        "turned_20_degrees": partial(other_drives, "turned_20_degrees"),
        "wrong_map": wrong_map,
        "wrong_map_same_words": wrong_map_same_words,
        "off_the_map": partial(off_the_map, BEGIN_S),
        "crowd_50": partial(disturbed_images, partial(crowd, 0.5), 30.0),
        "crowd_70": partial(disturbed_images, partial(crowd, 0.7), 30.0),
        "odometry_frozen": partial(odometry, (0.0, 0.0, 0.0), 30.0),
        "odometry_scaled": partial(odometry, (ODOMETRY_SCALE, ODOMETRY_SCALE, 1.0), forever),
        "odometry_heading_inverted": partial(odometry, (1.0, 1.0, -1.0), forever),
        "odometry_backwards": partial(odometry, (-1.0, -1.0, 1.0), forever),
        "kidnapped": partial(kidnapped, kidnappings_each),
        "night": partial(other_drives, "night"),
        "start_off_the_map": partial(off_the_map, 0.0),
    }


FAULT_TITLES = {
    "undisturbed": "undisturbed",
    "covered": "covered for 20 s",
    "lights_out": "lights out for 30 s",
    "dim": "a quarter of the light, with noise, for 30 s",
    "frozen_picture": "frozen image for 30 s",
    "late_pictures": f"images {LATENESS_S} s late",
    "mirrored": "mirrored",
    "upside_down": "upside down",
    "turned_20_degrees": "camera turned by 20°",
    "wrong_map": "another building's map",
    "wrong_map_same_words": "another building's map, same visual words",
    "off_the_map": f"off the map for {OFF_THE_MAP_S:.0f} s",
    "crowd_50": "crowd over 50 % of the image for 30 s",
    "crowd_70": "crowd over 70 % of the image for 30 s",
    "odometry_frozen": "odometry frozen for 30 s",
    "odometry_scaled": f"odometry × {ODOMETRY_SCALE}",
    "odometry_heading_inverted": "odometry's heading inverted",
    "odometry_backwards": "odometry backwards",
    "kidnapped": "kidnapped",
    "night": "night on a day map",
    "start_off_the_map": "start off the map, then onto it",
}
"""What the faults are called in tables and plots."""


FAULT_ALIASES = {"frozen_image": "frozen_picture", "late_images": "late_pictures"}
"""Other names of faults that the command takes; results have the stable keys of `metrics.json`."""


def check_faults(text: str | None) -> list[str]:
    """Return the faults in a list separated by commas, each once; all for None."""
    known = list(all_faults(1))
    if text is None:
        return known
    given = (name.strip() for name in text.split(",") if name.strip())
    names = list(dict.fromkeys(FAULT_ALIASES.get(name, name) for name in given))
    for name in names:
        if name not in known:
            raise ParameterError(f"no fault is called '{name}': choose from {', '.join(known)}")
    if not names:
        raise ParameterError(f"no fault is named: choose from {', '.join(known)}")
    return names
