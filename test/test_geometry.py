"""Planar geometry against homogeneous matrices and by its own algebra."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbf_localization.geometry import (
    blend,
    compose,
    difference,
    embed,
    interpolate,
    invert,
    position_sigma,
    relative,
    unembed,
    wrap_angle,
)

poses = st.tuples(st.floats(-100, 100), st.floats(-100, 100), st.floats(-np.pi, np.pi - 1e-9)).map(
    np.array
)


def matrix(pose: np.ndarray) -> np.ndarray:
    x, y, heading = pose
    cos, sin = np.cos(heading), np.sin(heading)
    return np.array([[cos, -sin, x], [sin, cos, y], [0, 0, 1]])


@given(poses, poses)
def test_compose_is_the_product_of_homogeneous_matrices(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(matrix(compose(a, b)), matrix(a) @ matrix(b), atol=1e-12 * 300)


@given(st.lists(st.floats(-10, 10), min_size=9, max_size=9))
def test_position_sigma_is_along_the_longest_axis(values: list[float]) -> None:
    root = np.reshape(values, (3, 3))
    covariance = root @ root.T
    longest = np.linalg.eigvalsh(covariance[:2, :2])[-1]
    np.testing.assert_allclose(position_sigma(covariance) ** 2, longest, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shapes", [((7, 3), (3,)), ((3,), (7, 3)), ((4, 1, 3), (5, 3))])
def test_many_poses_at_once_are_each_by_itself_to_the_bit(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    rng = np.random.default_rng(3)
    first, second = (rng.normal(0.0, 4.0, shape) for shape in shapes)
    a, b = (part.reshape(-1, 3) for part in np.broadcast_arrays(first, second))
    for function in (compose, relative):
        together = function(first, second).reshape(-1, 3)
        np.testing.assert_array_equal(together, [function(x, y) for x, y in zip(a, b)])
    np.testing.assert_array_equal(
        embed(first).reshape(-1, 4), [embed(x) for x in first.reshape(-1, 3)]
    )


@given(poses, poses)
def test_relative_undoes_compose(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(matrix(compose(a, relative(a, b))), matrix(b), atol=1e-10)


@given(poses)
def test_invert_is_the_inverse_matrix(a: np.ndarray) -> None:
    np.testing.assert_allclose(matrix(invert(a)), np.linalg.inv(matrix(a)), atol=1e-10)


@given(poses, poses)
def test_difference_is_relative_in_the_frame_of_both(a: np.ndarray, b: np.ndarray) -> None:
    there, back = difference(b, a), difference(a, b)
    np.testing.assert_allclose(there[:2], -back[:2])
    turned = matrix([0.0, 0.0, a[2]])[:2, :2] @ relative(a, b)[:2]
    np.testing.assert_allclose(there[:2], turned, atol=1e-10)
    np.testing.assert_allclose(wrap_angle(a[2] + there[2] - b[2]), 0.0, atol=1e-9)


@given(poses, poses, st.floats(0.0, 1.0))
def test_a_blend_divides_the_difference(a: np.ndarray, b: np.ndarray, fraction: float) -> None:
    between = blend(a, b, fraction)
    np.testing.assert_allclose(between[:2], (1.0 - fraction) * a[:2] + fraction * b[:2], atol=1e-9)
    turned = wrap_angle(between[2] - a[2] - fraction * difference(b, a)[2])
    np.testing.assert_allclose(turned, 0.0, atol=1e-9)


@given(poses)
def test_unembed_undoes_embed(a: np.ndarray) -> None:
    np.testing.assert_allclose(matrix(unembed(embed(a))), matrix(a), atol=1e-12)


@given(st.floats(-50, 50))
def test_wrapped_angle_is_the_same_direction_within_half_a_turn(angle: float) -> None:
    wrapped = float(wrap_angle(angle))
    assert -np.pi <= wrapped < np.pi
    np.testing.assert_allclose(
        [np.cos(wrapped), np.sin(wrapped)], [np.cos(angle), np.sin(angle)], atol=1e-12
    )


def test_interpolation_goes_along_the_shorter_arc_and_stays_at_the_ends() -> None:
    stamps = np.array([0, 10], dtype=np.int64)
    track = np.array([[0.0, 0.0, np.pi - 0.1], [1.0, 2.0, -np.pi + 0.1]])
    middle = interpolate(stamps, track, 5)
    np.testing.assert_allclose(middle[:2], [0.5, 1.0])
    np.testing.assert_allclose(abs(middle[2]), np.pi)
    np.testing.assert_allclose(interpolate(stamps, track, [-5, 25]), track, rtol=1e-15)


def test_interpolation_of_a_single_pose_is_that_pose() -> None:
    track = np.array([[1.0, 2.0, 0.5]])
    at = interpolate(np.array([7], dtype=np.int64), track, [0, 7, 9])
    np.testing.assert_array_equal(at, np.repeat(track, 3, axis=0))
