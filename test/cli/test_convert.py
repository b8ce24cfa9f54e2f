"""`kbf convert` as its user sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from click.testing import Result
from typer.testing import CliRunner

from kbf_localization.cli.main import app
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.rosbag import RosbagDrive
from test.datasets.bags import MemoryDrive


def kbf(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


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
    assert done.exit_code == 0, done.output
    assert "12 images, 48 odometry readings" in done.output
    read = RosbagDrive(tmp_path / "bag")
    assert read.condition == "night"
    assert np.array_equal(read.stamps_ns, cold.stamps_ns)
    np.testing.assert_allclose(read.poses, cold.poses, rtol=0, atol=1e-14)
    assert list(read.encoded_images()) == list(cold.encoded_images())


def test_a_bag_becomes_another_kind_of_bag(tmp_path: Path) -> None:
    write_bag(MemoryDrive(), tmp_path / "a")
    assert kbf("convert", tmp_path / "a", tmp_path / "b", "--storage", "sqlite3").exit_code == 0
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
        assert done.exit_code == 2 and says in done.output, done.output
        assert len(done.output.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
