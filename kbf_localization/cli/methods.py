"""The option by which commands are told which methods to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Optional

import typer


def complete_methods(incomplete: str) -> list[str]:
    """What the shell may write for the last name of a list with commas."""
    from kbf_localization.filters.registry import METHODS

    *chosen, last = incomplete.split(",")
    before = "".join(f"{name}," for name in chosen)
    return [before + name for name in METHODS if name.startswith(last) and name not in chosen]


def _option(name: str) -> Any:
    return typer.Option(
        name,
        metavar="NAMES",
        help="Methods, with commas or repeated: kbf, paper, fkbf, nn, nai, kmcf.",
        autocompletion=complete_methods,
    )


Methods = Annotated[Optional[list[str]], _option("--method")]
ManyMethods = Annotated[Optional[list[str]], _option("--methods")]
"""As the experiments call it, which run all of them by default."""


def chosen_methods(given: Sequence[str] | None, default: str) -> list[str]:
    """The methods of all options together, each once; without any the default."""
    from kbf_localization.filters.registry import check_methods

    return check_methods(",".join(given or [default]))
