"""Readers of public data sets, and of folders of anybody's images or with a video."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np

from kbf_localization.arrays import Array, Image, Stamps
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.files import (
    LineError,
    check_regular,
    counted,
    in_time_order,
    parse_lines,
    read_lines,
)
from kbf_localization.datasets.image_files import (
    IMAGE_SUFFIXES,
    ImageFilesDrive,
    read_image_list,
)
from kbf_localization.datasets.known_cameras import (
    SEVEN_SCENES,
    kitti_camera,
    openloris_camera,
    openloris_mount,
    tum_camera,
)
from kbf_localization.datasets.planar import Axes
from kbf_localization.datasets.trajectory import (
    Trajectory,
    parse_stamp,
    read_trajectory,
    sense_of_scale,
)
from kbf_localization.errors import DatasetError
from kbf_localization.limits import MAX_COORDINATE_M
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.mount import Mount

VIDEO_SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm")
TRUTH, ODOMETRY, FRAME_STAMPS = "groundtruth.txt", "odometry.txt", "frames.txt"
MAX_FRAMES = 1_000_000
_JPEG_QUALITY = 95
KINECT_PERIOD_NS = 33_333_333
BEGIN_NS = 1_000_000_000
"""Where clocks that begin at zero are put: to ROS a stamp of zero means none."""
_SEVEN_SCENES = re.compile(r"frame-(\d{6})\.color\.(?:png|jpe?g)")


class TextFilesDrive(ImageFilesDrive):
    """A list of images, `groundtruth.txt`, and perhaps odometry: text files in TUM's formats."""

    image_list: ClassVar[str]
    """ "stamp file" a line; where it may be missing, images are named by their stamps."""
    odometry_file: ClassVar[str | None] = None
    axes: ClassVar[Axes | None] = None
    """Of the known poses; None: found from their turns."""
    recognized_by: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path) -> None:
        warnings: list[str] = []
        if (path / self.image_list).is_file():
            files, stamps, warnings = read_image_list(path / self.image_list)
        else:
            files, stamps = _named_by_stamp(path)
        truth_file = path / "groundtruth.txt"
        if not truth_file.exists():
            raise DatasetError(f"{truth_file}: is missing; a drive needs its known poses")
        truth, more = read_trajectory(truth_file)
        warnings += more
        odometry: Trajectory | None = None
        if self.odometry_file and (path / self.odometry_file).is_file():
            odometry, more = read_trajectory(path / self.odometry_file)
            warnings += more
        super().__init__(
            path,
            files,
            stamps,
            truth,
            axes=self.axes,
            odometry=odometry,
            warnings=warnings,
            known_camera=self._known_camera,
        )

    def _known_camera(self, width: int, height: int) -> tuple[Camera | None, Mount | None]:
        """Return the data set's camera; nobody knows that of anybody's data."""
        return None, None

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return all((path / name).is_file() for name in cls.recognized_by)


class TumDrive(TextFilesDrive):
    """TUM RGB-D (Sturm et al. 2012): `rgb.txt`, `groundtruth.txt`, `rgb/`; no wheel odometry.

    Its Pioneer sequences have wheel odometry in their bags alone: open those.
    """

    kind = "TUM RGB-D folder"
    image_list = "rgb.txt"
    axes = Axes.CAMERA
    recognized_by = ("rgb.txt", "groundtruth.txt")

    def _known_camera(self, width: int, height: int) -> tuple[Camera | None, Mount | None]:
        # A folder of another name: the list says which bag it was made from.
        head = itertools.takewhile(
            lambda line: line.startswith("#"), read_lines(self.path / self.image_list)
        )
        return tum_camera(self.name) or tum_camera(" ".join(head)), None


class OpenLorisDrive(TextFilesDrive):
    """OpenLORIS-Scene (Shi et al. 2020): `color.txt`, `groundtruth.txt`, `odom.txt`.

    The odometry is the robot's base's, the known poses that or the camera's: their turns tell.
    """

    kind = "OpenLORIS folder"
    image_list = "color.txt"
    odometry_file = "odom.txt"
    recognized_by = ("color.txt", "odom.txt")

    def _known_camera(self, width: int, height: int) -> tuple[Camera | None, Mount | None]:
        sensors, transforms = self.path / "sensors.yaml", self.path / "trans_matrix.yaml"
        camera = openloris_camera(sensors) if sensors.is_file() else None
        if self.mount is not None or not transforms.is_file():
            return camera, None  # the poses are the camera's own
        return camera, openloris_mount(transforms)


