"""Drives whose images are files, and what their readers have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Image, Stamps
from kbf_localization.datasets.agreement import agreement, disagreements
from kbf_localization.datasets.camera_file import CAMERA_FILE, read_camera_file
from kbf_localization.datasets.drive import MEASURED, NO_ODOMETRY, OdometryLog, summary
from kbf_localization.datasets.files import (
    MAX_IMAGE_BYTES,
    counted,
    in_time_order,
    parse_lines,
    printable,
    read_regular,
)
from kbf_localization.datasets.image_decoding import grey_from_compressed, read_header
from kbf_localization.datasets.planar import (
    MAX_SLOPE_RAD,
    Axes,
    PlanarMotion,
    guess_axes,
    to_plane,
)
from kbf_localization.datasets.pose_log import MAX_GAP_M, MAX_GAP_NS, known_poses
from kbf_localization.datasets.trajectory import Trajectory, parse_stamp
from kbf_localization.errors import DatasetError, KbfError
from kbf_localization.geometry import interpolate
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.camera_info import fitted
from kbf_localization.vision.camera.mount import Mount

SIZES_LOOKED_AT = 50
MAX_SLOPE_DEG = float(np.degrees(MAX_SLOPE_RAD))
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")


class ImageFiles:
    """What drives have in common whose images are files; `_files` (t,) are in time order."""

    kind = "folder"

    def __init__(self, path: Path, warnings: Sequence[str] = ()) -> None:
        self.path = path
        self.name = printable(path.resolve().name)
        self._warnings = list(warnings)
        self._files: Sequence[Path] = ()
        self.camera: Camera | None = None
        self.mount: Mount | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(printable, self._warnings))

    __repr__ = summary

    def __len__(self) -> int:
        return len(self._files)

    def _calibrate(
        self, known: Callable[[int, int], tuple[Camera | None, Mount | None]] | None = None
    ) -> None:
        """Take the camera from `camera.yaml`, else from what the data set is `known` to have.

        `known` is given the images' width and height. A calibration that cannot be used is passed
        over with a warning.
        """
        size = self._image_size()
        camera: Camera | None
        try:
            if (self.path / CAMERA_FILE).is_file():
                camera, mount = read_camera_file(self.path / CAMERA_FILE)
            elif known is not None and size is not None:
                camera, mount = known(*size)
            else:
                return
            self.camera = None if camera is None or size is None else fitted(camera, *size)
            self.mount = mount or self.mount
        except KbfError as error:
            self._warnings.append(f"{self.name}: camera not used: {error}")

    def _image_size(self) -> tuple[int, int] | None:
        """Return width and height of the first image with a sound header."""
        for _, data in self.encoded_images(range(min(len(self), SIZES_LOOKED_AT))):
            header = read_header(data)
            if header is not None:
                return header.width, header.height
        return None

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        for index, data in self.encoded_images(indices):
            yield index, grey_from_compressed(data)

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield bytes as stored; empty for a file that has gone or cannot be read."""
        for index in range(len(self)) if indices is None else indices:
            try:
                data = read_regular(self._files[int(index)], MAX_IMAGE_BYTES)
            except DatasetError:
                data = b""
            yield int(index), data


