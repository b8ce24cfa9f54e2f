"""Write tools/hashes.txt: the hashes of all that tools/constraints.txt pins.

Usage: .venv/bin/python tools/lock.py [--upgrade]     (`make lock`, `make lock UPGRADE=--upgrade`)

The hashes are those that the index gives: of all wheels for Linux and the Pythons that the project
runs on, and of the source archive where a package has no such wheel. With --upgrade the groups
build, run and dev are first pinned anew to the newest versions that go together, on Python 3.10
and on this one; ROS's packages and Ubuntu's versions stay, which are what their distributions have.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urldefrag

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from set_up import CONSTRAINTS, GROUPS, HASHES, read_pins

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
PYTHONS = range(10, 15)
UPGRADED = ("build", "run", "dev")


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
    """The names and hashes of the pin's wheels that may be installed, or of its source archive."""
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
    pins = {
        pin.partition(";")[0].strip()
        for group in GROUPS
        for ubuntu in (False, True)
        for pin in read_pins(group, ubuntu)
    }
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


def resolved(requirements: list[str], python: str) -> dict[str, str]:
    """The newest versions that go together on a Python, dependencies included, as pip says."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), "--target", folder]
        command += ["--only-binary", ":all:", "--python-version", python, *requirements]
        subprocess.run(command, check=True)
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        canonicalize_name(one["metadata"]["name"]): one["metadata"]["version"] for one in installed
    }


def first_level(group: str) -> list[str]:
    """The packages of a group that no other pinned package asks for."""
    asked = set()
    for one in distributions():
        for text in one.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                asked.add(canonicalize_name(requirement.name))
    names = dict.fromkeys(pin.partition("==")[0] for pin in read_pins(group, False))
    return [name for name in names if name not in asked]


def upgrade() -> None:
    """Pin the groups anew; a package that is new joins the first group that needs it."""
    newest = f"{sys.version_info.major}.{sys.version_info.minor}"
    known: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    for group in UPGRADED:
        wanted = [*known, *first_level(group)]
        old, new = resolved(wanted, "3.10"), resolved(wanted, newest)
        sections[group] = []
        for name in sorted((old.keys() | new.keys()) - known.keys()):
            known[name] = group
            for version, marker in ((old.get(name), "<"), (new.get(name), ">=")):
                if old.get(name) == new.get(name):
                    sections[group].append(f"{name}=={version}")
                    break
                if version is not None:
                    sections[group].append(f'{name}=={version}; python_version {marker} "3.11"')
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
