"""`kbf simulate` writes sequences and names what is wrong in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbf_localization.datasets.cold import ColdDrive
from test.cli.kbf import done, refused


def test_it_writes_the_drives_and_says_where(tmp_path: Path) -> None:
    options = ("--condition", "night", "--frames", 3, "--size", "96x72", "--jobs", 1)
    output = done("simulate", tmp_path / "office", "--runs", 2, *options)
    for name in ("seq1_night1", "seq1_night2"):
        assert str(tmp_path / "office" / name) in output
        assert len(ColdDrive(tmp_path / "office" / name)) == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--size", "large"), "--size large"),
        (("--office-from", "a.lst"), "--office-from"),
        (("--trajectory", "absent.lst"), "absent.lst"),
        (("--size", "5x5", "--frames", "2"), "5x5"),
    ],
)
def test_a_mistake_is_named_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    assert named in refused("simulate", tmp_path / "office", *arguments)
    assert not (tmp_path / "office").exists()
