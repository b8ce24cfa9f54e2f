"""Which of a bag's topics are played beside the node, and which would get in its way."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbf_localization.datasets.bag_reader import TRANSFORMS, BagTopic

CLOCK = "rosgraph_msgs/msg/Clock"
_NODE_SAYS = ("pose", "status", "belief", "belief_poses", "map_poses", "path", "initialpose")
_HOUSEKEEPING = ("/rosout", "/parameter_events", "/diagnostics", "/diagnostics_agg")


@dataclass(frozen=True)
class Playlist:
    """The topics to play with their message classes, and what was left out, a line each."""

    topics: tuple[tuple[BagTopic, Any], ...]
    notes: tuple[str, ...]


def choose_playlist(topics: Sequence[BagTopic], needed: Sequence[BagTopic]) -> Playlist:
    """Everything but the bag's own clock, what the node itself says, and unknown types.

    `needed` topics are played whatever their names.
    """
    played: list[tuple[BagTopic, Any]] = []
    notes: list[str] = []
    unknown: list[str] = []
    for topic in topics:
        message_class = message_class_of(topic.type)
        if not topic.count:
            continue
        if topic not in needed:
            if topic.type == CLOCK:
                notes.append(f"left out the bag's own {topic.name}: the replay gives the time")
                continue
            if topic.name in _HOUSEKEEPING:
                continue
            if topic.name.lstrip("/") in _NODE_SAYS:
                notes.append(f"left out the bag's own {topic.name}: the node is to say that")
                continue
        if message_class is None:
            unknown.append(f"{topic.name} ({topic.type})")
            continue
        played.append((topic, message_class))
    if unknown:
        notes.append(f"left out topics of types not installed here: {', '.join(unknown)}")
    return Playlist(tuple(played), tuple(notes))


def message_class_of(type_name: str) -> Any:
    """The class of a type such as "nav_msgs/msg/Odometry"; None where it is not installed."""
    try:
        package, kind, name = type_name.split("/")
        return getattr(importlib.import_module(f"{package}.{kind}"), name)
    except (ImportError, AttributeError, ValueError):
        return None


def without_transform_to(message: Any, frame: str) -> tuple[Any, list[str]]:
    """A tf message without the transforms to `frame`, and the names of those left out."""
    kept, left_out = [], []
    for transform in message.transforms:
        if transform.child_frame_id.lstrip("/") == frame:
            left_out.append(f"{transform.header.frame_id}→{transform.child_frame_id}")
        else:
            kept.append(transform)
    message.transforms = kept
    return message, left_out


def is_transforms(topic: BagTopic) -> bool:
    return topic.type == TRANSFORMS
