"""An image's life runs through few files, and ARCHITECTURE.md names all of them."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.localization import Localizer
from kbf_localization.training_map import TrainingMap

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "kbf_localization"

MAX_FILES = 25
"""That a reader opens to follow an image from its topic to a pose."""

NUMERICS = ("embeddings", "vision", "motion", "landmarks", "geometry.py", "input_checks.py")
"""The bottom layers: functions of arrays that know neither the map nor the filter."""

IMAGES = 12
"""Enough for a first search, landmark fixes and kernel steps between which images only measure."""


@contextmanager
def traced(files: set[str]) -> Iterator[None]:
    """Add the package's files in which a function is called, on this thread."""

    def on_call(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        # A module's own code runs on its first import, which is no part of an image's life.
        if frame.f_code.co_name != "<module>" and path.is_relative_to(PACKAGE):
            files.add(path.relative_to(PACKAGE).as_posix())

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.fixture(scope="module")
def executed(office_map: TrainingMap, office_drives: tuple[Path, Path]) -> set[str]:
    assert office_map.landmarks is not None
    localizer, drive = Localizer(office_map), ColdDrive(office_drives[1])
    for stamp_ns, pose in zip(drive.odometry.stamps_ns, drive.odometry.poses):
        localizer.add_odometry(int(stamp_ns), pose)
    files: set[str] = set()
    for (_, image), stamp_ns in zip(drive.images(), drive.stamps_ns[:IMAGES]):
        with traced(files):
            localizer.add_image(int(stamp_ns), image)
    return files


def section() -> tuple[set[str], set[str]]:
    """Return the files that ARCHITECTURE.md names on the path, and as numerics below it."""
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    life = text.partition("## Life of an image\n")[2].partition("\n## ")[0]
    path, _, numerics = life.partition("Numerics below")
    names = r"[\w/]+\.py"
    return set(re.findall(names, path)), {
        name for name in re.findall(names, numerics) if not name.startswith("test/")
    }


def is_numerics(name: str) -> bool:
    return name.partition("/")[0] in NUMERICS


def test_an_image_passes_few_files() -> None:
    path, numerics = section()
    assert len(path) <= MAX_FILES
    assert all(is_numerics(name) for name in numerics)
    assert not any(is_numerics(name) for name in path)


def test_every_file_that_an_image_passes_is_named(executed: set[str]) -> None:
    path, numerics = section()
    assert {name for name in executed if not is_numerics(name)} <= path
    assert {name for name in executed if is_numerics(name)} <= numerics


def test_no_file_is_named_that_an_image_does_not_pass(executed: set[str]) -> None:
    path, numerics = section()
    only_in_the_node = {name for name in path if name.startswith("ros/")}
    only_in_the_node |= {"datasets/image_messages.py", "filters/registry.py"}
    assert (path | numerics) - executed <= only_in_the_node
