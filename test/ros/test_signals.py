"""A signal at any moment and in every state: a clean end; and a second one is the end.

`make test` tries each state once, `make soak` 200 moments (KBF_SIGNAL_TRIALS), and both say how
long the node took.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lifecycle_msgs.msg import TransitionEvent
from lifecycle_msgs.srv import ChangeState

from kbf_localization.ros.localizer_node import ECHO_S
from kbf_localization.ros.node_process import NodeProcess
from test.ros.robot import TRANSITIONS, Robot
from test.ros.world import World

STATES = (
    "active", "starting", "configuring", "unconfigured", "inactive", "driving", "deactivating",
)  # fmt: skip
TRIALS = int(os.environ.get("KBF_SIGNAL_TRIALS", str(len(STATES))))
PATIENCE = 60.0


class Signalled:
    """Brings nodes into a state; the first that is started whole tells how long a start takes."""

    def __init__(self, world: World) -> None:
        self.robot = Robot(world, "/signalled")
        self.states: list[str] = []
        topic = "/signalled/localizer/transition_event"
        self.robot.node.create_subscription(TransitionEvent, topic, self._on_event, 100)
        self.whole_start = 1.0

    def bring(self, node: NodeProcess, state: str, moment: float) -> None:
        """`moment` (0 to 1) is when a start is interrupted; else a random bit of waiting."""
        robot = self.robot
        self.states.clear()
        if state == "starting":
            # Python itself needs some of the time until it can heed a signal.
            time.sleep((0.3 + 0.8 * moment) * self.whole_start)
            return
        if state in ("unconfigured", "configuring", "inactive"):
            assert robot.wait_for_lifecycle_state("unconfigured"), node.log()
            if state != "unconfigured":
                self._begin("configure", "configuring")
            if state == "inactive":
                assert robot.wait_for_lifecycle_state("inactive"), node.log()
        else:
            started = time.monotonic()
            assert robot.wait_for_lifecycle_state("active"), node.log()
            self.whole_start = time.monotonic() - started
            if state == "driving":
                robot.status = None
                robot.wait_until_heard()
                robot.frame()
            if state == "deactivating":
                self._begin("deactivate", "deactivating")
        time.sleep(0.05 * moment)

    def _begin(self, transition: str, state: str) -> None:
        """Ask for a transition, and wait until it has begun."""
        robot = self.robot
        client = robot.node.create_client(ChangeState, f"/{robot.node_name}/change_state")
        assert client.wait_for_service(PATIENCE)
        request = ChangeState.Request()
        request.transition.id = TRANSITIONS[transition]
        client.call_async(request)
        assert robot.wait_for(lambda: state in self.states), self.states

    def _on_event(self, event: TransitionEvent) -> None:
        self.states.append(event.goal_state.label)


@pytest.fixture
def signalled(world: World) -> Iterator[Signalled]:
    one = Signalled(world)
    yield one
    one.robot.close()


def node_for(state: str, map_file: Path) -> NodeProcess:
    by_hand = state in ("unconfigured", "configuring", "inactive")
    return NodeProcess({"map": str(map_file), "autostart": not by_hand}, namespace="/signalled")


@pytest.mark.timeout(120 + 60 * TRIALS)
def test_a_signal_at_any_moment_ends_the_node_cleanly(
    signalled: Signalled, map_file: Path, request: pytest.FixtureRequest
) -> None:
    draw, took = random.Random(0), defaultdict(list)
    for trial in range(TRIALS):
        number = draw.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        state, moment = STATES[trial % len(STATES)], draw.random()
        with node_for(state, map_file) as node:
            signalled.bring(node, state, moment)
            sent = time.monotonic()
            os.kill(node.pid, number)
            code = node.wait(PATIENCE)
            took[state].append(time.monotonic() - sent)
            said = node.log()
        told = f"trial {trial}, {number.name} while {state}, moment {moment:.2f}: {code}\n{said}"
        assert code == 0, told
        assert "Traceback" not in said, told
    for state, seconds in took.items():
        request.config.get_terminal_writer().line(
            f"{state}: {len(seconds)} signals, exit code 0 after {np.median(seconds):.2f} s "
            f"(median), {max(seconds):.2f} s (longest)"
        )


@pytest.mark.timeout(600)
def test_a_signal_that_is_told_twice_at_once_is_one(signalled: Signalled, map_file: Path) -> None:
    """As by systemd and by launch; the node is halted, so that both wait for it."""
    for state in ("unconfigured", "configuring", "inactive", "active", "deactivating"):
        with node_for(state, map_file) as node:
            signalled.bring(node, state, 0.0)
            os.kill(node.pid, signal.SIGSTOP)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
                os.kill(node.pid, number)
            code, said = node.wait(PATIENCE), node.log()
        assert code == 0, f"{state}: {code}\n{said}"
        assert "Traceback" not in said, said


SHUTDOWN_THAT_HANGS = """
import time
from kbf_localization.ros import localizer_node
localizer_node.LONGEST_SHUTDOWN_S = 1000.0
asked = localizer_node.Ending().start()
print("ready", flush=True)
asked.wait()
print("asked", flush=True)
time.sleep(1000.0)
"""


def test_a_second_signal_ends_a_node_whose_shutdown_hangs() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SHUTDOWN_THAT_HANGS], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        time.sleep(1.5 * ECHO_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 128 + signal.SIGINT
