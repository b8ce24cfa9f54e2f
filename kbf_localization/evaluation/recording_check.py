"""Checks a recording before a map is built from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import cv2
import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Image, Stamps
from kbf_localization.datasets.agreement import agreement, disagreements
from kbf_localization.datasets.drive import Drive, camera_of, mount_of
from kbf_localization.datasets.image_decoding import format_of
from kbf_localization.datasets.parts import DrivePart, Part
from kbf_localization.datasets.time_offset import FITTING_OFFSET_S, estimate_time_offset
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import interpolate, relative, wrap_angle
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.vision.keypoints import detect_keypoints

MIN_IMAGES = 20
MIN_IMAGE_HZ, MIN_ODOMETRY_HZ = 2.0, 10.0
MAX_GAP_S, MAX_GAP_M = 1.0, 1.0
"""A gap counts where it is longer than both: a robot that stands needs no images."""
MAX_METRES_AN_IMAGE = 0.5
MIN_PATH_M = 1.0
MAX_SPEED_MPS, MIN_JUMP_M = 5.0, 0.2
"""An odometry step both faster and longer than these is a jump, not a motion."""
MIN_COVERED = 0.98
OFFSET_IMAGES, SAMPLED_IMAGES = 1500, 48
DARK_GREY, BRIGHT_GREY, MAX_CLIPPED = 8, 250, 0.4
"""Grey levels that hold no detail, and the fraction of such pixels in a badly exposed image."""
BLURRED = 0.25
"""Of the drive's median variance of the Laplacian."""
MAX_BAD_IMAGES, MIN_KEYPOINTS, MIN_WIDTH = 0.2, 100, 160
STEP_M, APART_M, NEAR_M, DRIFT, MAX_TURN_RAD = 0.5, 5.0, 1.0, 0.02, np.radians(45.0)
"""The path is sampled every `STEP_M`; a place further back than `APART_M` along the path is met
again within `NEAR_M`, and a drift of 2 % of the path between where poses are the odometry's."""
MIN_REVISITED, MAX_DRIFTING_M = 0.1, 100.0


class Level(IntEnum):
    """How a finding bears on a map; the exit code of `kbf check`."""

    GOOD = 0
    WARNING = 1
    UNUSABLE = 2


@dataclass(frozen=True)
class Finding:
    """One line of the check: what was looked at, what was found, and what to do about it."""

    aspect: str
    value: str
    level: Level = Level.GOOD
    advice: str = ""


@dataclass(frozen=True)
class RecordingCheck:
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        return max((finding.level for finding in self.findings), default=Level.GOOD)

    @property
    def verdict(self) -> str:
        worst = [finding.aspect for finding in self.findings if finding.level == self.level]
        if self.level is Level.UNUSABLE:
            return f"Unusable for a map: {', '.join(worst)}."
        if self.level is Level.WARNING:
            return f"Usable, with warnings: {', '.join(worst)}."
        return "Good: a map can be built from this recording."


def unreadable(error: DatasetError) -> RecordingCheck:
    """Return the check of a drive that could not be opened."""
    return RecordingCheck((Finding("reading", "fails", Level.UNUSABLE, str(error)),))


def check_recording(drive: Drive, progress: Progress = no_progress) -> RecordingCheck:
    """Look at everything that a map needs of a drive."""
    sampled = _Sample(drive, progress)
    findings = (
        *_images(drive),
        *_odometry(drive),
        *sampled.findings(drive),
        _clocks(drive, progress),
        _camera(drive),
        *_poses(drive),
        _revisits(drive),
    )
    return RecordingCheck(findings)


def _worse(bad: bool, advice: str) -> tuple[Level, str]:
    return (Level.WARNING, advice) if bad else (Level.GOOD, "")


