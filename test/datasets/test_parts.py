"""Parts of drives, and odometry derived from the truth."""

from __future__ import annotations

import numpy as np
import pytest

from kbf_localization.datasets.parts import (
    INTERLEAVED,
    DrivePart,
    KidnappedDrive,
    SimulatedOdometryDrive,
    parse_part,
)
from kbf_localization.datasets.simulated_odometry import (
    OdometryNoise,
    parse_odometry_option,
    simulate_odometry,
)
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.geometry import relative
from test.datasets.bags import MemoryDrive

DRIVE = MemoryDrive(frames=51)  # 10 s at 5 Hz


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0:0.5", range(25)),
        ("0.5:", range(25, 51)),
        (":1", range(51)),
        ("2s:4s", range(10, 20)),
        ("8s:", range(40, 51)),
        ("every:10", range(0, 51, 10)),
        ("not-every:2", range(1, 51, 2)),
    ],
)
def test_a_part_has_its_images(text: str, indices: range) -> None:
    part = DrivePart(DRIVE, parse_part(text))
    np.testing.assert_array_equal(part.stamps_ns, DRIVE.stamps_ns[list(indices)])
    np.testing.assert_array_equal(part.poses, DRIVE.poses[list(indices)])
    for (own, data), index in zip(part.encoded_images(), indices):
        assert data == next(DRIVE.encoded_images([index]))[1]
        assert part.stamps_ns[own] == DRIVE.stamps_ns[index]
    assert [index for index, _ in part.images([1, 0])] in ([0, 1], [1, 0])


@pytest.mark.parametrize("fraction", [0.1, 0.33, 0.5, 0.7, 0.999])
def test_two_parts_have_no_image_in_common_and_lose_none(fraction: float) -> None:
    first, second = (
        parse_part(text).indices(DRIVE.stamps_ns) for text in (f"0:{fraction}", f"{fraction}:")
    )
    assert np.concatenate([first, second]).tolist() == list(range(51))


def test_odometry_covers_the_part_and_little_more() -> None:
    part = DrivePart(DRIVE, parse_part("0.3:0.6"))
    stamps = part.odometry.stamps_ns
    assert stamps[0] <= part.stamps_ns[0] and stamps[-1] >= part.stamps_ns[-1]
    assert stamps[1] > part.stamps_ns[0] and stamps[-2] < part.stamps_ns[-1]


def test_interleaved_parts_say_that_they_flatter() -> None:
    assert any(INTERLEAVED in line for line in DrivePart(DRIVE, parse_part("every:5")).warnings)
    assert not DrivePart(DRIVE, parse_part("0:0.5")).warnings


