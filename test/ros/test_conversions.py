"""Messages to planar poses and back."""

import math

import numpy as np
import pytest
from geometry_msgs.msg import Pose, TransformStamped
from hypothesis import given
from hypothesis import strategies as st

from kbf_localization.ros import conversions

any_float = st.floats(allow_nan=True, allow_infinity=True)
angles = st.floats(-math.pi, math.pi)


@given(st.integers(0, 2**31 * 10**9 - 1))
def test_stamps_keep_every_nanosecond(stamp_ns: int) -> None:
    assert conversions.nanoseconds(conversions.time_message(stamp_ns)) == stamp_ns


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), angles)
def test_pose_survives_the_message(x: float, y: float, yaw: float) -> None:
    back = conversions.planar_pose(conversions.pose_message(np.array([x, y, yaw])))
    assert back[0] == x
    assert back[1] == y
    assert abs(math.remainder(back[2] - yaw, 2 * math.pi)) < 1e-12


@given(angles, st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_heading_is_the_yaw_of_roll_pitch_yaw(yaw: float, pitch: float, roll: float) -> None:
    """By the direction of the rotated x axis, from the rotation matrix."""
    half = np.array([roll, pitch, yaw]) / 2.0
    (cr, cp, cy), (sr, sp, sy) = np.cos(half), np.sin(half)
    rotation = (
        float(sr * cp * cy - cr * sp * sy),
        float(cr * sp * cy + sr * cp * sy),
        float(cr * cp * sy - sr * sp * cy),
        float(cr * cp * cy + sr * sp * sy),
    )
    forward = np.array([math.cos(yaw) * math.cos(pitch), math.sin(yaw) * math.cos(pitch)])
    expected = math.atan2(forward[1], forward[0])
    assert (
        abs(
            math.remainder(
                conversions.heading(*rotation) - expected,
                2 * math.pi,
            )
        )
        < 1e-9
    )


@pytest.mark.parametrize("quaternion", [(0, 0, 0, 0), (0, 0, 0, 2), (0, 0, math.nan, 1)])
def test_quaternion_that_is_no_rotation_is_refused(quaternion: tuple[float, ...]) -> None:
    x, y, z, w = map(float, quaternion)
    with pytest.raises(ValueError, match="quaternion"):
        conversions.heading(x, y, z, w)


@given(st.tuples(*[any_float] * 6))
def test_pose_message_of_any_numbers_gives_a_finite_pose_or_a_reason(values: tuple) -> None:
    message = Pose()
    message.position.x, message.position.y = values[:2]
    rotation = message.orientation
    rotation.x, rotation.y, rotation.z, rotation.w = values[2:]
    try:
        pose = conversions.planar_pose(message)
    except ValueError:
        return
    assert np.isfinite(pose).all()


@given(st.lists(any_float, min_size=36, max_size=36))
def test_covariance_of_any_numbers_is_one_or_is_refused(values: list[float]) -> None:
    try:
        covariance = conversions.planar_covariance(values)
    except ValueError:
        return
    assert np.isfinite(covariance).all()


def test_covariance_survives_the_message() -> None:
    covariance = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 0.3]])
    message = conversions.pose_with_covariance("map", 5, np.zeros(3), covariance)
    np.testing.assert_array_equal(
        conversions.planar_covariance(message.pose.covariance), covariance
    )


@pytest.mark.parametrize(("row", "column", "value"), [(0, 0, -1.0), (0, 1, 5.0), (5, 5, math.inf)])
def test_impossible_covariance_is_refused(row: int, column: int, value: float) -> None:
    values = np.eye(6)
    values[row, column] = value
    with pytest.raises(ValueError, match="covariance"):
        conversions.planar_covariance(values.ravel())


def edge(parent: str, child: str, pose: tuple[float, float, float]) -> TransformStamped:
    return conversions.transform_message(parent, child, 1, np.array(pose))


def test_pose_of_the_base_comes_through_the_chain_of_transforms() -> None:
    """odom → wheels → base, the last one fixed; by hand: turned left, the base is to the left."""
    chain = conversions.TransformChain("odom", "base")
    assert chain.add(edge("wheels", "base", (1.0, 0.0, 0.0))) is None
    pose = chain.add(edge("odom", "/wheels", (3.0, 4.0, math.pi / 2)))
    np.testing.assert_allclose(pose, [3.0, 5.0, math.pi / 2], atol=1e-12)
    assert chain.add(edge("map", "odom", (9.0, 9.0, 0.0))) is None
    assert chain.add(edge("base", "camera", (0.1, 0.0, 0.0))) is None


def test_transforms_that_loop_are_named() -> None:
    chain = conversions.TransformChain("odom", "base")
    chain.add(edge("wheels", "base", (1.0, 0.0, 0.0)))
    with pytest.raises(ValueError, match="base → wheels → base"):
        chain.add(edge("base", "wheels", (1.0, 0.0, 0.0)))
    np.testing.assert_allclose(chain.add(edge("odom", "wheels", (0.0, 0.0, 0.0))), [1.0, 0.0, 0.0])


def test_tf_with_ever_new_frames_does_not_fill_the_memory_nor_hide_the_robots_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever is first: frames that lead nowhere make way for newer ones."""
    monkeypatch.setattr(conversions, "MOST_FRAMES", 3)
    chain = conversions.TransformChain("odom", "base")
    for child in "abcdef":
        assert chain.add(edge("odom", child, (1.0, 0.0, 0.0))) is None
    assert chain.add(edge("wheels", "base", (1.0, 0.0, 0.0))) is None
    for child in "abcdef":
        assert chain.add(edge("odom", child, (1.0, 0.0, 0.0))) is None
    pose = chain.add(edge("odom", "wheels", (2.0, 0.0, 0.0)))
    np.testing.assert_allclose(pose, [3.0, 0.0, 0.0])
    assert len(chain._edges) == 3


def test_a_tree_of_thousands_of_frames_above_the_base_is_refused_soon() -> None:
    """Each of the transforms is one step more, and must not be as much work as all before it."""
    chain = conversions.TransformChain("odom", "base")
    chain.add(edge("0", "base", (1.0, 0.0, 0.0)))
    for number in range(conversions.MOST_LINKS - 2):
        assert chain.add(edge(str(number + 1), str(number), (1.0, 0.0, 0.0))) is None
    for number in range(conversions.MOST_LINKS - 1, 3000):
        with pytest.raises(ValueError, match="more than 100 frames above base"):
            chain.add(edge(str(number), str(number - 1), (1.0, 0.0, 0.0)))
    np.testing.assert_allclose(chain.add(edge("odom", "base", (1.0, 0.0, 0.0))), [1.0, 0.0, 0.0])


def test_a_frame_of_a_megabytes_name_is_refused() -> None:
    chain = conversions.TransformChain("odom", "base")
    with pytest.raises(ValueError, match="more than 1000 characters"):
        chain.add(edge("odom", "x" * 1_000_000, (1.0, 0.0, 0.0)))
