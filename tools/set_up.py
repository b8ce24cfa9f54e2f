"""Make the virtual environment that the Makefile's targets and .ci/run work in.

Usage: python3 tools/set_up.py FOLDER run|dev|docs [--without-ros] [--ubuntu-24.04]

`run` has what kbf_localization imports, `dev` also what tests and lint need, `docs` also what makes
the site. Where ROS 2 is sourced, it is used with the distribution's versions of NumPy and OpenCV,
which it was compiled for; elsewhere ROS 2 comes from PyPI's wheels. A stamp file says what the
environment was made from; one without, left by an interrupted run, is made again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
PROJECT = TOOLS.parent
CONSTRAINTS = TOOLS / "constraints.txt"
HASHES = TOOLS / "hashes.txt"
GROUPS = ("build", "run", "ros", "dev", "docs", "cmake", "lock")
SOURCES = (
    *(CONSTRAINTS, HASHES, Path(__file__), TOOLS / "build_interfaces.py"),
    *(PROJECT / "setup.py", PROJECT / "package.xml"),
)
KINDS = ("run", "dev", "docs")
"""Each has the ones before it."""
DOWNLOADS_AT_ONCE = 6


class SetUpError(Exception):
    """What is missing and what to do about it, in one line."""


def read_pins(group: str, ubuntu: bool) -> list[str]:
    """Return the pins of one group of the constraints file."""
    pins: list[str] = []
    replacing: list[str] = []
    replaced: set[str] = set()
    inside = False
    for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
        heading = re.match(r"# \[(\w+)\]", line)
        if heading:
            inside = heading.group(1) == group
        elif line.startswith("#ubuntu-24.04 "):
            pin = line.split(maxsplit=1)[1]
            replaced.add(pin.partition("==")[0])
            replacing += [pin] if inside else []
        elif inside and line and not line.startswith("#"):
            pins.append(line)
    if not ubuntu:
        return pins
    return [pin for pin in pins if pin.partition("==")[0] not in replaced] + replacing


def all_pins() -> set[str]:
    """Those of all groups, for the newest versions and for Ubuntu's, without their markers."""
    return {
        pin.partition(";")[0].strip()
        for group in GROUPS
        for ubuntu in (False, True)
        for pin in read_pins(group, ubuntu)
    }


def read_hashes() -> dict[str, list[tuple[str, str]]]:
    """For each pin the files that it may be, each with its SHA-256."""
    files: dict[str, list[tuple[str, str]]] = {}
    for line in HASHES.read_text(encoding="utf-8").splitlines():
        if "==" in line and "  " not in line:
            files[line] = []
        elif not line.startswith("#"):
            digest, _, name = line.partition("  ")
            files[next(reversed(files))].append((name, digest))
    return files


def pip_requirements(pins: list[str]) -> str:
    """Return the pins as a requirements file for pip.

    With hashes, and only wheels where there are any.
    """
    known = read_hashes()
    lines = ["--only-binary :all:"]
    for pin in pins:
        files = known.get(pin.partition(";")[0].strip())
        if not files:
            raise SetUpError(f"tools/hashes.txt has no hash for {pin}; run `make lock`")
        if not any(name.endswith(".whl") for name, _ in files):
            lines.insert(1, f"--no-binary {pin.partition('==')[0]}")
        lines.append(" ".join((pin, *(f"--hash=sha256:{digest}" for _, digest in files))))
    return "\n".join(lines) + "\n"


def fingerprint(arguments: list[str]) -> str:
    """Return changes with anything that the environment is made from."""
    digest = hashlib.sha256(repr((arguments, sys.version, str(PROJECT))).encode())
    for path in (*SOURCES, *sorted((TOOLS / "interfaces").rglob("*"))):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Environment:
    """A virtual environment being made; everything that pip says goes into a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.wheels = folder / "wheels"
        self.log = folder / "set-up.log"

    def create(self, system_packages: bool) -> None:
        if self.folder.exists():
            shutil.rmtree(self.folder)
        try:
            venv.create(self.folder, system_site_packages=system_packages, with_pip=True)
        except (subprocess.CalledProcessError, ImportError, SystemExit) as error:
            raise SetUpError(
                f"{sys.executable} cannot make a virtual environment; install its venv module "
                "(Debian, Ubuntu: apt-get install python3-venv)"
            ) from error

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen([str(self.python), *arguments], stdout=log, stderr=log)

    def start_pip(self, *arguments: str) -> subprocess.Popen[bytes]:
        common = ("--disable-pip-version-check", "--no-input", "--retries", "2")
        return self.start("-m", "pip", *common, *arguments)

    def finish(self, process: subprocess.Popen[bytes], doing: str) -> None:
        if process.wait() == 0:
            return
        # The log goes when the next run makes the folder again, so it is kept beside it too.
        log = self.folder.with_name(f"{self.folder.name}-set-up.log")
        shutil.copyfile(self.log, log)
        text = log.read_text(encoding="utf-8", errors="replace")
        if "DO NOT MATCH THE HASHES" in text:
            hint = "a package is not the one that tools/hashes.txt knows, do not use it;"
        elif "NewConnectionError" in text or "No matching distribution" in text:
            hint = "is PyPI reachable from here?"
        else:
            hint = "what to do may stand there;"
        raise SetUpError(f"{doing} failed: {hint} see {log}, then run the same command again")

    def download(self, pins: list[str]) -> None:
        """Several downloads at once: most of their time is waiting for answers."""
        flags = ("--no-deps", "--no-build-isolation", "--dest", str(self.wheels))
        slices = [pins[start::DOWNLOADS_AT_ONCE] for start in range(DOWNLOADS_AT_ONCE)]
        processes = [
            self.start_pip("download", *flags, *self.hashed(part)) for part in slices if part
        ]
        for process in processes:
            process.wait()
        for process in processes:
            self.finish(process, "downloading packages")

    def install(self, *requirements: str) -> None:
        flags = ("--no-deps", "--no-build-isolation", "--no-compile", "--no-index")
        process = self.start_pip("install", *flags, "--find-links", str(self.wheels), *requirements)
        self.finish(process, "installing packages")

    def hashed(self, pins: list[str]) -> tuple[str, ...]:
        """pip's arguments for the pins, whose files must have the hashes that are known."""
        content = pip_requirements(pins)
        path = self.folder / f"requirements-{hashlib.sha256(content.encode()).hexdigest()[:8]}.txt"
        path.write_text(content, encoding="utf-8")
        return ("--require-hashes", "-r", str(path))


