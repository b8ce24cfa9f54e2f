"""SIGINT and SIGTERM at any moment of the node's start: a clean end, soon."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from kbf_localization.ros.node_process import NodeProcess

TRIALS = int(os.environ.get("KBF_SIGNAL_TRIALS", "8"))
PATIENCE = 30.0


def seconds_until(node: NodeProcess, said: str) -> float:
    started = time.monotonic()
    while said not in node.log():
        assert node.exit_code is None, node.log()
        assert time.monotonic() - started < PATIENCE, node.log()
        time.sleep(0.01)
    return time.monotonic() - started


@pytest.mark.timeout(60 + 40 * TRIALS)
def test_a_signal_at_any_moment_of_the_start_ends_the_node_cleanly(map_file: Path) -> None:
    with NodeProcess({"map": str(map_file)}, namespace="/measured") as node:
        whole_start = seconds_until(node, "poses; method")
    draw = random.Random(0)
    for trial in range(TRIALS):
        number = draw.choice((signal.SIGINT, signal.SIGTERM))
        # Python itself needs some of the time until it can heed a signal.
        moment = draw.uniform(0.3, 1.1) * whole_start
        with NodeProcess({"map": str(map_file)}, namespace="/signalled") as node:
            time.sleep(moment)
            os.kill(node.pid, number)
            code = node.wait(PATIENCE)
            said = node.log()
        assert code == 0, f"trial {trial}, {number.name} after {moment:.2f} s: {code}\n{said}"
        assert "Traceback" not in said, said


def test_a_second_signal_ends_a_node_at_once(map_file: Path) -> None:
    with NodeProcess({"map": str(map_file)}, namespace="/twice") as node:
        seconds_until(node, "poses; method")
        os.kill(node.pid, signal.SIGTERM)
        os.kill(node.pid, signal.SIGINT)
        assert node.wait(PATIENCE) in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
