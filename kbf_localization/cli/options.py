"""Options that several commands have, and the reading of an image's size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional

import typer

from kbf_localization.errors import ParameterError

Results = Annotated[Optional[Path], typer.Option(metavar="DIR", help="Folder for the results.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")]
Jobs = Annotated[int, typer.Option(help="Worker processes; -1: one for each core.")]
Dask = Annotated[
    Optional[str], typer.Option(metavar="ADDRESS", help="Work on this Dask cluster instead.")
]
Report = Annotated[bool, typer.Option(help="Write report.html.")]
Pictures = Annotated[
    bool, typer.Option("--pictures", help="Write paths, errors and σ as PNG pictures too.")
]


def parse_image_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Width and height of a text such as 320x240."""
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if found is None:
        raise ParameterError(f"{option} {text}: give width and height in pixels, such as 320x240")
    return int(found[1]), int(found[2])
