"""Every launch file names only what exists: executables, files, parameters, topics, arguments."""

import importlib.util
import os
import re
import sys
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = "kbf_localization"
LAUNCH_FILES = sorted((PROJECT / "launch").glob("*.launch.xml"))
HAS_LAUNCH = all(importlib.util.find_spec(name) for name in ("launch_ros", "launch_xml"))

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
    assert {path.name for path in LAUNCH_FILES} >= {"localization.launch.xml", "replay.launch.xml"}


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
    sources = "".join(source.read_text() for source in (PROJECT / PACKAGE / "ros").glob("*.py"))
    for node in node_elements(path):
        for remap in node.iter("remap"):
            assert f'"{remap.get("from")}"' in sources, remap.get("from")


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


@every_launch_file
def test_included_files_have_the_arguments_that_they_are_given(path: Path) -> None:
    for include in ElementTree.parse(path).getroot().iter("include"):
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
            for name in re.findall(r"\$\(var ([\w.]+)\)", element.get(attribute, "")):
                assert defaults.get(name) in ("true", "false"), name


@pytest.fixture
def installed_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ament prefix that has the package as colcon would install it."""
    share = tmp_path / "share" / PACKAGE
    index = tmp_path / "share" / "ament_index" / "resource_index" / "packages"
    programs = tmp_path / "lib" / PACKAGE
    for folder in (share, index, programs):
        folder.mkdir(parents=True)
    (index / PACKAGE).touch()
    for name in ("launch", "config", "rviz", "package.xml"):
        (share / name).symlink_to(PROJECT / name)
    for name, module in (("localizer", "ros.localizer_node"), ("kbf", "cli.main")):
        program = programs / name
        program.write_text(f"#!{sys.executable}\nfrom {PACKAGE}.{module} import main\nmain()\n")
        program.chmod(0o755)
    prefixes = [str(tmp_path), *filter(None, [os.environ.get("AMENT_PREFIX_PATH")])]
    monkeypatch.setenv("AMENT_PREFIX_PATH", os.pathsep.join(prefixes))
    return tmp_path


@pytest.mark.ros
@pytest.mark.slow
@pytest.mark.skipif(not HAS_LAUNCH, reason="launch comes with a ROS installation, not from PyPI")
@every_launch_file
def test_runs_and_stops_when_asked(path: Path, installed_prefix: Path) -> None:
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import AnyLaunchDescriptionSource

    required = [
        arg.get("name")
        for arg in ElementTree.parse(path).getroot().iter("arg")
        if is_declaration(arg) and arg.get("default") is None
    ]
    arguments = [(name, "/nonexistent") for name in required]
    include = IncludeLaunchDescription(
        AnyLaunchDescriptionSource(str(path)), launch_arguments=arguments
    )
    service = LaunchService()
    service.include_launch_description(LaunchDescription([include]))
    timer = threading.Timer(5.0, service.shutdown)
    timer.start()
    try:
        assert service.run() == 0
    finally:
        timer.cancel()
