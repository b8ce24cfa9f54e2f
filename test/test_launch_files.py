"""Every launch file names only what exists: executables, files, parameters, topics, arguments."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = "kbf_localization"
LAUNCH_FILES = sorted((PROJECT / "launch").glob("*.launch.xml"))
HAS_LAUNCH = all(importlib.util.find_spec(name) for name in ("launch_ros", "launch_xml"))

needs_launch = pytest.mark.skipif(
    not HAS_LAUNCH, reason="launch comes with a ROS installation, not from PyPI"
)

every_launch_file = pytest.mark.parametrize(
    "path", LAUNCH_FILES, ids=[path.name for path in LAUNCH_FILES]
)


def executables() -> set[str]:
    scripts = re.findall(r'f"(\w+) = \{NAME\}\.([\w.]+):(\w+)"', (PROJECT / "setup.py").read_text())
    for _, module, function in scripts:
        source = (PROJECT / PACKAGE / f"{module.replace('.', '/')}.py").read_text()
        assert f"def {function}(" in source
    return {name for name, _, _ in scripts}


def parameters_in(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    (node,) = content.values()
    parameters = node["ros__parameters"]
    assert isinstance(parameters, dict)
    return parameters


def node_elements(path: Path) -> list[ElementTree.Element]:
    nodes = ElementTree.parse(path).getroot().iter("node")
    return [node for node in nodes if node.get("pkg") == PACKAGE]


def is_declaration(element: ElementTree.Element) -> bool:
    """An `arg` with a value hands it to an included file instead."""
    return element.tag == "arg" and element.get("value") is None


def texts(path: Path) -> list[str]:
    """All attribute values, where substitutions such as $(var map) stand."""
    return [
        text
        for element in ElementTree.parse(path).getroot().iter()
        for text in element.attrib.values()
    ]


def test_there_are_launch_files() -> None:
    names = {path.name.removesuffix(".launch.xml") for path in LAUNCH_FILES}
    assert names >= {"localization", "nav2_localization", "replay"}


@every_launch_file
def test_executables_exist(path: Path) -> None:
    names = {node.get("exec") for node in node_elements(path)}
    assert names <= executables()


@every_launch_file
def test_files_of_the_package_exist_and_are_installed(path: Path) -> None:
    installed = re.findall(r'files\("(\w+)"\)', (PROJECT / "setup.py").read_text())
    pattern = rf"\$\(find-pkg-share {PACKAGE}\)/([\w./-]+)"
    for name in (name for text in texts(path) for name in re.findall(pattern, text)):
        assert (PROJECT / name).is_file(), name
        assert name.split("/")[0] in installed, f"setup.py does not install {name}"


@every_launch_file
def test_parameters_exist_and_literal_values_have_their_type(path: Path) -> None:
    known = {**parameters_in(PROJECT / "config" / "localization.yaml"), "use_sim_time": False}
    for node in node_elements(path):
        if node.get("exec") != "localizer":
            continue
        for parameter in node.iter("param"):
            name = parameter.get("name")
            if name is None:
                continue
            assert name in known, name
            value = parameter.get("value", "")
            if "$(" not in value:
                assert type(yaml.safe_load(value)) is type(known[name]), name


@every_launch_file
def test_remapped_topics_exist_in_the_node(path: Path) -> None:
    """The reference of the node is made from a running node, see `test_node_reference`."""
    reference = (PROJECT / "docs" / "node.md").read_text(encoding="utf-8")
    topics = set(re.findall(r"^\| `([\w/]+)` \|", reference, re.M))
    for node in node_elements(path):
        for remap in node.iter("remap"):
            assert remap.get("from") in topics


@every_launch_file
def test_arguments_are_described_declared_before_use_and_used(path: Path) -> None:
    declared: set[str] = set()
    used: set[str] = set()
    for element in ElementTree.parse(path).getroot().iter():
        for text in element.attrib.values():
            names = set(re.findall(r"\$\(var ([\w.]+)\)", text))
            assert names <= declared, names - declared
            used |= names
        if element.tag == "let" or is_declaration(element):
            declared.add(str(element.get("name")))
        if is_declaration(element):
            assert element.get("description"), element.get("name")
    assert declared <= used, declared - used


def test_known_arguments_is_given_what_it_reads() -> None:
    source = (PROJECT / "launch" / "known_arguments.py").read_text(encoding="utf-8")
    assert 'launch_configurations["launch_file"]' in source


@every_launch_file
def test_included_files_have_the_arguments_that_they_are_given(path: Path) -> None:
    for include in ElementTree.parse(path).getroot().iter("include"):
        if not str(include.get("file")).endswith(".launch.xml"):
            continue
        included = PROJECT / "launch" / Path(str(include.get("file"))).name
        declared = {
            arg.get("name")
            for arg in ElementTree.parse(included).getroot().iter("arg")
            if is_declaration(arg)
        }
        assert {arg.get("name") for arg in include.iter("arg")} <= declared


@every_launch_file
def test_conditions_stand_on_arguments_that_are_true_or_false(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    defaults = {arg.get("name"): arg.get("default") for arg in root.iter("arg")}
    for element in root.iter():
        for attribute in ("if", "unless"):
            condition = element.get(attribute, "")
            for name in re.findall(r"^\$\(var ([\w.]+)\)$", condition):
                assert defaults.get(name) in ("true", "false"), name


@every_launch_file
def test_command_line_is_checked_for_arguments_that_the_file_does_not_have(path: Path) -> None:
    includes = list(ElementTree.parse(path).getroot().iter("include"))
    (check,) = [
        include for include in includes if str(include.get("file")).endswith("known_arguments.py")
    ]
    (argument,) = check
    assert str(argument.get("value")).endswith(f"/launch/{path.name}")


def test_localization_connects_to_a_robots_topics_frames_and_namespace() -> None:
    """What `ros2 launch` is given reaches the node: as a remapping or as a parameter."""
    root = ElementTree.parse(PROJECT / "launch" / "localization.launch.xml").getroot()
    (node,) = [item for item in root.iter("node") if item.get("pkg") == PACKAGE]
    lets = {let.get("name"): str(let.get("value")) for let in root.iter("let")}
    remaps = {remap.get("from"): str(remap.get("to")) for remap in node.iter("remap")}
    assert remaps["odom"] == "$(var odom_topic)"
    for topic in ("image", "image/compressed"):
        (name,) = re.findall(r"\$\(var (\w+)\)", remaps[topic])
        assert "$(var image_topic)" in lets[name]
        assert f"'{topic}" in lets[name]
    assert (remaps["/tf"], remaps["/tf_static"]) == ("tf", "tf_static")
    parameters = {item.get("name"): item.get("value") for item in root.iter("set_parameter")}
    names = (
        "image_transport",
        "camera_info_topic",
        "autostart",
        "base_frame_id",
        "odom_frame_id",
        "global_frame_id",
    )
    assert parameters == {name: f"$(var {name})" for name in names}


def test_rviz_comes_first_so_that_its_absence_leaves_nothing_running() -> None:
    root = ElementTree.parse(PROJECT / "launch" / "localization.launch.xml").getroot()
    assert [node.get("pkg") for node in root.iter("node")] == ["rviz2", PACKAGE]


def test_rviz_has_an_image_display_for_either_transport() -> None:
    """RViz takes the transport from the display's topic before it is remapped."""
    displays = yaml.safe_load((PROJECT / "rviz" / "localization.rviz").read_text())
    topics = {
        display["Topic"]["Value"]
        for display in displays["Visualization Manager"]["Displays"]
        if display["Class"] == "rviz_default_plugins/Image"
    }
    root = ElementTree.parse(PROJECT / "launch" / "localization.launch.xml").getroot()
    (rviz,) = [node for node in root.iter("node") if node.get("pkg") == "rviz2"]
    assert topics == {"image", "image/compressed"}
    assert topics <= {remap.get("from") for remap in rviz.iter("remap")}


