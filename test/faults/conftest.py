"""The fault suite drives the node of test/ros in its painted room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbf_localization.ros.node_process import NodeProcess
from test.faults.survival import Survival
from test.ros.conftest import (  # noqa: F401 (fixtures)
    forked_nodes,
    landmark_map_file,
    map_file,
    world,
)
from test.ros.robot import Robot, robot_with_node
from test.ros.world import World


@pytest.fixture(scope="module")
def pair(world: World, map_file: Path) -> Iterator[tuple[Robot, NodeProcess]]:  # noqa: F811
    """One robot with one node, which must live through all tests of a file."""
    with robot_with_node(world, {"map": str(map_file)}) as (robot, process):
        robot.wait_until_heard()
        yield robot, process


@pytest.fixture
def survival(pair: tuple[Robot, NodeProcess]) -> Survival:
    """The robot tracks; the test does something to it, and asks whether all is well again."""
    return Survival(*pair)


@pytest.fixture(scope="module")
def raw_pair(world: World, map_file: Path) -> Iterator[tuple[Robot, NodeProcess]]:  # noqa: F811
    """A robot whose camera sends raw images, with its node."""
    parameters = {"map": str(map_file), "image_transport": "raw"}
    with robot_with_node(world, parameters) as (robot, process):
        robot.wait_until_heard(camera="raw")
        yield robot, process
