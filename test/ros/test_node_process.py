"""The node's process: what it imports, and when it ends."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rclpy
from rclpy.context import Context

from kbf_localization.child_process import python_command
from kbf_localization.ros.node_process import NodeProcess
from test.ros.robot import PATIENCE
from test.test_parallel import running, wait_until_gone


def test_two_nodes_of_one_name_are_warned_of_by_both(map_file: Path) -> None:
    parameters = {"map": str(map_file)}
    with (
        NodeProcess(parameters, namespace="/twins") as first,
        NodeProcess(parameters, namespace="/twins") as second,
    ):
        end = time.monotonic() + PATIENCE
        while not all(
            "2 nodes are called /twins/localizer" in node.log() for node in (first, second)
        ):
            assert time.monotonic() < end, first.log() + second.log()
            time.sleep(0.05)


FOR_AN_HOUR = """<profiles xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles">
  <participant profile_name="for an hour" is_default_profile="true"><rtps><builtin>
    <discovery_config><leaseDuration><sec>3600</sec></leaseDuration></discovery_config>
  </builtin></rtps></participant>
</profiles>"""
"""So long Fast DDS takes a node for alive that ends without a word; 20 s by default."""


def test_a_node_that_ends_leaves_the_graph(
    map_file: Path, tmp_path: Path, context: Context
) -> None:
    profile = tmp_path / "profile.xml"
    profile.write_text(FOR_AN_HOUR)
    onlooker = rclpy.create_node("onlooker", context=context)

    def wait_until(seen: bool) -> None:
        end = time.monotonic() + PATIENCE
        while (("localizer", "/leaving") in onlooker.get_node_names_and_namespaces()) != seen:
            assert time.monotonic() < end
            time.sleep(0.05)

    environment = {"FASTRTPS_DEFAULT_PROFILES_FILE": str(profile)}
    parameters = {"map": str(map_file)}
    with NodeProcess(parameters, namespace="/leaving", environment=environment) as node:
        wait_until(True)
        assert node.interrupt(PATIENCE) == 0
    wait_until(False)
    onlooker.destroy_node()


@pytest.mark.usefixtures("cold_nodes")
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


def test_arguments_that_are_none_are_one_line() -> None:
    with NodeProcess({}, namespace="no name") as node:
        assert node.wait(PATIENCE) == 2, node.log()
        assert "localizer: failed to initialize rcl: Couldn't parse remap rule" in node.log()
        assert "Traceback" not in node.log()


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


def start_node(*words: str, limit: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *python_command(
                "from kbf_localization.ros.localizer_node import main; sys.exit(main())"
            ),
            "--ros-args",
            *words,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )


@pytest.mark.parametrize("megabytes", [600, 1000])
def test_too_little_address_space_is_one_line(map_file: Path, megabytes: int) -> None:
    node = start_node("-p", f"map:={map_file}", limit=megabytes * 10**6)
    said, _ = node.communicate(timeout=PATIENCE)
    assert node.returncode == 2
    (line,) = said.splitlines()
    assert f"limited to {megabytes} MB" in line


def test_a_pipe_as_parameter_file_is_one_line(tmp_path: Path) -> None:
    """rcl would wait for whoever writes into it."""
    os.mkfifo(tmp_path / "pipe.yaml")
    node = start_node("--params-file", str(tmp_path / "pipe.yaml"))
    said, _ = node.communicate(timeout=PATIENCE)
    assert node.returncode == 2
    assert said == f"localizer: --params-file {tmp_path / 'pipe.yaml'}: is not a regular file\n"


def test_a_parameter_file_that_keeps_rcls_parser_busy_is_one_line(tmp_path: Path) -> None:
    """It takes minutes for these hundred kilobytes, and hears no signal meanwhile."""
    file = tmp_path / "deep.yaml"
    file.write_text("/**:\n  ros__parameters:\n    map: " + "[" * 100_000)
    node = start_node("--params-file", str(file))
    said, _ = node.communicate(timeout=PATIENCE)
    assert node.returncode == 2
    assert said == f"localizer: {file}: is nested deeper than 50 levels\n"