def _images(drive: Drive) -> Iterator[Finding]:
    stamps = np.asarray(drive.stamps_ns)
    seconds = float(stamps[-1] - stamps[0]) * 1e-9 if len(stamps) else 0.0
    if len(stamps) < MIN_IMAGES:
        advice = f"record {MIN_IMAGES} images or more"
        yield Finding("images", f"{len(stamps)} in {seconds:.1f} s", Level.UNUSABLE, advice)
        return
    rate = 1e9 / float(np.median(np.diff(stamps)))
    level, advice = _worse(rate < MIN_IMAGE_HZ, f"{MIN_IMAGE_HZ:g} images/s or more are needed")
    yield Finding(
        "images", f"{len(stamps)} in {seconds:.0f} s, {rate:.1f} per second", level, advice
    )
    gaps = np.diff(stamps) * 1e-9
    moved = np.diff(_path_at(drive, stamps))
    widest = int(np.argmax(moved))
    large = int(((gaps > MAX_GAP_S) & (moved > MAX_GAP_M)).sum())
    sparse = float(np.median(moved[moved > 0.0])) if (moved > 0.0).any() else 0.0
    found = []
    if large:
        found.append(f"{large} gaps of more than {MAX_GAP_S:g} s and {MAX_GAP_M:g} m")
    if sparse > MAX_METRES_AN_IMAGE:
        found.append(f"more than {MAX_METRES_AN_IMAGE:g} m from image to image")
    advice = "drive slower, or record with more bandwidth or fewer topics"
    level, advice = _worse(bool(found), f"{', and '.join(found)}: {advice}")
    yield Finding(
        "gaps between images",
        f"longest {gaps.max():.1f} s, farthest {moved[widest]:.2f} m; median {sparse:.2f} m",
        level,
        advice,
    )


def _path_at(drive: Drive, stamps: Stamps) -> Array:
    """Return the odometry's path length (t,) at these times, in metres."""
    log = drive.odometry
    steps = np.hypot(*np.diff(log.poses[:, :2], axis=0).T)
    driven = np.concatenate([[0.0], np.cumsum(steps)])
    since = log.stamps_ns[0]
    at, known = (stamps - since).astype(np.float64), (log.stamps_ns - since).astype(np.float64)
    return np.asarray(np.interp(at, known, driven))


def _odometry(drive: Drive) -> Iterator[Finding]:
    log, stamps = drive.odometry, np.asarray(drive.stamps_ns)
    if len(log.stamps_ns) < 2:
        advice = "record odometry with the images"
        yield Finding("odometry", f"{len(log.stamps_ns)} readings", Level.UNUSABLE, advice)
        return
    periods = np.diff(log.stamps_ns) * 1e-9
    motions = relative(log.poses[:-1], log.poses[1:])
    steps = np.hypot(motions[:, 0], motions[:, 1])
    rate = 1.0 / float(np.median(periods))
    level, advice = _worse(
        rate < MIN_ODOMETRY_HZ, f"{MIN_ODOMETRY_HZ:g} readings/s or more are needed"
    )
    yield Finding(
        "odometry",
        f"{len(log.stamps_ns)} readings, {rate:.3g} per second, longest gap {periods.max():.2f} s, "
        f"{drive.odometry_origin}",
        level,
        advice,
    )
    jumps = (steps > MIN_JUMP_M) & (steps > MAX_SPEED_MPS * periods)
    reason = (
        f"jumps {int(jumps.sum())} times, by up to {steps.max():.2f} m: does the driver reset it?"
    )
    speed = float(np.median((steps / periods)[steps > 0.0])) if (steps > 0.0).any() else 0.0
    if speed > MAX_SPEED_MPS:
        reason = (
            f"{speed:.1f} m/s in the median, more than {MAX_SPEED_MPS:g}: the localizer takes that "
            "for jumps, and measures each image by itself; is it in metres?"
        )
        jumps = np.zeros(len(steps), dtype=bool)
    turns = float(np.abs(motions[~jumps, 2]).sum())
    metres = float(steps[~jumps].sum())
    level, advice = _worse(bool(jumps.any()) or speed > MAX_SPEED_MPS, reason)
    if metres < MIN_PATH_M:
        level, advice = (
            Level.UNUSABLE,
            "the robot does not move by its odometry; is it the wheels'?",
        )
    yield Finding(
        "path by odometry", f"{metres:.1f} m, turns of {np.degrees(turns):.0f}°", level, advice
    )
    inside = (stamps >= log.stamps_ns[0]) & (stamps <= log.stamps_ns[-1])
    covered = float(inside.mean()) if len(stamps) else 0.0
    level, advice = _worse(covered < MIN_COVERED, "images outside the odometry are not used")
    if inside.sum() < MIN_IMAGES:
        level = Level.UNUSABLE
        advice = "images and odometry hardly overlap in time: are their stamps of one clock?"
    yield Finding("images covered by odometry", f"{100 * covered:.1f} %", level, advice)


