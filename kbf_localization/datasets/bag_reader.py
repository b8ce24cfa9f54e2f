"""Bags of any kind as one stream of CDR messages: rosbag2 (SQLite, MCAP) and ROS 1."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rosbags.interfaces import Connection, ConnectionExtRosbag2, Qos
from rosbags.rosbag1 import Reader as Reader1
from rosbags.rosbag2 import Reader as Reader2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from kbf_localization.datasets import bag_limits
from kbf_localization.datasets.bag_limits import bag_size, max_unpacked_bytes
from kbf_localization.datasets.bag_storage import CheckedReader, CheckedRos1
from kbf_localization.datasets.files import BAG_SUFFIXES
from kbf_localization.errors import DatasetError, KbfError

CAMERA_INFO = "sensor_msgs/msg/CameraInfo"
TRANSFORMS = "tf2_msgs/msg/TFMessage"
# ROS 1 had tf's message in two packages; the older is met in old bags.
_ROS2_TYPES = {"tf/msg/tfMessage": TRANSFORMS}


@dataclass(frozen=True)
class BagTopic:
    """A topic of a bag: `type` as in "nav_msgs/msg/Odometry"."""

    name: str
    type: str
    count: int
    offered_qos: tuple[Qos, ...] = ()


class BagReader:
    """An open bag; made by `open_bag`.

    Messages are decoded by the message definitions of the installed `rosbags`, never by those in
    the bag: a bag is data, and its own definitions would become code.
    """

    def __init__(self, path: Path, reader: Reader1 | Reader2) -> None:
        self.path = path
        self._reader = reader
        self._types = ros2_types()
        self._ros1_types = _ros1_types() if isinstance(reader, Reader1) else None

    @cached_property
    def topics(self) -> tuple[BagTopic, ...]:
        """The topics by name; a topic of two types appears twice."""
        found: dict[tuple[str, str], BagTopic] = {}
        with _explained(self.path):
            for connection in self._reader.connections:
                key = _key(connection)
                if not all(isinstance(text, str) for text in key):
                    raise ValueError(f"topic {key[0]!r:.40} of type {key[1]!r:.40}")
                qos: tuple[Qos, ...] = ()
                if isinstance(connection.ext, ConnectionExtRosbag2):
                    qos = tuple(connection.ext.offered_qos_profiles)
                before = found.get(key, BagTopic(*key, 0))
                found[key] = BagTopic(
                    *key, before.count + connection.msgcount, before.offered_qos + qos
                )
            return tuple(found[key] for key in sorted(found))

    @property
    def start_ns(self) -> int:
        """When the first message was recorded."""
        with _explained(self.path):
            return int(self._reader.start_time)

    @property
    def end_ns(self) -> int:
        """Just after the last message was recorded."""
        with _explained(self.path):
            return int(self._reader.end_time)

    @property
    def notes(self) -> dict[str, str]:
        """What its writer noted about it ("custom data" of rosbag2)."""
        metadata = getattr(getattr(self._reader, "storage", None), "metadata", None)
        noted = getattr(metadata, "custom", None)
        pairs = noted.items() if isinstance(noted, dict) else ()
        return {key: text for key, text in pairs if isinstance(key, str) and isinstance(text, str)}

    def messages(
        self, topics: Collection[BagTopic], start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[tuple[BagTopic, int, bytes | memoryview]]:
        """Yield (topic, when it was recorded, CDR bytes) in the order of recording."""
        by_key = {(topic.name, topic.type): topic for topic in topics}
        connections = [
            connection for connection in self._reader.connections if _key(connection) in by_key
        ]
        if not connections:
            return
        with _explained(self.path):
            left = max_unpacked_bytes(bag_size(self.path))
            for message, recorded_ns, raw in self._reader.messages(connections, start_ns, stop_ns):
                topic = by_key[_key(message)]
                # SQLite keeps whatever type was put into a column.
                if not isinstance(recorded_ns, int) or not isinstance(raw, (bytes, memoryview)):
                    raise DatasetError(
                        f"{self.path}: a message on {topic.name} has the time {recorded_ns!r:.40}; "
                        "the bag is damaged"
                    )
                # Compressed messages, or an index of a database that names one again and again.
                left -= len(raw)
                if left < 0:
                    raise DatasetError(
                        f"{self.path}: has more bytes of messages than any recording of its size"
                    )
                yield topic, recorded_ns, self._cdr(raw, message.msgtype, topic.type)

    def _cdr(self, raw: bytes, stored_type: str, type_name: str) -> bytes | memoryview:
        if self._ros1_types is None:
            return raw
        # ROS 1 and ROS 2 name the fields of these messages alike; ROS 2 has no `seq`.
        message = self._ros1_types.deserialize_ros1(raw, stored_type)
        if type_name == CAMERA_INFO:
            message = self._camera_info(message)
        return self._types.serialize_cdr(message, type_name)

    def _camera_info(self, message: Any) -> Any:
        """Return ROS 2's of ROS 1's, whose matrices have capital letters."""
        fields = {name: value for name, value in vars(message).items() if name not in "DKRP"}
        matrices = {name.lower(): getattr(message, name) for name in "DKRP"}
        return self._types.types[CAMERA_INFO](**fields, **matrices)

    def decode(self, cdr: bytes | memoryview, type_name: str) -> Any:
        """Return the message; raises DatasetError where the bytes are none of that type."""
        with _explained(self.path):
            return self._types.deserialize_cdr(cdr, type_name)


@contextmanager
def open_bag(path: Path) -> Iterator[BagReader]:
    """Open a rosbag2 folder, an .mcap or .db3 file, or a ROS 1 .bag file.

    Raises DatasetError, in one line, for what is missing, truncated, damaged or of another storage.
    """
    with _explained(path):
        source = _storage_of(path)
        bag_limits.check_files(source)
        bag_limits.install(bag_size(source))
        reader = CheckedRos1(source) if source.suffix == ".bag" else CheckedReader(source)
        reader.open()
    try:
        bag_limits.check_storages(path, reader)
        yield BagReader(path, reader)
    finally:
        reader.close()


def stamp_ns(cdr: bytes | memoryview) -> int:
    """Return the stamp of a message that begins with a std_msgs/Header; the rest is not decoded."""
    if len(cdr) < 12:
        return 0
    seconds, nanoseconds = struct.unpack_from("<iI" if cdr[1] & 1 else ">iI", cdr, 4)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def frame_id(cdr: bytes | memoryview) -> str:
    """Return the frame of such a message, without decoding the rest; empty where it has none."""
    if len(cdr) < 16:
        return ""
    (length,) = struct.unpack_from("<I" if cdr[1] & 1 else ">I", cdr, 12)
    if not 1 < length <= len(cdr) - 16:
        return ""
    return bytes(cdr[16 : 15 + length]).decode("utf-8", "replace").lstrip("/")


def _key(connection: Connection) -> tuple[str, str]:
    return connection.topic, _ROS2_TYPES.get(connection.msgtype, connection.msgtype)


@lru_cache(maxsize=1)
def ros2_types() -> Typestore:
    """Return the messages of ROS 2 Jazzy; they are cached, for making a decoder takes a while."""
    return get_typestore(Stores.ROS2_JAZZY)


@lru_cache(maxsize=1)
def _ros1_types() -> Typestore:
    types = get_typestore(Stores.ROS1_NOETIC)
    for name in (TRANSFORMS, *_ROS2_TYPES):
        types.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms", name))
    return types


def _storage_of(path: Path) -> Path:
    if not path.exists():
        raise DatasetError(f"{path}: there is no such file or folder")
    if not path.is_dir() or (path / "metadata.yaml").is_file():
        return path
    files = sorted(entry for entry in path.iterdir() if entry.suffix in BAG_SUFFIXES)
    if len(files) == 1:
        return files[0]
    raise DatasetError(
        f"{path}: no bag, metadata.yaml is missing"
        + (
            f"; restore it with: ros2 bag reindex {path}"
            if files
            else "; kbf convert makes a bag of any drive"
        )
    )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn whatever a parser trips over in a damaged file into one line about that file."""
    try:
        yield
    except KbfError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise DatasetError(
            f"{path}: the bag cannot be read, it is damaged, truncated or of an unknown storage "
            f"({reason}); kbf reads rosbag2 in SQLite or MCAP and ROS 1 bags"
        ) from error
