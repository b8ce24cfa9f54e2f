"""The set-up says in one line what is missing, and begins again after an interruption."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SCRIPT = PROJECT / "tools" / "set_up.py"
GROUPS = ("build", "run", "ros", "dev", "docs", "notebooks", "cmake", "lock")


@pytest.fixture(scope="module")
def set_up() -> ModuleType:
    specification = importlib.util.spec_from_file_location("set_up", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=PROJECT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """`make` adds a line that says which target failed."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode != 0
    assert len(lines) == 1, done.stderr
    assert all(word in lines[0] for word in ("Set-up:", *words)), lines


def test_every_package_is_pinned_to_one_version(set_up: ModuleType) -> None:
    for ubuntu in (False, True):
        pins = [pin for group in GROUPS for pin in set_up.read_pins(group, ubuntu)]
        assert all(
            re.fullmatch(r'[\w.-]+==[\w.]+(; python_version (<|>=) "3.11")?', pin) for pin in pins
        )
        unconditional = [pin.partition("==")[0] for pin in pins if ";" not in pin]
        assert len(set(unconditional)) == len(unconditional)


def test_what_the_package_requires_is_in_the_group_run(set_up: ModuleType) -> None:
    requirements = re.search(
        r"install_requires=\[(.*?)\]", (PROJECT / "setup.py").read_text(), re.S
    )
    assert requirements is not None
    names = {name.lower() for name in re.findall(r'"([\w-]+)>=', requirements.group(1))}
    assert names
    assert names <= {pin.partition("==")[0] for pin in set_up.read_pins("run", False)}


def test_ubuntu_versions_replace_the_newest(set_up: ModuleType) -> None:
    pins = set_up.read_pins("run", True)
    for pin in (
        "numpy==1.26.4",
        "scipy==1.11.4",
        "opencv-python-headless==4.6.0.66",
        "h5py==3.10.0",
    ):
        assert pin in pins
        assert sum(other.startswith(f"{pin.partition('==')[0]}==") for other in pins) == 1


def test_every_pin_has_hashes_and_only_wheels_where_there_are_any(set_up: ModuleType) -> None:
    known = set_up.read_hashes()
    for ubuntu in (False, True):
        pins = [pin for group in GROUPS for pin in set_up.read_pins(group, ubuntu)]
        lines = set_up.pip_requirements(pins).splitlines()
        assert lines[0] == "--only-binary :all:"
        for pin in pins:
            (line,) = [item for item in lines if item.startswith(f"{pin} ")]
            assert re.search(r" --hash=sha256:[0-9a-f]{64}( |$)", line)
            files = known[pin.partition(";")[0]]
            wheels = [name for name, _ in files if name.endswith(".whl")]
            assert wheels in ([name for name, _ in files], [])
            assert bool(wheels) != (f"--no-binary {pin.partition('==')[0]}" in lines)


def test_a_package_other_than_the_known_one_is_refused(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    wheel = shop / "parcel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr(
            "parcel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: parcel\nVersion: 1.0\n"
        )
        content.writestr("parcel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        content.writestr("parcel-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(set_up, "HASHES", tmp_path / "hashes.txt")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    environment = set_up.Environment(tmp_path / "venv")
    environment.folder.mkdir()
    environment.python = Path(sys.executable)

    set_up.HASHES.write_text(f"parcel==1.0\n{digest}  {wheel.name}\n")
    environment.download(["parcel==1.0"])
    assert (environment.wheels / wheel.name).is_file()
    set_up.HASHES.write_text(f"parcel==1.0\n{digest[::-1]}  {wheel.name}\n")
    shutil.rmtree(environment.wheels)
    with pytest.raises(set_up.SetUpError, match="not the one that tools/hashes.txt knows"):
        environment.download(["parcel==1.0"])
    with pytest.raises(set_up.SetUpError, match="no hash for stowaway==2.0.*make lock"):
        environment.download(["stowaway==2.0"])


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.10 && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = run("make", "test", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert_one_line(done, "Python 3.8.10 is too old", "3.10")


def test_a_missing_python_is_named(tmp_path: Path) -> None:
    done = run("make", "test", "PYTHON=no-such-python", f"VENV={tmp_path / 'venv'}")
    assert_one_line(done, "no-such-python", "install Python 3.10")


def test_a_missing_compiler_is_named(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(set_up.SetUpError, match="no compiler 'cc'.*install gcc"):
        set_up.check_machine(ros_wheels=True)
    set_up.check_machine(ros_wheels=False)


def test_a_processor_without_ros_wheels_is_asked_to_source_ros(
    set_up: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_up.platform, "machine", lambda: "aarch64")
    with pytest.raises(set_up.SetUpError, match="aarch64.*source a ROS 2 installation"):
        set_up.check_machine(ros_wheels=True)


def test_ros_counts_as_sourced_where_rclpy_imports_outside_an_environment(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rclpy.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert set_up.ros_is_sourced()
    (tmp_path / "rclpy.py").write_text("raise ImportError('half an installation')")
    assert not set_up.ros_is_sourced()


def test_without_pypi_it_says_so_and_leaves_no_stamp(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_run(environment: Any, ros: str, ubuntu: bool) -> None:
        """One package, by the pip of this environment: unpacking a new pip takes long."""
        environment.folder.mkdir()
        environment.python = Path(sys.executable)
        environment.download(["parcel==1.0"])

    monkeypatch.setattr(set_up, "make_run", make_run)
    monkeypatch.setattr(set_up, "HASHES", tmp_path / "hashes.txt")
    set_up.HASHES.write_text(f"parcel==1.0\n{'0' * 64}  parcel-1.0-py3-none-any.whl\n")
    settings = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull}
    settings |= {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "venv"
    monkeypatch.setattr(sys, "argv", ["set_up.py", str(folder), "run", "--without-ros"])
    with pytest.raises(SystemExit, match="^Set-up: .*is PyPI reachable.*set-up.log") as end:
        set_up.main()
    assert len(str(end.value).splitlines()) == 1
    assert not (folder / "ready-run").exists()


def test_a_half_built_environment_is_made_again_and_a_whole_one_kept(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "venv"
    made: list[str] = []

    def make_run(environment: object, ros: str, ubuntu: bool) -> None:
        made.append("run")
        folder.mkdir(exist_ok=True)
        if len(made) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(set_up, "make_run", make_run)
    monkeypatch.setattr(
        set_up, "add_group", lambda _environment, group, _ubuntu: made.append(group)
    )
    monkeypatch.setattr(sys, "argv", ["set_up.py", str(folder), "dev", "--without-ros"])
    with pytest.raises(SystemExit, match="interrupted; the next run begins again"):
        set_up.main()
    set_up.main()
    set_up.main()
    assert made == ["run", "run", "dev"]


def test_an_environment_without_its_stamp_is_removed_first(
    set_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "venv"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "half").touch()
    monkeypatch.setattr(set_up.venv, "create", lambda path, **options: path.mkdir())
    set_up.Environment(folder).create(system_packages=False)
    assert not (folder / "lib").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_names_its_targets() -> None:
    output = run("make", "help").stdout
    assert all(
        f"make {name}" in output for name in ("demo", "test", "lint", "bench", "soak", "clean")
    )
