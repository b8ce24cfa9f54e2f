"""Write tools/hashes.txt: the hashes of all that tools/constraints.txt pins.

Usage: .venv/bin/python tools/lock.py [--upgrade]     (`make lock`, `make lock UPGRADE=--upgrade`)

The hashes are those that the index gives: of all wheels for Linux and the Pythons that the project
runs on, and of the source archive where a package has no such wheel. With --upgrade the groups
build, run, dev, docs and notebooks are first pinned to the newest versions that go together
(as uv finds them), on Python 3.10 and on this one; ROS's packages and Ubuntu's versions stay, which
are what their distributions have.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from set_up import CONSTRAINTS, HASHES, all_pins, pip_requirements, read_hashes, read_pins

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
PYTHONS = range(10, 15)
WANTED = {
    "build": ["setuptools<80", "wheel"],
    "run": [
        *(
            "av",
            "h5py",
            "matplotlib",
            "numpy",
            "opencv-python-headless",
            "pillow",
            "pyyaml",
            "rich",
        ),
        *("rosbags", "scipy", "tornado", "typer"),
    ],
    "dev": [
        *("colcon-cmake", "colcon-core", "colcon-library-path", "colcon-output"),
        *("colcon-package-information", "colcon-package-selection", "colcon-pkg-config"),
        *("colcon-python-setup-py", "colcon-recursive-crawl", "colcon-ros", "colcon-test-result"),
        *(
            "distributed",
            "evo",
            "hypothesis",
            "import-linter",
            "mypy",
            "onnx",
            "onnxruntime",
            "playwright",
        ),
        *("pytest", "pytest-cov", "pytest-timeout", "pytest-xdist", "ruff", "types-pyyaml"),
        *("tomli; python_version < '3.11'", "scipy-stubs; python_version >= '3.11'", "vulture"),
    ],
    "docs": [f"{name}; python_version >= '3.11'" for name in ("furo", "myst-parser", "sphinx")],
    "notebooks": ["jupyterlab; python_version >= '3.11'"],
}
"""What each group is for; all else in it are dependencies."""


class _Links(HTMLParser):
    """The files of a package's page in an index (PEP 503), as names and hashes."""

    def __init__(self) -> None:
        super().__init__()
        self.hashes: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address, fragment = urldefrag(dict(attrs).get("href") or "") if tag == "a" else ("", "")
        if fragment.startswith("sha256="):
            self.hashes[unquote(address.rpartition("/")[2])] = fragment.removeprefix("sha256=")


def published(name: str) -> dict[str, str]:
    """All files of a package with their hashes."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as page:  # noqa: S310 (pip's index)
        links = _Links()
        links.feed(page.read().decode())
    return links.hashes


def locked_files(pin: str, hashes: dict[str, str]) -> list[tuple[str, str]]:
    """Return the names and hashes of the pin's wheels that may be installed.

    Or of its source archive.
    """
    version = Version(pin.partition("==")[2])
    wheels, archives = [], []
    for name in sorted(hashes):
        try:
            if name.endswith(".whl"):
                _, found, _, tags = parse_wheel_filename(name)
                if found == version and any(map(_runs_here, tags)):
                    wheels.append((name, hashes[name]))
            elif parse_sdist_filename(name)[1] == version:
                archives.append((name, hashes[name]))
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
    if not wheels and not archives:
        sys.exit(f"{INDEX} has no file for {pin}")
    return wheels or archives


def _runs_here(tag: object) -> bool:
    """Whether a wheel's tag is one of a Linux that the project runs on."""
    interpreter, abi, platform = str(tag).split("-")
    linux = re.fullmatch(r"any|(many|musl)?linux.*_(x86_64|aarch64)", platform)
    number = re.fullmatch(r"cp3(\d+)", interpreter)
    if interpreter == "py3" or (number and abi == "abi3"):
        return bool(linux)
    return bool(linux and number and int(number[1]) in PYTHONS and abi == interpreter)


def write_hashes() -> None:
    """Renew the file for the pins as they stand."""
    pins = all_pins()
    names = sorted({pin.partition("==")[0] for pin in pins})
    with ThreadPoolExecutor(8) as pool:
        files = dict(zip(names, pool.map(published, names), strict=True))
    lines = ["# Made by `make lock` from tools/constraints.txt; do not edit."]
    for pin in sorted(pins):
        lines.append(pin)
        locked = locked_files(pin, files[pin.partition("==")[0]])
        lines += [f"{digest}  {name}" for name, digest in locked]
    HASHES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{HASHES.name}: {len(pins)} packages, {len(lines) - len(pins) - 1} files")


def resolved(requirements: list[str], python: str, pins: dict[str, str]) -> dict[str, str]:
    """Return the newest versions that go together on a Python and with `pins`.

    Dependencies included.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, known = Path(folder) / "wanted.in", Path(folder) / "known.txt"
        wanted.write_text("\n".join(requirements), encoding="utf-8")
        known.write_text("\n".join(f"{name}=={pins[name]}" for name in pins), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet"]
        command += ["--no-header", "--no-annotate", "--only-binary", ":all:"]
        for pin, files in read_hashes().items():
            if not any(name.endswith(".whl") for name, _ in files):
                command += ["--no-binary", pin.partition("==")[0]]
        command += ["--python-version", python, "--constraints", str(known), str(wanted)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(line.split("==") for line in done.stdout.split())


def upgrade() -> None:
    """Pin the groups again; a dependency belongs to the first group that needs it."""
    with tempfile.TemporaryDirectory() as folder:
        solver = Path(folder) / "solver.txt"
        solver.write_text(pip_requirements(read_pins("lock", False)), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes"]
        subprocess.run([*pip, "-r", str(solver)], check=True)
    newest = f"{sys.version_info.major}.{sys.version_info.minor}"
    ros = dict(pin.split("==") for pin in read_pins("ros", False))
    pins = {"3.10": dict(ros), newest: dict(ros)}
    sections: dict[str, list[str]] = {}
    for group, wanted in WANTED.items():
        before = {name for known in pins.values() for name in known}
        for python, known in pins.items():
            known.update(resolved(wanted, python, known))
        old, new = pins["3.10"], pins[newest]
        sections[group] = []
        for name in sorted((old.keys() | new.keys()) - before):
            if old.get(name) == new.get(name):
                sections[group].append(f"{name}=={new[name]}")
                continue
            for known, marker in ((old, "<"), (new, ">=")):
                if name in known:
                    pin = f'{name}=={known[name]}; python_version {marker} "3.11"'
                    sections[group].append(pin)
    text = CONSTRAINTS.read_text(encoding="utf-8")
    for group, pins in sections.items():
        heading, _, rest = text.partition(f"# [{group}]")
        title, _, body = rest.partition("\n")
        kept = [line for line in body.partition("\n\n")[0].splitlines() if line.startswith("#")]
        after = body.partition("\n\n")[2]
        text = "\n".join((f"{heading}# [{group}]{title}", *kept, *pins, "", after))
    CONSTRAINTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--upgrade"]:
        upgrade()
    write_hashes()