class ImageFilesDrive(ImageFiles):
    """Images in files with stamps, known poses in six degrees, and perhaps wheel odometry.

    Readers find `files` (t,) and `stamps_ns` (t,) by their data set's rules and give the
    trajectory; what is missing on disk, out of order or without a pose is left out and counted.
    """

    def __init__(
        self,
        path: Path,
        files: Sequence[Path],
        stamps_ns: Sequence[int],
        truth: Trajectory,
        *,
        axes: Axes | None = Axes.CAMERA,
        odometry: Trajectory | None = None,
        warnings: Sequence[str] = (),
        known_camera: Callable[[int, int], tuple[Camera | None, Mount | None]] | None = None,
    ) -> None:
        super().__init__(path, warnings)
        self.condition: str | None = None
        self.labels: tuple[str, ...] | None = None
        self._files, self.stamps_ns = self._present(files, stamps_ns)
        self._check_sizes()
        axes = axes or guess_axes(truth)
        self.motion: PlanarMotion = to_plane(truth, axes)
        # The planar pose of a camera is that of a base below it, in which it may be tilted.
        self.mount = self.motion.mount
        self._calibrate(known_camera)
        self.poses: Array = self._match(truth, axes)
        self.attitudes = self._attitudes(truth)
        self._odometry = None if odometry is None else planar_odometry(path, odometry)
        if self._odometry is not None:
            found = agreement(self.poses, self.stamps_ns, self._odometry)
            self._warnings += [f"{self.name}: {line}" for line in disagreements(found)]
        seen = truth.during(self.stamps_ns)
        self._warnings.append(
            f"{self.name}: {seen.length_m:.1f} m in {seen.duration_s:.0f} s, seen from above"
            f"; {self.motion.described}"
        )
        if not self.motion.is_planar:
            self._warnings.append(
                f"{self.name}: the motion is not planar; three degrees of freedom fit it roughly"
            )

    @property
    def odometry_origin(self) -> str:
        return NO_ODOMETRY if self._odometry is None else MEASURED

    @property
    def odometry(self) -> OdometryLog:
        if self._odometry is None:
            raise DatasetError(
                f"{self.path}: has no wheel odometry; --odometry simulate derives one from the "
                "known poses, and marks every result with it"
            )
        return self._odometry

    def _present(
        self, files: Sequence[Path], stamps_ns: Sequence[int]
    ) -> tuple[list[Path], Stamps]:
        """Return files that are there, by time, each stamp once."""
        there = {folder: _names_in(folder) for folder in {file.parent for file in files}}
        found = [
            (stamp, file)
            for stamp, file in zip(stamps_ns, files, strict=True)
            if file.name in there[file.parent]
        ]
        if files and not found:
            others = sorted(
                name for name in there[files[0].parent] if Path(name).suffix in IMAGE_SUFFIXES
            )
            named = (
                f"; of other names there are {len(others)}, such as {others[0]}" if others else ""
            )
            raise DatasetError(
                f"{self.path}: none of its {len(files)} images is there: {files[0]}{named}"
            )
        gone = f"of {len(files)} images are not on disk; left out"
        self._warnings += counted(self.path, len(files) - len(found), gone)
        given = [stamp for stamp, _ in found]
        ordered, first, warnings = in_time_order(self.path, given, "images")
        self._warnings += warnings
        return [found[row][1] for row in first], ordered

    def _check_sizes(self) -> None:
        """Count the sizes of some images by their headers; mixed sizes are resized later."""
        some = range(0, len(self), max(1, len(self) // SIZES_LOOKED_AT))
        headers = [read_header(data) for _, data in self.encoded_images(some)]
        sizes = Counter((header.width, header.height) for header in headers if header is not None)
        if not sizes:
            raise DatasetError(f"{self.path}: none of the {len(some)} images looked at is an image")
        unreadable = f"of {len(some)} images looked at cannot be decoded"
        self._warnings += counted(self.path, headers.count(None), unreadable)
        if len(sizes) > 1:
            found = ", ".join(f"{w}x{h} ({count})" for (w, h), count in sizes.most_common())
            self._warnings.append(f"{self.path}: images of several sizes, {found}; resized to one")

    def _match(self, truth: Trajectory, axes: Axes) -> Array:
        """Return the known poses (t, 3) at the images' stamps, NaN where there is none."""
        poses = known_poses(OdometryLog(truth.stamps_ns, self.motion.poses), self.stamps_ns)
        missing = np.isnan(poses).any(axis=1)
        positions = np.column_stack([truth.positions[:, :2], np.zeros(len(truth))])
        in_time = known_poses(OdometryLog(truth.stamps_ns, positions), self.stamps_ns)
        late = np.isnan(in_time).any(axis=1)
        if late.all():
            raise DatasetError(f"{self.path}: no image has a known pose: {self._clocks(truth)}")
        if missing.all():
            raise DatasetError(f"{self.path}: {_too_steep(truth, axes)}")
        self._warnings += counted(
            self.path,
            int((late & missing).sum()),
            f"of {len(poses)} images have no known pose within {MAX_GAP_NS * 1e-9:.0f} s or "
            f"{MAX_GAP_M} m; left out of maps and of errors",
        )
        self._warnings += counted(
            self.path,
            int((missing & ~late).sum()),
            f"of {len(poses)} images look up or down by more than {MAX_SLOPE_DEG:.0f}°, where a "
            "heading means nothing; left out of maps and of errors",
        )
        return poses

    def _attitudes(self, truth: Trajectory) -> Array | None:
        """Return height, pitch and roll (t, 3) of the camera at the images' stamps."""
        attitudes = self.motion.attitudes
        if attitudes is None:
            return None
        return interpolate(truth.stamps_ns, attitudes, self.stamps_ns)

    def _clocks(self, truth: Trajectory) -> str:
        """Say how the images' stamps lie to the trajectory's, and which unit would explain it."""
        first, last = (self.stamps_ns[[0, -1]] - truth.stamps_ns[0]) * 1e-9
        text = (
            f"they were taken {first:.1f} to {last:.1f} s after the trajectory's begin, which is "
            f"{truth.duration_s:.1f} s long"
        )
        ratio = (last - first) / max(truth.duration_s, 1e-9)
        for whose, factor in (("images'", ratio), ("trajectory's", 1.0 / max(ratio, 1e-12))):
            for unit, per_second in (("milliseconds", 1e3), ("microseconds", 1e6)):
                if 0.5 * per_second < factor < 2.0 * per_second:
                    return f"{text}; are the {whose} stamps in {unit}? Both must be in seconds"
        return text


def _too_steep(truth: Trajectory, axes: Axes) -> str:
    """Say that a body with such `axes` points up or down, and whether others would be level."""
    read_as = {Axes.CAMERA: "a camera's (z forward, y down)", Axes.BASE: "a robot's (x forward)"}
    other = Axes.BASE if axes is Axes.CAMERA else Axes.CAMERA
    level = np.isfinite(to_plane(truth, other).poses).all(axis=1).mean() > 0.5
    hint = f"read as {read_as[other]} they are level: " if level else ""
    remedy = (
        "turn the poses into the expected axes, or name the list of images images.txt, whose "
        "trajectory may be of either"
        if level and axes is Axes.CAMERA
        else "give poses of a camera that looks ahead"
    )
    return (
        f"the stamps agree, but no pose has a heading: read as {read_as[axes]}, all look up or down"
        f" by more than {MAX_SLOPE_DEG:.0f}°; {hint}{remedy}"
    )


def planar_odometry(path: Path, trajectory: Trajectory) -> OdometryLog:
    """Return wheel odometry in an odometry frame."""
    poses = to_plane(trajectory, Axes.BASE).poses
    level = np.isfinite(poses).all(axis=1)
    if level.sum() < 2:
        raise DatasetError(f"{path}: its odometry points up or down; x must be forward and z up")
    return OdometryLog(trajectory.stamps_ns[level], poses[level])


def read_image_list(path: Path) -> tuple[list[Path], list[int], list[str]]:
    """Return files and stamps of a text file with "stamp file" a line, and warnings.

    File names are relative to the list's folder.
    """

    def parse(line: str) -> tuple[Path, int]:
        stamp, name = line.replace(",", " ").split(maxsplit=1)
        file = Path(name.strip())
        if file.is_absolute() or ".." in file.parts:
            raise ValueError("a data set names its own images")
        return path.parent / file, parse_stamp(stamp)

    listed, warnings = parse_lines(path, parse, "name no image")
    if not listed:
        raise DatasetError(warnings[0] if warnings else f"{path}: names no image")
    return [file for file, _ in listed], [stamp for _, stamp in listed], warnings


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(entry.name for entry in folder.iterdir())
    except OSError:
        return frozenset()