def _clocks(drive: Drive, progress: Progress) -> Finding:
    aspect = "clocks of camera and odometry"
    part: Drive = drive
    if len(drive) > OFFSET_IMAGES:
        half = 0.5 * OFFSET_IMAGES / len(drive)
        part = DrivePart(drive, Part("the middle", 0.5 - half, 0.5 + half))
    try:
        offset = estimate_time_offset(part, progress)
    except DatasetError as error:
        reason = str(error).removeprefix(f"{drive.path}: ")
        return Finding(aspect, "not measurable", Level.WARNING, reason)
    value = f"{offset.seconds:+.3f} ± {offset.deviation_s:.3f} s"
    if abs(offset.seconds) <= max(FITTING_OFFSET_S, 2.0 * offset.deviation_s):
        return Finding(aspect, value)
    late = "late" if offset.seconds < 0.0 else "early"
    advice = (
        f"images are stamped {abs(offset.seconds):.3f} s too {late}: correct the driver's stamps, "
        f"and run the node with camera_time_offset:={offset.seconds:.3f}"
    )
    return Finding(aspect, value, Level.WARNING, advice)


def _camera(drive: Drive) -> Finding:
    camera, mount = camera_of(drive), mount_of(drive)
    if camera is None:
        return Finding("camera", "not calibrated; map build calibrates it from the drive")
    where = "mount unknown, estimated from the drive" if mount is None else "mount known"
    return Finding("camera", f"calibrated ({type(camera).__name__}), {where}")


def _poses(drive: Drive) -> Iterator[Finding]:
    poses = drive.poses
    if poses is None:
        yield Finding("known poses", "none; kbf map build --poses-from odometry estimates them")
        return
    known = float(np.isfinite(poses).all(axis=1).mean()) if len(poses) else 0.0
    level, advice = _worse(known < 0.9, "images without a pose are left out of the map")
    if known == 0.0:
        level, advice = Level.WARNING, "no image has one; build with --poses-from odometry"
    yield Finding("known poses", f"at {100 * known:.0f} % of the images", level, advice)
    found = agreement(poses, np.asarray(drive.stamps_ns), drive.odometry)
    if found is None:
        return
    wrong = disagreements(found)
    level, advice = Level.GOOD, ""
    if wrong:
        # A map from such poses is of no use, whichever of the two is wrong.
        level = Level.UNUSABLE
        advice = "; ".join([*wrong, "mend them, or build with --poses-from odometry"])
    turn = "" if found.turn is None else f", turns {found.turn:.2f}"
    yield Finding(
        "known poses over odometry",
        f"lengths {found.scale:.3f}{turn}; {100 * found.error_m:.1f} cm apart after 1 m",
        level,
        advice,
    )


def _revisits(drive: Drive) -> Finding:
    """Find how much of the path is driven again, in the same direction, and in the opposite."""
    log, stamps = drive.odometry, np.asarray(drive.stamps_ns)
    poses, drift, by = interpolate(log.stamps_ns, log.poses, stamps), DRIFT, "odometry"
    if drive.poses is not None and np.isfinite(drive.poses).all(axis=1).mean() > 0.5:
        stamps = stamps[np.isfinite(drive.poses).all(axis=1)]
        poses = drive.poses[np.isfinite(drive.poses).all(axis=1)]
        drift, by = 0.0, "known poses"
    same, opposite = revisited(poses, drift)
    advice = (
        "no place is seen twice: poses from odometry need loops driven again in the same direction"
        if drive.poses is None
        else "no place is seen twice, so that one drive cannot tell how a later drive will differ: "
        "map with two drives"
    )
    level, advice = _worse(same < MIN_REVISITED, advice)
    return Finding(
        "places seen again",
        f"{100 * same:.0f} % of the path in the same direction, {100 * opposite:.0f} % in another "
        f"(by {by})",
        level,
        advice,
    )


def revisited(poses: Array, drift: float = 0.0) -> tuple[float, float]:
    """Return the fractions of a path (t, 3) driven again, in the same and in another direction.

    Poses may have drifted apart by the fraction `drift` of the path between them.
    """
    driven = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(poses[:, :2], axis=0).T))])
    rows = np.unique(np.floor(driven / STEP_M), return_index=True)[1]
    places, driven = poses[rows], driven[rows]
    same, other = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    reach = NEAR_M + drift * min(float(driven[-1]), MAX_DRIFTING_M)
    first, second = cKDTree(places[:, :2]).query_pairs(reach, output_type="ndarray").T
    between = np.abs(driven[first] - driven[second])
    distance = np.hypot(*(places[first, :2] - places[second, :2]).T)
    again = (between > APART_M) & (distance < NEAR_M + drift * between)
    turned = np.abs(wrap_angle(places[first, 2] - places[second, 2]))
    alike = turned < MAX_TURN_RAD
    for flags, pairs in ((same, alike), (other, ~alike)):
        flags[first[again & pairs]] = flags[second[again & pairs]] = True
    return float(same.mean()), float((other & ~same).mean())


