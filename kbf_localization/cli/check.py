"""Check recordings before a map is built from them.

Topics, rates, gaps, clocks, frames, exposure, blur, odometry, known poses, and how often the drive
comes back to a place: one table and one verdict. The exit code is 0 for a good recording, 1 for
one with warnings, 2 for one that is unusable.

Example: `kbf check drive1` checks everything; `kbf check time drive1` the clocks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from kbf_localization.cli.console import print_findings, print_line, print_table
from kbf_localization.cli.drives import Reading, print_notes
from kbf_localization.cli.options import Source, Sources, takes_groups
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import DatasetError, MissingDriveError

if TYPE_CHECKING:
    from kbf_localization.datasets.drive import Drive
    from kbf_localization.evaluation.recording_check import RecordingCheck

STYLES = ("green", "yellow", "bold red")
"""Of the verdicts, by level."""


class RecordingByDefault(TyperGroup):
    """Takes `kbf check BAG` for `kbf check recording BAG`."""

    default = "recording"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(add_completion=False, no_args_is_help=True, cls=RecordingByDefault)


@app.command("recording")
@takes_groups
def check_recordings(sources: Sources, *, reading: Reading) -> None:
    """Check whole recordings; the name "recording" may be left out.

    Example: `kbf check drive1 drive2` exits with 0 where both are good, 1 with warnings, 2 where
    one is unusable.
    """
    from kbf_localization.evaluation.recording_check import check_recording, unreadable

    worst = 0
    for source in sources:
        try:
            drive: Drive | None = reading.open(source)
            assert drive is not None
            with show_progress() as progress:
                found = check_recording(drive, progress)
        except MissingDriveError:
            raise
        except DatasetError as error:
            drive, found = None, unreadable(error)
        _print_topics(source, drive)
        if drive is not None:
            print_notes([drive])
        _print_check(source, found)
        worst = max(worst, found.level)
    if worst:
        raise typer.Exit(worst)


def _print_topics(source: Path, drive: Drive | None) -> None:
    """Print a bag's topics, with their rates and what each is used for."""
    from kbf_localization.datasets.open import is_bag
    from kbf_localization.evaluation.recording_check import topics_chosen

    if not source.exists() or not is_bag(source):
        return
    from kbf_localization.datasets.bag_reader import open_bag

    try:
        with open_bag(source) as bag:
            topics, seconds = bag.topics, max((bag.end_ns - bag.start_ns) * 1e-9, 1e-9)
    except DatasetError:
        return
    uses = {} if drive is None else {name: role for role, name in topics_chosen(drive)}
    rows: Sequence[Sequence[object]] = [
        (
            escape(topic.name),
            escape(topic.type.rpartition("/")[2]),
            topic.count,
            f"{topic.count / seconds:.1f}",
            uses.get(topic.name, ""),
        )
        for topic in topics
    ]
    columns = ("Topic", "Type", "Messages", "Per second", "Used as")
    print_table(f"{escape(source.name)}: {seconds:.0f} s", columns, rows)
    frames = [
        f"{what} {frame}"
        for what, name in (
            ("odometry", "odom_frame"),
            ("base", "base_frame"),
            ("camera", "image_frame"),
        )
        if (frame := getattr(drive, name, ""))
    ]
    if frames:
        print_line(f"Frames: {', '.join(frames)}")


def _print_check(source: Path, found: RecordingCheck) -> None:
    print_findings(
        escape(source.name),
        [
            (finding.aspect, finding.value, STYLES[finding.level], finding.advice)
            for finding in found.findings
        ],
    )
    print_line(found.verdict, style=STYLES[found.level])


@app.command("time")
@takes_groups
def check_time(source: Source, *, reading: Reading) -> None:
    """Estimate how far the camera's and the odometry's clocks are apart, from the drive's turns.

    The horizontal shift between consecutive images is compared with the odometry's yaw rate, moved
    in time by up to a second.

    Example: `kbf check time office.mcap` prints the seconds to give the node as its parameter
    camera_time_offset, with a standard deviation.
    """
    from kbf_localization.datasets.time_offset import FITTING_OFFSET_S, estimate_time_offset

    drive = reading.open(source)
    with show_progress() as progress:
        offset = estimate_time_offset(drive, progress)
    print_table(
        "Camera against odometry",
        ("Metric", "Value", "Units"),
        [
            ("camera_time_offset", f"{offset.seconds:+.3f} ± {offset.deviation_s:.3f}", "s"),
            ("correlation there", offset.correlation, ""),
            ("correlation as recorded", offset.uncorrected, ""),
            ("pairs of images", offset.pairs, ""),
        ],
    )
    doubt = max(FITTING_OFFSET_S, 2.0 * offset.deviation_s)
    if abs(offset.seconds) <= doubt:
        advice = "The clocks agree as far as this drive can tell; nothing to set."
    else:
        late = "late" if offset.seconds < 0.0 else "early"
        advice = (
            f"The images are stamped {abs(offset.seconds):.3f} s too {late}: run the node with "
            f"camera_time_offset:={offset.seconds:.3f}"
        )
    print_line(advice)
