"""A bag of a drive through the tests' world, and another with what a robot's own bag also has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.datasets.bag_reader import open_bag
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.cold import ColdDrive
from test.datasets.bags import TYPES, clock, transforms, write_messages
from test.ros.world import World


def write_world_bag(world: World, folder: Path, frames: int, **options: Any) -> Path:
    """A drive of `frames` images at 10 Hz beside the route, converted."""
    drive = ColdDrive(world.write_cold(folder / "seq9_cloudy1", frames, 2.0, 0.05))
    write_bag(drive, folder / "bag", **options)
    return folder / "bag"


def with_clock_and_map_to_odom(bag_path: Path, new_path: Path) -> Path:
    """The same bag as a robot with AMCL would have recorded it in simulation."""
    messages: list[tuple[str, int, Any]] = []
    with open_bag(bag_path) as bag:
        for topic, at, cdr in bag.messages(bag.topics):
            messages.append((topic.name, at, TYPES.deserialize_cdr(cdr, topic.type)))
            if topic.name == "/odom":
                edges = {("map", "odom"): (1.0, 2.0, 3.0), ("base_footprint", "arm"): (0, 0, 0)}
                messages.append(("/clock", at, clock(at - 10**12)))
                messages.append(("/tf", at, transforms(at, edges)))
    return write_messages(new_path, messages)


def with_growing_covariance(bag_path: Path, new_path: Path, per_metre: float) -> Path:
    """The same bag as a robot records it that follows its own covariance."""
    messages: list[tuple[str, int, Any]] = []
    last, covariance = None, np.diag([1e-3, 1e-3, 1e-3])
    with open_bag(bag_path) as bag:
        for topic, at, cdr in bag.messages(bag.topics):
            message = TYPES.deserialize_cdr(cdr, topic.type)
            messages.append((topic.name, at, message))
            if topic.name != "/odom":
                continue
            here = message.pose.pose.position
            step = np.zeros(2) if last is None else np.array([here.x - last.x, here.y - last.y])
            last, lever = here, np.eye(3)
            lever[:2, 2] = -step[1], step[0]
            grown = per_metre * float(np.hypot(*step)) * np.eye(3)
            covariance = lever @ covariance @ lever.T + grown
            full = np.zeros((6, 6))
            full[np.ix_([0, 1, 5], [0, 1, 5])] = covariance
            message.pose.covariance = full.reshape(36)
    return write_messages(new_path, messages)


def without_odometry_topic(bag_path: Path, new_path: Path) -> Path:
    """The same bag as a robot records it whose odometry is in tf alone."""
    with open_bag(bag_path) as bag:
        messages = [
            (topic.name, at, TYPES.deserialize_cdr(cdr, topic.type))
            for topic, at, cdr in bag.messages(bag.topics)
            if topic.name != "/odom"
        ]
    return write_messages(new_path, messages)
