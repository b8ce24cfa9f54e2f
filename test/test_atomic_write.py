"""What is written appears whole or not at all, and nothing is left beside it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kbf_localization.atomic_write import atomic_write
from kbf_localization.errors import KbfError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_the_place_of_another_with_the_usual_permissions(tmp_path: Path) -> None:
    path, plain = tmp_path / "map.png", tmp_path / "plain"
    path.write_text("old")
    plain.touch()
    with atomic_write(path) as temporary:
        assert temporary.suffix == ".png"
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode == plain.stat().st_mode
    assert names(tmp_path) == ["map.png", "plain"]


@pytest.mark.parametrize("links", [True, False])
def test_of_two_writers_that_replace_nothing_the_second_is_refused(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:  # as on FAT

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "map"

    def write_twice() -> None:
        with atomic_write(path, replace=False) as second:
            with atomic_write(path, replace=False) as first:
                first.write_text("first")
            second.write_text("second")

    with pytest.raises(KbfError, match="map: is there by now"):
        write_twice()
    assert path.read_text() == "first"
    assert path.stat().st_nlink == 1
    assert names(tmp_path) == ["map"]


@pytest.mark.parametrize("replace", [True, False])
def test_a_pipe_is_not_replaced(tmp_path: Path, replace: bool) -> None:
    """So a node that runs as root leaves /dev/null as it is, were its pose to be saved there."""
    path = tmp_path / "null"
    os.mkfifo(path)
    with (
        pytest.raises(KbfError, match="null: is not a regular file"),
        atomic_write(path, replace=replace),
    ):
        pytest.fail("there is nothing to write")
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert names(tmp_path) == ["null"]


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "drive"
    with atomic_write(path) as temporary:
        temporary.mkdir()
        (temporary / "image").touch()
        assert not path.exists()
    assert names(path) == ["image"]
    assert names(tmp_path) == ["drive"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_text("old")

    def interrupted() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["map"]


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "map"
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from kbf_localization.atomic_write import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)])
    assert len(names(tmp_path)) == 1
    with atomic_write(path) as temporary:
        temporary.write_text("whole")
    assert names(tmp_path) == ["map"]


def test_two_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "map"
    with atomic_write(path) as first:
        first.write_text("first")
        with atomic_write(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert names(tmp_path) == ["map"]


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "none" / "map"):
        pass
