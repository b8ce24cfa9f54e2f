"""Which of a bag's topics are the odometry, the camera and the known pose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    found = [one for one in topics if one.type == ODOMETRY and one.count]
    need = _Need("odometry", (ODOMETRY, TRANSFORMS), "--odom-topic")
    return need.choose(bag, topics, wanted, found or _transforms(topics, "/tf"))


def image_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic:
    """The camera; of one camera's raw and compressed topics the compressed one."""
    found = [
        one
        for one in topics
        if one.type in IMAGE_TYPES and one.count and not one.name.endswith("/compressedDepth")
    ]
    found = [one for one in found if "depth" not in one.name.lower()] or found
    compressed = {one.name for one in found if one.type == COMPRESSED_IMAGE}
    found = [one for one in found if f"{one.name}/compressed" not in compressed]
    return _Need("image", IMAGE_TYPES, "--image-topic").choose(bag, topics, wanted, found)


def pose_topic(bag: Path, topics: Sequence[BagTopic], wanted: str | None) -> BagTopic | None:
    """The known poses: the one pose topic, else tf, else None.

    An odometry topic is taken for the known pose only when it is named.
    """
    found = [
        one
        for one in topics
        if one.type in (POSE, POSE_WITH_COVARIANCE)
        and one.count
        and one.name.rsplit("/", 1)[-1] not in _REQUESTS
    ]
    if wanted is None and not found:
        transforms = _transforms(topics, "/tf")
        return transforms[0] if transforms and transforms[0].count else None
    return _Need("pose", POSE_TYPES, "--pose-topic").choose(bag, topics, wanted, found)


def static_transforms_topic(topics: Sequence[BagTopic]) -> BagTopic | None:
    """The transforms that never change."""
    return next(iter(_transforms(topics, "/tf_static")), None)


def _transforms(topics: Sequence[BagTopic], name: str) -> list[BagTopic]:
    return [one for one in topics if one.type == TRANSFORMS and one.name == name]


@dataclass(frozen=True)
class _Need:
    """What a topic is needed for, the types that will do, and the option that names it."""

    what: str
    types: tuple[str, ...]
    option: str

    def choose(
        self, bag: Path, topics: Sequence[BagTopic], wanted: str | None, found: Sequence[BagTopic]
    ) -> BagTopic:
        """The `wanted` topic, or the one that was `found`; DatasetError where it will not do."""
        types = " or ".join(self.types)
        if wanted is not None:
            named = [one for one in topics if one.name.lstrip("/") == wanted.lstrip("/")]
            usable = [one for one in named if one.type in self.types]
            if usable and usable[0].count:
                return usable[0]
            if not named:
                problem = f"no topic {wanted}"
            elif usable:
                problem = f"topic {wanted} has no messages"
            else:
                problem = f"topic {wanted} is of type {named[0].type}, needed is {types}"
            raise DatasetError(f"{bag}: {problem}; {_has(topics)}; choose with {self.option}")
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(one.name for one in found)
            raise DatasetError(
                f"{bag}: several topics may be the {self.what}: {names}; choose with {self.option}"
            )
        raise DatasetError(
            f"{bag}: no {self.what} topic with messages (of type {types}); {_has(topics)}; "
            f"name one with {self.option}"
        )


def _has(topics: Sequence[BagTopic]) -> str:
    if not topics:
        return "it has no topics"
    listed = ", ".join(f"{one.name} ({one.type}, {one.count})" for one in topics[:_LISTED])
    more = f" and {len(topics) - _LISTED} more" if len(topics) > _LISTED else ""
    return f"it has {listed}{more}"
