"""Drives in the layout of the COLD database (Pronobis and Caputo 2009)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.agreement import agreement, disagreements
from kbf_localization.datasets.drive import MEASURED, SIMULATED, OdometryLog
from kbf_localization.datasets.files import (
    LineError,
    counted,
    in_time_order,
    parse_lines,
    read_lines,
)
from kbf_localization.datasets.image_files import ImageFiles
from kbf_localization.datasets.known_cameras import (
    SIMULATED_HEIGHT_M,
    cold_camera,
    simulated_camera,
)
from kbf_localization.datasets.trajectory import check_position
from kbf_localization.errors import DatasetError
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.mount import Mount

IMAGES = "std_cam"
ODOMETRY = "odom_scans/odom.tdf"
PLACES = "localization/places.lst"
SIMULATED_NOTE = "SIMULATED"
"""A file of this name in a sequence's folder says that its odometry and images are simulated."""
OTHER_CAMERA = "Its camera is not the simulator's default"
"""A sentence of that file: the reader must not take the camera for known."""
CONDITIONS = ("cloudy", "sunny", "night")
MAX_HEADING_RAD = 6.3

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_FRAME_NAME = re.compile(
    rf"t(-?)(\d{{1,18}})\.(\d+)_x{_NUMBER}_y{_NUMBER}_a{_NUMBER}\.(?:jpe?g|png)", re.I
)


# Fields of a line of `odom.tdf`, counted from 0.
_SECONDS, _MICROSECONDS, _X, _Y, _HEADING = 3, 4, 8, 9, 11


@dataclass(frozen=True)
class ColdFrame:
    """What an image's file name says: its stamp, and the pose (3,), which stands nowhere else."""

    name: str
    stamp_ns: int
    pose: tuple[float, float, float]
    label: str | None = None


def parse_frame_name(name: str, label: str | None = None) -> ColdFrame:
    """Return the frame of a name such as t1152212857.193444_x0.30_y-0.01_a-0.0096662.jpeg.

    Raises ValueError for another name; `LineError` says why one of this form cannot be used.
    """
    match = _FRAME_NAME.fullmatch(name)
    if match is None:
        raise ValueError(name)
    sign, seconds, fraction, x, y, heading = match.groups()
    if sign:
        raise LineError(f"the stamp of {name} is negative; count from an earlier time")
    # In integers: a double keeps only a quarter of a microsecond of a time since 1970.
    stamp_ns = int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
    pose = (float(x), float(y), float(heading))
    if stamp_ns >= 2**63:
        raise ValueError(name)
    check_position(pose)
    return ColdFrame(name, stamp_ns, pose, label)


def read_places(path: Path) -> tuple[list[ColdFrame], list[str]]:
    """Return the frames of a `places.lst` in its order, and warnings about what was passed over."""

    def parse(line: str) -> ColdFrame:
        name, label, *_ = *line.split(), None
        return parse_frame_name(name, label)

    return parse_lines(path, parse, "name no COLD image")


def read_odometry(path: Path) -> tuple[OdometryLog, list[str]]:
    """Return the log of an `odom.tdf`, with warnings about lines that were passed over.

    Its frame is not that of the images' poses; only increments mean something.
    """

    def parse(line: str) -> tuple[int, tuple[float, float, float]]:
        fields = line.split()
        stamp_ns = int(fields[_SECONDS]) * 10**9 + int(fields[_MICROSECONDS]) * 1000
        pose = (float(fields[_X]), float(fields[_Y]), float(fields[_HEADING]))
        # A comparison with NaN is false.
        if not (all(abs(value) < np.inf for value in pose) and stamp_ns < 2**63):
            raise ValueError
        if stamp_ns < 0:
            raise LineError("its stamp is negative; count from an earlier time")
        check_position(pose)
        return stamp_ns, pose

    try:
        readings, warnings = parse_lines(path, parse, "hold no reading")
    except DatasetError as error:
        raise DatasetError(f"{error}; the drive needs its wheel odometry") from error
    if not readings and warnings:
        raise DatasetError(warnings[0])
    stamps_ns, first, more = in_time_order(path, [stamp for stamp, _ in readings], "readings")
    return OdometryLog(stamps_ns, np.array([readings[row][1] for row in first])), warnings + more


