"""The options by which commands are told which drives, and the drives that they then have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from kbf_localization.datasets.drive import Drive

SOURCE_HELP = "Bags, or folders of COLD, TUM RGB-D, 7-Scenes, KITTI, OpenLORIS or your own."
_PART = "of each drive: 0:0.7 (shares of its time), 60s:120s, every:10 or not-every:10."

OdomTopic = Annotated[Optional[str], typer.Option(help="A bag's odometry topic, or /tf.")]
ImageTopic = Annotated[Optional[str], typer.Option(help="A bag's image topic.")]
PoseTopic = Annotated[Optional[str], typer.Option(help="A bag's true-pose topic.")]
Odometry = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="measured, or simulate[:scale,noise,seed]: derived from the known poses, and marked.",
    ),
]
Train = Annotated[
    Optional[str], typer.Option("--train", metavar="PART", help=f"Build from this part {_PART}")
]
Test = Annotated[
    Optional[str], typer.Option("--test", metavar="PART", help=f"Replay this part {_PART}")
]


def open_drives(
    sources: Sequence[Path],
    *,
    odometry: str = "measured",
    part: str | None = None,
    **topics: str | None,
) -> list[Drive]:
    """Open each source with the same options."""
    from kbf_localization.datasets.open import open_drive

    return [open_drive(source, odometry=odometry, part=part, **topics) for source in sources]


def print_notes(drives: Sequence[Drive]) -> None:
    """What each drive says about itself, a line each."""
    from kbf_localization.cli.console import console

    for warning in (line for drive in drives for line in drive.warnings):
        console.print(f"Note: {warning}", markup=False, highlight=False, soft_wrap=True)
