"""A long drive: nothing grows, nothing slows down, nothing is lost that is not counted.

Images of 1280×720 at 30 Hz with odometry at 200 Hz, by the robot's clock. `make test` drives for
6 s of it, `make soak` for an hour (KBF_SOAK_MINUTES), both as fast as the node answers.
"""

import array
import os
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage

from kbf_localization.ros.conversions import header
from test.ros.robot import robot_with_node
from test.ros.world import World

MINUTES = float(os.environ.get("KBF_SOAK_MINUTES", "0.1"))
LONG = MINUTES > 5.0
FRAME_SECONDS = 1.0 / 30.0
ODOMETRY_PER_FRAME = 7
IMAGES = 450
GROWTH_MB = 5.0
EXECUTOR_THREADS = 4


def resident_mb(pid: int) -> float:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096 / 1e6


def threads_and_files(pid: int) -> tuple[int, int]:
    process = Path(f"/proc/{pid}")
    return len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def large_jpeg(data: bytes) -> array.array:
    """A frame as a camera of 1280×720 pixels would send it."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return array.array("B", cv2.imencode(".jpg", cv2.resize(image, (1280, 720)))[1].tobytes())


def test_memory_threads_files_and_latency_stay_as_they_are(
    world: World, landmark_map_file: Path, request: pytest.FixtureRequest
) -> None:
    frames = round(MINUTES * 60.0 / FRAME_SECONDS)
    warm_up = min(frames // 3, 1000)
    # One round of the room, rendered once.
    round_trip = 2.0 * np.pi * 0.5 * (0.5 * world.width + 0.5 * world.length - 3.0)
    step = round_trip / IMAGES
    jpegs = [
        large_jpeg(world.jpeg(world.route(number * step)))
        for number in range(min(IMAGES, frames + 1))
    ]
    with robot_with_node(world, {"map": str(landmark_map_file)}) as (robot, process):
        robot.wait_until_heard()
        seconds, cpu, unanswered, memory, handles = [], [cpu_seconds(process.pid)], 0, [], []
        # Images are answered in order: after this one none of those before is in progress.
        assert robot.frame(0.0) is not None
        robot.state_at(robot.stamp_ns)
        refused, before = robot.refused_images(), robot.odometry_account()
        for number in range(1, frames + 1):
            robot.move(step, FRAME_SECONDS, ODOMETRY_PER_FRAME)
            message = CompressedImage(header=header("camera", robot.stamp_ns), format="jpeg")
            message.data = jpegs[number % IMAGES]
            started = time.perf_counter()
            robot.compressed.publish(message)
            unanswered += robot.answer(robot.stamp_ns) is None
            seconds.append(time.perf_counter() - started)
            cpu.append(cpu_seconds(process.pid))
            del robot.poses[:-5]
            if number >= warm_up and number % max(1, (frames - warm_up) // 20) == 0:
                memory.append(resident_mb(process.pid))
                handles.append(threads_and_files(process.pid))
        # What got no answer is in the node's counts; nothing has gone astray between.
        robot.wait_until_driven()
        assert robot.refused_images() - refused == unanswered <= frames // 500, robot.status

        def since() -> dict[str, int]:
            return {name: count - before[name] for name, count in robot.odometry_account().items()}

        # The last reading may not have arrived.
        robot.wait_for(lambda: since()["sent"] == since()["received"] + since()["missing"])
        odometry = since()
        assert odometry["sent"] == odometry["received"] + odometry["missing"], odometry
        assert odometry["received"] == odometry["used"] + odometry["refused"], odometry
        # The median of several looks: the allocator's coming and going is not growth.
        third = max(1, len(memory) // 3)
        assert np.median(memory[-third:]) - np.median(memory[:third]) < GROWTH_MB, memory
        # No leak are the executor's own threads, each started when it is first needed.
        assert max(threads for threads, _ in handles) <= handles[0][0] + EXECUTOR_THREADS, handles
        assert handles[-1][1] <= handles[0][1] + 2
        part = max(100, (frames - warm_up) // 10)
        at_first = (cpu[warm_up + part] - cpu[warm_up]) / part
        at_last = (cpu[-1] - cpu[-1 - part]) / part
        # Over a few seconds the neighbours on the processor decide what a frame takes.
        assert not LONG or at_last < 1.5 * at_first + 0.002
        assert robot.state_at(robot.stamp_ns) == "tracking"
        assert robot.error() < 0.5
        request.config.get_terminal_writer().line(
            f"{frames} frames, {unanswered} without an answer; odometry {odometry}; memory "
            f"{memory[0]:.1f} to {memory[-1]:.1f} MB; threads and files {handles[0]} to "
            f"{handles[-1]}; CPU time a frame {1e3 * at_first:.1f} to {1e3 * at_last:.1f} ms; "
            f"median latency {1e3 * np.median(seconds[:part]):.1f} to "
            f"{1e3 * np.median(seconds[-part:]):.1f} ms"
        )
