"""README's table of errors has no other figures: each stands in the page that its row names."""

import re

import pytest

from test.docs.commands import PROJECT

SECTION = (PROJECT / "README.md").read_text("utf-8").partition("## How accurate, how fast")[2]
ROWS = re.findall(r"^\| .*\]\((docs/\w+\.md)[^)]*\)[^|]*\|(.+)\|$", SECTION, re.M)


def numbers_of(text: str) -> list[str]:
    return re.findall(r"\d+\.\d+", text)


def stands_in(pair: list[str], row: str) -> bool:
    """Whether the row has all these numbers, perhaps with more digits."""
    found = [float(item) for item in numbers_of(row)]
    return all(
        any(f"{value:.{len(number.partition('.')[2])}f}" == number for value in found)
        for number in pair
    )


def test_readme_has_the_table() -> None:
    assert len(ROWS) == 6


@pytest.mark.parametrize(("page", "cells"), ROWS)
def test_every_figure_stands_in_a_row_of_the_page(page: str, cells: str) -> None:
    rows = [line for line in (PROJECT / page).read_text("utf-8").splitlines() if line[:1] == "|"]
    for cell in cells.split("|"):
        pair = numbers_of(cell)
        assert not cell.strip() or len(pair) == 2, cell
        assert any(stands_in(pair, row) for row in rows), cell
