"""Parsers fed with changed files: some dozens in `make test`, for long in `make fuzz`.

Hypothesis keeps what failed in `.hypothesis/` and tries it first the next time.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

logger = logging.getLogger(__name__)

SECONDS = float(os.environ.get("KBF_FUZZ_SECONDS", "0"))
"""Processor time for each parser; 0: a short round of a fixed number of files."""
SHORT_ROUND, LONG_ROUND = 30, 300

# Where in the file (as a fraction of its length), how many bytes are cut there, what is put in.
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
    for fraction, cut, put in changes:
        at = int(fraction * len(content))
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


PARSERS: set[str] = set()
"""What is fuzzed, by name."""
FILES: Counter[str] = Counter()
"""How many inputs each has been given in this run."""


def _case(parser: str) -> str:
    """The parser's name with the parameters of the running test."""
    current = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
    _, bracket, case = current.partition("[")
    return f"{parser}, {case.removesuffix(']')}" if bracket else parser


def fuzzed(parser: str, /, **named: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `given`, for a number of files, or in rounds for KBF_FUZZ_SECONDS.

    `parser` names what reads the files; a parametrized test adds its case.
    """
    PARSERS.add(parser)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        how = settings(
            max_examples=LONG_ROUND if SECONDS else SHORT_ROUND,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        )

        @functools.wraps(test)
        def counted(*arguments: Any, **values: Any) -> None:
            FILES[_case(parser)] += 1
            test(*arguments, **values)

        one_round = how(given(**named)(counted))

        def rounds(**fixtures: Any) -> None:
            end, number = time.process_time() + SECONDS, 0
            while not number or time.process_time() < end:
                one_round(**fixtures)
                number += 1
            logger.info("%d rounds of %d files", number, how.max_examples)

        rounds.__name__, rounds.__doc__ = test.__name__, test.__doc__
        rounds.__module__ = test.__module__
        # Of the arguments pytest is to give what Hypothesis does not.
        rounds.__signature__ = inspect.signature(one_round)  # type: ignore[attr-defined]
        rounds.pytestmark = [*getattr(test, "pytestmark", []), pytest.mark.fuzz.mark]  # type: ignore[attr-defined]
        return rounds

    return decorate
