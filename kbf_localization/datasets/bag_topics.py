"""Which of a bag's topics are the odometry, the camera and the known pose."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from kbf_localization.datasets.bag_reader import TRANSFORMS, BagTopic
from kbf_localization.errors import DatasetError

ODOMETRY = "nav_msgs/msg/Odometry"
IMAGE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
POSE = "geometry_msgs/msg/PoseStamped"
POSE_WITH_COVARIANCE = "geometry_msgs/msg/PoseWithCovarianceStamped"

IMAGE_TYPES = (COMPRESSED_IMAGE, IMAGE)
POSE_TYPES = (POSE, POSE_WITH_COVARIANCE, ODOMETRY, TRANSFORMS)

# What people publish to a robot, never where it was.
_REQUESTS = ("initialpose", "goal_pose", "goal", "clicked_pose")
_LISTED = 12


def odometry_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic:
    """The wheel odometry; where no topic has it, /tf, whose odom→base says the same."""
    option = "--odom-topic"
    if wanted is not None:
        return _named(bag, topics, wanted, (ODOMETRY, TRANSFORMS), option)
    found = [one for one in topics if one.type == ODOMETRY and one.count]
    if not found:
        found = [one for one in topics if one.type == TRANSFORMS and one.name == "/tf"]
    return _only(bag, topics, found, "odometry", (ODOMETRY, TRANSFORMS), option)


def image_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic:
    """The camera; of one camera's raw and compressed topics the compressed one."""
    option = "--image-topic"
    if wanted is not None:
        return _named(bag, topics, wanted, IMAGE_TYPES, option)
    found = [
        one
        for one in topics
        if one.type in IMAGE_TYPES and one.count and not one.name.endswith("/compressedDepth")
    ]
    colour = [one for one in found if "depth" not in one.name.lower()]
    found = colour or found
    compressed = {one.name for one in found if one.type == COMPRESSED_IMAGE}
    found = [one for one in found if f"{one.name}/compressed" not in compressed]
    return _only(bag, topics, found, "image", IMAGE_TYPES, option)


def pose_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic | None:
    """The known poses: the one pose topic, else tf, else None.

    An odometry topic is taken for the known pose only when it is named.
    """
    option = "--pose-topic"
    if wanted is not None:
        return _named(bag, topics, wanted, POSE_TYPES, option)
    found = [
        one
        for one in topics
        if one.type in (POSE, POSE_WITH_COVARIANCE)
        and one.count
        and one.name.rsplit("/", 1)[-1] not in _REQUESTS
    ]
    if not found:
        transforms = [one for one in topics if one.type == TRANSFORMS and one.name == "/tf"]
        return transforms[0] if transforms and transforms[0].count else None
    return _only(bag, topics, found, "pose", POSE_TYPES, option)


def static_transforms_topic(topics: Sequence[BagTopic]) -> BagTopic | None:
    """The transforms that never change."""
    found = [one for one in topics if one.type == TRANSFORMS and one.name == "/tf_static"]
    return found[0] if found else None


def _named(
    bag: Path, topics: Sequence[BagTopic], wanted: str, types: Collection[str], option: str
) -> BagTopic:
    found = [one for one in topics if one.name.lstrip("/") == wanted.lstrip("/")]
    if not found:
        raise DatasetError(f"{bag}: no topic {wanted}; {_has(topics)}; choose with {option}")
    usable = [one for one in found if one.type in types]
    if not usable:
        raise DatasetError(
            f"{bag}: topic {wanted} is of type {found[0].type}, needed is {_or(types)}; "
            f"{_has(topics)}; choose with {option}"
        )
    if not usable[0].count:
        raise DatasetError(
            f"{bag}: topic {wanted} has no messages; {_has(topics)}; choose with {option}"
        )
    return usable[0]


def _only(
    bag: Path,
    topics: Sequence[BagTopic],
    found: Sequence[BagTopic],
    what: str,
    types: Collection[str],
    option: str,
) -> BagTopic:
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one.name for one in found)
        raise DatasetError(
            f"{bag}: several topics may be the {what}: {names}; choose with {option}"
        )
    raise DatasetError(
        f"{bag}: no {what} topic with messages (of type {_or(types)}); {_has(topics)}; "
        f"name one with {option}"
    )


def _has(topics: Sequence[BagTopic]) -> str:
    if not topics:
        return "it has no topics"
    listed = ", ".join(f"{one.name} ({one.type}, {one.count})" for one in topics[:_LISTED])
    more = f" and {len(topics) - _LISTED} more" if len(topics) > _LISTED else ""
    return f"it has {listed}{more}"


def _or(types: Collection[str]) -> str:
    return " or ".join(types)
