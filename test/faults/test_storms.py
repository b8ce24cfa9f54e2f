"""Parameters, transitions and services in storms."""

import random
import time
from pathlib import Path
from typing import Any

from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile
from std_srvs.srv import Empty

from kbf_localization.ros.parameters import PARAMETERS, NodeParameter
from test.faults.survival import Survival
from test.ros.robot import PATIENCE, TRANSITIONS, robot_with_node
from test.ros.world import World

TRANSITIONS_TRIED = 200
PARAMETER_CHANGES = 300
SERVICE_CALLS = 500


def any_value(parameter: NodeParameter, chance: random.Random) -> Any:
    """A value that may be valid, out of range, or of another type."""
    kinds: list[Any] = [
        "nonsense",
        "",
        "пример 地図 🤖",
        "x" * 10**5,
        True,
        0,
        -1,
        0.5,
        1e300,
        float("nan"),
        parameter.default,
    ]
    if parameter.within is not None:
        kinds.append(type(parameter.default)(chance.uniform(*parameter.within)))
    if parameter.choices:
        kinds.append(chance.choice(parameter.choices))
    return chance.choice(kinds)


def test_parameters_changed_at_random_while_driving(survival: Survival) -> None:
    """Each change is accepted or refused with a reason; none loses the belief for good."""
    robot, chance = survival.robot, random.Random(6)
    for number in range(PARAMETER_CHANGES):
        parameter = chance.choice(PARAMETERS)
        result = robot.set_parameter(parameter.name, any_value(parameter, chance))
        assert result.successful or result.reason
        if number % 20 == 0:
            robot.move()
            robot.compressed.publish(robot.image_message())
    for parameter in PARAMETERS:
        if parameter.live:
            assert robot.set_parameter(parameter.name, parameter.default).successful
    survival.check(frames=15)


def test_transitions_in_random_order(world: World, map_file: Path) -> None:
    """Each is answered; afterwards the node can be brought up and localizes."""
    chance = random.Random(7)
    with robot_with_node(world, {"map": str(map_file)}) as (robot, process):
        robot.wait_until_heard()
        done = 0
        for _ in range(TRANSITIONS_TRIED):
            request = ChangeState.Request()
            request.transition.id = chance.choice([*TRANSITIONS.values(), 99, 200])
            answer = robot.call(ChangeState, f"/{robot.node_name}/change_state", request)
            done += answer.success
        assert done > 10
        for name in ("deactivate", "cleanup", "configure", "activate"):
            robot.transition(name)
        assert robot.lifecycle_state() == "active"
        robot.wait_until_heard()
        Survival(robot, process).check()


def test_storm_of_service_calls(survival: Survival) -> None:
    """All are answered while images go on; tracking again within 15 frames."""
    robot = survival.robot
    # Deep enough for all answers: they wait at the client while this test sends on.
    deep = QoSProfile(depth=1000)
    empty = [
        robot.node.create_client(Empty, name, qos_profile=deep)
        for name in ("request_nomotion_update", "reinitialize_global_localization")
    ]
    set_parameters = f"/{robot.node_name}/set_parameters"
    setting = robot.node.create_client(SetParameters, set_parameters, qos_profile=deep)
    for client in (*empty, setting):
        assert client.wait_for_service(PATIENCE)
    change = [Parameter("update_min_d", value=0.0).to_parameter_msg()]
    futures = []
    for number in range(SERVICE_CALLS):
        if number % 3 == 2:
            futures.append(setting.call_async(SetParameters.Request(parameters=change)))
        else:
            futures.append(empty[number % 3].call_async(Empty.Request()))
        if number % 50 == 0:
            robot.move()
            robot.compressed.publish(robot.image_message())
        time.sleep(0.001)
    assert robot.wait_for(lambda: all(future.done() for future in futures))
    survival.check(frames=15)
