"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbf_localization.errors import KbfError

_SUFFIX = ".partial"


@contextmanager
def atomic_write(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield a path of the same name to write a file or a folder to, moved to `path` at the end.

    Where something is at `path` by then, a file takes its place, or is refused without
    `replace`; of several such writers exactly one succeeds. A folder replaces no folder with files.
    It lies in a hidden folder beside `path`, which is removed after an error too. What a killed
    process has left there, the next to write the same path removes.
    """
    check_replaceable(path)
    _remove_leftovers(path)
    workplace, lock = _make_workplace(path)
    try:
        temporary = workplace / path.name
        yield temporary
        if temporary.is_file():
            _sync(temporary)
        if replace or not temporary.is_file():
            temporary.replace(path)
        else:
            _move_to_free_name(temporary, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(workplace, ignore_errors=True)
        os.close(lock)


def _move_to_free_name(file: Path, path: Path) -> None:
    """Rename a file to a name that nothing has; KbfError where something has it.

    POSIX's rename replaces; its link does not, and neither does an exclusive opening.
    """
    try:
        try:
            path.hardlink_to(file)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            file.replace(path)
    except FileExistsError as error:
        raise KbfError(
            f"{path}: is there by now; name another file, or replace it (--force)"
        ) from error


def check_replaceable(path: Path) -> None:
    """Refuse a device, pipe or socket: in its place, as of /dev/null, a file harms the machine."""
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):
        return  # nothing is there, or whoever writes says what is wrong
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise KbfError(f"{path}: is not a regular file; name another")


def check_writable(folder: Path) -> None:
    """Refuse, before hours of work, a folder in which nothing can be made."""
    try:
        # Rights alone do not tell: the file system may be full, or mounted to be read only.
        with tempfile.TemporaryDirectory(_SUFFIX, ".check-", folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise KbfError(f"{folder}: cannot be written to: {reason}; name another folder") from error


def _make_workplace(path: Path) -> tuple[Path, int]:
    """Make a folder with a lock that the system releases when this process ends in any case."""
    while True:
        folder = Path(tempfile.mkdtemp(_SUFFIX, f".{path.name}-", path.parent))
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Another process may have taken it for a leftover before it was locked.
        if folder.exists():
            return folder, lock
        os.close(lock)


def _remove_leftovers(path: Path) -> None:
    """Remove the workplaces of `path` that no running process holds."""
    for entry in os.scandir(path.parent):
        if not (entry.name.startswith(f".{path.name}-") and entry.name.endswith(_SUFFIX)):
            continue
        with suppress(OSError):
            lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(lock)


def _sync(path: Path) -> None:
    """Make a file's content, or a folder's names, last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
