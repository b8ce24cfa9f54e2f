"""A folder with a video and a trajectory: somebody's own data without image files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from kbf_localization.arrays import Image, Stamps
from kbf_localization.datasets.files import in_time_order, parse_lines
from kbf_localization.datasets.image_files import ImageFilesDrive
from kbf_localization.datasets.trajectory import Trajectory, parse_stamp, read_trajectory
from kbf_localization.errors import DatasetError

SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm")
TRUTH, ODOMETRY, FRAME_STAMPS = "groundtruth.txt", "odometry.txt", "frames.txt"
MAX_FRAMES = 1_000_000
_JPEG_QUALITY = 95


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
            and any(file.suffix.lower() in SUFFIXES for file in path.iterdir())
        )

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Frames as JPEG; empty from where the video cannot be decoded."""
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
        """Frames by time, each stamp once; `_numbers` are their numbers in the video."""
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
        self._capture = _open(video)

    def at(self, number: int) -> Image | None:
        if number < self._next:
            self._capture.release()
            self._capture, self._next = _open(self._video), 0
        while self._next <= number:
            if not self._capture.grab():
                return None
            self._next += 1
        decoded, frame = self._capture.retrieve()
        return np.asarray(frame) if decoded else None

    def close(self) -> None:
        self._capture.release()


def _video_in(path: Path) -> Path:
    videos = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
    if len(videos) != 1:
        names = ", ".join(file.name for file in videos)
        raise DatasetError(f"{path}: several videos ({names}); a drive has one")
    return videos[0]


def _open(video: Path) -> cv2.VideoCapture:
    capture = cv2.VideoCapture(str(video), cv2.CAP_FFMPEG)
    if not capture.isOpened():
        raise DatasetError(f"{video}: is no video that OpenCV's FFmpeg can read")
    return capture


def _frame_times_ns(video: Path) -> list[int]:
    """Return when each frame is shown, in nanoseconds from the first."""
    capture = _open(video)
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
