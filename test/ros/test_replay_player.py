"""What is played, and when."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import rclpy
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rosgraph_msgs.msg import Clock

from kbf_localization.datasets.bag_reader import BagTopic, open_bag
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.ros import replay as player_module
from kbf_localization.ros.conversions import nanoseconds
from kbf_localization.ros.node_process import spinning
from kbf_localization.ros.replay import BagPlayer, choose_playlist, message_class_of
from test.datasets.bags import MemoryDrive


def topic(name: str, type_name: str, count: int = 5) -> BagTopic:
    return BagTopic(name, type_name, count)


def test_the_playlist_leaves_out_what_would_contradict_the_node() -> None:
    odom = topic("/odom", "nav_msgs/msg/Odometry")
    topics = [
        odom,
        topic("/clock", "rosgraph_msgs/msg/Clock"),
        topic("/pose", "geometry_msgs/msg/PoseWithCovarianceStamped"),
        topic("/initialpose", "geometry_msgs/msg/PoseWithCovarianceStamped"),
        topic("/ground_truth", "geometry_msgs/msg/PoseStamped"),
        topic("/strange", "nowhere_msgs/msg/Thing"),
        topic("/silent", "geometry_msgs/msg/PoseStamped", 0),
    ]
    playlist = choose_playlist(topics, [odom])
    assert [item.name for item, _ in playlist.topics] == ["/odom", "/ground_truth"]
    assert "/strange (nowhere_msgs/msg/Thing)" in playlist.notes[-1]
    assert len(playlist.notes) == 4


@pytest.mark.parametrize(
    "type_name",
    [
        # Imported, it opens a page in the browser.
        "antigravity/msg/Thing",
        "antigravity/x/y",
        "this/s/d",
        "os/path/join",
        "nav_msgs/msg/rosidl_parser",
        "nav_msgs/msg/_odometry",
        "nav_msgs/msg/__file__",
        "/s/t",
        ".nav_msgs/msg/Odometry",
        "nav_msgs.msg/msg/Odometry",
        "__main__/msg/Thing",
        "nav_msgs/msg/Odometry/msg/Odometry",
        "",
        "a" * 5000 + "/msg/b",
    ],
)
def test_a_bags_type_imports_nothing_but_messages(type_name: str) -> None:
    before = set(sys.modules)
    assert message_class_of(type_name) is None
    imported = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert imported <= {"nav_msgs"}
    assert message_class_of("nav_msgs/msg/Odometry") is Odometry


@pytest.fixture
def listener() -> object:
    """A node with a list of (topic, stamp, arrival) and its executor's thread."""
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node("listener", context=context)
    heard: list[tuple[str, int, float]] = []
    node.create_subscription(
        Odometry,
        "/odom",
        lambda message: heard.append(
            ("odom", nanoseconds(message.header.stamp), time.perf_counter())
        ),
        1000,
    )
    node.create_subscription(
        Clock,
        "/clock",
        lambda message: heard.append(("clock", nanoseconds(message.clock), time.perf_counter())),
        1000,
    )
    with spinning(node):
        yield node, heard
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def player_of_a_bag(node: Node, path: Path) -> tuple[BagPlayer, BagTopic, int, int]:
    """A player of a bag of 20 frames, its odometry, and the bag's start and end."""
    write_bag(MemoryDrive(frames=20), path)
    with open_bag(path) as bag:
        start, stop, topics = bag.start_ns, bag.end_ns, bag.topics
    odom = next(item for item in topics if item.name == "/odom")
    return BagPlayer(node, path, choose_playlist(topics, [odom]), "odom"), odom, start, stop


def test_messages_arrive_in_order_none_early_and_the_clock_never_runs_backwards(
    tmp_path: Path, listener: tuple[Node, list[tuple[str, int, float]]]
) -> None:
    node, heard = listener
    player, odom, start, stop = player_of_a_bag(node, tmp_path / "bag")
    give_up = time.monotonic() + 60.0
    while not player.subscription_count(odom) and time.monotonic() < give_up:
        time.sleep(0.05)
    played = player.play(start, stop)
    assert played.counts["/odom"] == 80

    def readings() -> list[tuple[int, float]]:
        return [(stamp, at) for kind, stamp, at in list(heard) if kind == "odom"]

    while len(readings()) < 80 and time.monotonic() < give_up:
        time.sleep(0.01)
    stamps = [stamp for stamp, _ in readings()]
    assert len(stamps) == 80 and stamps == sorted(stamps)
    assert min(played.lateness_s) >= 0.0  # a busy computer delays messages; none comes too early
    assert played.seconds >= 1e-9 * (stamps[-1] - stamps[0])
    clocks = [stamp for kind, stamp, _ in heard if kind == "clock"]
    assert clocks == sorted(clocks)
    assert max(clocks) <= stop


class ExactTime:
    """A computer that does everything at once and sleeps exactly as long as it is asked to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_every_message_is_sent_at_its_moment_and_the_clock_goes_on_between(
    tmp_path: Path, listener: tuple[Node, Any], monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    node, _ = listener
    player, _, start, stop = player_of_a_bag(node, tmp_path / "bag")
    exact = ExactTime()
    monkeypatch.setattr(player_module, "time", exact)
    played = player.play(start, stop, rate)
    assert max(played.lateness_ms) < 1e-3
    assert played.seconds == pytest.approx(1e-9 * (stop - start) / rate, abs=0.05 / rate)
    assert max(exact.slept) <= player_module.CLOCK_PERIOD_S
