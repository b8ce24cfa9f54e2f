"""The machine the node runs on: CPU, files, disk."""

import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from kbf_localization.benchmarks._timing import throttled
from test.faults.survival import Survival
from test.ros.robot import robot_with_node
from test.ros.world import World


def test_cpu_starved_to_a_tenth(survival: Survival) -> None:
    """Images are dropped, services answer; when the CPU is back it tracks within 15 frames."""
    robot = survival.robot
    with throttled(survival.node.pid, 0.1, period_s=0.1):
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            robot.move()
            robot.compressed.publish(robot.image_message())
            time.sleep(0.05)
        robot.call_empty("request_nomotion_update")
    survival.check(frames=15)


def test_map_file_vanishes_while_running(world: World, map_file: Path, tmp_path: Path) -> None:
    """The map in use stays in use; only another configuration notices, and says so."""
    path, other = tmp_path / "office.kbfmap", tmp_path / "other"
    shutil.copy(map_file, path)
    other.write_bytes(b"not a map")
    faults: dict[str, Callable[[], object]] = {
        "deleted": path.unlink,
        "replaced": lambda: other.replace(path),
        "overwritten": lambda: path.write_bytes(b"not a map"),
    }
    with robot_with_node(world, {"map": str(path)}) as (robot, process):
        for name, fault in faults.items():
            robot.wait_until_heard()
            survival = Survival(robot, process)
            fault()
            robot.call_empty("reinitialize_global_localization")
            survival.check(frames=15)
            assert robot.transition("deactivate")
            assert robot.transition("cleanup")
            assert not robot.transition("configure"), name
            assert process.log().count(f"cannot configure: {path}") == 1 + list(faults).index(name)
            shutil.copy(map_file, path)
            assert robot.transition("configure")
            assert robot.transition("activate")


def test_saved_pose_on_a_full_disk_and_in_a_folder_that_is_not_there(
    world: World, map_file: Path, tmp_path: Path
) -> None:
    """A warning, a count, and localization goes on; the pose is saved when there is room again."""
    path = tmp_path / "folder" / "pose.json"
    parameters = {"map": str(map_file), "saved_pose_file": str(path), "save_pose_rate": 10.0}
    with robot_with_node(world, parameters) as (robot, process):
        robot.wait_until_heard()
        survival = Survival(robot, process)
        robot.frame()
        assert robot.wait_for(lambda: robot.frame() and robot.count("pose_not_saved") > 0)
        assert str(path) in process.log()
        # No byte may be written any more, as on a full disk.
        unlimited = resource.RLIM_INFINITY
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, unlimited))
        path.parent.mkdir()
        failed = robot.count("pose_not_saved")
        assert robot.wait_for(lambda: robot.frame() and robot.count("pose_not_saved") > failed)
        assert list(path.parent.iterdir()) == []
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        assert robot.wait_for(lambda: robot.frame() and path.exists())
        survival.check(frames=3)
