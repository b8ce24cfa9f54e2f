"""A bond that breaks: with Nav2's lifecycle manager, as its own nodes would take it."""

import time
from pathlib import Path

from bond.msg import Status

from test.faults.survival import Survival
from test.ros.lifecycle_manager import LifecycleManager
from test.ros.robot import robot_with_node
from test.ros.world import World


def test_a_stranger_a_silent_manager_and_one_that_ends_the_bond(
    world: World, map_file: Path
) -> None:
    """The manager takes nodes down by transitions, not by the bond: the node goes on."""
    with robot_with_node(world, {"map": str(map_file), "autostart": False}) as (robot, process):
        manager = LifecycleManager(robot)
        assert manager.start_up()
        assert robot.wait_for(lambda: "bond with the lifecycle manager formed" in process.log())
        robot.wait_until_heard()
        survival = Survival(robot, process)
        stranger = robot.node.create_publisher(Status, "bond", 5)
        status = Status(id="localizer", instance_id="stranger", active=False)

        def is_named() -> bool:
            stranger.publish(status)
            time.sleep(0.1)
            return "a third party uses the bond" in process.log()

        assert robot.wait_for(is_named)
        beats = len(manager.statuses)
        assert robot.wait_for(lambda: len(manager.statuses) > beats + 10)
        assert all(beat.active for beat in manager.statuses)
        manager.fall_silent()
        survival.check(frames=3)
        manager.resume()
        manager.break_bond()
        assert robot.wait_for(lambda: "the lifecycle manager has ended the bond" in process.log())
        survival.check(frames=3)
        assert robot.lifecycle_state() == "active"
