"""Split a drive into a part to build a map from and a later part to test on.

Example: `kbf split drives/kitchen --first 0.7 --odometry simulate --output kitchen` writes the bags
kitchen/train, the first 70 % of the time, and kitchen/test with the rest. Without copies:
`kbf map build drives/kitchen --train 0:0.7 --output k.kbfmap`, then
`kbf evaluate drives/kitchen --test 0.7: --map k.kbfmap`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Option

from kbf_localization.cli.console import print_line
from kbf_localization.cli.drives import Reading, print_notes
from kbf_localization.cli.options import Source, Storage, takes_groups
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import ParameterError

app = typer.Typer(add_completion=False)
_FIRST = Option(metavar="FRACTION", help="Train on this fraction of the time. Default: 0.7")
_EVERY = Option(
    metavar="N",
    help="Train on every N-th image, test on those between: interleaved, so errors are too low.",
)


@app.command()
@takes_groups
def split(
    source: Source,
    output: Annotated[Path, Option(metavar="DIR", help="Folder for the bags train and test.")],
    first: Annotated[Optional[float], _FIRST] = None,
    every: Annotated[Optional[int], _EVERY] = None,
    storage: Storage = "mcap",
    *,
    reading: Reading,
) -> None:
    from kbf_localization.datasets.bag_writer import write_bag
    from kbf_localization.datasets.parts import DrivePart, parse_part

    if first is not None and every is not None:
        raise ParameterError("--first and --every: give one of them")
    fraction = 0.7 if first is None else first
    if not 0.0 < fraction < 1.0:
        raise ParameterError(f"--first {fraction:g}: a fraction of the time between 0 and 1")
    if every is not None and every < 2:
        raise ParameterError(f"--every {every}: 2 or more")
    if every is None:
        texts = {"train": f"0:{fraction:g}", "test": f"{fraction:g}:"}
    else:
        texts = {"train": f"every:{every}", "test": f"not-every:{every}"}
    drive = reading.open(source)
    parts = {name: DrivePart(drive, parse_part(text)) for name, text in texts.items()}
    with show_progress() as progress:
        for name, part in parts.items():
            write_bag(part, output / name, storage=storage, progress=progress)
    print_notes([parts["test"]])
    for name, part in parts.items():
        seconds = float(part.stamps_ns[-1] - part.stamps_ns[0]) * 1e-9
        print_line(
            f"Wrote {output / name}: {len(part)} images, {seconds:.1f} s, odometry "
            f"{part.odometry_origin}"
        )
