"""Which of a bag's topics are the odometry, the camera and the known pose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kbf_localization.datasets.bag_reader import CAMERA_INFO, TRANSFORMS, BagTopic
from kbf_localization.errors import DatasetError

ODOMETRY = "nav_msgs/msg/Odometry"
IMAGE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
POSE = "geometry_msgs/msg/PoseStamped"
POSE_WITH_COVARIANCE = "geometry_msgs/msg/PoseWithCovarianceStamped"

IMAGE_TYPES = (COMPRESSED_IMAGE, IMAGE)
POSE_TYPES = (POSE, POSE_WITH_COVARIANCE, ODOMETRY, TRANSFORMS)

TRANSPORTS = ("compressed", "theora", "ffmpeg", "zstd")
"""What image_transport appends to a topic's name."""

# What people publish to a robot, never where it was.
_REQUESTS = ("initialpose", "goal_pose", "goal", "clicked_pose")
_LISTED = 12


def odometry_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic:
    """Return the wheel odometry; where no topic has it, /tf, whose odom→base says the same."""
    found = [topic for topic in topics if topic.type == ODOMETRY and topic.count]
    found = found or _transforms(topics, "/tf")
    types = (ODOMETRY, TRANSFORMS)
    return _choose(bag, topics, wanted, found, "odometry", types, "--odom-topic")


def image_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic:
    """Return the camera; of one camera's raw and compressed topics the compressed one."""
    found = [
        topic
        for topic in topics
        if topic.type in IMAGE_TYPES and topic.count and not topic.name.endswith("/compressedDepth")
    ]
    found = [item for item in found if "depth" not in item.name.lower()] or found
    compressed = {item.name for item in found if item.type == COMPRESSED_IMAGE}
    found = [item for item in found if f"{item.name}/compressed" not in compressed]
    return _choose(bag, topics, wanted, found, "image", IMAGE_TYPES, "--image-topic")


def camera_info_names(image_topic: str) -> tuple[str, ...]:
    """Return the topics that, by convention, have the calibration of an image topic's camera.

    "/camera/image_raw/compressed" has "/camera/camera_info" beside it.
    """
    name = f"/{image_topic.strip('/')}"
    for transport in TRANSPORTS:
        name = name.removesuffix(f"/{transport}")
    return f"{name.rpartition('/')[0]}/camera_info", f"{name}/camera_info"


def camera_info_topic(topics: Sequence[BagTopic], image: BagTopic) -> BagTopic | None:
    """Return the calibration of the camera of an image topic; None where the bag has none."""
    by_name = {topic.name: topic for topic in topics if topic.type == CAMERA_INFO and topic.count}
    found = (by_name[name] for name in camera_info_names(image.name) if name in by_name)
    return next(found, None)


def pose_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic | None:
    """Return the known poses: the only pose topic, else tf, else None.

    An odometry topic is taken for the known pose only when it is named.
    """
    found = [
        topic
        for topic in topics
        if topic.type in (POSE, POSE_WITH_COVARIANCE)
        and topic.count
        and topic.name.rsplit("/", 1)[-1] not in _REQUESTS
    ]
    if wanted is None and not found:
        transforms = _transforms(topics, "/tf")
        return transforms[0] if transforms and transforms[0].count else None
    return _choose(bag, topics, wanted, found, "pose", POSE_TYPES, "--pose-topic")


def moving_transforms_topic(topics: Sequence[BagTopic]) -> BagTopic | None:
    """Return the transforms that may change."""
    return next(iter(_transforms(topics, "/tf")), None)


def static_transforms_topic(topics: Sequence[BagTopic]) -> BagTopic | None:
    """Return the transforms that never change."""
    return next(iter(_transforms(topics, "/tf_static")), None)


def _transforms(topics: Sequence[BagTopic], name: str) -> list[BagTopic]:
    return [topic for topic in topics if topic.type == TRANSFORMS and topic.name == name]


def _choose(
    bag: Path,
    topics: Sequence[BagTopic],
    wanted: str | None,
    found: Sequence[BagTopic],
    what: str,
    types: Sequence[str],
    option: str,
) -> BagTopic:
    """Return the `wanted` topic, or the topic that was `found`; DatasetError where it will not do.

    `what` it is needed for, the `types` that will do, and the `option` that names it.
    """
    needed = " or ".join(types)
    if wanted is not None:
        named = [topic for topic in topics if topic.name.lstrip("/") == wanted.lstrip("/")]
        usable = [item for item in named if item.type in types]
        if usable and usable[0].count:
            return usable[0]
        if not named:
            problem = f"no topic {wanted}"
        elif usable:
            problem = f"topic {wanted} has no messages"
        else:
            problem = f"topic {wanted} is of type {named[0].type}, needed is {needed}"
        raise DatasetError(f"{bag}: {problem}; {_has(topics)}; choose with {option}")
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(item.name for item in found)
        raise DatasetError(
            f"{bag}: several topics may be the {what}: {names}; choose with {option}"
        )
    raise DatasetError(
        f"{bag}: no {what} topic with messages (of type {needed}); {_has(topics)}; "
        f"name one with {option}"
    )


def _has(topics: Sequence[BagTopic]) -> str:
    if not topics:
        return "it has no topics"
    listed = ", ".join(f"{topic.name} ({topic.type}, {topic.count})" for topic in topics[:_LISTED])
    more = f" and {len(topics) - _LISTED} more" if len(topics) > _LISTED else ""
    return f"it has {listed}{more}"