def ros_is_sourced() -> bool:
    """Whether rclpy imports outside any virtual environment, whose rclpy would be wheels again."""
    python = getattr(sys, "_base_executable", sys.executable)
    return subprocess.run([python, "-c", "import rclpy"], capture_output=True).returncode == 0


def check_machine(ros_wheels: bool) -> None:
    if not ros_wheels:
        return
    if platform.machine() != "x86_64":
        raise SetUpError(
            f"PyPI has no ROS 2 wheels for {platform.machine()}; source a ROS 2 installation "
            "(. /opt/ros/jazzy/setup.sh) and run the same command again"
        )
    for name, variable, package in (("cc", "CC", "gcc"), ("c++", "CXX", "g++")):
        if shutil.which(os.environ.get(variable, name)) is None:
            raise SetUpError(
                f"no compiler {os.environ.get(variable, name)!r}, which builds messages; install "
                f"{package} (Debian, Ubuntu: apt-get install {package})"
            )


def make_run(environment: Environment, ros: str, ubuntu: bool) -> None:
    """Return the environment that kbf_localization runs in."""
    check_machine(ros == "wheels")
    environment.create(system_packages=ros == "sourced")
    build = environment.hashed(read_pins("build", ubuntu))
    environment.finish(
        environment.start_pip("install", "--no-deps", *build), "installing setuptools"
    )
    pins = read_pins("run", ubuntu)
    if ros == "wheels":
        pins += read_pins("ros", ubuntu)
        if shutil.which("cmake") is None:
            pins += read_pins("cmake", ubuntu)
    environment.download(pins)
    environment.install(*environment.hashed(pins))
    builder = None
    if ros == "wheels":
        builder = environment.start(str(TOOLS / "build_interfaces.py"), str(environment.wheels))
    install_project = ("install", "--no-deps", "--no-build-isolation", "-e", str(PROJECT))
    environment.finish(environment.start_pip(*install_project), "installing kbf_localization")
    if builder is not None:
        environment.finish(builder, "building messages")
        environment.install("tf2_msgs", "bond", "nav2_msgs")


def add_group(environment: Environment, group: str, ubuntu: bool) -> None:
    """Add what tests and lint ("dev") or the site ("docs") need."""
    pins = read_pins(group, ubuntu)
    environment.download(pins)
    environment.install(*environment.hashed(pins))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a virtual environment for the project.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--without-ros", action="store_true")
    parser.add_argument("--ubuntu-24.04", action="store_true", dest="ubuntu")
    arguments = parser.parse_args()

    environment = Environment(arguments.folder.resolve())
    sourced = not arguments.without_ros and ros_is_sourced()
    ros = "none" if arguments.without_ros else "sourced" if sourced else "wheels"
    ubuntu = arguments.ubuntu or ros == "sourced"
    made = False
    try:
        for kind in KINDS[: 1 + KINDS.index(arguments.kind)]:
            stamp = environment.folder / f"ready-{kind}"
            made_from = fingerprint([kind, ros, str(ubuntu)])
            if not stamp.is_file() or stamp.read_text() != made_from:
                print(f"Setting up {arguments.folder} ({kind}, ROS: {ros}) …", flush=True)
                stamp.unlink(missing_ok=True)
                if kind == "run":
                    make_run(environment, ros, ubuntu)
                else:
                    add_group(environment, kind, ubuntu)
                shutil.rmtree(environment.wheels, ignore_errors=True)
                made = True
            stamp.write_text(made_from)
        if made:
            print(f"Ready. To find kbf, type: . {arguments.folder}/bin/activate", flush=True)
    except SetUpError as error:
        sys.exit(f"Set-up: {error}")
    except KeyboardInterrupt:
        sys.exit("Set-up: interrupted; the next run begins again")


if __name__ == "__main__":
    main()
