"""A recording is checked before a map is built: what is wrong is found, what is right is not."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.arrays import Array, Image, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.evaluation.recording_check import (
    Finding,
    Level,
    check_recording,
    revisited,
)

FRAMES = 120


@dataclass(frozen=True)
class Recorded:
    """Two laps round a circle of 1 m radius past a panorama, at 10 images a second.

    The camera looks ahead; its image moves as the heading does.
    """

    stamps_ns: Stamps
    poses: Array | None
    odometry: OdometryLog
    shown: Sequence[Image | None]
    name: str = "laps"
    path: Path = Path("laps")
    kind: str = "test"
    condition: str | None = None
    labels: None = None
    camera: None = None
    mount: None = None
    odometry_origin: str = "measured"
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        for index in range(len(self)) if indices is None else indices:
            yield index, self.shown[index]

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        for index in range(len(self)) if indices is None else indices:
            yield index, b"\xff\xd8"


def circle(angles: Array) -> Array:
    return np.stack([np.sin(angles), 1 - np.cos(angles), angles], axis=-1)


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbf_localization.evaluation.recording_check.SAMPLED_IMAGES", 16)


@pytest.fixture(scope="module")
def laps() -> Recorded:
    angles = np.linspace(0.0, 4 * np.pi, FRAMES) + 0.15 * np.sin(np.linspace(0, 40, FRAMES))
    stamps = 10**18 + (np.arange(FRAMES) * 10**8).astype(np.int64)
    dense = 10**18 + (np.arange(-5, 2 * FRAMES + 5) * 5 * 10**7).astype(np.int64)
    poses = circle(angles)
    wheels = circle(np.interp(dense, stamps, angles))
    noise = np.random.default_rng(0).normal(size=(120, 1600))
    wall = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 1.0), None, 20, 230, cv2.NORM_MINMAX)
    wall = np.hstack([wall, wall]).astype(np.uint8)
    # The view is 160 pixels of 1600 for a whole turn; a turn to the left moves it to the right.
    starts = [round(-1600 * angle / (2 * np.pi)) % 1600 for angle in angles]
    images = [np.ascontiguousarray(wall[:, start : start + 160]) for start in starts]
    return Recorded(stamps, poses, OdometryLog(dense, wheels), images)


def found(drive: Recorded, aspect: str) -> Finding:
    return next(finding for finding in check_recording(drive).findings if finding.aspect == aspect)


def test_a_sound_recording_is_good_and_counted(laps: Recorded) -> None:
    check = check_recording(laps)
    assert check.level is Level.GOOD, [finding for finding in check.findings if finding.level]
    assert check.verdict.startswith("Good")
    values = {finding.aspect: finding.value for finding in check.findings}
    assert values["images"] == "120 in 12 s, 10.0 per second"
    assert values["known poses"] == "at 100 % of the images"
    assert "160x120, JPEG" in values["image size and encoding"]
    assert "100 % of the path in the same direction" in values["places seen again"]


def _dark(laps: Recorded) -> Recorded:
    return replace(laps, shown=[np.zeros_like(image) for image in laps.shown])


def _blank(laps: Recorded) -> Recorded:
    return replace(laps, shown=[np.full_like(image, 128) for image in laps.shown])


def _late(laps: Recorded) -> Recorded:
    return replace(
        laps, odometry=replace(laps.odometry, stamps_ns=laps.odometry.stamps_ns - 2 * 10**8)
    )


def _other_clock(laps: Recorded) -> Recorded:
    return replace(laps, stamps_ns=laps.stamps_ns + 10**12)


def _jumping(laps: Recorded) -> Recorded:
    poses = laps.odometry.poses.copy()
    poses[60:, 0] += 3.0
    return replace(laps, odometry=replace(laps.odometry, poses=poses))


def _standing(laps: Recorded) -> Recorded:
    return replace(laps, odometry=replace(laps.odometry, poses=0 * laps.odometry.poses))


def _fast(laps: Recorded) -> Recorded:
    assert laps.poses is not None
    scale = np.array([20.0, 20.0, 1.0])
    log = replace(laps.odometry, poses=laps.odometry.poses * scale)
    return replace(laps, poses=laps.poses * scale, odometry=log)


def _slow_wheels(laps: Recorded) -> Recorded:
    log = laps.odometry
    return replace(laps, odometry=OdometryLog(log.stamps_ns[::4], log.poses[::4]))


def _in_millimetres(laps: Recorded) -> Recorded:
    assert laps.poses is not None
    return replace(laps, poses=laps.poses * [1e3, 1e3, 1.0])


def _half_a_lap(laps: Recorded) -> Recorded:
    assert laps.poses is not None
    rows = slice(0, 50)
    return replace(
        laps, stamps_ns=laps.stamps_ns[rows], poses=laps.poses[rows], shown=laps.shown[rows]
    )


def _frozen(laps: Recorded) -> Recorded:
    return replace(laps, shown=[laps.shown[0]] * FRAMES)


def _gap(laps: Recorded) -> Recorded:
    keep = np.r_[0:40, 70:120]
    assert laps.poses is not None
    shown = [laps.shown[row] for row in keep]
    return replace(laps, stamps_ns=laps.stamps_ns[keep], poses=laps.poses[keep], shown=shown)


def _few(laps: Recorded) -> Recorded:
    assert laps.poses is not None
    return replace(laps, stamps_ns=laps.stamps_ns[:5], poses=laps.poses[:5], shown=laps.shown[:5])


@pytest.mark.parametrize(
    ("spoil", "aspect", "level", "advice"),
    [
        (_dark, "exposure", Level.WARNING, "exposure"),
        (_blank, "sharpness", Level.WARNING, "focus"),
        (_late, "clocks of camera and odometry", Level.WARNING, "0.2.* s too (late|early)"),
        (_other_clock, "images covered by odometry", Level.UNUSABLE, "one clock"),
        (_jumping, "path by odometry", Level.WARNING, "jumps 1 times, by up to (2.9|3.0)"),
        (_fast, "path by odometry", Level.WARNING, r"^\d+\.\d m/s in the median, more than 5: "),
        (_fast, "gaps between images", Level.WARNING, "^more than 0.5 m from image to image: "),
        (_standing, "path by odometry", Level.UNUSABLE, "does not move"),
        (_slow_wheels, "odometry", Level.WARNING, "10 readings/s"),
        (_in_millimetres, "known poses over odometry", Level.UNUSABLE, "in millimetres"),
        (_half_a_lap, "places seen again", Level.WARNING, "two drives"),
        (_frozen, "repeated images", Level.WARNING, "repeats images"),
        (_gap, "gaps between images", Level.WARNING, "1 gaps of more than 1 s and 1 m"),
        (_few, "images", Level.UNUSABLE, "20 images"),
    ],
)
def test_what_is_wrong_is_found_with_what_to_do(
    laps: Recorded, spoil: Callable[[Recorded], Recorded], aspect: str, level: Level, advice: str
) -> None:
    finding = found(spoil(laps), aspect)
    assert finding.level is level
    assert re.search(advice, finding.advice), finding


def test_a_path_is_driven_again_in_the_same_direction_in_the_other_or_not_at_all() -> None:
    line = np.stack([np.linspace(0, 20, 201), np.zeros(201), np.zeros(201)], axis=-1)
    back = line[::-1] + np.array([0.0, 0.3, np.pi])
    assert revisited(line) == (0.0, 0.0)
    same, other = revisited(np.concatenate([line, back]))
    assert same == 0.0
    # All but the turning point, where less than 5 m lie between the two passes.
    assert other == pytest.approx(1.0 - 5.0 / 40.0, abs=0.03)
    assert revisited(np.concatenate([line, line + np.array([0.0, 0.2, 0.0])]))[0] == pytest.approx(
        1.0
    )
    # Two passes 1.3 m apart are one only if the odometry may have drifted by 2 % of 20 m.
    drifted = np.concatenate([line, line + np.array([0.0, 1.3, 0.0])])
    assert revisited(drifted)[0] == 0.0
    assert revisited(drifted, drift=0.02)[0] > 0.8
