"""package.xml names everything that the package imports, so that rosdep can install it."""

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
KEYS = {
    "cv2": "python3-opencv",
    "h5py": "python3-h5py",
    "matplotlib": "python3-matplotlib",
    "mpl_toolkits": "python3-matplotlib",
    "numpy": "python3-numpy",
    "PIL": "python3-pil",
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "tornado": "python3-tornado",
    "typer": "python3-typer",
    "yaml": "python3-yaml",
}
OPTIONAL = {"apsw", "av", "distributed", "lz4", "nav2_msgs", "onnx", "onnxruntime", "rosbags"}
"""Imported where they are there: for videos, --dask, a part of AMCL's contract, networks, bags."""


def imported_packages() -> set[str]:
    names: set[str] = set()
    for path in (PROJECT / "kbf_localization").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"kbf_localization"}


def test_every_import_has_its_rosdep_key() -> None:
    root = ElementTree.parse(PROJECT / "package.xml").getroot()
    keys = {element.text for element in root.iter("exec_depend")}
    needed = {KEYS.get(name, name) for name in imported_packages() - OPTIONAL}
    assert needed <= keys, needed - keys


def test_the_manifest_is_one_that_ros_accepts() -> None:
    root = ElementTree.parse(PROJECT / "package.xml").getroot()
    assert root.get("format") == "3"
    assert root.findtext("name") == "kbf_localization"
    assert root.findtext("license") == "Apache-2.0"
    assert root.findtext("export/build_type") == "ament_python"
    assert (PROJECT / "resource" / "kbf_localization").is_file()


def test_the_version_is_the_same_everywhere() -> None:
    base = ElementTree.parse(PROJECT / "package.xml").getroot().findtext("version") or ""
    # As catkin_pkg demands of every package.
    assert re.fullmatch(r"\d+\.\d+\.\d+", base)
    (pre_release,) = re.findall(r'^PRE_RELEASE = "(.*)"$', read("setup.py"), re.M)
    version = f"{base}{pre_release}"
    assert re.findall(r"^version: (.*)$", read("CITATION.cff"), re.M) == [version]
    first = re.search(rf"^{re.escape(base)} \(.*\)\n-+\n", read("CHANGELOG.rst"), re.M)
    assert first is not None
    assert not pre_release or f"Release candidate {version}." in read("CHANGELOG.rst")
    assert importlib.metadata.version("kbf_localization") == version
    sources = [PROJECT / "pyproject.toml", *(PROJECT / "kbf_localization").rglob("*.py")]
    assert [path for path in sources if f'"{base}' in path.read_text("utf-8")] == []


def read(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


@pytest.mark.skipif(not importlib.util.find_spec("rclpy"), reason="needs ROS")
def test_the_node_starts_without_the_packages_that_only_commands_need() -> None:
    """A robot that localizes reads no bags, draws no figures and prints no tables."""
    commands_only = ("rosbags", "typer", "rich", "matplotlib", "PIL")
    block = f"import sys; sys.modules.update(dict.fromkeys({commands_only}))"
    code = f"{block}; import kbf_localization.ros.node"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
