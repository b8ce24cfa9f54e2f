"""Turn a drive of any kind into a rosbag2.

Example: `kbf convert drives/seq1_cloudy1 cloudy1` writes the folder cloudy1 with /odom,
/image/compressed, /ground_truth, /tf and, where the drive knows its camera, /camera_info and
/tf_static (other names: `--remap /odom:=/robot/odom`), which `ros2 bag play cloudy1 --clock` and
`kbf replay cloudy1 --map office.kbfmap` play.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Argument, Option

from kbf_localization.cli.console import print_line
from kbf_localization.cli.drives import Reading, print_notes
from kbf_localization.cli.options import Source, Storage, takes_groups
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import ParameterError

app = typer.Typer(add_completion=False)
_REMAP = Option(metavar="FROM:=TO", help="Write a topic under another name; repeatable.")


@app.command()
@takes_groups
def convert(
    sequence: Source,
    bag: Annotated[Path, Argument(metavar="BAG", help="The new bag's folder.")],
    storage: Storage = "mcap",
    raw: Annotated[bool, Option("--raw", help="Decoded images (/image), not JPEG bytes.")] = False,
    remap: Annotated[Optional[list[str]], _REMAP] = None,
    *,
    reading: Reading,
) -> None:
    from kbf_localization.datasets.bag_writer import write_bag

    names = dict(_pair(text) for text in remap or ())
    drive = reading.open(sequence)
    with show_progress() as progress:
        write_bag(drive, bag, storage=storage, raw=raw, names=names, progress=progress)
    print_notes([drive])
    megabytes = sum(file.stat().st_size for file in bag.iterdir()) / 1e6
    print_line(
        f"Wrote {bag}: {len(drive)} images, {len(drive.odometry.stamps_ns)} odometry readings, "
        f"{megabytes:.0f} MB"
    )


def _pair(text: str) -> tuple[str, str]:
    """Return both names of a text such as /odom:=/robot/odom."""
    topic, mark, name = text.partition(":=")
    if not (topic and mark and name):
        raise ParameterError(f"--remap {text}: give both names, such as /odom:=/robot/odom")
    return f"/{topic.lstrip('/')}", f"/{name.lstrip('/')}"
