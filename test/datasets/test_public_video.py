"""A video with a trajectory is a drive."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.public import VideoDrive
from kbf_localization.errors import DatasetError
from test.datasets.public_folders import planar_path, tum_lines

FRAMES, RATE = 20, 10.0
BEGIN_NS = 1305031526 * 10**9


def make_video(folder: Path) -> Path:
    """Frames of one grey level each, 5 times their number, at 10 a second."""
    coder = cv2.VideoWriter.fourcc(*"MJPG")
    writer = cv2.VideoWriter(str(folder / "drive.avi"), cv2.CAP_FFMPEG, coder, RATE, (64, 48))
    if not writer.isOpened():
        pytest.skip("this OpenCV writes no video")
    for number in range(FRAMES):
        writer.write(np.full((48, 64, 3), 5 * number, np.uint8))
    writer.release()
    (folder / "groundtruth.txt").write_text(tum_lines(planar_path(FRAMES), RATE, camera=True))
    return folder


def levels(drive: VideoDrive, indices: list[int]) -> list[float]:
    return [float(image.mean()) for _, image in drive.images(indices) if image is not None]


def test_frames_follow_the_trajectorys_begin_at_the_videos_times(tmp_path: Path) -> None:
    drive = open_drive(make_video(tmp_path), odometry="simulate")
    expected = BEGIN_NS + (np.arange(FRAMES) * 10**8)
    # The container's clock counts milliseconds.
    assert np.abs(drive.stamps_ns - expected).max() <= 10**6
    assert any("begin with the trajectory" in line for line in drive.warnings)
    np.testing.assert_allclose(drive.poses[:, :2], planar_path(FRAMES)[:, :2], atol=2e-3)


def test_frames_are_read_by_their_number_in_any_order(tmp_path: Path) -> None:
    drive = VideoDrive(make_video(tmp_path))
    assert levels(drive, [3, 7, 8]) == pytest.approx([15.0, 35.0, 40.0], abs=2.0)
    assert levels(drive, [9, 2]) == pytest.approx([45.0, 10.0], abs=2.0)


def test_stamps_come_from_frames_txt_in_the_order_of_time(tmp_path: Path) -> None:
    make_video(tmp_path)
    stamps = [f"1305031526.{5 * (FRAMES - k):03d}" for k in range(FRAMES)]
    (tmp_path / "frames.txt").write_text("\n".join(stamps))
    drive = VideoDrive(tmp_path)
    assert drive.stamps_ns[0] == BEGIN_NS + 5 * 10**6
    assert levels(drive, [0, 1]) == pytest.approx([95.0, 90.0], abs=2.0)


def test_mistakes_are_named(tmp_path: Path) -> None:
    make_video(tmp_path)
    (tmp_path / "frames.txt").write_text("1305031526.0\n")
    with pytest.raises(DatasetError, match="1 stamps for the 20 frames of drive.avi; write one a"):
        open_drive(tmp_path)
    (tmp_path / "frames.txt").unlink()
    (tmp_path / "drive.avi").write_bytes(b"no video")
    with pytest.raises(DatasetError, match="drive.avi: is no video"):
        open_drive(tmp_path)
    (tmp_path / "other.mp4").touch()
    with pytest.raises(DatasetError, match="several videos"):
        open_drive(tmp_path)


@pytest.mark.parametrize("special", ["pipe", "folder"])
def test_a_pipe_or_a_folder_of_a_videos_name_is_not_waited_for(
    tmp_path: Path, special: str
) -> None:
    (tmp_path / "groundtruth.txt").write_text(tum_lines(planar_path(FRAMES), RATE, camera=True))
    (os.mkfifo if special == "pipe" else os.mkdir)(tmp_path / "drive.mp4")
    with pytest.raises(DatasetError, match=r"drive\.mp4: is not a regular file"):
        open_drive(tmp_path)