class SevenScenesDrive(ImageFilesDrive):
    """A sequence of 7-Scenes (Shotton et al. 2013): `frame-000000.color.png`, `.pose.txt`.

    The poses (4 x 4, camera to world) have no stamps: the Kinect's 30 images a second are assumed.
    """

    kind = "7-Scenes folder"

    def __init__(self, path: Path) -> None:
        matches = (_SEVEN_SCENES.fullmatch(entry.name) for entry in path.iterdir())
        numbered = sorted((int(match[1]), match[0]) for match in matches if match)
        stamps = [BEGIN_NS + number * KINECT_PERIOD_NS for number, _ in numbered]
        matrices = [_read_matrix(path / f"frame-{number:06d}.pose.txt") for number, _ in numbered]
        truth, warnings = _trajectory(
            path,
            stamps,
            matrices,
            "images have no usable pose file (a rigid transform of 4 x 4 numbers)",
        )
        warnings.append(f"{path}: no stamps in this data set; 30 images a second assumed")
        super().__init__(
            path,
            [path / name for _, name in numbered],
            stamps,
            truth,
            warnings=warnings,
            known_camera=lambda *_size: (SEVEN_SCENES, None),
        )

    @staticmethod
    def recognizes(path: Path) -> bool:
        return any((path / f"frame-000000.color.{kind}").is_file() for kind in ("png", "jpg"))


class KittiDrive(ImageFilesDrive):
    """A sequence of KITTI odometry (Geiger et al. 2012): `sequences/NN/image_0`, `times.txt`.

    The poses of NN are in `poses/NN.txt` beside `sequences/`, or in the sequence's `poses.txt`.
    """

    kind = "KITTI folder"

    def __init__(self, path: Path) -> None:
        resolved = path.resolve()
        beside = resolved.parent.parent / "poses" / f"{resolved.name}.txt"
        poses = next((file for file in (path / "poses.txt", beside) if file.is_file()), None)
        if poses is None:
            raise DatasetError(f"{path}: a KITTI sequence needs image_0/ and poses/NN.txt")
        camera = path / ("image_0" if (path / "image_0").is_dir() else "image_2")
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
        except ValueError as error:
            raise DatasetError(f"{path / 'times.txt'}: {error}") from error
        truth, more = _trajectory(
            poses,
            stamps,
            matrices[:count],
            "lines hold no pose (12 numbers: the upper rows of a rigid transform)",
        )
        # An image's number is its line in times.txt, also where some images are missing.
        numbers = {file: int(file.stem) for file in files if file.stem.isdecimal()}
        usable = {file: stamps[number] for file, number in numbers.items() if number < count}
        super().__init__(
            path,
            list(usable),
            list(usable.values()),
            truth,
            warnings=warnings + more,
            known_camera=lambda *size: self._kitti_camera(camera.name, *size),
        )

    def _kitti_camera(
        self, images: str, width: int, height: int
    ) -> tuple[Camera | None, Mount | None]:
        calibration = self.path / "calib.txt"
        if not calibration.is_file():
            return None, None
        camera, centre = kitti_camera(calibration, images, width, height)
        rotation = (self.mount or Mount.ahead()).rotation
        return camera, Mount(rotation, rotation @ centre)

    @staticmethod
    def recognizes(path: Path) -> bool:
        return (path / "times.txt").is_file() and (
            (path / "image_0").is_dir() or (path / "image_2").is_dir()
        )


class FolderDrive(TextFilesDrive):
    """Anybody's data: images, `groundtruth.txt` and perhaps `odometry.txt`, both in TUM's format.

    The images are those of `images.txt` ("stamp file" a line), or the files in `images/` or in the
    folder itself that are named by their stamps, such as 1305031526.671473.png. The trajectory may
    be the camera's (z forward) or the robot's (x forward, z up): its turns show which.
    """

    image_list = "images.txt"
    odometry_file = "odometry.txt"
    recognized_by = ("groundtruth.txt",)


class VideoDrive(ImageFilesDrive):
    """One video, `groundtruth.txt`, and perhaps `odometry.txt`, both in TUM's format.

    `frames.txt` has the stamp of each frame, one a line. Without it the video begins with the
    trajectory, and its frames follow at the video's own times.
    """

    kind = "video folder"

    def __init__(self, path: Path) -> None:
        self._video = _video_in(path)
        truth, warnings = read_trajectory(path / TRUTH)
        stamps, more = self._frame_stamps(path, truth)
        odometry: Trajectory | None = None
        if (path / ODOMETRY).is_file():
            odometry, of_odometry = read_trajectory(path / ODOMETRY)
            more += of_odometry
        files = [self._video] * len(stamps)
        super().__init__(
            path, files, stamps, truth, axes=None, odometry=odometry, warnings=warnings + more
        )

    @staticmethod
    def recognizes(path: Path) -> bool:
        return (
            (path / TRUTH).is_file()
            and not (path / "images.txt").exists()
            and any(file.suffix.lower() in VIDEO_SUFFIXES for file in path.iterdir())
        )

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield frames as JPEG; empty from where the video cannot be decoded."""
        wanted = list(range(len(self))) if indices is None else [int(index) for index in indices]
        frames = _Frames(self._video)
        try:
            for index in wanted:
                frame = frames.at(int(self._numbers[index]))
                yield index, b"" if frame is None else _as_jpeg(frame)
        finally:
            frames.close()

    def _present(
        self, files: Sequence[Path], stamps_ns: Sequence[int]
    ) -> tuple[list[Path], Stamps]:
        """Return frames by time, each stamp once; `_numbers` are their numbers in the video."""
        ordered, self._numbers, warnings = in_time_order(self.path, stamps_ns, "frames")
        self._warnings += warnings
        return [self._video] * len(ordered), ordered

    def _frame_stamps(self, path: Path, truth: Trajectory) -> tuple[list[int], list[str]]:
        times = _frame_times_ns(self._video)
        listed = path / FRAME_STAMPS
        if not listed.is_file():
            begin = int(truth.stamps_ns[0])
            note = f"{path}: no {FRAME_STAMPS}: the video is taken to begin with the trajectory"
            return [begin + time for time in times], [note]
        stamps, warnings = parse_lines(listed, parse_stamp, "hold no stamp")
        if len(stamps) != len(times):
            raise DatasetError(
                f"{listed}: {len(stamps)} stamps for the {len(times)} frames of {self._video.name};"
                " write one a line"
            )
        return stamps, warnings


class _Frames:
    """Reads a video's frames by number, forward where it can."""

    def __init__(self, video: Path) -> None:
        self._video, self._next = video, 0
        self._capture = _open_video(video)

    def at(self, number: int) -> Image | None:
        if number < self._next:
            self._capture.release()
            self._capture, self._next = _open_video(self._video), 0
        while self._next <= number:
            if not self._capture.grab():
                return None
            self._next += 1
        decoded, frame = self._capture.retrieve()
        return np.asarray(frame) if decoded else None

    def close(self) -> None:
        self._capture.release()


