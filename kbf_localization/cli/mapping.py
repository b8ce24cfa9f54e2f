"""How `kbf map` estimates poses, and what it shows of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.cli.console import command_line, print_line, print_table
from kbf_localization.errors import ParameterError
from kbf_localization.limits import FARTHEST_M, shortened

if TYPE_CHECKING:
    from kbf_localization.datasets.drive import Drive
    from kbf_localization.mapping.poses import PosedDrives
    from kbf_localization.parallel import Workers
    from kbf_localization.pose_graph.anchors import Anchor
    from kbf_localization.progress import Progress

_ANCHOR = re.compile(r"([^,@]+),([^,@]+),([^,@]+)@(.+):([^:]+?)s?")


@dataclass(frozen=True)
class MappingOptions:
    """Options of where the poses come from."""

    poses_from: str
    anchors: Sequence[str]
    odometry_scale: float
    require_joined: bool
    refine: bool
    seed: int

    def with_poses(
        self, drives: Sequence[Drive], workers: Workers, progress: Progress
    ) -> PosedDrives:
        from kbf_localization.mapping.poses import with_poses

        return with_poses(
            drives,
            self.poses_from,
            anchors=[parse_anchor(text, drives) for text in self.anchors],
            odometry_scale=self.odometry_scale,
            unjoined="refuse" if self.require_joined else "leave_out",
            refine=self.refine,
            seed=self.seed,
            workers=workers,
            progress=progress,
        )


def parse_anchor(text: str, drives: Sequence[Drive]) -> Anchor:
    """Return the anchor of a text such as 1.5,2,90@cloudy1:12.5s (metres, degrees, seconds)."""
    from kbf_localization.pose_graph.anchors import Anchor

    found = _ANCHOR.fullmatch(text)
    option = f"--anchor {shortened(text)}"
    wanted = f"{option}: give x,y,degrees@DRIVE:SECONDS, such as 1.5,2,90@cloudy1:12.5"
    if found is None:
        raise ParameterError(wanted)
    try:
        x, y, degrees, seconds = (float(found[group]) for group in (1, 2, 3, 5))
    except ValueError as error:
        raise ParameterError(wanted) from error
    if not max(abs(x), abs(y)) <= FARTHEST_M or not all(map(math.isfinite, (degrees, seconds))):
        raise ParameterError(wanted)
    names = [drive.name for drive in drives]
    if found[4] not in names:
        raise ParameterError(
            f"{option}: no drive {shortened(found[4])}; there are {', '.join(names)}"
        )
    number = names.index(found[4])
    stamps = drives[number].stamps_ns
    length = float(stamps[-1] - stamps[0]) * 1e-9
    if not 0.0 <= seconds <= length:
        raise ParameterError(f"{option}: the drive has 0 to {length:.1f} s")
    stamp = int(stamps[0]) + round(seconds * 1e9)
    return Anchor(number, stamp, (x, y, math.radians(degrees)))


def report_mapping(drives: Sequence[Drive], source: PosedDrives, output: Path | None) -> None:
    """Write `mapping.json` and `mapping.html`, and print the table; nothing for given poses."""
    from kbf_localization.evaluation.mapping_metrics import (
        mapping_metrics,
        metric_rows,
        write_mapping,
    )
    from kbf_localization.evaluation.results import ResultsFolder

    estimates = source.estimates
    if estimates is None:
        return
    folder = ResultsFolder.create("map-build", output)
    metrics = mapping_metrics(drives, estimates, source.mended)
    config = {"command": command_line(), "drives": [drive.path for drive in drives]}
    page = write_mapping(folder, drives, estimates, metrics, config)
    print_table("Poses from wheels and images", ("Metric", "Value", "Note"), metric_rows(metrics))
    # Without closures nothing shows the wheels' errors.
    for wheels in estimates.wheels if estimates.closures else ():
        print_line(wheels.described)
    for stretch in source.mended:
        print_line(stretch.described)
    print_line(str(metrics["verdict"]))
    print_line(f"Mapping: {page}")


def parse_pair(text: str) -> list[float]:
    """Return the numbers of a pair of points, such as 1.5,2,10,-3.5."""
    try:
        values = [float(field) for field in text.split(",")]
    except ValueError:
        values = []
    # A comparison with NaN is false.
    if len(values) != 4 or not all(abs(value) <= FARTHEST_M for value in values):
        raise ParameterError(
            f"--pair {shortened(text)}: give x_map,y_map,x_to,y_to, such as 1.5,2,10,-3.5"
        )
    return values


def read_pairs(path: Path) -> Array:
    """Return the pairs of points (n, 4) of a CSV file; comments and a header are passed over."""
    from kbf_localization.datasets.files import read_lines

    rows: list[list[float]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            values = [float(field.strip(' "')) for field in line.split(",")]
        except ValueError as error:
            if not rows and number == 1:
                continue
            raise ParameterError(f"{path}: line {number}: not four numbers") from error
        # A comparison with NaN is false.
        if len(values) != 4 or not all(abs(value) <= FARTHEST_M for value in values):
            raise ParameterError(f"{path}: line {number}: give x_map,y_map,x_to,y_to")
        rows.append(values)
    return np.array(rows).reshape(-1, 4)
