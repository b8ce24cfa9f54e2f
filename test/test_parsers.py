"""Parsers of one file or one message, fed with changed ones: an answer, or one line of error.

A parser joins by a line in `CASES`: a good input, and what reads it. Those whose answer has rules
of its own have tests of their own.
"""

from __future__ import annotations

import json
import struct
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import strategies as st

from kbf_localization.cli.map_files import parse_anchor, parse_pair, read_pairs
from kbf_localization.datasets.bag_limits import BoundedQos
from kbf_localization.datasets.bag_reader import CAMERA_INFO, frame_id, ros2_types, stamp_ns
from kbf_localization.datasets.bag_storage import check_database, check_index
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.camera_file import read_camera_file, write_camera_file
from kbf_localization.datasets.cold import parse_frame_name
from kbf_localization.datasets.image_decoding import read_header
from kbf_localization.datasets.known_cameras import kitti_camera, openloris_camera, openloris_mount
from kbf_localization.datasets.trajectory import parse_stamp, read_trajectory
from kbf_localization.errors import DatasetError, KbfError
from kbf_localization.evaluation.cross_validation import Journal
from kbf_localization.evaluation.description_cache import _packed, _unpacked
from kbf_localization.experiments.public import _seven_scenes
from kbf_localization.limits import MAX_COORDINATE_M
from kbf_localization.live.server import _pose
from kbf_localization.mapping.editing import frame_from_pairs
from kbf_localization.vision.camera import Camera
from kbf_localization.vision.camera.camera_info import camera_from_info
from kbf_localization.vision.camera.pinhole import PinholeCamera
from test.datasets.bags import START_NS, MemoryDrive, odometry
from test.datasets.cold_folders import frame_name
from test.datasets.public_folders import planar_path, tum_lines
from test.datasets.test_hostile_files import ENCODED
from test.fuzzing import PARSERS, edited, edits, fuzzed, token_edits

Parse = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """A good input, what reads a file of it, and what that may raise for a bad one."""

    good: Callable[[Path], bytes]
    parse: Parse
    refuses: tuple[type[Exception], ...] = (KbfError,)


def of_bytes(parse: Callable[[bytes], object]) -> Parse:
    return lambda path: parse(path.read_bytes())


def of_text(parse: Callable[[str], object]) -> Parse:
    return lambda path: parse(path.read_bytes().decode("utf-8", "surrogateescape"))


