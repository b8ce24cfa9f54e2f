"""The options by which commands are told which drives, and the drives that they then have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, get_type_hints

import typer

if TYPE_CHECKING:
    from kbf_localization.datasets.drive import Drive

SOURCE_HELP = "Bags, or folders of COLD, TUM RGB-D, 7-Scenes, KITTI, OpenLORIS or your own."
_PART = "of each drive: 0:0.7 (shares of its time), 60s:120s, every:10 or not-every:10."

Train = Annotated[
    Optional[str], typer.Option("--train", metavar="PART", help=f"Build from this part {_PART}")
]
Test = Annotated[
    Optional[str], typer.Option("--test", metavar="PART", help=f"Replay this part {_PART}")
]


@dataclass(frozen=True)
class Reading:
    """How the given drives are to be read; `@reads_drives` makes an option of each field."""

    odometry: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="measured, or simulate[:scale,noise,seed]: derived from the known poses, and "
            "marked.",
        ),
    ] = "measured"
    odom_topic: Annotated[Optional[str], typer.Option(help="A bag's odometry topic, or /tf.")] = (
        None
    )
    image_topic: Annotated[Optional[str], typer.Option(help="A bag's image topic.")] = None
    pose_topic: Annotated[Optional[str], typer.Option(help="A bag's true-pose topic.")] = None

    def open(self, source: Path, part: str | None = None) -> Drive:
        from kbf_localization.datasets.open import open_drive

        return open_drive(source, part=part, **vars(self))

    def open_all(self, sources: Sequence[Path], part: str | None = None) -> list[Drive]:
        return [self.open(source, part) for source in sources]


def reads_drives(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Reading`; it gets them as its argument `reading`."""
    options = get_type_hints(Reading, include_extras=True)
    hints = get_type_hints(command, include_extras=True)
    del hints["reading"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(command).parameters
    parameters = [
        *(own[name].replace(annotation=hints[name]) for name in own if name != "reading"),
        *(
            inspect.Parameter(one.name, keyword, default=one.default, annotation=options[one.name])
            for one in fields(Reading)
        ),
    ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        reading = Reading(**{name: given.pop(name) for name in options})
        command(**given, reading=reading)

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = hints | options
    return with_options


def print_missing_truth(drives: Sequence[Drive]) -> None:
    """Which drives have no poses to compare with, and what to do about it."""
    from kbf_localization.cli.console import print_line

    for drive in drives:
        if drive.poses is None:
            print_line(
                f"Note: {drive.path}: has no true poses, so errors cannot be computed; name a "
                "bag's topic with --pose-topic"
            )


def print_notes(drives: Sequence[Drive]) -> None:
    """What each drive says about itself, a line each."""
    from kbf_localization.cli.console import print_line

    for warning in (line for drive in drives for line in drive.warnings):
        print_line(f"Note: {warning}")