READERS = (
    *(ColdDrive, TumDrive, OpenLorisDrive, SevenScenesDrive),
    *(KittiDrive, VideoDrive, FolderDrive),
)
"""In the order in which a folder is shown to them."""


def _named_by_stamp(path: Path) -> tuple[list[Path], list[int]]:
    folder = path / "images" if (path / "images").is_dir() else path
    files, stamps, reason = [], [], ""
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in IMAGE_SUFFIXES:
            continue
        try:
            stamps.append(parse_stamp(file.stem))
        except ValueError as error:
            reason = reason or (f" ({error})" if isinstance(error, LineError) else "")
            continue
        files.append(file)
    if not files:
        raise DatasetError(
            f"{folder}: no images named by their stamps, such as 1305031526.671473.png{reason}, "
            f"and no {path / 'images.txt'} with 'stamp file' a line"
        )
    return files, stamps


def _read_matrix(path: Path) -> Array | None:
    try:
        return _matrix(" ".join(read_lines(path)))
    except DatasetError:
        return None


def _matrix(text: str) -> Array | None:
    """Return the upper three rows (3, 4) of a rigid transform written row by row; else None."""
    try:
        values = np.array([float(field) for field in text.split()])
    except ValueError:
        return None
    # A comparison with NaN is false.
    if values.size not in (12, 16) or not (np.abs(values) <= MAX_COORDINATE_M).all():
        return None
    matrix = values[:12].reshape(3, 4)
    error = np.abs(matrix[:, :3] @ matrix[:, :3].T - np.eye(3)).max()
    return matrix if error < 0.05 and np.linalg.det(matrix[:, :3]) > 0 else None


def _trajectory(
    path: Path, stamps: Sequence[int], matrices: Sequence[Array | None], fault: str
) -> tuple[Trajectory, list[str]]:
    """Return the poses that are known, by time, and warnings; the others have the `fault`."""
    known = [(stamp, matrix) for stamp, matrix in zip(stamps, matrices) if matrix is not None]
    if not known:
        raise DatasetError(f"{path}: {len(matrices)} {fault}")
    stamps_ns, first, warnings = in_time_order(path, [stamp for stamp, _ in known], "known poses")
    warnings += counted(path, len(matrices) - len(known), fault)
    stacked = np.array([known[row][1] for row in first])
    trajectory = Trajectory(stamps_ns, stacked[:, :, 3], stacked[:, :, :3])
    return trajectory, warnings + sense_of_scale(path, trajectory)


def _video_in(path: Path) -> Path:
    videos = sorted(file for file in path.iterdir() if file.suffix.lower() in VIDEO_SUFFIXES)
    if len(videos) != 1:
        names = ", ".join(file.name for file in videos)
        raise DatasetError(f"{path}: several videos ({names}); a drive has one")
    return videos[0]


def _open_video(video: Path) -> cv2.VideoCapture:
    # FFmpeg waits for whoever writes to a pipe, and hears no signal meanwhile.
    check_regular(video)
    capture = cv2.VideoCapture(str(video), cv2.CAP_FFMPEG)
    if not capture.isOpened():
        raise DatasetError(f"{video}: is no video that OpenCV's FFmpeg can read")
    return capture


def _frame_times_ns(video: Path) -> list[int]:
    """Return when each frame is shown, in nanoseconds from the first."""
    capture = _open_video(video)
    times: list[int] = []
    try:
        while len(times) < MAX_FRAMES and capture.grab():
            times.append(round(1e6 * float(capture.get(cv2.CAP_PROP_POS_MSEC))))
    finally:
        capture.release()
    if len(times) < 2:
        raise DatasetError(f"{video}: {len(times)} frames can be read; a drive needs two or more")
    return [time - times[0] for time in times]


def _as_jpeg(frame: Image) -> bytes:
    quality = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
    return bytes(cv2.imencode(".jpg", frame, quality)[1].tobytes())
