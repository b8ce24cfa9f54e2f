"""Conversions between ROS messages and planar poses, stamps and grey images.

rclpy does not check field types by default and then corrupts a wrong value silently (an int in a
float field arrives as 5e-324), so every number is wrapped in float() or int() here.
"""

from __future__ import annotations

import array
import math
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import (
    Pose,
    PoseStamped,
    PoseWithCovarianceStamped,
    Quaternion,
    TransformStamped,
)
from sensor_msgs.msg import CompressedImage, Image, PointCloud2, PointField
from std_msgs.msg import Header

from kbf_localization.arrays import Array
from kbf_localization.arrays import Image as GreyImage
from kbf_localization.datasets.image_decoding import (
    ENCODINGS,
    MAX_PIXELS,
    grey_from_message,
    why_refused,
)
from kbf_localization.geometry import (
    heading_of,
    planar_block,
    quaternion_of,
    spatial_numbers,
)
from kbf_localization.limits import MAX_COORDINATE_M, MAX_SIGMA_M, MAX_SIGMA_RAD

try:
    from cv_bridge import CvBridge, CvBridgeError
except ImportError:
    CvBridge = None


def nanoseconds(stamp: Time) -> int:
    """Convert a message's stamp to nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def time_message(stamp_ns: int) -> Time:
    """Convert nanoseconds to a message's stamp."""
    seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
    return Time(sec=seconds, nanosec=rest)


def header(frame_id: str, stamp_ns: int) -> Header:
    return Header(stamp=time_message(stamp_ns), frame_id=frame_id)


def heading(x: float, y: float, z: float, w: float) -> float:
    """Return the yaw of a quaternion in radians; ValueError where it is no rotation."""
    yaw = heading_of(x, y, z, w)
    if yaw is None:
        raise ValueError(f"({x:g}, {y:g}, {z:g}, {w:g}) is no unit quaternion")
    return yaw


def quaternion(yaw: float) -> Quaternion:
    """Return the rotation by `yaw` (radians) about the vertical axis."""
    x, y, z, w = quaternion_of(yaw)
    return Quaternion(x=x, y=y, z=z, w=w)


def planar_pose(pose: Pose) -> Array:
    """Return (x, y, heading) of a pose; ValueError where it is too far off or no rotation."""
    x, y, turn = pose.position.x, pose.position.y, pose.orientation
    result = np.array([x, y, heading(turn.x, turn.y, turn.z, turn.w)])
    if not (math.isfinite(x) and math.isfinite(y)):
        raise ValueError("position is not finite")
    if max(abs(x), abs(y)) > MAX_COORDINATE_M:
        raise ValueError(f"position ({x:g}, {y:g}) is beyond {MAX_COORDINATE_M:g} m")
    return result


def pose_message(pose: Array) -> Pose:
    """Convert a planar pose (3,) to a message."""
    message = Pose(orientation=quaternion(float(pose[2])))
    message.position.x, message.position.y = float(pose[0]), float(pose[1])
    return message


def planar_covariance(values: object) -> Array:
    """Return the covariance (3, 3) of (x, y, heading) in ROS's 36 numbers.

    ValueError where it is no covariance.
    """
    full = np.asarray(values, dtype=np.float64)
    if full.shape != (36,) or not np.isfinite(full).all():
        raise ValueError("covariance is not 36 finite numbers")
    planar = planar_block(full)
    sigmas = MAX_SIGMA_M, MAX_SIGMA_M, MAX_SIGMA_RAD
    if (np.abs(planar) > np.outer(sigmas, sigmas)).any():
        raise ValueError(
            f"covariance is beyond {MAX_SIGMA_M:g} m and {MAX_SIGMA_RAD:g} rad squared"
        )
    if not np.allclose(planar, planar.T, rtol=1e-6, atol=1e-12):
        raise ValueError("covariance is not symmetric")
    smallest = np.linalg.eigvalsh(planar)[0]
    if smallest < -1e-9:
        raise ValueError("covariance has a negative eigenvalue")
    return planar


def pose_with_covariance(
    frame_id: str, stamp_ns: int, pose: Array, covariance: Array
) -> PoseWithCovarianceStamped:
    message = PoseWithCovarianceStamped()
    _fill_header(message.header, frame_id, stamp_ns)
    _fill_turn(message.pose.pose.orientation, float(pose[2]))
    position = message.pose.pose.position
    position.x, position.y = float(pose[0]), float(pose[1])
    message.pose.covariance = spatial_numbers(covariance)
    return message


def stamped_pose(frame_id: str, stamp_ns: int, pose: Array) -> PoseStamped:
    return PoseStamped(header=header(frame_id, stamp_ns), pose=pose_message(pose))


