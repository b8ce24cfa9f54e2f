"""How commands read the drives that they are given, and what they tell about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from typer import Option

from kbf_localization.cli.console import print_line

if TYPE_CHECKING:
    from kbf_localization.datasets.drive import Drive

_ODOMETRY = "measured, or simulate[:scale,noise,seed]: derived from the known poses, and marked."

FollowLinks = Annotated[
    bool, Option("--follow-links", help="Read links that lead out of a drive's folder.")
]


@dataclass(frozen=True)
class Topics:
    """A group of options: which of a bag's topics are read."""

    odom_topic: Annotated[Optional[str], Option(help="A bag's odometry topic, or /tf.")] = None
    image_topic: Annotated[Optional[str], Option(help="A bag's image topic.")] = None
    pose_topic: Annotated[Optional[str], Option(help="A bag's true-pose topic.")] = None


@dataclass(frozen=True)
class Reading(Topics):
    """A group of options: how the given drives are to be read."""

    odometry: Annotated[str, Option(metavar="HOW", help=_ODOMETRY)] = "measured"
    follow_links: FollowLinks = False

    def open(self, source: Path, part: str | None = None) -> Drive:
        from kbf_localization.datasets.open import open_drive

        return open_drive(source, part=part, **vars(self))

    def open_all(self, sources: Sequence[Path], part: str | None = None) -> list[Drive]:
        return [self.open(source, part) for source in sources]


def print_notes(drives: Sequence[Drive]) -> None:
    """Print each drive's warnings, a line each."""
    for warning in (line for drive in drives for line in drive.warnings):
        print_line(f"Note: {warning}")


def print_missing_truth(drives: Sequence[Drive]) -> None:
    """Print which drives have no poses to compare with, and what to do about it."""
    for drive in drives:
        if drive.poses is None:
            print_line(
                f"Note: {drive.path}: has no true poses, so errors cannot be computed; name a "
                "bag's topic with --pose-topic"
            )