class ColdDrive(ImageFiles):
    """A sequence's folder: `std_cam/`, `odom_scans/odom.tdf`, and `localization/places.lst`."""

    kind = "COLD folder"

    def __init__(self, path: Path | str) -> None:
        super().__init__(Path(path))
        frames = self._find_frames()
        self._files = [self.path / IMAGES / frame.name for frame in frames]
        self.stamps_ns: Stamps = np.array([frame.stamp_ns for frame in frames], dtype=np.int64)
        self.poses: Array = np.array([frame.pose for frame in frames])
        self.labels = self._read_labels([frame.name for frame in frames])
        self._calibrate(self._known_camera)
        self.odometry: OdometryLog
        self.odometry, odometry_warnings = read_odometry(self.path / ODOMETRY)
        self._warnings += odometry_warnings
        stamps = self.odometry.stamps_ns
        if self.stamps_ns[-1] < stamps[0] or self.stamps_ns[0] > stamps[-1]:
            raise DatasetError(
                f"{self.path}: no image was taken while {ODOMETRY} was recorded; "
                "are they of the same drive?"
            )
        found = agreement(self.poses, self.stamps_ns, self.odometry)
        self._warnings += [f"{self.name}: {line}" for line in disagreements(found)]

    @staticmethod
    def recognizes(path: Path) -> bool:
        return (path / IMAGES).is_dir() or (path / PLACES).is_file()

    @property
    def odometry_origin(self) -> str:
        return SIMULATED if (self.path / SIMULATED_NOTE).exists() else MEASURED

    def _known_camera(self, width: int, height: int) -> tuple[Camera | None, Mount | None]:
        """Return COLD's camera, of whose mount nothing is published; or the simulator's."""
        note = self.path / SIMULATED_NOTE
        if not note.is_file():
            return cold_camera(width, height), None
        if OTHER_CAMERA in " ".join(read_lines(note)):
            return None, None
        return simulated_camera(width, height), Mount.ahead(SIMULATED_HEIGHT_M)

    @property
    def condition(self) -> str | None:
        """The lighting that the folder's name says, such as seq1_cloudy2."""
        return next((word for word in CONDITIONS if word in self.name.lower()), None)

    def _find_frames(self) -> list[ColdFrame]:
        """Return the images' frames by time, each stamp once."""
        folder = self.path / IMAGES
        try:
            names = sorted(entry.name for entry in folder.iterdir())
        except OSError as error:
            raise DatasetError(
                f"{self.path}: no folder {IMAGES}/ with images; give a COLD sequence's folder"
            ) from error
        frames, reason = [], ""
        for name in names:
            try:
                frames.append(parse_frame_name(name))
            except ValueError as error:
                reason = reason or (f" ({error})" if isinstance(error, LineError) else "")
        self._warnings += counted(
            folder, len(names) - len(frames), f"files are named unlike COLD's images{reason}"
        )
        if len(frames) < 2:
            raise DatasetError(
                f"{folder}: {len(frames)} images named like t1152212857.193444_x0.3_"
                f"y-0.0_a-0.1.jpeg{reason}; a drive needs two or more"
            )
        turned = max(frames, key=lambda frame: abs(frame.pose[2]))
        if abs(turned.pose[2]) > MAX_HEADING_RAD:
            raise DatasetError(
                f"{folder}: the heading {turned.pose[2]:g} of {turned.name} is beyond 2π; a name "
                "has seconds, metres and radians: t1152212857.193444_x0.3_y-0.0_a-0.1.jpeg"
            )
        frames.sort(key=lambda frame: frame.stamp_ns)
        _, first, warnings = in_time_order(folder, [frame.stamp_ns for frame in frames], "images")
        self._warnings += warnings
        return [frames[row] for row in first]

    def _read_labels(self, names: Sequence[str]) -> tuple[str, ...] | None:
        """Return the images' rooms by `places.lst`, empty for one that it does not name."""
        path = self.path / PLACES
        if not path.is_file():
            return None
        places, warnings = read_places(path)
        self._warnings += warnings
        if any(later.stamp_ns < earlier.stamp_ns for earlier, later in pairwise(places)):
            self._warnings.append(f"{path}: lines out of time order; read in time order")
        labels = {place.name: place.label for place in places}
        present = {entry.name for entry in (self.path / IMAGES).iterdir()}
        missing = len(labels.keys() - present)
        self._warnings += counted(path, missing, f"of its images are not in {IMAGES}/")
        if not any(labels.get(name) for name in names):
            return None
        return tuple(labels.get(name) or "" for name in names)
