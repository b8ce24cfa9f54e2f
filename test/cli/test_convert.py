"""`kbf convert` as its user sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.rosbag import RosbagDrive
from test.cli.kbf import done, kbf
from test.datasets.bags import MemoryDrive
from test.datasets.cold_folders import write_cold_drive


def test_a_cold_folder_becomes_a_bag_with_the_same_bytes(tmp_path: Path) -> None:
    cold = ColdDrive(write_cold_drive(tmp_path / "seq1_night1", MemoryDrive()))
    assert "12 images, 48 odometry readings" in done("convert", cold.path, tmp_path / "bag")
    read = RosbagDrive(tmp_path / "bag")
    assert read.condition == "night"
    assert np.array_equal(read.stamps_ns, cold.stamps_ns)
    np.testing.assert_allclose(read.poses, cold.poses, rtol=0, atol=1e-14)
    assert list(read.encoded_images()) == list(cold.encoded_images())


def test_a_bag_becomes_another_kind_of_bag(tmp_path: Path) -> None:
    write_bag(MemoryDrive(), tmp_path / "a")
    done("convert", tmp_path / "a", tmp_path / "b", "--storage", "sqlite3")
    assert list(RosbagDrive(tmp_path / "b").encoded_images()) == list(
        MemoryDrive().encoded_images()
    )


def test_topics_are_written_under_other_names(tmp_path: Path) -> None:
    write_bag(MemoryDrive(), tmp_path / "a")
    names = ("--remap", "/odom:=robot/odom", "--remap", "/image/compressed:=/front/compressed")
    done("convert", tmp_path / "a", tmp_path / "b", *names)
    read = RosbagDrive(tmp_path / "b")
    assert (read.odom_topic.name, read.image_topic.name) == ("/robot/odom", "/front/compressed")


def test_mistakes_give_one_line_and_exit_code_2_and_leave_nothing(tmp_path: Path) -> None:
    write_bag(MemoryDrive(), tmp_path / "a")
    for arguments, says in (
        ((tmp_path / "nowhere", tmp_path / "b"), "nowhere: no such file or folder"),
        ((tmp_path / "a", tmp_path / "a"), "a: exists already"),
        ((tmp_path / "a", tmp_path / "b", "--storage", "tape"), "--storage tape: choose one of"),
        ((tmp_path / "a", tmp_path / "b", "--odom-topic", "x"), "no topic x; it has"),
        ((tmp_path / "a", tmp_path / "b", "--remap", "/odom"), "--remap /odom: give both names"),
        ((tmp_path / "a", tmp_path / "b", "--remap", "/scan:=/x"), "/scan: no topic of the bag"),
        ((tmp_path / "a", tmp_path / "b", "--remap", "/odom:=a b"), "/a b: no name of a topic"),
        ((tmp_path / "a", tmp_path / "b", "--remap", "/odom:=/tf"), "would be called /tf"),
    ):
        result = kbf("convert", *arguments)
        assert result.exit_code == 2 and says in result.output, result.output
        assert len(result.output.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
