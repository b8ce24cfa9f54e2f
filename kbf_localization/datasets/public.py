"""Readers of public data sets and of plain folders, each by its own rules."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.files import read_lines
from kbf_localization.datasets.image_files import (
    IMAGE_SUFFIXES,
    ImageFilesDrive,
    read_image_list,
    read_truth,
)
from kbf_localization.datasets.trajectory import Trajectory, parse_stamp, read_trajectory
from kbf_localization.errors import DatasetError
from kbf_localization.limits import FARTHEST_M

KINECT_PERIOD_NS = 33_333_333
BEGIN_NS = 1_000_000_000
"""Where clocks that begin at zero are put: to ROS a stamp of zero means none."""
_SEVEN_SCENES = re.compile(r"frame-(\d{6})\.color\.(?:png|jpe?g)")


class TumDrive(ImageFilesDrive):
    """TUM RGB-D (Sturm et al. 2012): `rgb.txt`, `groundtruth.txt`, `rgb/`; no wheel odometry.

    Its Pioneer sequences have wheel odometry in their bags alone: open those.
    """

    kind = "TUM RGB-D folder"

    def __init__(self, path: Path) -> None:
        files, stamps, warnings = read_image_list(path / "rgb.txt")
        truth, more = read_truth(path / "groundtruth.txt")
        super().__init__(path, files, stamps, truth, warnings=[*warnings, *more])

    @staticmethod
    def recognizes(path: Path) -> bool:
        return (path / "rgb.txt").is_file() and (path / "groundtruth.txt").is_file()


class OpenLorisDrive(ImageFilesDrive):
    """OpenLORIS-Scene (Shi et al. 2020): `color.txt`, `groundtruth.txt`, `odom.txt`.

    The odometry is the robot's base's, the known poses that or the camera's: their turns tell.
    """

    kind = "OpenLORIS folder"

    def __init__(self, path: Path) -> None:
        files, stamps, warnings = read_image_list(path / "color.txt")
        truth, more = read_truth(path / "groundtruth.txt")
        odometry, odometry_warnings = read_trajectory(path / "odom.txt")
        super().__init__(
            path,
            files,
            stamps,
            truth,
            axes=None,
            odometry=odometry,
            warnings=[*warnings, *more, *odometry_warnings],
        )

    @staticmethod
    def recognizes(path: Path) -> bool:
        return (path / "color.txt").is_file() and (path / "odom.txt").is_file()


class SevenScenesDrive(ImageFilesDrive):
    """A sequence of 7-Scenes (Shotton et al. 2013): `frame-000000.color.png`, `.pose.txt`.

    The poses (4 x 4, camera to world) have no stamps: the Kinect's 30 images a second are assumed.
    """

    kind = "7-Scenes folder"

    def __init__(self, path: Path) -> None:
        numbered = sorted(
            (int(match[1]), path / name)
            for name, match in (
                (entry.name, _SEVEN_SCENES.fullmatch(entry.name)) for entry in path.iterdir()
            )
            if match
        )
        matrices, stamps, unusable = [], [], 0
        for number, file in numbered:
            matrix = _read_matrix(file.with_name(f"frame-{number:06d}.pose.txt"))
            if matrix is None:
                unusable += 1
                continue
            matrices.append(matrix)
            stamps.append(BEGIN_NS + number * KINECT_PERIOD_NS)
        warnings = [f"{path}: no stamps in this data set; 30 images a second assumed"]
        if unusable:
            warnings.append(f"{path}: {unusable} images have no usable pose file")
        truth = _trajectory(path, stamps, matrices)
        images = [BEGIN_NS + number * KINECT_PERIOD_NS for number, _ in numbered]
        super().__init__(path, [file for _, file in numbered], images, truth, warnings=warnings)

    @staticmethod
    def recognizes(path: Path) -> bool:
        return any((path / f"frame-000000.color.{kind}").is_file() for kind in ("png", "jpg"))


class KittiDrive(ImageFilesDrive):
    """A sequence of KITTI odometry (Geiger et al. 2012): `sequences/NN/image_0`, `times.txt`.

    The poses of NN are in `poses/NN.txt` beside `sequences/`, or in the sequence's `poses.txt`.
    """

    kind = "KITTI folder"

    def __init__(self, path: Path) -> None:
        camera = next(
            (path / name for name in ("image_0", "image_2") if (path / name).is_dir()), None
        )
        poses = _kitti_poses(path)
        if camera is None or poses is None:
            raise DatasetError(f"{path}: a KITTI sequence needs image_0/ and poses/NN.txt")
        files = sorted(file for file in camera.iterdir() if file.suffix == ".png")
        times = [line for line in read_lines(path / "times.txt") if line.strip()]
        matrices = [_matrix(line) for line in read_lines(poses) if line.strip()]
        count = min(len(times), len(matrices))
        warnings = []
        if not len(files) == len(times) == len(matrices):
            warnings.append(
                f"{path}: {len(files)} images, {len(times)} times, {len(matrices)} poses; "
                "those with all three are used"
            )
        try:
            stamps = [BEGIN_NS + parse_stamp(time) for time in times[:count]]
        except (ValueError, OverflowError) as error:
            raise DatasetError(f"{path / 'times.txt'}: {error}") from error
        known = [(stamp, matrix) for stamp, matrix in zip(stamps, matrices) if matrix is not None]
        if len(known) < count:
            warnings.append(f"{poses}: {count - len(known)} lines hold no pose")
        truth = _trajectory(path, [one[0] for one in known], [one[1] for one in known])
        # An image's number is its line in times.txt, also where some images are missing.
        usable = [(file, int(file.stem)) for file in files if file.stem.isdecimal()]
        usable = [(file, number) for file, number in usable if number < count]
        super().__init__(
            path,
            [file for file, _ in usable],
            [stamps[number] for _, number in usable],
            truth,
            warnings=warnings,
        )

    @staticmethod
    def recognizes(path: Path) -> bool:
        return (path / "times.txt").is_file() and (
            (path / "image_0").is_dir() or (path / "image_2").is_dir()
        )


class FolderDrive(ImageFilesDrive):
    """Anybody's data: images, `groundtruth.txt` and perhaps `odometry.txt`, both in TUM's format.

    The images are those of `images.txt` ("stamp file" a line), or the files in `images/` or in the
    folder itself that are named by their stamps, such as 1305031526.671473.png. The trajectory may
    be the camera's (z forward) or the robot's (x forward, z up): which is told by its turns.
    """

    def __init__(self, path: Path) -> None:
        warnings: list[str] = []
        if (path / "images.txt").is_file():
            files, stamps, warnings = read_image_list(path / "images.txt")
        else:
            files, stamps = _named_by_stamp(path)
        truth, more = read_truth(path / "groundtruth.txt")
        warnings += more
        odometry: Trajectory | None = None
        if (path / "odometry.txt").is_file():
            odometry, more = read_trajectory(path / "odometry.txt")
            warnings += more
        super().__init__(
            path, files, stamps, truth, axes=None, odometry=odometry, warnings=warnings
        )

    @staticmethod
    def recognizes(path: Path) -> bool:
        return (path / "groundtruth.txt").is_file()


READERS = (TumDrive, OpenLorisDrive, SevenScenesDrive, KittiDrive, FolderDrive)
"""In the order in which a folder is shown to them."""


def _named_by_stamp(path: Path) -> tuple[list[Path], list[int]]:
    folder = path / "images" if (path / "images").is_dir() else path
    files, stamps = [], []
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in IMAGE_SUFFIXES:
            continue
        try:
            stamps.append(parse_stamp(file.stem))
        except (ValueError, OverflowError):
            continue
        files.append(file)
    if not files:
        raise DatasetError(
            f"{folder}: no images named by their stamps, such as 1305031526.671473.png, and no "
            f"{path / 'images.txt'} with 'stamp file' a line"
        )
    return files, stamps


def _kitti_poses(path: Path) -> Path | None:
    resolved = path.resolve()
    beside = resolved.parent.parent / "poses" / f"{resolved.name}.txt"
    return next((file for file in (path / "poses.txt", beside) if file.is_file()), None)


def _read_matrix(path: Path) -> Array | None:
    try:
        return _matrix(" ".join(read_lines(path)))
    except DatasetError:
        return None


def _matrix(text: str) -> Array | None:
    """The upper three rows (3, 4) of a rigid transform written row by row; None for no such."""
    try:
        values = np.array([float(field) for field in text.split()])
    except ValueError:
        return None
    # A comparison with NaN is false.
    if values.size not in (12, 16) or not (np.abs(values) <= FARTHEST_M).all():
        return None
    matrix = values[:12].reshape(3, 4)
    error = np.abs(matrix[:, :3] @ matrix[:, :3].T - np.eye(3)).max()
    return matrix if error < 0.05 and np.linalg.det(matrix[:, :3]) > 0 else None


def _trajectory(path: Path, stamps: list[int], matrices: list[Array]) -> Trajectory:
    if len(matrices) < 2:
        raise DatasetError(f"{path}: {len(matrices)} known poses; a drive needs two or more")
    stacked = np.array(matrices)
    return Trajectory(np.array(stamps, dtype=np.int64), stacked[:, :, 3], stacked[:, :, :3])