@pytest.mark.ros
@pytest.mark.slow
@needs_launch
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {"image": "image", "image/compressed": "image/compressed"}),
        (
            {"image_topic": "/front/image", "image_transport": "raw"},
            {"image": "/front/image", "image/compressed": "image/compressed"},
        ),
        (
            {"image_topic": "/front/compressed"},
            {"image": "image", "image/compressed": "/front/compressed"},
        ),
    ],
    ids=["defaults", "raw", "compressed"],
)
def test_launched_rviz_shows_the_images_of_the_transport(
    installed_prefix: Path, arguments: dict[str, str], expected: dict[str, str]
) -> None:
    """In RViz's place a program that writes down how it was called."""
    called = installed_prefix / "called.txt"
    program = installed_prefix / "lib" / "rviz2" / "rviz2"
    program.parent.mkdir(parents=True)
    (installed_prefix / "share/ament_index/resource_index/packages/rviz2").touch()
    program.write_text(f'#!/bin/sh\necho "$@" > {called}\n')
    program.chmod(0o755)
    path = installed_prefix / "share" / PACKAGE / "launch" / "localization.launch.xml"
    with launched(path, map="/nonexistent", rviz="true", **arguments) as log:
        parameters_of("/localizer", ["image_transport"])
        end = time.monotonic() + 60.0
        while not called.exists() or not called.read_text():
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
    rules = dict(word.split(":=") for word in called.read_text().split() if ":=" in word)
    assert {topic: rules[topic] for topic in expected} == expected


