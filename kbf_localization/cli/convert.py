"""Turn a drive of any kind into a rosbag2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbf_localization.cli.drives import Reading, reads_drives

app = typer.Typer(add_completion=False)

EXAMPLE = (
    "Example: [bold]kbf convert drives/seq1_cloudy1 cloudy1[/bold] writes the folder cloudy1 with "
    "/odom, /image/compressed, /ground_truth and /tf, which "
    "[bold]ros2 bag play cloudy1 --clock[/bold] and "
    "[bold]kbf replay cloudy1 --map office.kbfmap[/bold] play."
)


@app.command(epilog=EXAMPLE)
@reads_drives
def convert(
    sequence: Annotated[
        Path, typer.Argument(metavar="DRIVE", help="A drive's folder, or another bag.")
    ],
    bag: Annotated[Path, typer.Argument(metavar="BAG", help="The new bag's folder.")],
    storage: Annotated[str, typer.Option(help="mcap or sqlite3.")] = "mcap",
    raw: Annotated[
        bool, typer.Option("--raw", help="Decoded images (/image) instead of the JPEG bytes.")
    ] = False,
    *,
    reading: Reading,
) -> None:
    """Turn a drive of any kind into a rosbag2."""
    from kbf_localization.cli.console import print_line
    from kbf_localization.cli.drives import print_notes
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.datasets.bag_writer import write_bag

    drive = reading.open(sequence)
    with show_progress() as progress:
        write_bag(drive, bag, storage=storage, raw=raw, progress=progress)
    print_notes([drive])
    megabytes = sum(file.stat().st_size for file in bag.iterdir()) / 1e6
    print_line(
        f"Wrote {bag}: {len(drive)} images, {len(drive.odometry.stamps_ns)} odometry readings, "
        f"{megabytes:.0f} MB"
    )
