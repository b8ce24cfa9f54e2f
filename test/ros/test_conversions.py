"""Messages to planar poses and back."""

import math

import numpy as np
import pytest
from geometry_msgs.msg import Pose
from hypothesis import given
from hypothesis import strategies as st
from sensor_msgs.msg import PointField

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


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_cloud_has_its_points_as_the_format_says(count: int) -> None:
    """Read by the message's own fields and steps, as any reader does."""
    points = np.random.default_rng(count).normal(size=(count, 3))
    more = np.arange(count + 1.0)
    cloud = conversions.point_cloud("map", 7, np.vstack((points, [[math.nan, 0.0, 0.0]])), u=more)
    kind = np.dtype(
        {
            "names": [field.name for field in cloud.fields],
            "formats": ["<f4" for _ in cloud.fields],
            "offsets": [field.offset for field in cloud.fields],
            "itemsize": cloud.point_step,
        }
    )
    assert (cloud.width * cloud.height, len(cloud.data)) == (count, cloud.row_step * cloud.height)
    read = np.frombuffer(cloud.data, dtype=kind)
    found = np.stack([read[name] for name in "xyz"], axis=-1)
    np.testing.assert_array_equal(found, points.astype(np.float32))
    assert all(field.datatype == PointField.FLOAT32 for field in cloud.fields)
    assert (cloud.header.frame_id, cloud.is_bigendian) == ("map", False)


def test_a_cloud_in_utm_keeps_millimetres() -> None:
    utm = np.array([691_608.25, 5_334_764.5, 0.0])
    points = utm + np.random.default_rng(1).uniform(-5.0, 5.0, (20, 3))
    u = np.linspace(0.0, 1.0, 20)
    cloud = conversions.point_cloud("map", 7, points, u=u)
    columns = conversions.cloud_columns(cloud, 10)
    np.testing.assert_allclose(np.column_stack([columns[k] for k in "xyz"]), points[:10], atol=1e-6)
    np.testing.assert_allclose(columns["u"], u[:10], atol=1e-6)
    assert [field.datatype for field in cloud.fields] == [PointField.FLOAT64] * 3 + [
        PointField.FLOAT32
    ]


@pytest.mark.parametrize("change", ["datatype", "offset", "name", "data", "point_step"])
def test_a_cloud_that_is_none_is_refused(change: str) -> None:
    cloud = conversions.point_cloud("map", 7, np.ones((3, 3)))
    if change == "data":
        cloud.data = cloud.data[:-1]
    elif change == "point_step":
        cloud.point_step = 0
    else:
        setattr(cloud.fields[1], change, {"datatype": 3, "offset": 2**31, "name": "x"}[change])
    with pytest.raises(ValueError, match="."):
        conversions.cloud_columns(cloud, 10)
