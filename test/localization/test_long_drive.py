"""A day of driving through the localizer, offline: nothing grows, and every image is accounted for.

`make test` drives for minutes, `make soak` for 24 hours of the robot's time (KBF_SOAK_HOURS).
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.geometry import compose
from kbf_localization.localization import State
from kbf_localization.training_map import TrainingMap
from test.filters.synthetic_world import SyntheticDrive, localizer

HOURS = float(os.environ.get("KBF_SOAK_HOURS", "0.1"))
SECOND = 1_000_000_000
ODOMETRY_HZ = 20
GROWTH_MB = 5.0
FAULTS = {"late": 31, "before odometry": 37, "ahead of odometry": 41}
"""Every so many images a further one that cannot be used."""


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / 1e6


@pytest.mark.timeout(120 + 3600 * HOURS)
def test_a_long_drive_neither_grows_nor_loses_count(
    world_map: TrainingMap, world_drive: SyntheticDrive, request: pytest.FixtureRequest
) -> None:
    """An image a second, with odometry at 20 Hz; for 3 s in 20 the robot stands."""
    robot = localizer(world_map)
    robot.configure(replace(robot.settings, standing_update_s=10.0))
    views = [world_map.observe(view) for view in world_drive.views]
    seconds = round(3600 * HOURS)
    pose, place, sent, answered, used, errors = np.zeros(3), 0, 0, 0, 0, []
    odometry_sent = memory_at = 0
    memory: list[float] = []
    for second in range(seconds):
        start_ns = (second + 1000) * SECOND
        # The last view is the first one's: round and round.
        stands = second % 20 >= 17
        place = place if stands else (place + 1) % (len(views) - 1)
        motion = np.zeros(3) if stands else world_drive.motions[place - 1]
        for part in range(1, ODOMETRY_HZ + 1):
            moved = compose(pose, motion * (part / ODOMETRY_HZ))
            robot.add_odometry(start_ns + part * SECOND // ODOMETRY_HZ, moved)
            odometry_sent += 1
        pose = moved
        stamps = [start_ns + SECOND]
        stamps += [start_ns] if second % FAULTS["late"] == 1 else []
        stamps += [1] if second % FAULTS["before odometry"] == 1 else []
        stamps += [start_ns + 100 * SECOND] if second % FAULTS["ahead of odometry"] == 1 else []
        for stamp_ns in stamps:
            sent += 1
            result = robot.add_described(stamp_ns, views[place])
            answered += result is not None
            used += result is not None and result.used
        if robot.last is not None and second > 60:
            truth = world_drive.poses[place][:2]
            errors.append(float(np.hypot(*(robot.last.pose[:2] - truth))))
        if second - memory_at >= max(1, seconds // 60):
            memory_at = second
            memory.append(resident_mb())
    refused = sum(count for name, count in robot.counts.items() if name.startswith("image_"))
    assert answered + refused == sent, robot.counts
    assert 0 < answered - used < used
    assert not any(name.startswith("odometry_") for name in robot.counts), robot.counts
    assert refused == sum(1 + (seconds - 2) // every for every in FAULTS.values())
    third = len(memory) // 3
    assert np.median(memory[-third:]) - np.median(memory[third : 2 * third]) < GROWTH_MB, memory
    assert robot.state is State.TRACKING
    assert np.median(errors) < 0.3
    request.config.get_terminal_writer().line(
        f"{HOURS:g} h: {odometry_sent} odometry readings, {sent} images: {used} used, "
        f"{answered - used} while standing, {refused} refused; memory {memory[third]:.1f} to "
        f"{memory[-1]:.1f} MB; median error {np.median(errors):.2f} m"
    )
