"""Imports point downward: which folder may import which, and where ROS may be imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "kbf_localization"

LAYERS = (
    {"__init__", "arrays", "errors", "progress", "geometry", "parallel", "threads"},
    {"embeddings", "vision", "motion"},
    {"datasets"},
    {"training_map", "simulator"},
    {"filters"},
    {"localization"},
    {"evaluation"},
    {"experiments", "benchmarks"},
    {"ros"},
    {"cli"},
)
RANK_OF = {layer: rank for rank, layers in enumerate(LAYERS) for layer in layers}
ROS_MODULES = {
    "ament_index_python", "builtin_interfaces", "cv_bridge", "diagnostic_msgs", "geometry_msgs",
    "launch", "launch_ros", "lifecycle_msgs", "nav_msgs", "rcl_interfaces", "rclpy",
    "rosgraph_msgs", "sensor_msgs", "std_msgs", "std_srvs", "tf2_msgs", "tf2_ros",
    "visualization_msgs",
}  # fmt: skip


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> Iterator[str]:
    """Absolute names of all imports in a file, those inside functions too."""
    package = ("kbf_localization", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            if module == "kbf_localization":
                yield from (f"{module}.{alias.name}" for alias in node.names)
            else:
                yield module


SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_every_folder_of_the_package_has_a_rank() -> None:
    assert {layer_of(path) for path in SOURCES} <= set(RANK_OF)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downward(path: Path) -> None:
    layer = layer_of(path)
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] != "kbf_localization" or len(parts) == 1:
            continue
        imported = parts[1] if parts[1] in RANK_OF else "__init__"
        same = imported == layer or RANK_OF[layer] == RANK_OF[imported] == 0
        assert same or RANK_OF[imported] < RANK_OF[layer], f"{layer} must not import {module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_ros_layer_imports_ros(path: Path) -> None:
    if layer_of(path) == "ros":
        return
    assert not {module.split(".")[0] for module in imported_modules(path)} & ROS_MODULES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_prints(path: Path) -> None:
    if layer_of(path) == "cli":
        return
    calls = (
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    assert "print" not in calls
