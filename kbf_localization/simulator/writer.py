"""Writes a simulated drive in the layout of a COLD sequence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbf_localization.datasets.cold import IMAGES, SIMULATED_NOTE
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.files import new_folder
from kbf_localization.simulator.trajectory import Trajectory


@contextmanager
def new_sequence(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes its place as `folder` only when all is written."""
    with new_folder(folder) as partial:
        (partial / IMAGES).mkdir(parents=True)
        note = "Images and wheel odometry of this sequence are simulated.\n"
        (partial / SIMULATED_NOTE).write_text(note, encoding="ascii")
        yield partial


def write_places(sequence: Path, trajectory: Trajectory) -> None:
    """`localization/places.lst`: "<image file name> <room label>" a line, in time order."""
    folder = sequence / "localization"
    folder.mkdir()
    lines = (f"{name} {label}\n" for name, label in zip(trajectory.names, trajectory.labels))
    (folder / "places.lst").write_text("".join(lines), encoding="ascii")


def write_odometry(sequence: Path, log: OdometryLog) -> None:
    """`odom_scans/odom.tdf`: field 3 seconds, 4 microseconds, 8 x, 9 y, 11 heading, from 0."""
    folder = sequence / "odom_scans"
    folder.mkdir()
    lines = []
    for number, (stamp_ns, (x, y, heading)) in enumerate(zip(log.stamps_ns, log.poses)):
        seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
        stamp = f"{seconds} {rest // 1000:06d}"
        lines.append(f"odom {number} pose {stamp} 0 0 0 {x:.6f} {y:.6f} 0 {heading:.6f}\n")
    (folder / "odom.tdf").write_text("".join(lines), encoding="ascii")
