"""A drive in a bag: rosbag2 in SQLite or MCAP, or ROS 1."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Array, Image, Stamps
from kbf_localization.datasets.agreement import agreement, disagreements
from kbf_localization.datasets.bag_reader import (
    TRANSFORMS,
    BagReader,
    BagTopic,
    frame_id,
    open_bag,
    stamp_ns,
)
from kbf_localization.datasets.bag_topics import (
    COMPRESSED_IMAGE,
    camera_info_topic,
    image_topic,
    moving_transforms_topic,
    odometry_topic,
    pose_topic,
    static_transforms_topic,
)
from kbf_localization.datasets.drive import MEASURED, SIMULATED, OdometryLog, summary
from kbf_localization.datasets.files import printable
from kbf_localization.datasets.image_decoding import grey_from_message
from kbf_localization.datasets.planar import Axes, guess_axes, to_plane
from kbf_localization.datasets.pose_log import (
    BASE_FRAMES,
    ODOM_FRAME,
    PoseLog,
    TransformLog,
    known_poses,
    largest_gaps,
    pose_of_message,
    reckoned_poses,
)
from kbf_localization.errors import DatasetError, KbfError
from kbf_localization.geometry import planar_block
from kbf_localization.motion.noise import is_covariance
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.camera_info import camera_from_info, fitted, is_rectified
from kbf_localization.vision.camera.mount import Mount

_AFTER_STAMP = 12
"""Where in a CDR message with a header its stamp has ended."""
MAX_MOUNT_MESSAGES = 20_000
"""Of tf, among which the camera's mount is looked for: minutes, or a second of many joints."""

CONDITION_NOTE, ODOMETRY_NOTE = "condition", "odometry"
"""What the writer of a bag may note about it."""


