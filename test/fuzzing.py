"""Parsers fed with changed files: some dozens in `make test`, for long in `make fuzz`.

Hypothesis keeps what failed in `.hypothesis/` and tries it first the next time.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("KBF_FUZZ_SECONDS", "0"))
"""For each parser; 0: a short round of a fixed number of files."""
SHORT_ROUND = 60

# Where in the file (as a share of its length), how many bytes are cut there, what is put in.
edits = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.integers(0, 40), st.binary(max_size=20)),
    min_size=1,
    max_size=4,
)


def token_edits(*tokens: bytes) -> st.SearchStrategy[list[tuple[float, int, bytes]]]:
    """Edits that put in what the format means something by."""
    edit = st.tuples(st.floats(0.0, 1.0), st.integers(0, 20), st.sampled_from(tokens))
    return st.lists(edit, min_size=1, max_size=4)


def edited(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for share, cut, put in changes:
        at = int(share * len(content))
        content = content[:at] + put + content[at + cut :]
    return content


NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**63, -(2**63), 10**25, 10**400, 1e308, -1e308, 1e-308, 1e10, 0.5,
     float("nan"), float("inf"), True, None, "", "1", [], {}, [[1.0]], "\x1b]52;c;eA==\x07"]
)  # fmt: skip


@st.composite
def changed_trees(draw: st.DrawFn, tree: Any) -> Any:
    """A tree of JSON in which some leaf or branch is another, is missing, or is there twice."""
    tree = draw(st.just(tree))
    for _ in range(draw(st.integers(1, 3))):
        tree = _changed(draw, tree)
    return tree


def _changed(draw: st.DrawFn, tree: Any) -> Any:
    if not isinstance(tree, (dict, list)) or not tree or draw(st.integers(0, 5)) == 0:
        return draw(NUMBERS)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    chosen = draw(st.sampled_from(keys))
    copy = tree.copy()
    match draw(st.sampled_from(("leaf", "leaf", "leaf", "leaf", "missing", "more"))):
        case "missing":
            del copy[chosen]
        case "more" if isinstance(copy, list):
            copy.append(copy[chosen])
        case "more":
            copy[f"{chosen}2"] = copy[chosen]
        case _:
            copy[chosen] = _changed(draw, copy[chosen])
    return copy


def fuzzed(*strategies: Any, **named: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `given`, for a number of files, or for KBF_FUZZ_SECONDS."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        started: list[float] = []

        @functools.wraps(test)
        def time_boxed(*arguments: Any, **keywords: Any) -> None:
            started.append(time.monotonic()) if not started else None
            # Hypothesis minds a test that draws data at one time and not at another.
            if "data" in named or not SECONDS or time.monotonic() - started[0] < SECONDS:
                test(*arguments, **keywords)

        how = settings(
            max_examples=max(SHORT_ROUND, int(100 * SECONDS)),
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        )
        return pytest.mark.fuzz(how(given(*strategies, **named)(time_boxed)))

    return decorate