class _Sample:
    """Some images spread over a drive, each with the next image."""

    def __init__(self, drive: Drive, progress: Progress) -> None:
        count = min(SAMPLED_IMAGES, max(len(drive) - 1, 0))
        firsts = np.linspace(0, len(drive) - 2, count).astype(int) if count else np.zeros(0, int)
        wanted = np.unique([firsts, firsts + 1]).tolist()
        self.sizes: list[tuple[int, int]] = []
        self.undecodable = self.frozen = self.pairs = 0
        self.clipped: list[tuple[float, float]] = []
        self.sharpness: list[float] = []
        self.keypoints: list[int] = []
        before: Image | None = None
        images = tracked(drive.images(wanted), "looking at images", progress, len(wanted))
        for index, image in images:
            if image is None:
                self.undecodable += 1
            elif index in firsts:
                self._look(image)
            if image is not None and before is not None and index - 1 in firsts:
                self.pairs += 1
                self.frozen += int(np.array_equal(before, image))
            before = image
        moved = np.diff(_path_at(drive, np.asarray(drive.stamps_ns)))
        self.moving = float(np.mean(moved > 1e-3)) if len(moved) else 0.0

    def _look(self, image: Image) -> None:
        height, width = image.shape[:2]
        self.sizes.append((width, height))
        self.clipped.append(
            (float((image <= DARK_GREY).mean()), float((image >= BRIGHT_GREY).mean()))
        )
        scale = min(1.0, 640.0 / width)
        small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        self.sharpness.append(float(cv2.Laplacian(small, cv2.CV_64F).var()))
        self.keypoints.append(len(detect_keypoints(image).pixels))

    def findings(self, drive: Drive) -> Iterator[Finding]:
        if not self.sizes:
            yield Finding("image content", "none can be decoded", Level.UNUSABLE, "record others")
            return
        sizes = sorted(set(self.sizes))
        encoding = getattr(drive, "image_encoding", "") or _format(drive)
        level, advice = _worse(
            sizes[0][0] < MIN_WIDTH or len(sizes) > 1 or self.undecodable > 0,
            f"{self.undecodable} cannot be decoded; all of one size, {MIN_WIDTH} pixels wide or "
            "more, are good",
        )
        shown = ", ".join(f"{width}x{height}" for width, height in sizes[:3])
        yield Finding("image size and encoding", f"{shown}, {encoding}", level, advice)
        dark, bright = (np.array(self.clipped)[:, k] > MAX_CLIPPED for k in (0, 1))
        bad = float((dark | bright).mean())
        level, advice = _worse(bad > MAX_BAD_IMAGES, "set the camera's exposure, or light the room")
        yield Finding(
            "exposure",
            f"{100 * dark.mean():.0f} % too dark, {100 * bright.mean():.0f} % too bright",
            level,
            advice,
        )
        sharp = np.array(self.sharpness)
        blurred = float((sharp < BLURRED * np.median(sharp)).mean())
        few = float(np.median(self.keypoints)) < MIN_KEYPOINTS
        level, advice = _worse(
            blurred > MAX_BAD_IMAGES or few,
            "clean and focus the lens, turn more slowly, shorten the exposure",
        )
        yield Finding(
            "sharpness",
            f"{np.median(self.keypoints):.0f} keypoints an image; {100 * blurred:.0f} % blurred or "
            "blank",
            level,
            advice,
        )
        stuck = self.frozen / max(self.pairs, 1)
        level, advice = _worse(
            stuck > 0.5 and self.moving > 0.5, "the camera repeats images while the robot moves"
        )
        yield Finding("repeated images", f"{100 * stuck:.0f} % equal the previous", level, advice)


def _format(drive: Drive) -> str:
    data = next((data for _, data in drive.encoded_images([0]) if data), b"")
    return format_of(data) if data else "unknown"


def topics_chosen(drive: Drive) -> Sequence[tuple[str, str]]:
    """Return which topics a bag's drive is read from, with what for; none for a folder."""
    roles = (
        ("images", "image_topic"),
        ("odometry", "odom_topic"),
        ("known poses", "pose_topic"),
        ("calibration", "camera_info_topic"),
        ("camera mount", "mount_topic"),
    )
    chosen = [(role, getattr(drive, name, None)) for role, name in roles]
    return [(role, topic.name) for role, topic in chosen if topic is not None]