@pytest.fixture
def installed_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ament prefix that has the package as colcon would install it."""
    share = tmp_path / "share" / PACKAGE
    index = tmp_path / "share" / "ament_index" / "resource_index" / "packages"
    programs = tmp_path / "lib" / PACKAGE
    for folder in (share, index, programs):
        folder.mkdir(parents=True)
    (index / PACKAGE).touch()
    for name in ("launch", "config", "rviz"):
        shutil.copytree(PROJECT / name, share / name)
    shutil.copy(PROJECT / "package.xml", share)
    for name, module in (("localizer", "ros.localizer_node"), ("kbf", "cli.main")):
        program = programs / name
        program.write_text(f"#!{sys.executable}\nfrom {PACKAGE}.{module} import main\nmain()\n")
        program.chmod(0o755)
    prefixes = [str(tmp_path), *filter(None, [os.environ.get("AMENT_PREFIX_PATH")])]
    monkeypatch.setenv("AMENT_PREFIX_PATH", os.pathsep.join(prefixes))
    return tmp_path


@contextmanager
def launched(path: Path, **arguments: str) -> Iterator[Path]:
    """`ros2 launch` of a file with these arguments, in a separate process; its log's path."""
    words = [f"{name}:={value}" for name, value in arguments.items()]
    log = Path(tempfile.mkdtemp()) / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(path), *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        # As a terminal's Ctrl-C, to all: launch does not pass on what its children have heard too.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60.0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


LAUNCH = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import AnyLaunchDescriptionSource

path, *words = sys.argv[1:]
service = LaunchService(argv=words)
arguments = [tuple(word.split(":=", 1)) for word in words]
source = AnyLaunchDescriptionSource(path)
include = IncludeLaunchDescription(source, launch_arguments=arguments)
service.include_launch_description(LaunchDescription([include]))
sys.exit(service.run())
"""


def wait_for_line(log: Path, pattern: str, seconds: float = 60.0) -> str:
    """The log once it has a line like this."""
    end = time.monotonic() + seconds
    while not re.search(pattern, text := log.read_text(errors="replace")):
        assert time.monotonic() < end, text
        time.sleep(0.05)
    return text


NAV2_LAYOUT = """
amcl:
  ros__parameters:
    update_min_d: 0.25
    base_frame_id: "base_footprint"
    odom_frame_id: "yes"
map_server:
  ros__parameters:
    topic_name: "grid"
local_costmap:
  local_costmap:
    ros__parameters:
      inflation: 1e-1
