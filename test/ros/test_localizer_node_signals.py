"""A signal at any moment and in every state: a clean end; and a second one is the end.

`make test` tries each state once, `make soak` 200 moments (KBF_SIGNAL_TRIALS), all of nodes
that are started from nothing, and says how long the node took.
"""

import os
import random
import re
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from lifecycle_msgs.msg import Transition, TransitionEvent
from lifecycle_msgs.srv import ChangeState

from kbf_localization.ros.localizer_node import ECHO_S
from kbf_localization.ros.node_process import NodeProcess
from test.ros.conftest import starting_from_nothing
from test.ros.hanging_localizer import LOADING
from test.ros.robot import Robot
from test.ros.test_node_soak import cpu_seconds
from test.ros.world import World

STATES = (
    "active", "starting", "configuring", "unconfigured", "inactive", "driving", "deactivating",
    "shutting down",
)  # fmt: skip
BY_HAND = ("unconfigured", "loading", "configuring", "inactive")
"""States in which or before which a node is that does not start by itself."""
TRANSITIONS = {
    "configuring": Transition.TRANSITION_CONFIGURE,
    "deactivating": Transition.TRANSITION_DEACTIVATE,
    "shuttingdown": Transition.TRANSITION_ACTIVE_SHUTDOWN,
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SOAKS = "KBF_SIGNAL_TRIALS" in os.environ
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
            assert robot.wait_for(lambda: heeds_signals(node.pid)), node.log()
            time.sleep(moment * self.whole_start)
            return
        if state in BY_HAND:
            assert robot.wait_for_lifecycle_state("unconfigured"), node.log()
            if state != "unconfigured":
                self._begin("configuring")
            if state == "loading":
                assert robot.wait_for(lambda: "loading\n" in node.log()), node.log()
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
            if state in ("deactivating", "shutting down"):
                self._begin(state.replace(" ", ""))
        time.sleep(0.05 * moment)

    def _begin(self, state: str) -> None:
        """Ask for a transition, and wait until it has begun."""
        robot = self.robot
        client = robot.node.create_client(ChangeState, f"/{robot.node_name}/change_state")
        assert client.wait_for_service(PATIENCE)
        request = ChangeState.Request()
        request.transition.id = TRANSITIONS[state]
        client.call_async(request)
        assert robot.wait_for(lambda: state in self.states), self.states

    def _on_event(self, event: TransitionEvent) -> None:
        self.states.append(event.goal_state.label)


@pytest.fixture
def signalled(world: World) -> Iterator[Signalled]:
    signalled = Signalled(world)
    yield signalled
    signalled.robot.close()


class HangingNode(NodeProcess):
    """A node whose shutdown never ends."""

    program = "test.ros.hanging_localizer"


def node_for(state: str, map_file: Path, kind: type[NodeProcess] = NodeProcess) -> NodeProcess:
    parameters = {"map": str(map_file), "autostart": state not in BY_HAND}
    environment = {LOADING: "1"} if state == "loading" else None
    return kind(parameters, namespace="/signalled", environment=environment)


def tell(node: NodeProcess, *numbers: signal.Signals) -> None:
    """Signals at once: the node is halted, so that all of them wait for it."""
    for number in (signal.SIGSTOP, *numbers, signal.SIGCONT):
        os.kill(node.pid, number)


def heeds_signals(pid: int) -> bool:
    """Whether the process has a handler for the last of the signals that it takes."""
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return bool(int(caught, 16) >> (signal.SIGHUP - 1) & 1)


def cpu_seconds_of_ended() -> float:
    """User and system time of all processes that have ended here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.timeout(120 + 60 * TRIALS)
def test_a_signal_at_any_moment_ends_the_node_cleanly(
    signalled: Signalled, map_file: Path, request: pytest.FixtureRequest
) -> None:
    draw, took = random.Random(0), defaultdict(list)
    for trial in range(TRIALS):
        number = draw.choice(SIGNALS)
        state, moment = STATES[trial % len(STATES)], draw.random()
        with ExitStack() as stack:
            if SOAKS or state == "starting":
                stack.enter_context(starting_from_nothing())
            node = stack.enter_context(node_for(state, map_file))
            signalled.bring(node, state, moment)
            sent, used = time.monotonic(), cpu_seconds_of_ended() + cpu_seconds(node.pid)
            # Half of them twice, as systemd and launch do.
            tell(node, *(number, draw.choice(SIGNALS))[: draw.choice((1, 2))])
            code = node.wait(PATIENCE)
            took[state].append((time.monotonic() - sent, cpu_seconds_of_ended() - used))
            said = node.log()
        message = f"trial {trial}, {number.name} while {state}, moment {moment:.2f}: {code}\n{said}"
        assert code == 0, message
        assert "Traceback" not in said, message
    for state, trials in took.items() if SOAKS else ():
        wall, cpu = np.array(trials).T
        request.config.get_terminal_writer().line(
            f"{state}: {len(wall)} signals, exit code 0 after {np.median(wall):.2f} s (median), "
            f"{wall.max():.2f} s (longest); {np.median(cpu):.2f} s and {cpu.max():.2f} s of CPU"
        )


@pytest.mark.parametrize("state", ["loading", "inactive", "driving", "shutting down"])
def test_a_second_signal_ends_a_node_whose_shutdown_hangs(
    signalled: Signalled, map_file: Path, state: str
) -> None:
    """The first signal sent twice is no second: the shutdown is begun, and not cut short."""
    with node_for(state, map_file, HangingNode) as node:
        signalled.bring(node, state, 0.0)
        tell(node, signal.SIGINT, signal.SIGTERM)
        assert signalled.robot.wait_for(lambda: "ending\n" in node.log()), node.log()
        time.sleep(1.5 * ECHO_S)
        assert node.exit_code is None, node.log()
        number = SIGNALS[len(state) % len(SIGNALS)]
        os.kill(node.pid, number)
        code, said = node.wait(PATIENCE), node.log()
    assert code == 128 + number, said
    assert "Traceback" not in said, said
