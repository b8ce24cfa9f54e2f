"""Make the virtual environment that the Makefile's targets and .ci/run work in.

Usage: python3 tools/set_up.py FOLDER run|dev|docs|notebooks [--without-ros] [--ubuntu-24.04]

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
import time
import venv
from collections.abc import Callable
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
PROJECT = TOOLS.parent
CONSTRAINTS = TOOLS / "constraints.txt"
HASHES = TOOLS / "hashes.txt"
GROUPS = ("build", "run", "ros", "dev", "docs", "notebooks", "cmake", "lock")
SOURCES = (
    *(CONSTRAINTS, HASHES, Path(__file__), TOOLS / "build_interfaces.py"),
    *(PROJECT / "setup.py", PROJECT / "package.xml"),
)
KINDS = ("run", "dev", "docs", "notebooks")
"""Each has the ones before it."""
STEPS = {"run": 5, "dev": 2, "docs": 2, "notebooks": 2}
"""How many steps each takes; compiling messages, the last of `run`, is for ROS 2 wheels alone."""
DOWNLOADS_AT_ONCE = 6
PROGRESS_PERIOD_S = 5.0


class SetUpError(Exception):
    """What is missing and what to do about it, in one line."""


def read_pins(group: str, ubuntu: bool, *, everywhere: bool = True) -> list[str]:
    """Return the pins of one group of the constraints file; not `everywhere`: for this Python."""
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
    if ubuntu:
        pins = [pin for pin in pins if pin.partition("==")[0] not in replaced] + replacing
    return [pin for pin in pins if everywhere or applies(pin)]


def applies(pin: str) -> bool:
    """Whether a pin is for the Python that runs this; its marker compares with one version."""
    marker = re.search(r'; python_version (<|>=) "3\.(\d+)"$', pin)
    if marker is None:
        return True
    return (sys.version_info < (3, int(marker[2]))) == (marker[1] == "<")


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


class Steps:
    """Says what is being done, as step i of n, and now and then how far it has come."""

    def __init__(self, count: int) -> None:
        self._count, self._number = count, 0

    def begin(self, doing: str) -> None:
        self._number += 1
        self._say(doing)

    def report(self, done: int, total: int, what: str) -> None:
        self._say(f"{done} of {total} {what}")

    def _say(self, text: str) -> None:
        print(f"  [{self._number}/{self._count}] {text}", flush=True)


class Environment:
    """A virtual environment being made; everything that pip says goes into a log."""

    def __init__(self, folder: Path, steps: Steps | None = None) -> None:
        self.folder = folder
        self.steps = steps or Steps(0)
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

    def watch(
        self,
        processes: list[subprocess.Popen[bytes]],
        count: Callable[[], int],
        total: int,
        what: str,
    ) -> None:
        """Wait for the processes; say every few seconds how many of `total` are done."""
        before = count()
        said = 0
        waited = time.monotonic()
        while any(process.poll() is None for process in processes):
            time.sleep(0.1)
            done = min(count() - before, total)
            if time.monotonic() - waited > PROGRESS_PERIOD_S and done > said:
                self.steps.report(done, total, what)
                said, waited = done, time.monotonic()

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
        self.watch(processes, self.downloaded, len(pins), "packages downloaded")
        for process in processes:
            self.finish(process, "downloading packages")

    def install(self, *requirements: str) -> None:
        flags = ("--no-deps", "--no-build-isolation", "--no-compile", "--no-index")
        process = self.start_pip("install", *flags, "--find-links", str(self.wheels), *requirements)
        self.watch([process], self.installed, self.downloaded(), "packages installed")
        self.finish(process, "installing packages")

    def downloaded(self) -> int:
        return len(list(self.wheels.glob("*-*")))

    def installed(self) -> int:
        return len(list(self.folder.glob("lib/python*/site-packages/*.dist-info")))

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
    begin = environment.steps.begin
    begin("making the virtual environment")
    environment.create(system_packages=ros == "sourced")
    build = environment.hashed(read_pins("build", ubuntu, everywhere=False))
    environment.finish(
        environment.start_pip("install", "--no-deps", *build), "installing setuptools"
    )
    pins = read_pins("run", ubuntu, everywhere=False)
    if ros == "wheels":
        pins += read_pins("ros", ubuntu, everywhere=False)
        if shutil.which("cmake") is None:
            pins += read_pins("cmake", ubuntu, everywhere=False)
    begin(f"downloading {len(pins)} packages{' with ROS 2' if ros == 'wheels' else ''}")
    environment.download(pins)
    begin(f"installing {len(pins)} packages")
    environment.install(*environment.hashed(pins))
    builder = None
    begin("installing kbf_localization")
    if ros == "wheels":
        builder = environment.start(str(TOOLS / "build_interfaces.py"), str(environment.wheels))
    install_project = ("install", "--no-deps", "--no-build-isolation", "-e", str(PROJECT))
    environment.finish(environment.start_pip(*install_project), "installing kbf_localization")
    if builder is not None:
        begin("compiling the ROS messages tf2_msgs, bond and nav2_msgs")
        environment.finish(builder, "building messages")
        environment.install("tf2_msgs", "bond", "nav2_msgs")


def add_group(environment: Environment, group: str, ubuntu: bool) -> None:
    """Add what tests and lint ("dev"), the site ("docs") or Jupyter ("notebooks") need."""
    pins = read_pins(group, ubuntu, everywhere=False)
    environment.steps.begin(f"downloading {len(pins)} packages for '{group}'")
    environment.download(pins)
    environment.steps.begin(f"installing {len(pins)} packages for '{group}'")
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
                environment.steps = Steps(STEPS[kind] - (kind == "run" and ros != "wheels"))
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
