"""The node's process: what it imports, and when it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from kbf_localization.ros.node_process import NodeProcess
from test.test_parallel import running, wait_until_gone


def test_no_module_is_taken_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("numpy", "rclpy", "threading", "kbf_localization", "yaml"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    # A value that the node refuses: it has imported everything by then, and ends by itself.
    with NodeProcess({"image_transport": "pigeon"}) as node:
        assert node.wait(60) == 2, node.log()
    assert not (tmp_path / "imported").exists()


def test_the_node_does_not_outlive_a_parent_that_was_killed(map_file: Path) -> None:
    script = (
        "import sys; from kbf_localization.ros.node_process import NodeProcess\n"
        "with NodeProcess({'map': sys.argv[1]}, namespace='/orphan') as node:\n"
        "    print(node.pid, flush=True)\n"
        "    node.wait(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(map_file)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    node = int(parent.stdout.readline())
    assert running(node)
    parent.kill()
    parent.communicate()
    wait_until_gone({node})
