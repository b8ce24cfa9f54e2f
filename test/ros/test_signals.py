"""SIGINT and SIGTERM at any moment and in every state: a clean end, soon.

`make test` tries a few moments, `make soak` 200 (KBF_SIGNAL_TRIALS), and it says how
long the node took.
"""

import os
import random
import signal
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.ros.node_process import NodeProcess
from test.ros.robot import Robot
from test.ros.world import World

TRIALS = int(os.environ.get("KBF_SIGNAL_TRIALS", "8"))
PATIENCE = 60.0
STATES = ("starting", "unconfigured", "active", "driving")


def seconds_until(node: NodeProcess, said: str) -> float:
    started = time.monotonic()
    while said not in node.log():
        assert node.exit_code is None, node.log()
        assert time.monotonic() - started < PATIENCE, node.log()
        time.sleep(0.01)
    return time.monotonic() - started


def bring_to(state: str, node: NodeProcess, robot: Robot, moment: float) -> None:
    """The moment is when a start is interrupted; in the other states, a random bit of waiting."""
    if state == "starting":
        time.sleep(moment)
    elif state == "unconfigured":
        assert robot.wait_for_lifecycle_state("unconfigured")
    else:
        seconds_until(node, "poses; method")
        if state == "driving":
            robot.status = None
            robot.wait_until_heard()
            robot.frame()
        time.sleep(0.05 * moment)


@pytest.mark.timeout(120 + 60 * TRIALS)
def test_a_signal_at_any_moment_ends_the_node_cleanly(
    world: World, map_file: Path, request: pytest.FixtureRequest
) -> None:
    with NodeProcess({"map": str(map_file)}, namespace="/measured") as node:
        whole_start = seconds_until(node, "poses; method")
    draw = random.Random(0)
    robot = Robot(world, "/signalled")
    took = defaultdict(list)
    try:
        for trial in range(TRIALS):
            number = draw.choice((signal.SIGINT, signal.SIGTERM))
            state = STATES[0] if trial % 2 == 0 else STATES[1 + trial // 2 % 3]
            # Python itself needs some of the time until it can heed a signal.
            moment = draw.uniform(0.3, 1.1) * whole_start
            parameters = {"map": str(map_file), "autostart": state != "unconfigured"}
            with NodeProcess(parameters, namespace="/signalled") as node:
                bring_to(state, node, robot, moment)
                sent = time.monotonic()
                os.kill(node.pid, number)
                code = node.wait(PATIENCE)
                took[state].append(time.monotonic() - sent)
                said = node.log()
            told = f"trial {trial}, {number.name} while {state}, {moment:.2f} s: {code}\n{said}"
            assert code == 0, told
            assert "Traceback" not in said, told
    finally:
        robot.close()
    for state, seconds in took.items():
        request.config.get_terminal_writer().line(
            f"{state}: {len(seconds)} signals, exit code 0 after {np.median(seconds):.2f} s "
            f"(median), {max(seconds):.2f} s (longest)"
        )


def test_a_second_signal_ends_a_node_at_once(map_file: Path) -> None:
    with NodeProcess({"map": str(map_file)}, namespace="/twice") as node:
        seconds_until(node, "poses; method")
        os.kill(node.pid, signal.SIGTERM)
        os.kill(node.pid, signal.SIGINT)
        assert node.wait(PATIENCE) in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
