"""Turn a drive in COLD's layout into a rosbag2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

app = typer.Typer(add_completion=False)

EXAMPLE = (
    "Example: [bold]kbf convert drives/seq1_cloudy1 cloudy1[/bold] writes the folder cloudy1 with "
    "/odom, /image/compressed, /ground_truth and /tf, which "
    "[bold]ros2 bag play cloudy1 --clock[/bold] and "
    "[bold]kbf replay cloudy1 --map office.kbfmap[/bold] play."
)


@app.command(epilog=EXAMPLE)
def convert(
    sequence: Annotated[
        Path, typer.Argument(metavar="SEQUENCE", help="A COLD-layout folder, or another bag.")
    ],
    bag: Annotated[Path, typer.Argument(metavar="BAG", help="The new bag's folder.")],
    storage: Annotated[str, typer.Option(help="mcap or sqlite3.")] = "mcap",
    raw: Annotated[
        bool, typer.Option("--raw", help="Decoded images (/image) instead of the JPEG bytes.")
    ] = False,
    odom_topic: Annotated[Optional[str], typer.Option(help="A bag's odometry topic.")] = None,
    image_topic: Annotated[Optional[str], typer.Option(help="A bag's image topic.")] = None,
    pose_topic: Annotated[Optional[str], typer.Option(help="A bag's true-pose topic.")] = None,
) -> None:
    """Turn a drive in COLD's layout into a rosbag2."""
    from kbf_localization.cli.console import console
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.datasets.bag_writer import write_bag
    from kbf_localization.datasets.open import open_drive

    drive = open_drive(
        sequence, odom_topic=odom_topic, image_topic=image_topic, pose_topic=pose_topic
    )
    with show_progress() as progress:
        write_bag(drive, bag, storage=storage, raw=raw, progress=progress)
    for warning in drive.warnings:
        console.print(f"Note: {warning}", markup=False, highlight=False)
    megabytes = sum(file.stat().st_size for file in bag.iterdir()) / 1e6
    console.print(
        f"Wrote {bag}: {len(drive)} images, {len(drive.odometry.stamps_ns)} odometry readings, "
        f"{megabytes:.0f} MB",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
