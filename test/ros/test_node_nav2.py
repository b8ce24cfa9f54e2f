"""What Nav2 asks of the node that stands in AMCL's place."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from nav2_msgs.msg import ParticleCloud
from nav2_msgs.srv import SetInitialPose

from kbf_localization.ros.conversions import planar_pose, pose_with_covariance
from kbf_localization.ros.node_process import NodeProcess
from test.ros.lifecycle_manager import LifecycleManager
from test.ros.robot import BEST_EFFORT, PATIENCE, Robot, robot_with_node
from test.ros.world import World

FORMED = "bond with the lifecycle manager formed"


@pytest.fixture
def managed(world: World, map_file: Path) -> Iterator[tuple[Robot, NodeProcess, LifecycleManager]]:
    """A node that waits for its lifecycle manager."""
    parameters = {"map": str(map_file), "autostart": False}
    with robot_with_node(world, parameters) as (robot, process):
        yield robot, process, LifecycleManager(robot)


def test_lifecycle_manager_starts_it_and_forms_the_bond(
    managed: tuple[Robot, NodeProcess, LifecycleManager],
) -> None:
    robot, process, manager = managed
    assert manager.start_up()
    assert robot.wait_for(lambda: FORMED in process.log())
    assert manager.statuses[-1].heartbeat_timeout == 4.0
    beats = len(manager.statuses)
    assert robot.wait_for(lambda: len(manager.statuses) > beats + 10)
    robot.wait_until_heard()
    assert robot.drive_until_tracking() <= 15
    assert all(beat.active for beat in manager.statuses)


def test_deactivation_and_the_end_of_the_process_break_the_bond_at_once(
    managed: tuple[Robot, NodeProcess, LifecycleManager],
) -> None:
    robot, process, manager = managed
    assert manager.start_up()
    assert robot.wait_for(lambda: process.log().count(FORMED) == 1)
    assert robot.transition("deactivate")
    assert robot.wait_for(lambda: manager.statuses and not manager.statuses[-1].active)
    assert robot.transition("activate")
    manager.bind()
    assert robot.wait_for(lambda: process.log().count(FORMED) == 2)
    assert process.interrupt(PATIENCE) == 0
    assert robot.wait_for(lambda: not manager.statuses[-1].active)


def test_a_node_that_ends_repeats_it_for_a_while_where_the_manager_does_not_answer(
    world: World, map_file: Path
) -> None:
    with robot_with_node(world, {"map": str(map_file)}) as (robot, process):
        manager = LifecycleManager(robot, answers=False)
        manager.bind()
        assert robot.wait_for(lambda: FORMED in process.log())
        assert process.interrupt(PATIENCE) == 0
        assert robot.wait_for(lambda: sum(not beat.active for beat in manager.statuses) > 1)


def test_bond_and_saved_pose_are_optional(world: World, map_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "pose.json"
    parameters = {"map": str(map_file), "bond_heartbeat_period": 0.0}
    parameters |= {"saved_pose_file": str(path), "save_pose_rate": -1.0}
    with robot_with_node(world, parameters) as (robot, process):
        manager = LifecycleManager(robot)
        robot.wait_until_heard()
        robot.drive_until_tracking()
        assert not manager.is_formed
        assert process.interrupt(PATIENCE) == 0
    assert not path.exists()


def test_initial_pose_by_service(lost_robot: Robot) -> None:
    lost_robot.move()
    covariance = np.diag([0.3**2, 0.3**2, 0.1**2])
    message = pose_with_covariance("map", lost_robot.stamp_ns, lost_robot.pose, covariance)
    lost_robot.call(SetInitialPose, "set_initial_pose", SetInitialPose.Request(pose=message))
    lost_robot.move()
    assert lost_robot.transform_comes()
    assert lost_robot.error(lost_robot.frame()) < 0.5


def test_initial_pose_given_while_inactive_is_kept(
    managed: tuple[Robot, NodeProcess, LifecycleManager],
) -> None:
    robot, process, _ = managed
    assert robot.transition("configure")
    robot.metres = 4.0
    robot.wait_for(lambda: robot.initialpose.get_subscription_count())
    robot.give_pose(robot.pose)
    assert robot.wait_for(lambda: "starting from the given pose" in process.log())
    assert robot.transition("activate")
    robot.wait_until_heard()
    answer = robot.frame()
    assert robot.error(answer) < 0.5
    assert robot.transform_comes()


def test_wrong_initial_pose_is_not_confidently_wrong(lost_robot: Robot) -> None:
    """The first pose that it tracks from is the right one, not the one that was given."""
    robot = lost_robot
    robot.move()
    half_a_round = 0.5 * np.pi * (0.5 * robot.world.width + 0.5 * robot.world.length - 3.0)
    robot.give_pose(robot.world.route(robot.metres + half_a_round), sigma=0.3)
    for _ in range(60):
        answer = robot.frame()
        assert answer is not None
        if robot.state_at(robot.stamp_ns) == "tracking":
            break
    assert robot.error(answer) < 0.5


def test_particle_cloud_holds_the_belief_with_weights_that_add_up_to_one(robot: Robot) -> None:
    clouds: list[ParticleCloud] = []
    robot.node.create_subscription(ParticleCloud, "particle_cloud", clouds.append, BEST_EFFORT)
    assert robot.wait_for(lambda: robot.frame() and clouds)
    particles = clouds[-1].particles
    assert sum(particle.weight for particle in particles) == pytest.approx(1.0)
    assert all(particle.weight > 0.0 for particle in particles)
    nearest = min(np.hypot(*(planar_pose(item.pose)[:2] - robot.pose[:2])) for item in particles)
    assert nearest < 0.5
