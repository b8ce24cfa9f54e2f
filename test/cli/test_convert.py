"""`kbf convert` as its user sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.rosbag import RosbagDrive
from test.datasets.bags import MemoryDrive


def kbf(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbf_localization.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def write_cold_folder(folder: Path, drive: MemoryDrive) -> Path:
    (folder / "std_cam").mkdir(parents=True)
    (folder / "odom_scans").mkdir()
    for index, data in drive.encoded_images():
        x, y, heading = drive.poses[index]
        seconds, nanoseconds = divmod(int(drive.stamps_ns[index]), 10**9)
        name = f"t{seconds}.{nanoseconds // 1000:06d}_x{x:.7f}_y{y:.7f}_a{heading:.7f}.jpeg"
        (folder / "std_cam" / name).write_bytes(data)
    lines = []
    for stamp, (x, y, heading) in zip(drive.odometry.stamps_ns.tolist(), drive.odometry.poses):
        seconds, nanoseconds = divmod(stamp, 10**9)
        lines.append(f"0 0 0 {seconds} {nanoseconds // 1000} 0 0 0 {x:.9f} {y:.9f} 0 {heading:.9f}")
    (folder / "odom_scans" / "odom.tdf").write_text("\n".join(lines) + "\n")
    return folder


def test_a_cold_folder_becomes_a_bag_with_the_same_bytes(tmp_path: Path) -> None:
    cold = ColdDrive(write_cold_folder(tmp_path / "seq1_night1", MemoryDrive()))
    done = kbf("convert", cold.path, tmp_path / "bag")
    assert done.returncode == 0, done.stderr
    assert "12 images, 48 odometry readings" in done.stdout
    read = RosbagDrive(tmp_path / "bag")
    assert read.condition == "night"
    assert np.array_equal(read.stamps_ns, cold.stamps_ns)
    np.testing.assert_allclose(read.poses, cold.poses, rtol=0, atol=1e-14)
    assert list(read.encoded_images()) == list(cold.encoded_images())


def test_a_bag_becomes_another_kind_of_bag(tmp_path: Path) -> None:
    write_bag(MemoryDrive(), tmp_path / "a")
    assert kbf("convert", tmp_path / "a", tmp_path / "b", "--storage", "sqlite3").returncode == 0
    assert list(RosbagDrive(tmp_path / "b").encoded_images()) == list(
        MemoryDrive().encoded_images()
    )


def test_mistakes_give_one_line_and_exit_code_2_and_leave_nothing(tmp_path: Path) -> None:
    write_bag(MemoryDrive(), tmp_path / "a")
    for arguments, says in (
        ((tmp_path / "nowhere", tmp_path / "b"), "nowhere: no such file or folder"),
        ((tmp_path / "a", tmp_path / "a"), "a: exists already"),
        ((tmp_path / "a", tmp_path / "b", "--storage", "tape"), "--storage tape: choose one of"),
        ((tmp_path / "a", tmp_path / "b", "--odom-topic", "x"), "no topic x; it has"),
    ):
        done = kbf("convert", *arguments)
        assert done.returncode == 2 and says in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
