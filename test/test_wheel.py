"""The sdist makes a wheel, and that gives library and `kbf` in an otherwise empty environment."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from test.test_colcon import LEFT_OUT

PROJECT = Path(__file__).resolve().parents[1]
# Of the environment that runs the tests nothing may reach the empty one.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("LD_LIBRARY_PATH", "AMENT_PREFIX_PATH", "VIRTUAL_ENV")
    and not name.startswith(("PYTHON", "_ROS_WHEELS"))
}

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=CLEAN, capture_output=True, text=True)


def succeed(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, so that the sdist has all that it takes."""
    folder = tmp_path_factory.mktemp("build")
    source = shutil.copytree(PROJECT, folder / "source", ignore=LEFT_OUT)
    build = "from setuptools import build_meta; build_meta.build_sdist('..')"
    succeed(sys.executable, "-c", build, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    succeed(*pip, sdist, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of an environment that has the wheel and what it asks for alone.

    That is linked from the environment of the tests, so that no package index is needed.
    """
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder / "environment")
    programs = folder / "environment" / "bin"
    (packages,) = folder.glob("environment/lib/python*/site-packages")
    for path in files_of(required_by(wheel)):
        (packages / path.name).symlink_to(path)
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "install", "--no-compile")
    succeed(*pip, "--no-deps", wheel, cwd=folder)
    succeed(sys.executable, "-m", "pip", "--python", programs / "python", "check", cwd=folder)
    return programs


def required_by(wheel: Path) -> list[str]:
    """The names of the wheel's distributions, without extras, and of all that these need."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
        requires = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    found: list[str] = []
    while requires:
        requirement = Requirement(requires.pop())
        needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if needed and requirement.name not in found:
            found.append(requirement.name)
            requires += distribution(requirement.name).requires or []
    return found


def files_of(names: list[str]) -> set[Path]:
    """The files and folders of these distributions, at the top of where packages are installed."""
    return {
        Path(str(item.locate_file(path.parts[0])))
        for item in map(distribution, names)
        for path in item.files or ()
        if path.parts[0] not in ("..", "__pycache__")
    }


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and all(word in lines[0] for word in words), done.stderr


def test_wheel_has_the_pages_and_the_mark_of_a_typed_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    pages = PROJECT.joinpath("kbf_localization").rglob("*.html")
    wanted = {str(page.relative_to(PROJECT)) for page in pages} | {"kbf_localization/py.typed"}
    assert wanted <= set(names), wanted - set(names)
    assert not any(name.startswith("test/") for name in names)


def test_version_is_that_of_the_citation(installed: Path, tmp_path: Path) -> None:
    citation = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    (version,) = re.findall(r"^version: (.*)$", citation, re.M)
    assert succeed(installed / "kbf", "--version", cwd=tmp_path).split()[-1] == version


def test_drive_becomes_a_map_and_is_evaluated_without_ros(installed: Path, tmp_path: Path) -> None:
    kbf = installed / "kbf"
    succeed(kbf, "simulate", "drives", "--runs", "2", "--frames", "12", "--size", "160x120",
            "--jobs", "1", cwd=tmp_path)  # fmt: skip
    drives = sorted(str(path) for path in (tmp_path / "drives").iterdir() if path.is_dir())
    build = (
        "map",
        "build",
        drives[0],
        "--output",
        "office.kbfmap",
        "--poses",
        "8",
        "--vocabulary-size",
        "8",
    )
    succeed(kbf, *build, "--jobs", "1", cwd=tmp_path)
    succeed(kbf, "evaluate", drives[1], "--map", "office.kbfmap", "--output", "out", cwd=tmp_path)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["methods"]["kbf"]["frames"] == 12


def test_what_needs_more_says_so_in_one_line(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "drive.mcap").touch()
    kbf = installed / "kbf"
    bags = "pip install 'kbf_localization[bags]'"
    assert_one_line(run(kbf, "convert", tmp_path, "bag", cwd=tmp_path), bags)
    assert_one_line(run(kbf, "map", "build", "drive.mcap", "--output", "m", cwd=tmp_path), bags)
    assert_one_line(run(kbf, "replay", "drive.mcap", "--map", "m", cwd=tmp_path), bags)
    assert_one_line(run(kbf, "demo", "--output", "demo", cwd=tmp_path), "ROS 2", "source")
    assert_one_line(run(installed / "localizer", cwd=tmp_path), "ROS 2", "source")