/**:
  ros__parameters:
    transform_tolerance: 0.5
/anna/amcl:
  ros__parameters:
    update_min_a: 0.2
"""
"""Sections as in nav2_bringup's file, a wildcard, and an absolute section."""


def namespaced_params() -> Any:
    spec = importlib.util.spec_from_file_location(
        "namespaced_params", PROJECT / "launch" / "namespaced_params.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_relative_sections_of_a_parameter_file_are_put_under_the_namespace() -> None:
    rewrite = namespaced_params().under_namespace
    before, text = yaml.safe_load(NAV2_LAYOUT), rewrite(NAV2_LAYOUT, "robots/anna")
    after = yaml.safe_load(text)
    assert set(after) == {
        "/robots/anna/amcl",
        "/robots/anna/map_server",
        "/robots/anna/local_costmap",
        "/**",
        "/anna/amcl",
    }
    for section in ("amcl", "map_server", "local_costmap"):
        assert after[f"/robots/anna/{section}"] == before[section]
    assert after["/**"] == before["/**"]
    assert '"yes"' in text, "a quoted text has become a truth value"
    assert yaml.safe_load(rewrite(text, "robots/anna")) == after


@pytest.mark.parametrize("text", ["- amcl", "amcl", "? {a: b}\n: c"])
def test_parameter_file_without_sections_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="section"):
        namespaced_params().under_namespace(text, "anna")


def test_parameter_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nav2.yaml")
    for path in (tmp_path / "nav2.yaml", Path("/dev/zero")):
        context = SimpleNamespace(
            launch_configurations={"params_file": str(path), "namespace": "anna"}
        )
        with pytest.raises(RuntimeError, match="is not a regular file"):
            namespaced_params()._rewrite(context)


@pytest.mark.ros
def test_node_in_a_namespace_takes_its_section_of_a_rewritten_file(tmp_path: Path) -> None:
    """As rcl reads it, which matches sections with nodes."""
    import rclpy

    path = tmp_path / "nav2.yaml"
    path.write_text(namespaced_params().under_namespace(NAV2_LAYOUT, "anna"))
    context = rclpy.Context()
    rclpy.init(args=["--ros-args", "--params-file", str(path)], context=context)
    try:
        for name, expected in (
            ("amcl", {"update_min_d": 0.25, "odom_frame_id": "yes", "update_min_a": 0.2}),
            ("map_server", {"topic_name": "grid"}),
        ):
            node = rclpy.create_node(
                name,
                namespace="/anna",
                context=context,
                automatically_declare_parameters_from_overrides=True,
            )
            expected["transform_tolerance"] = 0.5
            found = {key: node.get_parameter(key).value for key in expected}
            assert found == expected
            node.destroy_node()
    finally:
        context.try_shutdown()


ROBOT = {
    "namespace": "anna",
    "image_topic": "/camera/image/compressed",
    "odom_topic": "/wheels/odom",
    "base_frame_id": "base_link",
    "autostart": "false",
}


@pytest.mark.ros
@pytest.mark.slow
@needs_launch
@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        (ROBOT, "/anna/localizer", {"base_frame_id": "base_link", "autostart": False}),
        ({}, "/localizer", {"base_frame_id": "base_footprint", "autostart": True}),
        ({"amcl_compatible": "true"}, "/amcl", {"autostart": False}),
        ({"image_transport": "raw"}, "/localizer", {"image_transport": "raw"}),
    ],
    ids=["robot", "defaults", "amcl", "raw"],
)
def test_launched_node_has_what_the_arguments_and_the_file_say(
    installed_prefix: Path, arguments: dict[str, str], name: str, expected: dict[str, Any]
) -> None:
    path = installed_prefix / "share" / PACKAGE / "launch" / "localization.launch.xml"
    file = installed_prefix / "parameters.yaml"
    file.write_text("/**: {ros__parameters: {odom_frame_id: wheels, update_min_d: 0.25}}")
    expected = {"odom_frame_id": "wheels", "update_min_d": 0.25, **expected}
    with launched(path, map="/nonexistent", params_file=str(file), **arguments) as log:
        assert parameters_of(name, list(expected)) == expected, log.read_text()


@pytest.mark.ros
@pytest.mark.slow
@needs_launch
@pytest.mark.parametrize("namespace", ["", "anna", "/robots/anna"])
def test_launched_node_takes_nav2s_parameter_file_in_every_namespace(
    installed_prefix: Path, namespace: str
) -> None:
    path = installed_prefix / "share" / PACKAGE / "launch" / "localization.launch.xml"
    file = installed_prefix / "nav2.yaml"
    file.write_text(NAV2_LAYOUT)
    expected = {"update_min_d": 0.25, "odom_frame_id": "yes", "transform_tolerance": 0.5}
    name = f"/{namespace.strip('/')}/amcl".replace("//", "/")
    arguments = {"namespace": namespace, "amcl_compatible": "true"}
    with launched(path, map="/nonexistent", params_file=str(file), **arguments) as log:
        assert parameters_of(name, list(expected)) == expected, log.read_text()


def nav2_bringup_file() -> Path:
    """Nav2's own parameter file, where Nav2 is installed."""
    from ament_index_python import PackageNotFoundError, get_package_share_directory

    try:
        share = Path(get_package_share_directory("nav2_bringup"))
    except PackageNotFoundError:
        pytest.skip("nav2_bringup is not installed")
    return share / "params" / "nav2_params.yaml"


@pytest.mark.ros
@pytest.mark.slow
@needs_launch
@pytest.mark.parametrize("namespace", ["", "r1"])
def test_launched_node_takes_the_amcl_section_of_nav2_bringups_own_file(
    installed_prefix: Path, namespace: str
) -> None:
    path = installed_prefix / "share" / PACKAGE / "launch" / "localization.launch.xml"
    file = nav2_bringup_file()
    theirs = yaml.safe_load(file.read_text(encoding="utf-8"))["amcl"]["ros__parameters"]
    known = parameters_in(PROJECT / "config" / "localization.yaml")
    expected = {name: theirs[name] for name in sorted(theirs.keys() & known.keys())}
    assert expected["update_min_d"] != known["update_min_d"]
    name = f"/{namespace}/amcl".replace("//", "/")
    arguments = {"namespace": namespace, "amcl_compatible": "true", "params_file": str(file)}
    with launched(path, map="/nonexistent", **arguments) as log:
        assert parameters_of(name, list(expected)) == expected, log.read_text()


@pytest.mark.ros
@pytest.mark.slow
@needs_launch
def test_launched_map_server_takes_nav2s_parameter_file_in_a_namespace(
    installed_prefix: Path,
) -> None:
    """In Nav2's place two programs that write down how they were called."""
    called = installed_prefix / "map_server.yaml"
    for package, program in (
        ("nav2_map_server", "map_server"),
        ("nav2_lifecycle_manager", "lifecycle_manager"),
    ):
        folder = installed_prefix / "lib" / package
        folder.mkdir(parents=True)
        (
            installed_prefix / "share" / "ament_index" / "resource_index" / "packages" / package
        ).touch()
        (folder / program).write_text(
            f"#!{sys.executable}\nimport pathlib, sys\n"
            "files = [b for a, b in zip(sys.argv, sys.argv[1:]) if a == '--params-file']\n"
            "text = '\\n---\\n'.join(pathlib.Path(file).read_text() for file in files)\n"
            f"if {program!r} == 'map_server': pathlib.Path({str(called)!r}).write_text(text)\n"
        )
        (folder / program).chmod(0o755)
    path = installed_prefix / "share" / PACKAGE / "launch" / "nav2_localization.launch.xml"
    file = installed_prefix / "nav2.yaml"
    file.write_text(NAV2_LAYOUT)
    given = {"map": "grid.yaml", "kbf_map": "/nonexistent", "params_file": str(file)}
    with launched(path, namespace="anna", **given) as log:
        assert parameters_of("/anna/amcl", ["update_min_d"]) == {"update_min_d": 0.25}
        end = time.monotonic() + 60.0
        while not called.exists() or not called.read_text():
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
    found: dict[str, Any] = {}
    for document in yaml.safe_load_all(called.read_text()):
        found.update(document.get("/anna/map_server", {}).get("ros__parameters", {}))
    assert (found["topic_name"], found["yaml_filename"]) == ("grid", "grid.yaml")


def parameters_of(node_name: str, names: list[str]) -> dict[str, Any]:
    """The values that a running node has."""
    import rclpy
    from rcl_interfaces.srv import GetParameters
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import parameter_value_to_python

    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("asker", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        client = node.create_client(GetParameters, f"{node_name}/get_parameters")
        assert client.wait_for_service(60.0), f"no node {node_name}"
        future = client.call_async(GetParameters.Request(names=names))
        executor.spin_until_future_complete(future, 60.0)
        values = [parameter_value_to_python(value) for value in future.result().values]
        return dict(zip(names, values, strict=True))
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()


@pytest.mark.ros
@pytest.mark.slow
@needs_launch
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"odom_topci": "/odom"}, "has no argument 'odom_topci'; it has: map, "),
        ({"rviz": "true"}, "'rviz2' not found"),
    ],
)
def test_launch_that_cannot_be_starts_nothing(
    installed_prefix: Path, arguments: dict[str, str], message: str
) -> None:
    path = installed_prefix / "share" / PACKAGE / "launch" / "localization.launch.xml"
    if "rviz" in arguments and shutil.which("rviz2"):
        pytest.skip("rviz2 is installed")
    with launched(path, map="/nonexistent", **arguments) as log:
        text = wait_for_line(log, re.escape(message))
    assert "process started" not in text


@pytest.mark.ros
@pytest.mark.slow
@needs_launch
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {"use_sim_time": True, "image_transport": "compressed"}),
        ({"image_transport": "raw", "play_options": "--loop"}, {"image_transport": "raw"}),
    ],
    ids=["defaults", "raw"],
)
def test_launched_replay_plays_the_bag_to_a_node_on_its_clock(
    installed_prefix: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, str],
    expected: dict[str, Any],
) -> None:
    """In the player's place a program that writes down how it was called."""
    called = installed_prefix / "called.txt"
    player = installed_prefix / "bin" / "ros2"
    player.parent.mkdir()
    player.write_text(f'#!/bin/sh\necho "$@" > {called}\n')
    player.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(player.parent), os.environ["PATH"]]))
    path = installed_prefix / "share" / PACKAGE / "launch" / "replay.launch.xml"
    with launched(path, bag="/bags/office", map="/nonexistent", rate="2.0", **arguments) as log:
        assert parameters_of("/localizer", list(expected)) == expected, log.read_text()
        end = time.monotonic() + 60.0
        while not called.exists() or not called.read_text():
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
    words = called.read_text().split()
    assert words[:3] == ["bag", "play", "/bags/office"]
    assert words[words.index("--rate") + 1] == "2.0"
    assert "/clock" in words[words.index("--exclude-topics") :]
    assert ("--loop" in words) == ("play_options" in arguments)
