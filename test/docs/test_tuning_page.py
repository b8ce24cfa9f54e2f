"""The page on tuning lists every method's parameters with their defaults and search ranges."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from kbf_localization.filters.methods import METHODS
from kbf_localization.filters.parameters import METHOD_PARAMETERS, SEARCH_RANGES
from test.docs.commands import PROJECT

PAGE = (PROJECT / "docs" / "tuning.md").read_text("utf-8")


def listed(method: str) -> dict[str, tuple[str, str]]:
    """Each parameter's default and search range, as the section of `method` has them."""
    section = PAGE.partition(f"## `{method}`")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", section, re.M)
    return {name: (default, searched) for name, default, searched in rows}


def text_of(default: float | str) -> str:
    return default if isinstance(default, str) else f"{default:.12g}"


def test_every_method_has_its_section_or_no_parameters() -> None:
    assert set(METHODS) == {*METHOD_PARAMETERS, "nai"}
    assert SEARCH_RANGES["nai"] == {}


@pytest.mark.parametrize("method", METHOD_PARAMETERS)
def test_the_page_lists_the_parameters_of_a_method(method: str) -> None:
    ranges = SEARCH_RANGES[method]
    assert listed(method) == {
        item.name: (
            text_of(item.default),
            "{:.12g} to {:.12g}".format(*ranges[item.name]) if item.name in ranges else "–",
        )
        for item in fields(METHOD_PARAMETERS[method])
    }
