"""Drives in the layout of the COLD database (Pronobis and Caputo 2009)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.cold_odometry import read_odometry
from kbf_localization.datasets.drive import MEASURED, SIMULATED, OdometryLog
from kbf_localization.datasets.files import read_lines
from kbf_localization.datasets.image_files import ImageFiles
from kbf_localization.errors import DatasetError
from kbf_localization.limits import FARTHEST_M

IMAGES = "std_cam"
ODOMETRY = "odom_scans/odom.tdf"
PLACES = "localization/places.lst"
SIMULATED_NOTE = "SIMULATED"
"""A file of this name in a sequence's folder says that its odometry and images are simulated."""
CONDITIONS = ("cloudy", "sunny", "night")

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_FRAME_NAME = re.compile(
    rf"t(\d{{1,18}})\.(\d+)_x{_NUMBER}_y{_NUMBER}_a{_NUMBER}\.(?:jpe?g|png)", re.I
)


@dataclass(frozen=True)
class ColdFrame:
    """What an image's file name says: its stamp, and the pose (3,), which stands nowhere else."""

    name: str
    stamp_ns: int
    pose: tuple[float, float, float]
    label: str | None = None


def parse_frame_name(name: str) -> ColdFrame | None:
    """The frame of a name such as t1152212857.193444_x0.30_y-0.01_a-0.0096662.jpeg, or None."""
    match = _FRAME_NAME.fullmatch(name)
    if match is None:
        return None
    seconds, fraction, x, y, heading = match.groups()
    # In integers: a double keeps only a quarter of a microsecond of a time since 1970.
    stamp_ns = int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
    pose = (float(x), float(y), float(heading))
    if stamp_ns >= 2**63 or max(map(abs, pose)) > FARTHEST_M:
        return None
    return ColdFrame(name, stamp_ns, pose)


def read_places(path: Path) -> tuple[list[ColdFrame], list[str]]:
    """The frames of a `places.lst`, in its order, with warnings about what was passed over."""
    lines = read_lines(path)
    frames: list[ColdFrame] = []
    unreadable: list[int] = []
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields:
            continue
        frame = parse_frame_name(fields[0])
        if frame is None:
            unreadable.append(number)
        else:
            frames.append(replace(frame, label=fields[1] if len(fields) > 1 else None))
    warnings = []
    if unreadable:
        warnings.append(
            f"{path}: {len(unreadable)} lines name no COLD image, first line {unreadable[0]}"
        )
    return frames, warnings


class ColdDrive(ImageFiles):
    """A sequence's folder: `std_cam/`, `odom_scans/odom.tdf`, and `localization/places.lst`."""

    kind = "COLD folder"

    def __init__(self, path: Path | str) -> None:
        super().__init__(Path(path))
        self._frames = self._find_frames()
        self._files = [self.path / IMAGES / frame.name for frame in self._frames]
        self.odometry: OdometryLog
        self.odometry, odometry_warnings = read_odometry(self.path / ODOMETRY)
        self._warnings += odometry_warnings
        stamps = self.odometry.stamps_ns
        if self.stamps_ns[-1] < stamps[0] or self.stamps_ns[0] > stamps[-1]:
            raise DatasetError(
                f"{self.path}: no image was taken while {ODOMETRY} was recorded; "
                "are they of the same drive?"
            )

    @property
    def odometry_origin(self) -> str:
        return SIMULATED if (self.path / SIMULATED_NOTE).exists() else MEASURED

    @property
    def condition(self) -> str | None:
        """The lighting that the folder's name says, such as seq1_cloudy2."""
        return next((word for word in CONDITIONS if word in self.name.lower()), None)

    @cached_property
    def stamps_ns(self) -> Stamps:
        return np.array([frame.stamp_ns for frame in self._frames], dtype=np.int64)

    @cached_property
    def poses(self) -> Array:
        return np.array([frame.pose for frame in self._frames], dtype=np.float64)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Room labels; empty for an image that `places.lst` does not name."""
        if all(frame.label is None for frame in self._frames):
            return None
        return tuple(frame.label or "" for frame in self._frames)

    def _find_frames(self) -> list[ColdFrame]:
        """The images' frames by time, with labels, each stamp once."""
        try:
            names = sorted(entry.name for entry in (self.path / IMAGES).iterdir())
        except OSError as error:
            raise DatasetError(
                f"{self.path}: no folder {IMAGES}/ with images; give a COLD sequence's folder"
            ) from error
        found = [parse_frame_name(name) for name in names]
        frames = [frame for frame in found if frame is not None]
        if len(frames) < len(found):
            self._warnings.append(
                f"{self.path / IMAGES}: {len(found) - len(frames)} files are named "
                "unlike COLD's images"
            )
        frames = self._labelled(frames)
        frames.sort(key=lambda frame: frame.stamp_ns)
        once = [
            frame
            for frame, before in zip(frames, [None, *frames], strict=False)
            if before is None or frame.stamp_ns > before.stamp_ns
        ]
        if len(once) < len(frames):
            self._warnings.append(
                f"{self.path / IMAGES}: {len(frames) - len(once)} images repeat another's stamp"
            )
        if len(once) < 2:
            raise DatasetError(
                f"{self.path / IMAGES}: {len(once)} images named like t1152212857.193444_x0.3_"
                "y-0.0_a-0.1.jpeg; a drive needs two or more"
            )
        return once

    def _labelled(self, frames: list[ColdFrame]) -> list[ColdFrame]:
        path = self.path / PLACES
        if not path.is_file():
            return frames
        places, warnings = read_places(path)
        self._warnings += warnings
        if any(later.stamp_ns < earlier.stamp_ns for earlier, later in pairwise(places)):
            self._warnings.append(f"{path}: lines out of time order; read in time order")
        labels = {place.name: place.label for place in places}
        missing = len(labels.keys() - {frame.name for frame in frames})
        if missing:
            self._warnings.append(f"{path}: {missing} of its images are not in {IMAGES}/")
        return [replace(frame, label=labels.get(frame.name)) for frame in frames]
