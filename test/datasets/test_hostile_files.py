"""Files of drives with anything changed give a drive that makes sense, or one line of error."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import strategies as st

from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.floor_plan_image import read_floor_plan, write_floor_plan
from kbf_localization.datasets.image_decoding import (
    MAX_PIXELS,
    grey_from_compressed,
    read_header,
    why_refused,
)
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from test.datasets.bags import MemoryDrive, drive_messages, write_messages_ros1
from test.datasets.cold_folders import make_cold_drive
from test.datasets.public_folders import (
    make_folder,
    make_kitti,
    make_openloris,
    make_seven_scenes,
    make_tum,
)
from test.fuzzing import edited, edits, fuzzed, token_edits

SECONDS = 10.0

text_edits = token_edits(
    b"nan", b"inf", b"-", b"\n", b" ", b"1e400", b"\x00", b"../", b"9" * 30
)  # fmt: skip


def check(path: Path, odometry: str = "measured") -> None:
    """The drive makes sense in bounded time, or a DatasetError of one line says why not."""
    started = time.process_time()
    try:
        drive = open_drive(path, odometry=odometry)
        stamps, poses, odometry = drive.stamps_ns, drive.poses, drive.odometry
        images = list(drive.images())
    except DatasetError as error:
        message = str(error)
    else:
        message = path.name
        assert (np.diff(stamps) > 0).all()
        assert poses is None or poses.shape == (len(drive), 3)
        assert poses is None or not np.isinf(poses).any()
        assert (np.diff(odometry.stamps_ns) > 0).all()
        assert np.isfinite(odometry.poses).all()
        assert [index for index, _ in images] == list(range(len(drive)))
    assert path.name in message
    assert "\n" not in message
    assert time.process_time() - started < SECONDS


def ros1(path: Path) -> None:
    path.mkdir()
    write_messages_ros1(path / "recorded.bag", drive_messages(MemoryDrive(frames=3)))


MAKERS: dict[str, Callable[[Path], object]] = {
    "cold": lambda path: make_cold_drive(path, 4),
    "mcap": lambda path: write_bag(MemoryDrive(frames=3), path),
    "sqlite3": lambda path: write_bag(MemoryDrive(frames=3), path, storage="sqlite3"),
    "ros1": ros1,
    "tum": lambda path: make_tum(path, 4),
    "openloris": lambda path: make_openloris(path, 4),
    "seven_scenes": lambda path: make_seven_scenes(path, 4),
    "kitti": lambda path: make_kitti(path, 4),
    "plain": lambda path: make_folder(path, 4),
}


def restored(tmp_path_factory: pytest.TempPathFactory, kind: str) -> Path:
    """A copy of a drive of this kind; made once in a session."""
    base = tmp_path_factory.getbasetemp()
    original, copy = base / f"original-{kind}", base / f"hostile-{kind}"
    if not original.exists():
        MAKERS[kind](original)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)
    return copy


@pytest.mark.parametrize("file", ["odom_scans/odom.tdf", "localization/places.lst"])
@fuzzed("COLD text file", changes=edits | text_edits)
def test_cold_text_files_with_anything_in_them(
    tmp_path_factory: pytest.TempPathFactory, file: str, changes: list[tuple[float, int, bytes]]
) -> None:
    folder = restored(tmp_path_factory, "cold")
    path = folder / file
    path.write_bytes(edited(path.read_bytes(), changes))
    check(folder)


@fuzzed(
    "COLD image name",
    name=st.from_regex(
        r"t[0-9]{1,25}\.[0-9]{1,12}_x-?[0-9.]{1,9}_y-?[0-9.]{1,400}_a-?[0-9.e]{1,9}\.jpe?g",
        fullmatch=True,
    ).filter(lambda name: len(name) < 250),
)
def test_cold_images_of_any_name(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = restored(tmp_path_factory, "cold")
    shutil.copy(next((folder / "std_cam").iterdir()), folder / "std_cam" / name)
    check(folder)


# A recording that broke off.
cut_off = st.tuples(st.floats(0.0, 1.0), st.just(10**9), st.just(b"")).map(lambda cut: [cut])


@pytest.mark.parametrize("kind", ["mcap", "sqlite3", "ros1"])
@fuzzed("bag storage", changes=edits | token_edits(b"\xff" * 8, b"\xff" * 64) | cut_off)
def test_bags_with_bytes_changed_or_cut(
    tmp_path_factory: pytest.TempPathFactory, kind: str, changes: list[tuple[float, int, bytes]]
) -> None:
    bag = restored(tmp_path_factory, kind)
    file = next(path for path in bag.iterdir() if path.name != "metadata.yaml")
    file.write_bytes(edited(file.read_bytes(), changes))
    check(bag)


@fuzzed("bag metadata", changes=edits | text_edits | cut_off)
def test_bags_with_any_metadata(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[float, int, bytes]]
) -> None:
    bag = restored(tmp_path_factory, "mcap")
    file = bag / "metadata.yaml"
    file.write_bytes(edited(file.read_bytes(), changes))
    check(bag)


@pytest.mark.parametrize(
    ("kind", "drive", "file"),
    [
        ("tum", ".", "rgb.txt"),
        ("tum", ".", "groundtruth.txt"),
        ("openloris", ".", "odom.txt"),
        ("openloris", ".", "color.txt"),
        ("seven_scenes", ".", "frame-000001.pose.txt"),
        ("kitti", "sequences/03", "sequences/03/times.txt"),
        ("kitti", "sequences/03", "poses/03.txt"),
        ("plain", ".", "groundtruth.txt"),
        ("plain", ".", "odometry.txt"),
    ],
)
@fuzzed("public data set text file", changes=edits | text_edits)
def test_public_data_sets_with_anything_in_their_text_files(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    drive: str,
    file: str,
    changes: list[tuple[float, int, bytes]],
) -> None:
    folder = restored(tmp_path_factory, kind)
    path = folder / file
    path.write_bytes(edited(path.read_bytes(), changes))
    check(folder / drive, odometry="measured" if kind in ("openloris", "plain") else "simulate")


yaml_edits = token_edits(
    b"&a ", b"*a", b"<<: ", b"[", b"{", b": ", b".inf", b".nan", b"1e400", b"1" + b"0" * 400, b"-",
    b"2001-99-99", b"9" * 5000, b"../", b"/dev/zero", b"\x00", b"true", b"!!python/object:a ",
)  # fmt: skip


@pytest.mark.parametrize("name", ["floor_plan.yaml", "floor_plan.pgm"])
@fuzzed("floor plan", changes=edits | yaml_edits)
def test_floor_plans_with_anything_in_them(
    tmp_path: Path, name: str, changes: list[tuple[float, int, bytes]]
) -> None:
    path = write_floor_plan(tmp_path, np.full((40, 60), 254, np.uint8), 0.1, (-1.0, -2.0))
    (tmp_path / name).write_bytes(edited((tmp_path / name).read_bytes(), changes))
    try:
        plan = read_floor_plan(path, np.zeros((1, 3)))
    except DatasetError as error:
        assert "\n" not in str(error)
    else:
        assert plan.image.ndim == 2
        assert np.isfinite([*plan.size_m, *plan.origin]).all()


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e309", "-.inf", "true", "9" * 5000])
@pytest.mark.parametrize("key", ["resolution: ", "origin:\n- "])
def test_a_floor_plan_whose_numbers_cannot_be(tmp_path: Path, key: str, number: str) -> None:
    path = write_floor_plan(tmp_path, np.full((40, 60), 254, np.uint8), 0.1, (-1.0, -2.0))
    text = path.read_text()
    assert key in text
    path.write_text(text.replace(key, f"{key}{number} #"))
    with pytest.raises(DatasetError, match="floor_plan.yaml"):
        read_floor_plan(path, np.zeros((1, 3)))


def test_a_floor_plan_that_claims_a_gigapixel(tmp_path: Path) -> None:
    path = write_floor_plan(tmp_path, np.full((40, 60), 254, np.uint8), 0.1, (-1.0, -2.0))
    (tmp_path / "floor_plan.pgm").write_bytes(b"P5\n40000 40000\n255\n" + bytes(1000))
    with pytest.raises(DatasetError, match="megapixels"):
        read_floor_plan(path, np.zeros((1, 3)))


IMAGE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
ENCODED = {
    "jpeg": cv2.imencode(".jpg", IMAGE)[1].tobytes(),
    "progressive": cv2.imencode(".jpg", IMAGE, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes(),
    "png": cv2.imencode(".png", IMAGE)[1].tobytes(),
    "webp": cv2.imencode(".webp", IMAGE)[1].tobytes(),
    "tiff": cv2.imencode(".tiff", IMAGE)[1].tobytes(),
    "bmp": cv2.imencode(".bmp", IMAGE)[1].tobytes(),
}
image_edits = token_edits(
    b"\xff\xd8", b"\xff\xda", b"\xff\xc0", b"\xff\xc2", b"\xff\xd9", b"\xff\xe0\xff\xff",
    b"\x7d\x00\x7d\x00", b"\x00\x00\xff\xff", b"IHDR\x00\x00\x7d\x00", b"IEND", b"\x00" * 8,
)  # fmt: skip


@pytest.mark.parametrize("kind", ENCODED)
@fuzzed("compressed image", changes=edits | image_edits)
def test_images_with_bytes_changed_or_cut(
    kind: str, changes: list[tuple[float, int, bytes]]
) -> None:
    started = time.process_time()
    data = edited(ENCODED[kind], changes)
    image = grey_from_compressed(data)
    if image is None:
        assert "\n" not in why_refused(data)
    else:
        header = read_header(data)
        assert header is not None
        assert image.dtype == np.uint8
        assert image.shape in ((header.height, header.width), (header.width, header.height))
        assert 0 < image.size <= MAX_PIXELS
    assert time.process_time() - started < SECONDS