class RosbagDrive:
    """The drive that a bag holds; topics are recognized by their types where they are not named.

    `poses` has NaN at images that the bag's known poses do not cover; `pose_covariances` (t, 3, 3)
    are as their source claims them, NaN where it does not; `recorded_ns` (t,) is when
    each image was recorded, by which a bag is played. The bag is read once when the drive is made
    and once for each pass over the images; nothing but stamps and poses stays.
    """

    kind = "bag"

    def __init__(
        self,
        path: Path,
        odom_topic: str | None = None,
        image_topic: str | None = None,
        pose_topic: str | None = None,
    ) -> None:
        self.path: Path = Path(path)
        with open_bag(self.path) as bag:
            scan = _Scan(bag, odom_topic, image_topic, pose_topic)
            condition, noted = (bag.notes.get(note) for note in (CONDITION_NOTE, ODOMETRY_NOTE))
        self.name = printable(self.path.stem)
        self.condition: str | None = condition
        self.labels: tuple[str, ...] | None = None
        self.odometry_origin: str = SIMULATED if noted == SIMULATED else MEASURED
        self.image_topic, self.odom_topic, self.pose_topic = scan.image, scan.odom, scan.pose
        self.camera_info_topic, self.mount_topic = scan.info_topic, scan.mount_topic
        self.odom_frame, self.base_frame = scan.odom_frame, scan.base_frame
        self.image_frame, self.image_encoding = scan.image_frame, scan.image_encoding
        self.stamps_ns: Stamps = np.array(scan.image_stamps, dtype=np.int64)
        self.recorded_ns: Stamps = np.array(scan.image_recorded, dtype=np.int64)
        self.odometry: OdometryLog = scan.odometry
        self.camera: Camera | None = scan.camera
        self.poses: Array | None = scan.poses(self.stamps_ns, required=pose_topic is not None)
        self.pose_covariances: Array | None = scan.pose_covariances(self.stamps_ns)
        self.mount: Mount | None = scan.mount()
        found = agreement(self.poses, self.stamps_ns, self.odometry)
        self.warnings = (*scan.warnings(), *disagreements(found))

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.stamps_ns)

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        for index, message in self._image_messages(indices):
            yield index, _grey(message)

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield images as stored where compressed; raw images as JPEG, empty where damaged."""
        for index, message in self._image_messages(indices):
            if message is not None and self.image_topic.type == COMPRESSED_IMAGE:
                yield index, bytes(message.data)
            else:
                image = _grey(message)
                yield index, b"" if image is None else cv2.imencode(".jpg", image)[1].tobytes()

    def _image_messages(self, indices: Sequence[int] | None) -> Iterator[tuple[int, Any]]:
        """Yield (index, message or None where its bytes are damaged) in the order of the stamps."""
        wanted = deque(sorted({int(i) for i in (range(len(self)) if indices is None else indices)}))
        if not wanted:
            return
        first, last = (int(self.recorded_ns[wanted[i]]) for i in (0, -1))
        with open_bag(self.path) as bag:
            for topic, _, cdr in bag.messages([self.image_topic], first, last + 1):
                # A wanted image is the first message with its stamp: the scan took it by the
                # same rule.
                if not wanted or stamp_ns(cdr) != self.stamps_ns[wanted[0]]:
                    continue
                yield wanted.popleft(), _decoded(bag, cdr, topic)


def _decoded(bag: BagReader, cdr: bytes | memoryview, topic: BagTopic) -> Any | None:
    """Return the message; None where its bytes are damaged."""
    try:
        return bag.decode(cdr, topic.type)
    except DatasetError:
        return None


def _grey(message: Any | None) -> Image | None:
    """Return the image of a message; None where it is damaged."""
    try:
        return None if message is None else grey_from_message(message)
    except ValueError:
        return None


class _CameraInfos:
    """The first CameraInfo on a topic, and how often another follows; stamps do not count."""

    def __init__(self, topic: BagTopic | None) -> None:
        self.topic, self.first, self.changes = topic, b"", 0
        self._last = b""

    def add(self, cdr: bytes | memoryview) -> None:
        content = bytes(cdr[_AFTER_STAMP:])
        self.first = self.first or bytes(cdr)
        self.changes += int(bool(self._last) and content != self._last)
        self._last = content


class _Scan:
    """One pass over the bag for everything but the pixels."""

    def __init__(
        self, bag: BagReader, odom: str | None, image: str | None, pose: str | None
    ) -> None:
        self.path = bag.path
        self.odom = odometry_topic(bag.path, bag.topics, odom)
        self.image = image_topic(bag.path, bag.topics, image)
        self.pose = pose_topic(bag.path, bag.topics, pose)
        self.image_stamps, self.image_recorded = array("q"), array("q")
        self.odom_frame = self.base_frame = self.image_frame = self.image_encoding = ""
        self._pose_frame = ""
        self._late_images = self._damaged = 0
        self._notes: list[str] = []
        self._odometry, self._known = PoseLog(), PoseLog()
        self._transforms = TransformLog()
        self._mount: Mount | None = None
        self.camera: Camera | None = None
        self.info_topic: BagTopic | None = None
        self.mount_topic: BagTopic | None = None
        first_image, infos = b"", _CameraInfos(camera_info_topic(bag.topics, self.image))
        static = static_transforms_topic(bag.topics)
        wanted = (self.odom, self.image, self.pose, static, infos.topic)
        topics = {item for item in wanted if item is not None}
        for topic, recorded_ns, cdr in bag.messages(topics):
            if topic == self.image:
                self.image_frame = self.image_frame or frame_id(cdr)
                self._add_image(stamp_ns(cdr), recorded_ns)
                first_image = first_image or bytes(cdr)
                continue
            if topic == infos.topic:
                infos.add(cdr)
                continue
            try:
                message = bag.decode(cdr, topic.type)
            except DatasetError:
                self._damaged += 1
                continue
            if topic.type == TRANSFORMS:
                self._transforms.add(message, static=topic == static)
                continue
            if topic == self.odom:
                self._add_odometry(stamp_ns(cdr), message)
            if topic == self.pose:
                self._pose_frame = self._pose_frame or frame_id(cdr)
                claimed = getattr(message.pose, "covariance", None)
                block = () if claimed is None else planar_block(claimed).flat
                self._known.add(stamp_ns(cdr), pose_of_message(message), block)
        self.odometry = self._reported_odometry()
        if self.odom.type == TRANSFORMS:
            self.odometry = self._odometry_from_transforms()
        self._refuse_what_has_no_stamps()
        message = _decoded(bag, first_image, self.image)
        self.image_encoding = getattr(message, "encoding", getattr(message, "format", ""))
        self._calibrate(bag, infos, first_image)
        self._find_mount(bag)

    @property
    def _by_transforms(self) -> bool:
        """Whether the known poses come from tf."""
        return self.pose is not None and self.pose.type == TRANSFORMS

    def _calibrate(self, bag: BagReader, infos: _CameraInfos, first_image: bytes) -> None:
        """Take the camera from the topic beside the images, at their size."""
        if infos.topic is None or not infos.first:
            return
        try:
            info = bag.decode(infos.first, infos.topic.type)
            camera = camera_from_info(info, rectified=is_rectified(self.image.name))
            pixels = _grey(_decoded(bag, first_image, self.image))
            if pixels is not None:
                camera = fitted(camera, pixels.shape[1], pixels.shape[0])
            self.camera, self.info_topic = camera, infos.topic
        except KbfError as error:
            self._notes.append(f"{infos.topic.name} not used: {error}")
        if infos.changes:
            self._notes.append(
                f"{infos.topic.name} changes {infos.changes} times; the first is used"
            )

    def _find_mount(self, bag: BagReader) -> None:
        """Take the camera's mount from tf_static, else from the beginning of tf."""
        bases = [frame for frame in (self.base_frame, *BASE_FRAMES) if frame]
        moving = moving_transforms_topic(bag.topics)
        try:
            self._mount = self._transforms.mount(self.image_frame, bases)
            self.mount_topic = None if self._mount is None else static_transforms_topic(bag.topics)
            if self._mount is None and moving not in (None, self.odom, self.pose):
                for _, _, cdr in islice(bag.messages([moving]), MAX_MOUNT_MESSAGES):
                    self._transforms.add(bag.decode(cdr, moving.type))
                self._mount = self._transforms.mount(self.image_frame, bases)
                self.mount_topic = None if self._mount is None else moving
        except KbfError as error:
            self._notes.append(f"mount of '{self.image_frame}' not used: {error}")

    def mount(self) -> Mount | None:
        """Return where the camera sits; ask after `poses`, which may be the camera's own."""
        return self._mount

    def _add_image(self, stamp: int, recorded_ns: int) -> None:
        if stamp <= (self.image_stamps[-1] if self.image_stamps else 0):
            self._late_images += 1
            return
        self.image_stamps.append(stamp)
        self.image_recorded.append(recorded_ns)

    def _add_odometry(self, stamp: int, message: Any) -> None:
        covariance = planar_block(message.pose.covariance)
        self._odometry.add(stamp, pose_of_message(message), covariance.flat)
        self.odom_frame = message.header.frame_id.lstrip("/")
        self.base_frame = message.child_frame_id.lstrip("/")

    def _reported_odometry(self) -> OdometryLog:
        covariances = self._odometry.further.reshape(-1, 3, 3)
        made_up = bool((covariances == covariances[:1]).all())
        return replace(self._odometry.log, covariances=None if made_up else covariances)

    def _odometry_from_transforms(self) -> OdometryLog:
        found = self._transforms.odometry()
        if found is None:
            raise DatasetError(
                f"{self.path}: {self.odom.name} has no transform from '{ODOM_FRAME}' to a base, it "
                f"has {self._transforms.frames()}; choose another topic with --odom-topic"
            )
        log, self.odom_frame, self.base_frame = found
        return log

    def _refuse_what_has_no_stamps(self) -> None:
        for topic, usable, option in (
            (self.odom, self.odometry.stamps_ns, "--odom-topic"),
            (self.image, self.image_stamps, "--image-topic"),
        ):
            if len(usable) == 0:
                raise DatasetError(
                    f"{self.path}: none of the {topic.count} messages on {topic.name} is usable, "
                    "their stamps (header.stamp) are zero or negative or they are damaged; record "
                    f"with a driver that stamps its messages, or choose another topic with {option}"
                )

    def poses(self, at_ns: Stamps, required: bool) -> Array | None:
        """Return the known poses at the images' stamps; None where the bag knows none."""
        if self.pose is None:
            return None
        known: OdometryLog | None = self._known.log
        if self._by_transforms:
            known = self._transforms.base_in_map(self.odometry, self.odom_frame, self.base_frame)
            known = known or self._camera_from_transforms()
        if known is None and required:
            raise DatasetError(
                f"{self.path}: the transforms on {self.pose.name} do not lead from a map to "
                f"'{self.base_frame}' or '{self.odom_frame}', it has "
                f"{self._transforms.frames()}; choose another topic with --pose-topic"
            )
        if known is None or len(known.stamps_ns) == 0:
            return None
        if self._pose_frame and self._pose_frame == self.odom_frame:
            self._notes.append(
                f"{self.pose.name} is taken for the known poses, but it is odometry (frame "
                f"'{self._pose_frame}'), which drifts; --poses-from odometry estimates the poses "
                "of a map from odometry and images"
            )
        # What tf says is carried along the odometry already.
        if self._by_transforms:
            poses, how = known_poses(known, at_ns), "interpolated"
        else:
            poses = reckoned_poses(known, self.odometry, at_ns)
            how = f"carried along {self.odom.name}"
        self._notes.append(
            f"{len(known.stamps_ns)} known poses from {self.pose.name}, {how} between them; "
            f"{largest_gaps(known, at_ns)}"
        )
        return poses

    def pose_covariances(self, at_ns: Stamps) -> Array | None:
        """Return the covariances (t, 3, 3) of the last known poses before the images' stamps."""
        further = self._known.further
        if not further.size:
            return None
        blocks = further.reshape(-1, 3, 3)
        blocks[[not is_covariance(block) for block in blocks]] = np.nan
        last = np.searchsorted(self._known.log.stamps_ns, at_ns, side="right") - 1
        return np.asarray(blocks[np.clip(last, 0, len(blocks) - 1)])

    def _camera_from_transforms(self) -> OdometryLog | None:
        """Return the camera's pose seen from above, where motion capture knows that and no base."""
        trajectory = self._transforms.camera_in_world(self.image_frame, self.odom_frame)
        if trajectory is None:
            return None
        optical = self.image_frame.endswith("optical_frame")
        motion = to_plane(trajectory, Axes.CAMERA if optical else guess_axes(trajectory))
        self._notes.append(f"known poses are those of {self.image_frame}; {motion.described}")
        self._mount = motion.mount
        return OdometryLog(trajectory.stamps_ns, motion.poses)

    def warnings(self) -> tuple[str, ...]:
        counted = (
            (
                self._late_images,
                f"images on {self.image.name} with a late, repeated, negative or no stamp",
            ),
            (self._odometry.refused, f"unusable readings on {self.odom.name}"),
            (self._damaged, "damaged messages"),
        )
        passed_over = (f"passed over {count} {what}" for count, what in counted if count)
        return (*self._notes, *passed_over)
