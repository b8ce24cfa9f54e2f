"""`colcon build` takes the project for an ament_python package and installs all of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
COLCON = Path(sys.executable).with_name("colcon")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COLCON.is_file(), reason=f"no {COLCON}; `make test` installs it"),
]
LEFT_OUT = shutil.ignore_patterns(
    *(".venv*", ".git", "results", "build", "install", "log"),
    # What other tests write while the folder is copied.
    *("*.egg-info", "__pycache__", ".*_cache", ".coverage*"),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    shutil.copytree(PROJECT, folder / "src" / "kbf_localization", ignore=LEFT_OUT)
    return folder


def colcon(workspace: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(COLCON), "--log-base", "log", *arguments],
        cwd=workspace,
        capture_output=True,
        text=True,
        # colcon calls `python3`, which must be the one that has its packages.
        env={**os.environ, "PATH": f"{COLCON.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_colcon_recognizes_one_package_of_the_right_type(workspace: Path) -> None:
    lines = colcon(workspace, "list").splitlines()
    assert [line.split("\t") for line in lines] == [
        ["kbf_localization", "src/kbf_localization", "(ros.ament_python)"]
    ]


def test_colcon_builds_and_installs_everything(workspace: Path) -> None:
    colcon(workspace, "build")
    installed = workspace / "install" / "kbf_localization"
    share = installed / "share" / "kbf_localization"
    for folder in ("launch", "config", "rviz"):
        expected = {path.name for path in (PROJECT / folder).iterdir() if path.is_file()}
        assert {path.name for path in (share / folder).iterdir()} == expected
    assert (share / "package.xml").is_file()
    index = installed / "share" / "ament_index" / "resource_index" / "packages"
    assert (index / "kbf_localization").is_file()

    programs = installed / "lib" / "kbf_localization"
    assert {path.name for path in programs.iterdir()} == {"kbf", "localizer"}
    (site_packages,) = installed.glob("lib/python3*/site-packages")
    pages = {path.name for path in (site_packages / "kbf_localization").rglob("*.html")}
    assert pages == {path.name for path in (PROJECT / "kbf_localization").rglob("*.html")}
    done = subprocess.run(
        [str(programs / "kbf"), "--version"],
        env={**os.environ, "PYTHONPATH": str(site_packages), "PYTHONPYCACHEPREFIX": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("kbf_localization "), done.stderr
