"""A drive is read from any bag, its topics recognized; a bad bag gives one clear line."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kbf_localization.datasets.bag_writer import header, new, write_bag
from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.pose_log import pose_of_message
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import compose, relative
from kbf_localization.limits import MAX_COORDINATE_M
from test.datasets.bags import (
    START_NS,
    MemoryDrive,
    circle,
    compressed,
    drive_messages,
    odometry,
    pose_stamped,
    pose_with_covariance,
    transforms,
    write_messages,
    write_messages_ros1,
)

DRIVE = MemoryDrive()
JPEG = next(DRIVE.encoded_images([0]))[1]


def close(read: Any, expected: Any, tolerance: float = 2e-4) -> None:
    """Known poses at 20 Hz, interpolated on a chord of the circle: r (1 - cos(w dt/2)) = 5.6e-5."""
    difference = np.asarray(read) - expected
    difference[:, 2] = (difference[:, 2] + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(difference).max() < tolerance


@pytest.mark.parametrize(
    ("form", "topic"),
    [
        ("ground_truth", None),
        ("amcl_pose", None),
        ("mocap", "/mocap"),
        ("tf_direct", None),
        ("tf_direct", "tf"),
    ],
)
def test_known_poses_come_from_any_kind_of_topic(
    tmp_path: Path, form: str, topic: str | None
) -> None:
    bag = write_messages(tmp_path / "bag", drive_messages(DRIVE, form))
    odom = "/odom" if form == "mocap" else None
    close(RosbagDrive(bag, odom_topic=odom, pose_topic=topic).poses, DRIVE.poses)


def test_odometry_named_as_the_known_pose_is_warned_of(tmp_path: Path) -> None:
    bag = write_messages(tmp_path / "bag", drive_messages(DRIVE, "mocap"))
    drifting = RosbagDrive(bag, odom_topic="/odom", pose_topic="/odom")
    close(drifting.poses, circle(DRIVE.stamps_ns, 0.7))
    (note,) = (line for line in drifting.warnings if "drifts" in line)
    assert "/odom is taken for the known poses" in note and "--poses-from odometry" in note
    mocap = RosbagDrive(bag, odom_topic="/odom", pose_topic="/mocap")
    assert not any("drifts" in line for line in mocap.warnings)


def test_poses_in_the_odometrys_frame_are_warned_of(tmp_path: Path) -> None:
    messages = drive_messages(DRIVE, "ground_truth")
    for topic, _, message in messages:
        if topic == "/ground_truth":
            message.header.frame_id = "odom"
    drive = RosbagDrive(write_messages(tmp_path / "bag", messages))
    assert any("/ground_truth" in line and "drifts" in line for line in drive.warnings)


def test_map_to_odom_is_composed_with_the_odometry(tmp_path: Path) -> None:
    log = DRIVE.odometry
    map_to_odom = compose(circle(log.stamps_ns, 0.0), relative(log.poses, np.zeros_like(log.poses)))
    messages = drive_messages(DRIVE, "none")
    for stamp, edge in zip(log.stamps_ns.tolist(), map_to_odom.tolist()):
        messages.append(("/tf", stamp, transforms(stamp, {("map", "odom"): edge})))
    bag = write_messages(tmp_path / "bag", messages)
    close(RosbagDrive(bag).poses, DRIVE.poses)


def test_a_static_map_to_odom_holds_at_all_times(tmp_path: Path) -> None:
    static = transforms(0, {("/map", "odom"): (1.0, 2.0, 0.5)})
    messages = [("/tf_static", START_NS, static), *drive_messages(DRIVE, "none")]
    messages.append(("/tf", START_NS, transforms(START_NS, {("base_link", "arm"): (0, 0, 0)})))
    bag = write_messages(tmp_path / "bag", messages)
    expected = compose(np.array([1.0, 2.0, 0.5]), circle(DRIVE.stamps_ns, 0.7))
    close(RosbagDrive(bag, pose_topic="/tf").poses, expected)


def test_ros1_bags_read_alike(tmp_path: Path) -> None:
    for form in ("ground_truth", "tf_direct"):
        bag = write_messages_ros1(tmp_path / f"{form}.bag", drive_messages(DRIVE, form))
        read = RosbagDrive(bag)
        close(read.poses, DRIVE.poses)
        assert np.array_equal(read.stamps_ns, DRIVE.stamps_ns)
        np.testing.assert_allclose(read.odometry.poses, DRIVE.odometry.poses, atol=1e-14)
        assert list(read.encoded_images([3, 4])) == list(DRIVE.encoded_images([3, 4]))


def test_a_bag_without_known_poses_has_none(tmp_path: Path) -> None:
    bag = write_messages(tmp_path / "bag", drive_messages(DRIVE, "none"))
    assert RosbagDrive(bag).poses is None


def test_images_outside_the_known_poses_have_nan(tmp_path: Path) -> None:
    late = START_NS + 1_000_000_000
    messages = [
        drive_message
        for drive_message in drive_messages(DRIVE)
        if drive_message[0] != "/ground_truth" or late <= drive_message[1] <= late + 500_000_000
    ]
    poses = RosbagDrive(write_messages(tmp_path / "bag", messages)).poses
    assert poses is not None
    known = np.isfinite(poses).all(axis=1)
    inside = (DRIVE.stamps_ns >= late - 1e8) & (DRIVE.stamps_ns <= late + 6e8)
    assert np.array_equal(known, inside) and 0 < known.sum() < len(DRIVE)


def test_a_gap_in_the_known_poses_is_bridged_only_where_the_robot_stood(tmp_path: Path) -> None:
    stamps = START_NS + 10**9 * np.arange(1, 11, dtype=np.int64)
    messages: list[tuple[str, int, Any]] = []
    for stamp in stamps.tolist():
        messages += [
            ("/odom", stamp, odometry(stamp, 0.0, 0.0, 0.0)),
            ("/image/compressed", stamp, compressed(stamp, JPEG)),
        ]
    for second, x in ((1, 0.0), (4, 0.1), (8, 3.0), (9, 3.1), (10, 3.2)):
        stamp = START_NS + second * 10**9
        messages.append(("/truth", stamp, pose_stamped(stamp, x, 0.0, 0.0)))
    bag = write_messages(tmp_path / "bag", messages)
    poses = RosbagDrive(bag).poses
    assert poses is not None
    assert np.isnan(poses[:, 0]).tolist() == [False] * 4 + [True] * 3 + [False] * 3


def test_some_images_are_read_without_the_others(tmp_path: Path) -> None:
    write_bag(DRIVE, tmp_path / "bag")
    read = pickle.loads(pickle.dumps(RosbagDrive(tmp_path / "bag")))
    assert list(read.encoded_images([2, 7, 11])) == list(DRIVE.encoded_images([2, 7, 11]))
    assert [index for index, _ in read.images([5])] == [5]
    assert list(read.images([])) == []


def test_late_repeated_and_damaged_messages_are_passed_over_and_named(tmp_path: Path) -> None:
    stamps = START_NS + 10**8 * np.array([1, 2, 2, 1, 3, 4])
    messages: list[tuple[str, int, Any]] = []
    for number, stamp in enumerate(stamps.tolist()):
        recorded = START_NS + number
        messages.append(("/odom", recorded, odometry(stamp, float(number), 0.0, 0.0)))
        data = JPEG if number != 4 else b"no image"
        messages.append(("/image/compressed", recorded, compressed(stamp, data)))
    messages.append(("/odom", START_NS + 9, odometry(START_NS + 10**9, float("nan"), 0.0, 0.0)))
    drive = RosbagDrive(write_messages(tmp_path / "bag", messages))
    assert drive.warnings == (
        "passed over 2 images on /image/compressed with a late, repeated, negative or no stamp",
        "passed over 3 unusable readings on /odom",
    )
    assert drive.odometry.poses[:, 0].tolist() == [0.0, 1.0, 4.0, 5.0]
    assert [image is None for _, image in drive.images()] == [False, False, True, False]


def test_raw_and_compressed_topics_of_one_camera_are_one_camera(tmp_path: Path) -> None:
    write_bag(MemoryDrive(frames=2), tmp_path / "raw", raw=True)
    raw = RosbagDrive(tmp_path / "raw")
    assert raw.image_topic.name == "/image"
    messages = drive_messages(MemoryDrive(frames=2))
    for topic, stamp, message in list(messages):
        if topic == "/camera/compressed":
            messages.append(("/camera/compressedDepth", stamp, message))
    bag = write_messages(tmp_path / "bag", messages)
    assert RosbagDrive(bag).image_topic.name == "/camera/compressed"


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_cameras_images_are_read_whole(tmp_path: Path, storage: str) -> None:
    drive = MemoryDrive(frames=3, size=(480, 640))  # 400 kB each
    write_bag(drive, tmp_path / "bag", storage=storage)
    for (_, image), (_, expected) in zip(
        RosbagDrive(tmp_path / "bag").images(), drive.images(), strict=True
    ):
        np.testing.assert_array_equal(image, expected)


def without(topic: str) -> list[tuple[str, int, Any]]:
    return [drive_message for drive_message in drive_messages(DRIVE) if drive_message[0] != topic]


def doubled(topic: str) -> list[tuple[str, int, Any]]:
    messages = drive_messages(DRIVE)
    return messages + [(f"{topic}_2", at, what) for name, at, what in messages if name == topic]


def unstamped(topic: str) -> list[tuple[str, int, Any]]:
    messages = drive_messages(DRIVE)
    for name, _, message in messages:
        if name == topic:
            message.header.stamp.sec = message.header.stamp.nanosec = 0
    return messages


@pytest.mark.parametrize(
    ("messages", "options", "says"),
    [
        ([], {}, "no odometry topic.*it has no topics.*--odom-topic"),
        (without("/odom"), {}, r"no odometry topic.*/camera/compressed \(.*12\).*--odom-topic"),
        (without("/camera/compressed"), {}, "no image topic.*/odom.*--image-topic"),
        (doubled("/odom"), {}, "several.*odometry: /odom, /odom_2; choose with --odom-topic"),
        (doubled("/camera/compressed"), {}, "several.*compressed_2; choose with --image-topic"),
        (doubled("/ground_truth"), {}, "several.*/ground_truth_2; choose with --pose-topic"),
        (drive_messages(DRIVE), {"odom_topic": "wheels"}, "no topic wheels; it has.*--odom-topic"),
        (
            drive_messages(DRIVE),
            {"image_topic": "/odom"},
            "/odom is of type nav_msgs/msg/Odometry, needed is .*--image-topic",
        ),
        (drive_messages(DRIVE, "tf_direct"), {"pose_topic": "/mocap"}, "no topic /mocap"),
        (unstamped("/odom"), {}, "none of the 48 messages on /odom.*zero.*--odom-topic"),
        (unstamped("/camera/compressed"), {}, "none of the 12 messages.*zero.*--image-topic"),
    ],
)
def test_a_bag_that_cannot_be_used_gives_one_line_with_the_option(
    tmp_path: Path, messages: Any, options: dict[str, str], says: str
) -> None:
    bag = write_messages(tmp_path / "bag", messages)
    with pytest.raises(DatasetError, match=says) as raised:
        RosbagDrive(bag, **options)
    assert str(raised.value).startswith(str(bag)) and "\n" not in str(raised.value)


def test_a_named_tf_that_leads_nowhere_says_which_frames_it_has(tmp_path: Path) -> None:
    messages = drive_messages(DRIVE, "none")
    messages.append(("/tf", START_NS, transforms(START_NS, {("odom", "base_link"): (0, 0, 0)})))
    bag = write_messages(tmp_path / "bag", messages)
    assert RosbagDrive(bag).poses is None
    with pytest.raises(DatasetError, match="it has odom→base_link.*--pose-topic"):
        RosbagDrive(bag, pose_topic="/tf")


def unknown_storage(bag: Path) -> None:
    metadata = yaml.safe_load((bag / "metadata.yaml").read_text())
    metadata["rosbag2_bagfile_information"]["storage_identifier"] = "tape"
    (bag / "metadata.yaml").write_text(yaml.safe_dump(metadata))


def shorten(bag: Path) -> None:
    file = next(bag.glob("bag.*"))
    file.write_bytes(file.read_bytes()[:-3000])


def empty_file(bag: Path) -> None:
    next(bag.glob("bag.*")).write_bytes(b"")


def scribble(bag: Path) -> None:
    (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: [1, {")


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("damage", [unknown_storage, shorten, empty_file, scribble])
def test_a_damaged_bag_gives_one_line_that_names_it(
    tmp_path: Path, storage: str, damage: Any
) -> None:
    write_bag(DRIVE, tmp_path / "bag", storage=storage)
    damage(tmp_path / "bag")
    with pytest.raises(
        DatasetError, match="bag cannot be read|no odometry topic|is not YAML"
    ) as raised:
        list(RosbagDrive(tmp_path / "bag").images())
    assert str(tmp_path / "bag") in str(raised.value) and "\n" not in str(raised.value)


def test_a_bag_without_metadata_is_read_from_its_file_or_named_with_its_repair(
    tmp_path: Path,
) -> None:
    write_bag(DRIVE, tmp_path / "bag")
    (tmp_path / "bag" / "metadata.yaml").unlink()
    assert len(RosbagDrive(tmp_path / "bag")) == len(DRIVE)
    assert len(RosbagDrive(tmp_path / "bag" / "bag.mcap")) == len(DRIVE)
    shutil.copy(tmp_path / "bag" / "bag.mcap", tmp_path / "bag" / "bag_1.mcap")
    with pytest.raises(DatasetError, match="metadata.yaml is missing; .*ros2 bag reindex"):
        RosbagDrive(tmp_path / "bag")


@pytest.mark.parametrize(
    "notes", ["[5]", "a word", "{condition: [5], 7: night}", "{condition: {}}"]
)
def test_notes_that_are_none_are_passed_over(tmp_path: Path, notes: str) -> None:
    write_bag(MemoryDrive(frames=4), tmp_path / "bag")
    metadata = tmp_path / "bag" / "metadata.yaml"
    kept = yaml.safe_load(metadata.read_text())
    kept["rosbag2_bagfile_information"]["custom_data"] = yaml.safe_load(notes)
    metadata.write_text(yaml.safe_dump(kept))
    assert RosbagDrive(tmp_path / "bag").condition is None


def test_what_is_no_bag_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "text.bag").write_text("hello")
    (tmp_path / "folder").mkdir()
    for path, says in (
        (tmp_path / "text.bag", "text.bag: the bag cannot be read"),
        (tmp_path / "folder", "folder: no bag"),
        (tmp_path / "missing", "missing: there is no such"),
    ):
        with pytest.raises(DatasetError, match=says):
            RosbagDrive(path)


def stop_and_go(stamp: int) -> tuple[float, float, float]:
    """Along x: 1 m/s for 1 s, a stop of 20 s, and on for 3 s with a turn of 1 rad."""
    t = (stamp - START_NS) * 1e-9
    driving = min(t, 1.0) + max(t - 21.0, 0.0)
    return driving, 0.3 * driving, max(t - 21.0, 0.0) / 3.0


def test_poses_that_come_rarely_are_carried_along_the_odometry(tmp_path: Path) -> None:
    """AMCL publishes after every 0.25 m: a stop of 20 s must not be smeared over 0.25 m."""
    messages: list[tuple[str, int, Any]] = []
    last = -1.0
    for tick in range(1, 24 * 20):
        stamp = START_NS + tick * 50_000_000
        x, y, heading = stop_and_go(stamp)
        messages.append(("/odom", stamp, odometry(stamp, *compose((3, -2, 1.1), (x, y, heading)))))
        if x - last >= 0.27:
            last = x
            messages.append(("/amcl_pose", stamp, pose_with_covariance(stamp, x, y, heading)))
        if tick % 4 == 0:
            messages.append(("/image/compressed", stamp + 7, compressed(stamp + 7, JPEG)))
    drive = RosbagDrive(write_messages(tmp_path / "bag", messages))
    assert drive.poses is not None
    known = np.isfinite(drive.poses).all(axis=1)
    assert known.mean() > 0.95
    truth = np.array([stop_and_go(int(stamp)) for stamp in drive.stamps_ns[known]])
    # Between two odometry readings, 50 ms apart, a turn's arc is taken for a line.
    np.testing.assert_allclose(drive.poses[known], truth, atol=2e-4)
    (warning,) = (line for line in drive.warnings if "known poses from /amcl_pose" in line)
    assert re.search(r"carried along /odom between them; largest gap 20\.\d s, 0\.3\d m", warning)


def test_odometry_that_drifts_is_bent_to_the_poses_at_both_ends(tmp_path: Path) -> None:
    messages: list[tuple[str, int, Any]] = []
    for tick in range(1, 61):
        stamp, x = START_NS + tick * 50_000_000, 0.05 * tick
        messages.append(("/odom", stamp, odometry(stamp, 1.1 * x, 0.0, 0.0)))
        messages.append(("/image/compressed", stamp, compressed(stamp, JPEG)))
        if tick % 20 == 1 or tick == 60:
            messages.append(("/truth", stamp, pose_stamped(stamp, x, 0.0, 0.0)))
    poses = RosbagDrive(write_messages(tmp_path / "bag", messages)).poses
    assert poses is not None
    np.testing.assert_allclose(poses[:, 0], 0.05 * np.arange(1, 61), atol=1e-9)


@pytest.mark.parametrize("named", [None, "/tf"])
def test_odometry_is_read_from_transforms_where_no_topic_has_it(
    tmp_path: Path, named: str | None
) -> None:
    messages: list[tuple[str, int, Any]] = []
    for topic, stamp, message in drive_messages(DRIVE):
        if topic != "/odom":
            messages.append((topic, stamp, message))
    log = DRIVE.odometry
    for stamp, pose in zip(log.stamps_ns.tolist(), log.poses.tolist()):
        edges = {("odom", "base_footprint"): tuple(pose), ("base_footprint", "laser"): (0.1, 0, 0)}
        messages.append(("/tf", stamp, transforms(stamp, edges)))
    bag = write_messages(tmp_path / "bag", messages)
    drive = RosbagDrive(bag, odom_topic=named)
    assert drive.odom_topic.name == "/tf"
    assert (drive.odom_frame, drive.base_frame) == ("odom", "base_footprint")
    close(drive.odometry.poses, log.poses)
    close(drive.poses, DRIVE.poses)


def test_transforms_without_odometry_say_which_frames_there_are(tmp_path: Path) -> None:
    messages = [
        drive_message for drive_message in drive_messages(DRIVE) if drive_message[0] != "/odom"
    ]
    messages.append(("/tf", START_NS, transforms(START_NS, {("base_link", "arm"): (0, 0, 0)})))
    bag = write_messages(tmp_path / "bag", messages)
    with pytest.raises(DatasetError, match="no transform from 'odom' to a base.*base_link→arm"):
        RosbagDrive(bag)


def test_motion_capture_of_a_camera_on_a_robot_as_tum_recorded_it(tmp_path: Path) -> None:
    """A ROS 1 bag: wheel odometry, colour and depth images, and tf from /world to the Kinect."""
    optical = {"x": -0.5, "y": 0.5, "z": -0.5, "w": 0.5}
    messages: list[tuple[str, int, Any]] = []
    for tick in range(80):
        stamp = START_NS + tick * 50_000_000
        x, y, heading = circle(np.array(stamp), turned=0.0).tolist()
        messages.append(
            ("/pose", stamp, odometry(stamp, x, y, heading, frame="/odom", child="/base_link"))
        )
        edges = transforms(
            stamp,
            {
                ("/world", "/kinect"): (x, y, heading),
                ("/kinect", "/openni_camera"): (0.0, 0.0, 0.0),
                ("/openni_camera", "/openni_rgb_optical_frame"): (0.0, 0.0, 0.0),
            },
        )
        edges.transforms[0].transform.translation.z = 0.6
        for name, value in optical.items():
            setattr(edges.transforms[2].transform.rotation, name, value)
        messages.append(("/tf", stamp, edges))
        if tick % 2 == 0:
            kinds = (("rgb/image_color", "bgr8", 3), ("depth/image", "32FC1", 4))
            for topic, encoding, size in kinds:
                image = new(
                    "sensor_msgs/msg/Image",
                    header=header(stamp + 11, "/openni_rgb_optical_frame"),
                    height=6,
                    width=8,
                    encoding=encoding,
                    is_bigendian=0,
                    step=8 * size,
                    data=np.zeros(48 * size, np.uint8),
                )
                messages.append((f"/camera/{topic}", stamp + 11, image))
    drive = open_drive(write_messages_ros1(tmp_path / "pioneer.bag", messages))
    assert isinstance(drive, RosbagDrive)
    assert drive.image_topic.name == "/camera/rgb/image_color"
    assert drive.odom_topic.name == "/pose"
    assert drive.poses is not None
    close(drive.poses, circle(drive.stamps_ns, turned=0.0), tolerance=1e-4)
    assert any("those of openni_rgb_optical_frame; tilt 0.0°" in line for line in drive.warnings)


def test_odometry_that_carries_the_camera_is_not_taken_for_known_poses(tmp_path: Path) -> None:
    messages = drive_messages(DRIVE, "none")
    for stamp, pose in zip(DRIVE.odometry.stamps_ns.tolist(), DRIVE.odometry.poses.tolist()):
        edges = {("odom", "base_link"): tuple(pose), ("base_link", "camera"): (0.1, 0.0, 0.0)}
        messages.append(("/tf", stamp, transforms(stamp, edges)))
    bag = write_messages(tmp_path / "bag", messages)
    assert RosbagDrive(bag).poses is None


@pytest.mark.parametrize("x", [np.nan, np.inf, 1e200, -1.1 * MAX_COORDINATE_M])
def test_a_pose_that_can_be_nowhere_is_passed_over(x: float) -> None:
    assert pose_of_message(pose_stamped(1, 0.9 * MAX_COORDINATE_M, 0.0, 0.0)) is not None
    assert pose_of_message(pose_stamped(1, x, 0.0, 0.0)) is None
    assert pose_of_message(pose_stamped(1, 0.0, x, 0.0)) is None
