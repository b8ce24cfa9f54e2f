"""Files from outside: only regular files of a plausible size, and their lines; new folders."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from kbf_localization.arrays import Rows, Stamps
from kbf_localization.atomic_write import atomic_write
from kbf_localization.errors import DatasetError

Item = TypeVar("Item")

BAG_SUFFIXES = (".bag", ".mcap", ".db3")
MAX_IMAGE_BYTES = 100_000_000
MAX_TEXT_BYTES = 500_000_000
MAX_LINES, MAX_LINE_CHARS = 5_000_000, 100_000
"""A day of readings at 50 Hz; as objects, lines and words of two letters take twenty times their
bytes."""
MAX_YAML_DEPTH = 50
"""libyaml's time grows with the depth of `[` and `{` in each other; rosbag2's metadata has six."""


class LineError(ValueError):
    """What is wrong with a line of a text file, where that helps whoever wrote it."""


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    A FIFO or a device, which could block or never end, and a larger file, whose content need not
    even exist, raise DatasetError; so does what cannot be read.
    """
    try:
        # Opening a FIFO for reading waits for a writer unless opened non-blocking.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {_reason(error)}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise DatasetError(f"{path}: is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > limit:
            raise DatasetError(
                f"{path}: has {status.st_size / 1e6:.6g} MB, more than the {limit / 1e6:g} MB "
                "that are read"
            )
        try:
            return file.read(limit)
        except OSError as error:
            raise DatasetError(f"{path}: cannot be read: {_reason(error)}") from error


def check_regular(path: Path) -> None:
    """Refuse what is neither a regular file nor a link to one: a library may wait without end."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {_reason(error)}") from error
    if not regular:
        raise DatasetError(f"{path}: is not a regular file")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file; bytes that are not UTF-8 become replacement characters."""
    content = io.BytesIO(read_regular(path, MAX_TEXT_BYTES))
    lines: list[str] = []
    for line in io.TextIOWrapper(content, encoding="utf-8", errors="replace"):
        if len(lines) == MAX_LINES:
            raise DatasetError(f"{path}: has more than {MAX_LINES} lines; split it")
        line = line.removesuffix("\n")
        if len(line) > MAX_LINE_CHARS:
            raise DatasetError(f"{path}: line {len(lines) + 1} has {len(line)} characters")
        lines.append(line)
    return lines


def counted(path: Path, count: int, what: str) -> list[str]:
    """Return the warning that so many were passed over; none for 0."""
    return [f"{path}: {count} {what}"] if count else []


def parse_lines(
    path: Path, parse: Callable[[str], Item], fault: str
) -> tuple[list[Item], list[str]]:
    """Return what `parse` makes of a text file's lines, and a warning about those that it refuses.

    Empty lines and those that begin with # are none. `parse` raises ValueError or IndexError for a
    line with the `fault`, such as "hold no pose"; a `LineError` says more about it.
    """
    parsed: list[Item] = []
    refused: list[int] = []
    reason = ""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            parsed.append(parse(line))
        except (ValueError, IndexError) as error:
            refused.append(number)
            reason = reason or (f": {error}" if isinstance(error, LineError) else "")
    first = refused[0] if refused else 0
    return parsed, counted(path, len(refused), f"lines {fault}, the first is line {first}{reason}")


def in_time_order(
    path: Path, stamps_ns: Sequence[int], what: str
) -> tuple[Stamps, Rows, list[str]]:
    """Return the stamps (m,) strictly increasing, the row of the first of each, and warnings.

    `what` the file holds, such as "poses", two or more of which are needed.
    """
    given = np.array(stamps_ns, dtype=np.int64)
    ordered, first = np.unique(given, return_index=True)
    backward, repeated = int((np.diff(given) < 0).sum()), len(given) - len(ordered)
    warnings = counted(path, backward, f"{what} out of time order; read in time order")
    warnings += counted(path, repeated, f"{what} repeat another's stamp")
    if len(ordered) < 2:
        same = ", all of the same stamp" if repeated else ""
        raise DatasetError(f"{path}: {len(given)} {what}{same}; two or more are needed")
    return ordered, first, warnings


def read_yaml(path: Path, limit: int) -> Any:
    """Read a YAML file; DatasetError for what is none, or could grow when it is read."""
    return parse_yaml(path, read_regular(path, limit))


def read_opencv_yaml(path: Path, limit: int) -> Any:
    """Read a file of OpenCV's FileStorage; its matrices are tables with "data"."""
    text = read_regular(path, limit).replace(b"!!opencv-matrix", b"")
    # "%YAML:1.0" is OpenCV's own; YAML has no such directive.
    lines = [line for line in text.splitlines() if not line.startswith(b"%YAML")]
    return parse_yaml(path, b"\n".join(lines))


def parse_yaml(path: Path, text: bytes) -> Any:
    """Parse the text of a YAML file; DatasetError as `read_yaml`."""
    check_yaml(path, text)
    try:
        return yaml.safe_load(text)
    # A date of month 13 and an integer of 5000 digits are ValueErrors.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: is not YAML") from error


def check_yaml(path: Path, text: bytes, most_values: int | None = None) -> None:
    """Refuse YAML with aliases or merge keys: a few lines of them can unfold to gigabytes.

    So is what is nested too deeply, and more values than `most_values`, for whoever reads them
    slowly.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    values = depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_YAML_DEPTH:
                raise DatasetError(f"{path}: is nested deeper than {MAX_YAML_DEPTH} levels")
            values += isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent))
            if most_values is not None and values > most_values:
                raise DatasetError(f"{path}: has more than {most_values} values; not read")
            merges = isinstance(event, yaml.ScalarEvent) and event.value == "<<"
            if merges or isinstance(event, yaml.AliasEvent):
                raise DatasetError(f"{path}: has YAML aliases or merge keys; not read")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: is not YAML") from error


def check_links(folder: Path) -> None:
    """Refuse a folder in which a symbolic link, however deep, leads out of it.

    Data from elsewhere could name any file of this machine; its content would end in maps, bags
    and reports.
    """
    root = folder.resolve()
    folders = [root]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError as error:
            raise DatasetError(f"{folder}: cannot be read: {_reason(error)}") from error
        for entry in entries:
            if entry.is_symlink():
                check_inside(Path(entry.path), root)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))


def check_inside(path: Path, root: Path) -> None:
    """Refuse a path that is not within the resolved folder `root` once its links are followed."""
    try:
        inside = path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # links in a circle
        inside = False
    if not inside:
        raise DatasetError(
            f"{path}: is a link that leads out of {root}; put the file itself there, or allow such "
            "links with --follow-links"
        )


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a path to make a folder at, which is moved to `path` when all is written."""
    if path.exists():
        raise DatasetError(f"{path}: exists already; remove it or choose another folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            yield temporary
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written ({_reason(error)})") from error


def printable(text: str) -> str:
    r"""Return a name of one line, in which bytes that are not UTF-8 are written as in \xff."""
    name = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return name.replace("\n", r"\n")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
