"""The COLD reader on the real layout, and on folders that are damaged."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive, parse_frame_name, read_places
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import interpolate
from test.datasets.cold_folders import make_cold_drive, odometry_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_cold_drive(tmp_path / "seq1_cloudy1", frames=12)


def images_of(folder: Path) -> list[Path]:
    return sorted((folder / "std_cam").iterdir())


def test_names_give_stamp_and_pose_exactly() -> None:
    frame = parse_frame_name("t1152212857.193444_x0.3068230_y-0.0158034_a-0.0096662.jpeg")
    assert frame is not None
    assert frame.stamp_ns == 1152212857_193444000
    assert frame.pose == (0.306823, -0.0158034, -0.0096662)


@pytest.mark.parametrize("decimals", [1, 6, 7, 12])
def test_any_number_of_decimals_is_read(tmp_path: Path, decimals: int) -> None:
    drive = ColdDrive(make_cold_drive(tmp_path / "drive", frames=5, decimals=decimals))
    np.testing.assert_allclose(drive.poses[:, 0], 0.1 * np.arange(5), atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "thumbs.db",
        "t1152212857_x0.3_y0.0_a0.1.jpeg",
        "t1152212857.193444_xnan_y0.0_a0.1.jpeg",
        "t1152212857.193444_x0.3_yinf_a0.1.jpeg",
        "t1152212857.193444_x0.3_y0.0.jpeg",
        "t1152212857.193444_x0.3_y0.0_a0.1.gif",
        f"t{10**12}.193444_x0.3_y0.0_a0.1.jpeg",
        f"t1152212857.193444_x{'9' * 400}.0_y0.0_a0.1.jpeg",
        "t1152212857.193444_x0.3_y-10000001.0_a0.1.jpeg",
        f"t{'9' * 5000}.193444_x0.3_y0.0_a0.1.jpeg",
    ],
)
def test_other_names_are_no_frames(name: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_frame_name(name)


def test_the_recorded_lists_are_read_whole(cold_data: Path) -> None:
    for sequence, count, length_m in (("seq1_cloudy1", 997, 52.7), ("seq2_cloudy1", 2815, 156.9)):
        path = cold_data / "saarbruecken" / sequence / "localization" / "places.lst"
        frames, warnings = read_places(path)
        assert (len(frames), warnings) == (count, [])
        steps = np.diff([frame.pose[:2] for frame in frames], axis=0)
        assert np.hypot(*steps.T).sum() == pytest.approx(length_m, abs=0.05)
        assert all(frame.label for frame in frames)


def test_a_drive_has_images_labels_condition_and_odometry(folder: Path) -> None:
    drive = ColdDrive(folder)
    assert (len(drive), drive.name, drive.condition) == (12, "seq1_cloudy1", "cloudy")
    assert drive.labels == ("CR-A",) * 6 + ("1PO-A",) * 6
    assert drive.warnings == ()
    assert (np.diff(drive.stamps_ns) == 200_000_000).all()
    indices, images = zip(*drive.images(), strict=True)
    assert indices == tuple(range(12))
    assert all(image is not None and image.shape == (120, 160) for image in images)
    assert dict(drive.encoded_images([3, 7]))[7] == images_of(folder)[7].read_bytes()
    # Odometry is on x = 5 + 0.5 (t - start - 0.1): the images' 0.093444 s later is 4.67 cm.
    at_images = interpolate(drive.odometry.stamps_ns, drive.odometry.poses, drive.stamps_ns)
    np.testing.assert_allclose(at_images[:, 0], 5.046722 + 0.1 * np.arange(12), atol=1e-6)


def test_a_gap_and_a_stop_are_kept_as_they_are(folder: Path) -> None:
    for _ in range(3):
        images_of(folder)[4].unlink()
    drive = ColdDrive(folder)
    assert np.diff(drive.stamps_ns).max() == 800_000_000
    assert "3 of its images are not in std_cam" in drive.warnings[0]


def test_bad_images_are_none_and_the_rest_is_fine(folder: Path) -> None:
    paths = images_of(folder)
    paths[1].write_bytes(b"")
    paths[2].write_bytes(paths[2].read_bytes()[:700])
    paths[3].write_bytes(b"not an image at all")
    drive = ColdDrive(folder)
    paths[4].unlink()
    bad = [index for index, image in drive.images() if image is None]
    assert bad == [1, 2, 3, 4]


def test_files_with_other_names_are_counted(folder: Path) -> None:
    (folder / "std_cam" / "Thumbs.db").write_bytes(b"")
    (folder / "std_cam" / "t1_xnan_y0.0_a0.0.jpeg").write_bytes(b"")
    drive = ColdDrive(folder)
    assert len(drive) == 12
    assert "2 files are named unlike" in drive.warnings[0]


def test_times_out_of_order_are_put_in_order(folder: Path) -> None:
    places = folder / "localization" / "places.lst"
    lines = places.read_text().splitlines()
    places.write_text("\n".join([*lines[6:], *lines[:6], "garbage CR-A"]))
    odometry = folder / "odom_scans" / "odom.tdf"
    readings = odometry.read_text().splitlines()
    odometry.write_text("\n".join([*readings[9:], *readings[:9], readings[0]]))
    drive = ColdDrive(folder)
    assert drive.labels == ("CR-A",) * 6 + ("1PO-A",) * 6
    assert (np.diff(drive.odometry.stamps_ns) > 0).all()
    assert (np.diff(drive.odometry.poses[:, 0]) > 0).all()
    text = "\n".join(drive.warnings)
    assert text.count("out of time order") == 2
    assert "1 lines name no COLD image" in text
    assert "1 readings repeat" in text


def test_two_images_of_one_stamp_count_once(folder: Path) -> None:
    first = images_of(folder)[0]
    shutil.copy(first, first.with_name(first.name.replace("x0.0", "x9.0")))
    drive = ColdDrive(folder)
    assert len(drive) == 12
    assert "1 images repeat" in drive.warnings[0]


def test_bad_odometry_lines_are_counted(folder: Path) -> None:
    path = folder / "odom_scans" / "odom.tdf"
    bad = [
        "garbage",
        odometry_line(1152212900.0, float("nan"), 0.0, 0.0),
        "a b c d e f g h i j k l",
    ]
    path.write_text(path.read_text() + "\n".join(bad))
    assert "3 lines hold no reading" in ColdDrive(folder).warnings[0]


def refused(folder: Path, says: str) -> None:
    with pytest.raises(DatasetError, match=says) as error:
        ColdDrive(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_drive_with_too_few_images_says_so(folder: Path) -> None:
    first, *others = images_of(folder)
    for path in others:
        path.unlink()
    refused(folder, "1 images")
    first.unlink()
    refused(folder, "0 images")
    (folder / "std_cam").rmdir()
    refused(folder, "no folder std_cam")


ANOTHER_DAY = [odometry_line(999.0 + 0.1 * tick, 0.0, 0.0, 0.0) for tick in range(20)]
ONE_STAMP = [odometry_line(1152212857.5, 0.0, 0.0, 0.0)] * 3


@pytest.mark.parametrize(
    ("odometry", "says"),
    [
        (None, r"odom\.tdf.*needs its wheel odometry"),
        (b"", r"odom\.tdf: 0 readings"),
        (bytes(range(256)) * 40, r"odom\.tdf: \d+ lines hold no reading"),
        ("\n".join(ANOTHER_DAY).encode(), "same drive"),
        ("\n".join(ONE_STAMP).encode(), "same stamp"),
    ],
    ids=["missing", "empty", "binary", "of another day", "of one stamp"],
)
def test_odometry_that_cannot_be_used_says_why(
    folder: Path, odometry: bytes | None, says: str
) -> None:
    file = folder / "odom_scans" / "odom.tdf"
    if odometry is None:
        file.unlink()
    else:
        file.write_bytes(odometry)
    refused(folder, says)


def test_a_drive_without_labels_has_none(folder: Path) -> None:
    (folder / "localization" / "places.lst").unlink()
    assert ColdDrive(folder).labels is None


def test_a_colour_image_is_read_in_grey(folder: Path) -> None:
    path = images_of(folder)[0]
    cv2.imwrite(str(path), np.full((120, 160, 3), (0, 0, 255), dtype=np.uint8))
    _, image = next(ColdDrive(folder).images([0]))
    assert image is not None
    # Red is 0.299 of grey.
    assert abs(int(image[60, 80]) - 76) <= 1
