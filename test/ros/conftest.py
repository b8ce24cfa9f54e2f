"""The world, its map and the node for the tests of this folder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rclpy
from rclpy.context import Context

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.mapping import build_map
from kbf_localization.ros import node_process
from kbf_localization.ros.node_process import NodeProcess
from kbf_localization.training_map import save_map
from test.conftest import MadeOnce, learning_quickly
from test.ros.robot import Robot
from test.ros.world import MAP_POSES, World


@pytest.fixture(scope="session", autouse=True)
def forked_nodes(warm_nodes: None) -> None:
    """Nodes of these tests start within a tenth of a second."""


@contextmanager
def starting_from_nothing() -> Iterator[None]:
    """Nodes are started from nothing, as users start them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_process, "subprocess", subprocess)
        yield


@pytest.fixture
def cold_nodes(warm_nodes: None) -> Iterator[None]:
    with starting_from_nothing():
        yield


@pytest.fixture(scope="session")
def world() -> World:
    return World()


@pytest.fixture(scope="session")
def map_file(world: World, made_once: MadeOnce) -> Path:
    """A map of the world without landmarks, whose images take a quarter of the time.

    For what does not depend on how exactly an image measures.
    """
    return _made_map(world, made_once, landmarks=False)


@pytest.fixture(scope="session")
def landmark_map_file(world: World, made_once: MadeOnce) -> Path:
    """The same map with landmarks."""
    return _made_map(world, made_once, landmarks=True)


def _made_map(world: World, made_once: MadeOnce, landmarks: bool) -> Path:
    """A map from two rounds beside the robot's route."""

    def make(folder: Path) -> None:
        drives = [
            ColdDrive(world.write_cold(folder / f"seq{number}_cloudy1", 150, 0.03, offset))
            for number, offset in enumerate((-0.15, 0.15))
        ]
        with learning_quickly():
            built = build_map(drives, poses=MAP_POSES, words=80, landmarks=landmarks)
        save_map(built, folder / "world.kbfmap")

    return made_once("world-landmarks" if landmarks else "world", make) / "world.kbfmap"


@pytest.fixture(scope="module")
def node(map_file: Path) -> Iterator[NodeProcess]:
    """A running node for all tests of a module."""
    with NodeProcess({"map": str(map_file), "watchdog_timeout": 2.0}) as process:
        yield process
        assert process.exit_code is None, process.log()
        assert "Traceback" not in process.log(), process.log()


@pytest.fixture(scope="module")
def robot(world: World, node: NodeProcess) -> Iterator[Robot]:
    robot = Robot(world)
    robot.wait_until_heard()
    yield robot
    robot.close()


@pytest.fixture
def lost_robot(robot: Robot) -> Robot:
    """The robot with a node that has forgotten where it is."""
    robot.call_empty("reinitialize_global_localization")
    assert robot.wait_for(lambda: robot.state == "uninitialized")
    robot.poses.clear()
    robot.tf.clear()
    return robot


@pytest.fixture
def context() -> Iterator[Context]:
    """For nodes of a test's own, which it destroys."""
    context = Context()
    rclpy.init(context=context)
    yield context
    context.try_shutdown()