@pytest.mark.parametrize("text", ["", "x", ":", "0.7:0.2", "0:7", "every:1", "every:x", "-1:1"])
def test_no_part(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_part(text)


def test_a_part_without_images_is_refused() -> None:
    with pytest.raises(DatasetError, match="0 of its 51 images are in the part 20s:"):
        DrivePart(DRIVE, parse_part("20s:"))


def test_odometry_without_noise_is_the_truth_in_another_frame() -> None:
    log = simulate_odometry(DRIVE.stamps_ns, DRIVE.poses, OdometryNoise(0.0, 0.0))
    np.testing.assert_allclose(
        relative(log.poses[0], log.poses), relative(DRIVE.poses[0], DRIVE.poses), atol=1e-12
    )


def test_scale_and_noise_are_those_that_were_asked_for() -> None:
    """A straight line of 400 m in steps of 0.1 m: errors of single steps are independent."""
    steps = 4000
    poses = np.column_stack([0.1 * np.arange(steps + 1), np.zeros((steps + 1, 2))])
    stamps = np.arange(steps + 1, dtype=np.int64) * 10**8
    log = simulate_odometry(stamps, poses, OdometryNoise(scale=0.1, noise=0.05, seed=3))
    motions = relative(log.poses[:-1], log.poses[1:])
    sigma = 0.05 * np.sqrt(0.11)  # a step is 0.11 m long by the wheels
    assert motions[:, 0].mean() == pytest.approx(0.11, abs=4 * sigma / np.sqrt(steps))
    # The standard deviation of n Gaussian numbers is right to 1/sqrt(2n), 1.1 %.
    np.testing.assert_allclose(motions.std(axis=0), sigma, rtol=0.05)


def test_a_robot_that_stands_still_has_odometry_that_does() -> None:
    poses = np.tile([1.0, 2.0, 3.0], (10, 1))
    log = simulate_odometry(np.arange(10, dtype=np.int64), poses, OdometryNoise())
    assert not log.poses.any()


def test_unknown_poses_are_bridged() -> None:
    poses = DRIVE.poses.copy()
    poses[10:20] = np.nan
    log = simulate_odometry(DRIVE.stamps_ns, poses, OdometryNoise(0.0, 0.0))
    assert len(log.stamps_ns) == 41
    np.testing.assert_allclose(
        relative(log.poses[0], log.poses[-1]), relative(DRIVE.poses[0], DRIVE.poses[-1]), atol=1e-12
    )


def test_the_drive_says_that_its_odometry_is_simulated() -> None:
    drive = SimulatedOdometryDrive(DRIVE, OdometryNoise(0.01, 0.02, 7))
    assert drive.odometry_origin == "simulated"
    assert DrivePart(drive, parse_part("0:0.5")).odometry_origin == "simulated"
    assert "odometry simulated (simulate:0.01,0.02,7)" in drive.warnings[-1]


def test_the_option() -> None:
    assert parse_odometry_option("measured") is None
    assert parse_odometry_option("simulate") == OdometryNoise()
    assert parse_odometry_option("simulate:0.1") == OdometryNoise(scale=0.1)
    assert parse_odometry_option("simulate:0,0.1,4") == OdometryNoise(0.0, 0.1, 4)


@pytest.mark.parametrize(
    "text", ["", "wheels", "simulate:", "simulate:x", "simulate:1,2,3,4", "simulate:nan",
             "simulate:0,-1", "simulate:0,0,-1", "simulate:2"]
)  # fmt: skip
def test_no_option(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_odometry_option(text)


def test_a_kidnapped_drive_jumps_in_truth_and_not_in_odometry() -> None:
    kidnapped = KidnappedDrive(DRIVE, range(10), range(30, 45))
    np.testing.assert_array_equal(kidnapped.poses, DRIVE.poses[[*range(10), *range(30, 45)]])
    assert (np.diff(kidnapped.stamps_ns) > 0).all()
    assert kidnapped.set_down_ns == kidnapped.stamps_ns[10]
    assert kidnapped.set_down_ns - kidnapped.stamps_ns[9] == 1_000_000_000
    log = kidnapped.odometry
    assert (np.diff(log.stamps_ns) > 0).all()
    assert (
        log.stamps_ns[0] <= kidnapped.stamps_ns[0] and log.stamps_ns[-1] >= kidnapped.stamps_ns[-1]
    )
    steps = np.hypot(*np.diff(log.poses[:, :2], axis=0).T)
    own = np.hypot(*np.diff(DRIVE.odometry.poses[:, :2], axis=0).T)
    assert steps.max() <= own.max() + 1e-12
    resting = (log.stamps_ns[1:] > kidnapped.stamps_ns[9]) & (
        log.stamps_ns[:-1] < kidnapped.set_down_ns
    )
    assert np.diff(log.stamps_ns)[resting].max() < 500_000_000


def test_a_kidnapped_drive_has_the_images_of_both_stretches() -> None:
    kidnapped = KidnappedDrive(DRIVE, range(10), range(3, 9))
    for place, data in kidnapped.encoded_images([12, 0]):
        index = {12: 5, 0: 0}[place]
        assert data == next(DRIVE.encoded_images([index]))[1]
    assert [place for place, _ in kidnapped.images()] == list(range(16))


def test_a_drive_is_kidnapped_to_its_farthest_place() -> None:
    kidnapped = KidnappedDrive.kidnapped_far(DRIVE, 10)
    from_here = np.hypot(*(DRIVE.poses[10:42, :2] - DRIVE.poses[9, :2]).T)
    there = kidnapped.poses[10, :2] - kidnapped.poses[9, :2]
    assert np.hypot(*there) == pytest.approx(from_here.max())
    with pytest.raises(DatasetError, match="cannot be carried"):
        KidnappedDrive.kidnapped_far(DRIVE, 20)
