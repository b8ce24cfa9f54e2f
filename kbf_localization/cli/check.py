"""Check a recording before a map is built from it."""

from __future__ import annotations

import typer

from kbf_localization.cli.console import print_line, print_table
from kbf_localization.cli.drives import Reading
from kbf_localization.cli.options import Source, takes_groups
from kbf_localization.cli.progress import show_progress

app = typer.Typer(add_completion=False, no_args_is_help=True)

MAX_FITTING_OFFSET_S = 0.02


@app.callback()
def check() -> None:
    """Make a group of the one command."""


@app.command("time")
@takes_groups
def check_time(source: Source, *, reading: Reading) -> None:
    """Estimate how far the camera's and the odometry's clocks are apart, from the drive's turns.

    The horizontal shift between consecutive images is compared with the odometry's yaw rate, moved
    in time by up to a second.

    Example: `kbf check time office.mcap` prints the seconds to give the node as its parameter
    camera_time_offset, with a standard deviation.
    """
    from kbf_localization.datasets.time_offset import estimate_time_offset

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
    doubt = max(MAX_FITTING_OFFSET_S, 2.0 * offset.deviation_s)
    if abs(offset.seconds) <= doubt:
        advice = "The clocks agree as far as this drive can tell; nothing to set."
    else:
        late = "late" if offset.seconds < 0.0 else "early"
        advice = (
            f"The images are stamped {abs(offset.seconds):.3f} s too {late}: run the node with "
            f"camera_time_offset:={offset.seconds:.3f}"
        )
    print_line(advice)