def bag(storage: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        write_bag(MemoryDrive(frames=2), folder / storage, storage=storage)
        (file,) = (path for path in (folder / storage).iterdir() if path.suffix != ".yaml")
        return file.read_bytes()

    return make


def odometry_message(_: Path) -> bytes:
    message = odometry(START_NS, 1.0, 2.0, 0.5)
    return bytes(ros2_types().serialize_cdr(message, "nav_msgs/msg/Odometry"))


def trajectory(_: Path) -> bytes:
    return tum_lines(planar_path(5)).encode()


def camera_info(_: Path) -> bytes:
    types = ros2_types().types
    region = types["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    info = types[CAMERA_INFO](
        header=odometry(START_NS, 1.0, 2.0, 0.5).header,
        height=480,
        width=640,
        distortion_model="plumb_bob",
        d=np.array([0.1, -0.05, 0.001, 0.001, 0.0]),
        k=np.array([500.0, 0.0, 319.5, 0.0, 500.0, 239.5, 0.0, 0.0, 1.0]),
        r=np.eye(3).ravel(),
        p=np.array([500.0, 0.0, 319.5, 0.0, 0.0, 500.0, 239.5, 0.0, 0.0, 0.0, 1.0, 0.0]),
        binning_x=1,
        binning_y=1,
        roi=region,
    )
    return bytes(ros2_types().serialize_cdr(info, CAMERA_INFO))


def camera_of_message(cdr: bytes) -> None:
    """As a bag's reader: any error of the decoder is a damaged bag."""
    try:
        info = ros2_types().deserialize_cdr(cdr, CAMERA_INFO)
    except Exception as error:
        raise DatasetError("damaged") from error
    for rectified in (False, True):
        camera = camera_from_info(info, rectified=rectified)
        check_sees(camera)


def check_sees(camera: Camera) -> None:
    """What is taken for a camera gives bearings; NaN where its lens has no such pixel."""
    corners = np.array([[0.0, 0.0], [camera.width - 1.0, camera.height - 1.0]])
    assert not np.isinf(camera.rays(corners)).any()


def calibration(folder: Path) -> bytes:
    write_camera_file(folder / "camera.yaml", PinholeCamera(640, 480, 500.0, 500.0, 319.5, 239.5))
    return (folder / "camera.yaml").read_bytes()


def align(path: Path) -> None:
    frame, errors = frame_from_pairs(read_pairs(path))
    assert np.isfinite(frame).all() and np.isfinite(errors).all()


def anchored(text: str) -> None:
    anchor = parse_anchor(text, [MemoryDrive()])
    assert np.isfinite(anchor.pose).all() and max(np.abs(anchor.pose)) <= MAX_COORDINATE_M


def align_by(text: str) -> None:
    pair = parse_pair(text)
    assert max(map(abs, pair)) <= MAX_COORDINATE_M


def check_kitti(path: Path) -> None:
    camera, centre = kitti_camera(path, "image_2", 1241, 376)
    check_sees(camera)
    assert np.isfinite(centre).all()


def check_mount(path: Path) -> None:
    mount = openloris_mount(path)
    assert mount is None or np.isfinite(mount.translation).all()


def split_of_a_scene(path: Path) -> None:
    for name in ("TrainSplit.txt", "TestSplit.txt"):
        path.with_name(name).write_bytes(path.read_bytes())
    _seven_scenes(path.parent, [path.parent / "seq-01", path.parent / "seq-02"])


def cached_entry(_: Path) -> bytes:
    return _packed({"features": np.ones(6, np.float32), "ms": np.array(1.5)})[4:]


def cached(body: bytes) -> None:
    """With a right checksum, as a changed entry would have that is meant to harm."""
    arrays = _unpacked(zlib.crc32(body).to_bytes(4, "little") + body)
    assert arrays is None or sum(array.nbytes for array in arrays.values()) <= len(body)


KITTI = b"P0: 1 0 0 0 0 1 0 0 0 0 1 0\nP2: 718.9 0 607.2 45.4 0 718.9 185.2 -0.1 0 0 1 0.005\n"
SENSORS = b"""%YAML:1.0
d400_color_optical_frame:
   width: 848
   height: 480
   intrinsics: !!opencv-matrix
      rows: 1
      cols: 4
      dt: f
      data: [ 611.5, 433.2, 611.4, 249.5 ]
   distortion_model: radial-tangential
   distortion_coefficients: [ 0, 0, 0, 0, 0 ]
"""
TRANSFORMS = b"""%YAML:1.0
trans_matrix:
 -
   parent_frame: base_link
   child_frame: d400_color_optical_frame
   matrix: !!opencv-matrix
      rows: 4
      cols: 4
      dt: f
      data: [ 0, 0, 1, 0.2, -1, 0, 0, 0.1, 0, -1, 0, 0.9, 0, 0, 0, 1 ]
"""
QOS = b"- history: 1\n  depth: 10\n  reliability: 1\n  durability: 2\n"

CASES = {
    "trajectory of TUM": Case(trajectory, read_trajectory),
    "stamp": Case(lambda _: b"1305031526.671473", of_text(parse_stamp), (ValueError,)),
    "name of a COLD image": Case(
        lambda _: frame_name(3).encode(), of_text(parse_frame_name), (ValueError,)
    ),
    "SQLite schema of a bag": Case(bag("sqlite3"), check_database, (KbfError, apsw.Error)),
    "index of an MCAP bag": Case(bag("mcap"), check_index, (KbfError, struct.error)),
    "QoS profiles of a bag": Case(
        lambda _: QOS, of_text(BoundedQos(lambda text: text)), (ValueError,)
    ),
    "header of a CDR message": Case(
        odometry_message, of_bytes(lambda cdr: (stamp_ns(cdr), frame_id(cdr)))
    ),
    "header of an image": Case(lambda _: ENCODED["progressive"], of_bytes(read_header)),
    "CameraInfo": Case(camera_info, of_bytes(camera_of_message)),
    "calibration file": Case(calibration, lambda path: check_sees(read_camera_file(path)[0])),
    "points to align by": Case(lambda _: b"x,y,x_to,y_to\n0,0,10,5\n4,0,10,9\n4,3,7,9\n", align),
    "pair of points to align by": Case(lambda _: b"1.5,2,10,-3.5", of_text(align_by)),
    "calibration of KITTI": Case(lambda _: KITTI, check_kitti),
    "camera of OpenLORIS": Case(lambda _: SENSORS, lambda path: check_sees(openloris_camera(path))),
    "camera's mount of OpenLORIS": Case(lambda _: TRANSFORMS, check_mount),
    "split of 7-Scenes": Case(lambda _: b"sequence1\nsequence2\n", split_of_a_scene),
    "journal of tuning": Case(
        lambda _: b'\n{"key": "[\\"a\\"]", "rmse_m": 0.25}\n{"key": "b", "rmse_m": 1}\n', Journal
    ),
    "cached description": Case(cached_entry, of_bytes(cached)),
    "anchor": Case(lambda _: b"1.5,2,90@seq1_cloudy1:1.5s", of_text(anchored)),
    "pose clicked on the live page": Case(
        lambda _: b"[1.5, -2.0, 0.7]", of_bytes(lambda text: _pose(json.loads(text))), (ValueError,)
    ),
}
PARSERS.update(CASES)

tokens = token_edits(
    b"nan", b"inf", b"-", b"\n", b" ", b"1e400", b"9" * 5000, b"9" * 30, b"\x00", b"../",
    b"\xff" * 8, b"[", b"{", b"&a ", b"*a", b"<<: ", b",", b":", b"/", b"\x1b]52;c;eA==\x07",
    b"true", b'"',
)  # fmt: skip
cut_off = st.tuples(st.floats(0.0, 1.0), st.just(10**9), st.just(b"")).map(lambda cut: [cut])


@cache
def good_input(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return CASES[name].good(Path(folder))


@pytest.mark.parametrize("name", CASES)
def test_a_good_input_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(good_input(name))
    CASES[name].parse(tmp_path / "input")


@pytest.mark.parametrize("name", CASES)
@fuzzed("one input", changes=edits | tokens | cut_off)
def test_a_changed_input_is_read_or_refused(
    name: str,
    tmp_path: Path,
    changes: list[tuple[float, int, bytes]],
) -> None:
    path = tmp_path / "input"
    path.write_bytes(edited(good_input(name), changes))
    try:
        CASES[name].parse(path)
    except CASES[name].refuses as error:
        if isinstance(error, KbfError):
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("split of 7-Scenes", b"sequence" + b"9" * 5000),
        ("pair of points to align by", b"1e300,2,1,0"),
        ("cached description", b'[["a", "uint8", [%d]]]\nabc' % 10**30),
        ("cached description", b'[["a", "uint8", [-1]]]\nabc'),
        ("cached description", b"[" * 100_000),
    ],
)
def test_what_no_file_means_is_read_or_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(content)
    with suppress(*CASES[name].refuses):
        CASES[name].parse(tmp_path / "input")


def test_an_array_of_negative_length_is_no_cached_description() -> None:
    body = b'[["a", "uint8", [-1]]]\nabc'
    assert _unpacked(zlib.crc32(body).to_bytes(4, "little") + body) is None
