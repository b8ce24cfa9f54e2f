"""Symbolic links do not lead out of a drive's folder, whatever its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from test.datasets.public_folders import write_image
from test.datasets.test_hostile_files import MAKERS

# What is replaced by a link to something outside: an image, or a file of text or messages.
LINKED = {
    "cold": ("std_cam/*.jp*g", "odom_scans/odom.tdf", "localization"),
    "tum": ("rgb/*.png", "groundtruth.txt", "rgb"),
    "openloris": ("color/*.png", "odom.txt", "color"),
    "seven_scenes": ("*.color.png", "frame-000001.pose.txt"),
    "kitti": ("sequences/03/image_0/*.png", "sequences/03/times.txt", "poses/03.txt"),
    "plain": ("**/*.png", "groundtruth.txt", "odometry.txt"),
    "mcap": ("*.mcap", "metadata.yaml"),
    "sqlite3": ("*.db3", "metadata.yaml"),
    "ros1": ("*.bag",),
}
CASES = [(kind, pattern) for kind, patterns in LINKED.items() for pattern in patterns]


def drive_of(kind: str, folder: Path) -> Path:
    return folder / "sequences" / "03" if kind == "kitti" else folder


def odometry_of(kind: str) -> str:
    return "simulate" if kind in ("tum", "seven_scenes", "kitti") else "measured"


@pytest.mark.parametrize(("kind", "pattern"), CASES)
def test_a_link_that_leads_out_is_refused_unless_it_is_allowed(
    tmp_path: Path, kind: str, pattern: str
) -> None:
    folder = tmp_path / "drive"
    MAKERS[kind](folder)
    linked = sorted(folder.glob(pattern))[1 if "*.p" in pattern or "*.j" in pattern else 0]
    outside = linked.rename(tmp_path / f"outside{linked.suffix}")
    linked.symlink_to(outside)
    drive, odometry = drive_of(kind, folder), odometry_of(kind)
    with pytest.raises(DatasetError, match=f"{linked.name}: is a link that leads out of"):
        open_drive(drive, odometry=odometry)
    assert len(open_drive(drive, odometry=odometry, follow_links=True)) >= 3


@pytest.mark.parametrize("kind", MAKERS)
def test_links_within_the_folder_and_to_the_folder_are_read(tmp_path: Path, kind: str) -> None:
    MAKERS[kind](tmp_path / "drive")
    drive = drive_of(kind, tmp_path / "drive")
    (drive / "kept").mkdir()
    image = next((path for path in sorted(drive.rglob("*")) if path.is_file()), None)
    assert image is not None
    inside = image.rename(drive / "kept" / image.name)
    image.symlink_to(inside)
    (tmp_path / "named").symlink_to(tmp_path / "drive")
    assert len(open_drive(drive_of(kind, tmp_path / "named"), odometry=odometry_of(kind))) >= 3


def test_links_in_a_circle_and_to_nothing_are_refused(tmp_path: Path) -> None:
    MAKERS["plain"](tmp_path / "drive")
    circle = tmp_path / "drive" / "circle.png"
    circle.symlink_to(circle)
    with pytest.raises(DatasetError, match=r"circle\.png: is a link"):
        open_drive(tmp_path / "drive")
    circle.unlink()
    (tmp_path / "drive" / "gone.png").symlink_to("/nowhere/at/all.png")
    with pytest.raises(DatasetError, match=r"gone\.png: is a link"):
        open_drive(tmp_path / "drive")


def test_an_image_outside_does_not_get_into_a_bag(tmp_path: Path) -> None:
    from test.cli.kbf import kbf

    MAKERS["plain"](tmp_path / "drive")
    write_image(tmp_path / "secret.png", 99)
    image = sorted((tmp_path / "drive").rglob("*.png"))[1]
    image.unlink()
    image.symlink_to(tmp_path / "secret.png")
    result = kbf("convert", tmp_path / "drive", tmp_path / "bag")
    assert result.exit_code == 2
    assert "leads out of" in " ".join(result.output.split())
    assert not (tmp_path / "bag").exists()
    assert kbf("convert", tmp_path / "drive", tmp_path / "bag", "--follow-links").exit_code == 0