def transform_message(parent: str, child: str, stamp_ns: int, transform: Array) -> TransformStamped:
    """Return the planar transform (3,) from `child` coordinates to `parent` as a message."""
    message = TransformStamped(child_frame_id=child)
    _fill_header(message.header, parent, stamp_ns)
    message.transform.translation.x = float(transform[0])
    message.transform.translation.y = float(transform[1])
    _fill_turn(message.transform.rotation, float(transform[2]))
    return message


# Filled in place: a message passed to a constructor replaces a default that was made before.
def _fill_header(empty: Header, frame_id: str, stamp_ns: int) -> None:
    empty.frame_id = frame_id
    seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
    empty.stamp.sec, empty.stamp.nanosec = seconds, rest


def _fill_turn(empty: Quaternion, yaw: float) -> None:
    empty.x, empty.y, empty.z, empty.w = quaternion_of(yaw)


MAX_SINGLE_M = 16_384.0
"""Up to here single precision resolves a millimetre; UTM's coordinates need double."""
_FORMATS = {PointField.FLOAT32: "<f4", PointField.FLOAT64: "<f8"}


def point_cloud(frame_id: str, stamp_ns: int, points: Array, **more: Array) -> PointCloud2:
    """Convert points (k, 3) in metres to a cloud of x, y and z; points that are not finite drop.

    `more` are further fields (k,) by their names. Single precision, as RViz draws it; of points
    beyond MAX_SINGLE_M the coordinates are in double.
    """
    points = np.asarray(points, dtype=np.float64).reshape(-1, 3)
    kept = np.isfinite(points).all(axis=1)
    far = np.abs(points[kept]).max(initial=0.0) > MAX_SINGLE_M
    columns = {**dict(zip("xyz", points.T, strict=True)), **more}
    kinds = [
        PointField.FLOAT64 if far and name in "xyz" else PointField.FLOAT32 for name in columns
    ]
    sizes = [np.dtype(_FORMATS[kind]).itemsize for kind in kinds]
    offsets = [sum(sizes[:number]) for number in range(len(sizes))]
    layout = [(name, _FORMATS[kind]) for name, kind in zip(columns, kinds, strict=True)]
    table = np.empty(int(kept.sum()), layout)
    for name, column in columns.items():
        table[name] = column[kept]
    cloud = PointCloud2(header=header(frame_id, stamp_ns))
    cloud.fields = [
        PointField(name=name, offset=offset, datatype=kind, count=1)
        for name, offset, kind in zip(columns, offsets, kinds, strict=True)
    ]
    cloud.height, cloud.width, cloud.point_step = 1, len(table), table.dtype.itemsize
    cloud.row_step, cloud.is_dense = cloud.point_step * len(table), True
    cloud.data = array.array("B", table.tobytes())
    return cloud


def cloud_columns(cloud: PointCloud2, count: int) -> dict[str, Array]:
    """Return the first `count` values of a cloud's fields; ValueError where it is no such cloud."""
    layout = {
        "names": [field.name for field in cloud.fields],
        "formats": [_FORMATS.get(field.datatype, "no number") for field in cloud.fields],
        "offsets": [field.offset for field in cloud.fields],
        "itemsize": cloud.point_step,
    }
    try:
        table = np.frombuffer(bytes(cloud.data), dtype=np.dtype(layout))[:count]  # type: ignore[call-overload]
    except TypeError as error:
        raise ValueError(str(error)) from error
    return {name: table[name].astype(np.float64) for name in layout["names"]}


class ImageError(ValueError):
    """A message holds no image."""


def decode(message: Image | CompressedImage) -> GreyImage:
    """Decode a message to a grey image (h, w); ImageError, with the reason, where it has none.

    The project's own decoder comes first, so that an image gives the same bits on every machine
    and in the offline replay; cv_bridge, where it is installed, adds further encodings.
    """
    if isinstance(message, Image) and message.encoding not in ENCODINGS and CvBridge is not None:
        return decode_by_cv_bridge(message)
    try:
        image = grey_from_message(message)
    except ValueError as error:
        raise ImageError(str(error)) from error
    if image is None:
        raise ImageError(f"format '{message.format}': {why_refused(message.data)}")
    return image


def decode_by_cv_bridge(message: Image) -> GreyImage:
    """Decode a message by cv_bridge."""
    if not 0 < message.width * message.height <= MAX_PIXELS:
        size = f"{message.width}x{message.height}"
        raise ImageError(f"{message.encoding} image of {size} pixels")
    bridge: Any = CvBridge()
    try:
        return np.asarray(bridge.imgmsg_to_cv2(message, desired_encoding="mono8"), dtype=np.uint8)
    except (CvBridgeError, TypeError) as error:
        raise ImageError(f"encoding '{message.encoding}': {error}") from error
