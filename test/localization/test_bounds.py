"""Whatever messages come, in whatever order: what the localizer gives is a pose, or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.geometry import sound_covariance
from kbf_localization.limits import MAX_COORDINATE_M, VARIANCES
from kbf_localization.localization import Localizer, State
from kbf_localization.localization.localizer import MAX_FAILURES, FilterReset
from kbf_localization.motion import odometry_buffer
from kbf_localization.motion.odometry_buffer import OdometryBuffer
from kbf_localization.training_map import TrainingMap
from test.filters.synthetic_world import BLACK, World
from test.fuzzing import FILES, PARSERS, SECONDS

SECOND = 1_000_000_000
SEQUENCES = 10_000 if SECONDS else 1_000
SEQUENCE = "localizer messages"
PARSERS.add(SEQUENCE)

HOSTILE = (
    np.nan, np.inf, -np.inf, 1e308, -1e308, 1e300, 1e154, 1e20, MAX_COORDINATE_M, -MAX_COORDINATE_M,
    1e5, -1e4, 5e-324, 1e-300, -0.0, 0.0,
)  # fmt: skip


def is_sound(pose: np.ndarray, covariance: np.ndarray) -> bool:
    return bool(
        np.isfinite(pose).all()
        and np.isfinite(covariance).all()
        and (covariance == covariance.T).all()
        and np.linalg.eigvalsh(covariance)[0] > 0.0
        and covariance.max() <= 1.001 * VARIANCES[1]
    )


def number(draw: np.random.Generator, scale: float) -> float:
    if draw.random() < 0.1:
        return float(draw.choice(HOSTILE))
    return float(draw.normal(scale=scale))


def random_prior(draw: np.random.Generator) -> GaussianPrior:
    pose = np.array([number(draw, 4.0), number(draw, 3.0), number(draw, 1.5)])
    root = np.array([[number(draw, 1.0) for _ in range(3)] for _ in range(3)])
    with np.errstate(all="ignore"):
        covariance = root @ root.T if draw.random() < 0.7 else root
    return GaussianPrior(pose, covariance)


@pytest.mark.fuzz
def test_no_sequence_of_messages_gives_what_is_no_pose(tiny_map: TrainingMap) -> None:
    world, draw = World(), np.random.default_rng(0)
    views = [world.view(pose, draw) for pose in tiny_map.poses] + [BLACK]
    observations = [tiny_map.observe(view) for view in views]
    localizer = Localizer(tiny_map)
    refused = given = 0
    for _ in range(SEQUENCES):
        FILES[SEQUENCE] += 1
        localizer.reset()
        stamp, pose = 0, np.zeros(3)
        for _ in range(draw.integers(2, 7)):
            kind = draw.random()
            stamp += int(draw.choice((0, -SECOND, SECOND // 10, SECOND, 10**6 * SECOND), p=(
                0.05, 0.05, 0.7, 0.15, 0.05,
            )))  # fmt: skip
            try:
                if kind < 0.6:
                    pose = pose + draw.normal(scale=(0.1, 0.1, 0.1))
                    pose[2] = (pose[2] + np.pi) % (2.0 * np.pi) - np.pi
                    wild = np.array([number(draw, 1e3) for _ in range(3)])
                    reported = random_prior(draw).covariance if draw.random() < 0.5 else None
                    localizer.add_odometry(stamp, wild if draw.random() < 0.3 else pose, reported)
                elif kind < 0.87:
                    localizer.set_pose(random_prior(draw))
                else:
                    localizer.add_described(stamp, observations[draw.integers(len(observations))])
            except ParameterError:
                refused += 1
            last, known, transform = localizer.last, localizer.pose_at(), localizer.map_to_odom()
            if last is not None:
                assert is_sound(last.pose, last.covariance)
                assert is_sound(last.pose, last.published_covariance)
            if known is not None:
                given += 1
                assert is_sound(*known)
            assert transform is None or np.isfinite(transform).all()
    assert refused > SEQUENCES / 20
    assert given > SEQUENCES / 2
    assert localizer.counts["odometry_too_far"] > 0
    assert localizer.counts["filter_reset"] == 0


@pytest.mark.parametrize("value", [1e305, -1e305, np.nan, np.inf, 1.1 * MAX_COORDINATE_M])
def test_a_given_pose_that_cannot_be_is_refused_and_nothing_changes(
    tiny_map: TrainingMap, value: float
) -> None:
    localizer = Localizer(tiny_map)
    localizer.add_odometry(SECOND, [0.0, 0.0, 0.0])
    localizer.set_pose(GaussianPrior(np.array([1.0, 2.0, 0.0]), 0.1 * np.eye(3)))
    for prior in (
        GaussianPrior(np.array([value, 0.0, 0.0]), np.eye(3)),
        GaussianPrior(np.zeros(3), np.diag([1e3 * abs(value), 1.0, 1.0])),
        GaussianPrior(np.zeros(3), np.diag([1.0, 1.0, -1.0])),
    ):
        with pytest.raises(ParameterError):
            localizer.set_pose(prior)
    known = localizer.pose_at()
    assert known is not None
    np.testing.assert_allclose(known[0], [1.0, 2.0, 0.0])


def test_odometry_beyond_any_place_is_refused_and_counted(tiny_map: TrainingMap) -> None:
    localizer = Localizer(tiny_map)
    assert not localizer.add_odometry(1, [1e308, 0.0, 0.0])
    assert not localizer.add_odometry(2, [0.0, np.inf, np.inf])
    assert localizer.add_odometry(3, [0.0, 0.0, 0.0])
    assert localizer.counts == {"odometry_too_far": 1, "odometry_not_finite": 1}


def test_a_filter_that_keeps_failing_is_reset_and_says_so(
    tiny_map: TrainingMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    localizer = Localizer(tiny_map)
    observation = tiny_map.observe(World().view(tiny_map.poses[0], np.random.default_rng(0)))
    for second in range(20):
        localizer.add_odometry(second * SECOND, [0.1 * second, 0.0, 0.0])
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise np.linalg.LinAlgError("singular")

        broken.setattr(localizer._filter, "step", fail)
        for second in range(1, MAX_FAILURES):
            with pytest.raises(np.linalg.LinAlgError):
                localizer.add_described(second * SECOND, observation)
        with pytest.raises(FilterReset, match="is reset"):
            localizer.add_described(MAX_FAILURES * SECOND, observation)
    assert localizer.counts["filter_reset"] == 1
    assert localizer.state is State.UNINITIALIZED
    localization = localizer.add_described(10 * SECOND, observation)
    assert localization is not None
    assert is_sound(localization.pose, localization.covariance)


def test_a_sound_covariance_is_left_alone_and_any_other_is_mended() -> None:
    good = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]])
    np.testing.assert_array_equal(sound_covariance(good), good)
    for bad in (np.zeros((3, 3)), np.diag([1.0, -1.0, 1.0]), np.diag([1e300, 1.0, 0.0])):
        mended = sound_covariance(bad)
        assert np.linalg.eigvalsh(mended)[0] > 0.0
        assert mended.max() <= 1.001 * VARIANCES[1]
    with pytest.raises(ArithmeticError):
        sound_covariance(np.diag([1.0, np.nan, 1.0]))


def test_odometry_whose_stamps_hardly_grow_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By their stamps these readings are never a minute old."""
    monkeypatch.setattr(odometry_buffer, "MAX_READINGS", 4000)
    buffer = OdometryBuffer()
    for stamp in range(10_000):
        assert buffer.append(stamp, [0.001 * stamp, 0.0, 0.0]) is None
        assert buffer.newest_ns == stamp
    assert stamp - buffer.oldest_ns <= 4000
    assert buffer.at(stamp - 400).distance_m == pytest.approx(0.001 * (stamp - 400))
