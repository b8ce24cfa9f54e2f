"""Show or clear the descriptions of images that evaluations keep.

They are in $KBF_CACHE_DIR, else in $XDG_CACHE_HOME/kbf_localization or ~/.cache/kbf_localization,
at most 2 GB; the least recently used leave first.

Example: `kbf cache --clear`
"""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from kbf_localization.cli.console import print_line

app = typer.Typer(add_completion=False)


@app.command()
def cache(
    clear: Annotated[bool, Option("--clear", help="Delete all descriptions.")] = False,
) -> None:
    from kbf_localization.evaluation.description_cache import DescriptionCache, default_folder

    folder = default_folder()
    if not folder.is_dir():
        print_line(f"{folder}: nothing is kept yet")
        return
    kept = DescriptionCache(folder)
    try:
        size = kept.described()
        if clear:
            kept.clear()
            print_line(f"{folder}: deleted {size}")
        else:
            print_line(f"{folder}: {size}")
    finally:
        kept.close()
