"""Converting a drive to a bag keeps everything, and leaves nothing half-written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from rosbags.highlevel import AnyReader

from kbf_localization.datasets.bag_writer import STORAGES, write_bag
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import DatasetError
from test.datasets.bags import MemoryDrive


@pytest.mark.parametrize("storage", STORAGES)
def test_a_drive_comes_back_from_its_bag_as_it_was(tmp_path: Path, storage: str) -> None:
    drive = MemoryDrive()
    write_bag(drive, tmp_path / "bag", storage=storage)
    read = RosbagDrive(tmp_path / "bag")
    assert read.name == "bag" and read.condition == "cloudy"
    assert read.warnings == (
        "12 known poses from /ground_truth, carried along /odom between them; "
        "largest gap 0.2 s, 0.12 m",
    )
    assert np.array_equal(read.stamps_ns, drive.stamps_ns)
    assert np.array_equal(read.odometry.stamps_ns, drive.odometry.stamps_ns)
    np.testing.assert_allclose(read.odometry.poses, drive.odometry.poses, rtol=0, atol=1e-14)
    assert read.poses is not None
    np.testing.assert_allclose(read.poses, drive.poses, rtol=0, atol=1e-14)
    assert list(read.encoded_images()) == list(drive.encoded_images())


def test_raw_images_are_the_decoded_pixels(tmp_path: Path) -> None:
    drive = MemoryDrive(frames=3)
    write_bag(drive, tmp_path / "bag", raw=True)
    read = RosbagDrive(tmp_path / "bag")
    assert read.image_topic.type == "sensor_msgs/msg/Image"
    for (_, image), (_, data) in zip(read.images(), drive.encoded_images()):
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        assert np.array_equal(image, cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY))


@pytest.mark.parametrize("storage", STORAGES)
def test_another_reader_finds_the_documented_topics_types_and_qos(
    tmp_path: Path, storage: str
) -> None:
    write_bag(MemoryDrive(), tmp_path / "bag", storage=storage)
    with AnyReader([tmp_path / "bag"]) as reader:
        found = {name: (info.msgtype, info.msgcount) for name, info in reader.topics.items()}
    assert found == {
        "/odom": ("nav_msgs/msg/Odometry", 48),
        "/tf": ("tf2_msgs/msg/TFMessage", 48),
        "/ground_truth": ("geometry_msgs/msg/PoseStamped", 12),
        "/image/compressed": ("sensor_msgs/msg/CompressedImage", 12),
    }
    metadata = yaml.safe_load((tmp_path / "bag" / "metadata.yaml").read_text())
    for topic in metadata["rosbag2_bagfile_information"]["topics_with_message_count"]:
        (profile,) = topic["topic_metadata"]["offered_qos_profiles"]
        assert profile["reliability"] == "reliable" and profile["durability"] == "volatile"
        assert profile["history"] == "keep_last" and profile["depth"] >= 10


def test_the_files_in_a_bag_are_named_after_it(tmp_path: Path) -> None:
    write_bag(MemoryDrive(frames=2), tmp_path / "office", storage="sqlite3")
    assert sorted(path.name for path in (tmp_path / "office").iterdir()) == [
        "metadata.yaml",
        "office.db3",
    ]


class BreakingDrive(MemoryDrive):
    """Its camera's files end in the middle."""

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        yield from list(super().encoded_images())[:5]
        raise DatasetError("the disk is gone")


@pytest.mark.parametrize("storage", STORAGES)
def test_nothing_is_left_when_the_drive_breaks_off(tmp_path: Path, storage: str) -> None:
    with pytest.raises(DatasetError, match="the disk is gone"):
        write_bag(BreakingDrive(), tmp_path / "bag", storage=storage)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_bag_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "bag").mkdir()
    with pytest.raises(DatasetError, match="bag: exists already"):
        write_bag(MemoryDrive(), tmp_path / "bag")
    assert [path.name for path in tmp_path.rglob("*")] == ["bag"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("already there")
    with pytest.raises(DatasetError, match="file/bag: cannot be written"):
        write_bag(MemoryDrive(), tmp_path / "file" / "bag")


def test_an_unknown_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="--storage tape: choose one of mcap, sqlite3"):
        write_bag(MemoryDrive(), tmp_path / "bag", storage="tape")
    assert list(tmp_path.iterdir()) == []


def test_stamps_beyond_those_of_ros_are_named(tmp_path: Path) -> None:
    """Its seconds have 32 bits; a folder's may be milliseconds by mistake."""

    class Late(MemoryDrive):
        @property
        def stamps_ns(self) -> np.ndarray:
            return super().stamps_ns + 2**31 * 10**9

    with pytest.raises(DatasetError, match="its stamps reach 3299696507 s, and ROS's messages"):
        write_bag(Late(), tmp_path / "bag")
    assert list(tmp_path.iterdir()) == []
