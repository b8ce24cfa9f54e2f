"""A drive through an invented office: room after room, at a human's pace."""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.simulator.floor_plan import FloorPlan
from kbf_localization.simulator.trajectory import Trajectory, named

FRAME_S = 0.2048
_STEP_S = 0.0512
_LOOK_AHEAD_M = 0.45
_METRES_PER_FRAME = 0.07


def drive_through(
    plan: FloorPlan, rng: np.random.Generator, start_ns: int, frames: int
) -> Trajectory:
    """`frames` images of a robot that makes the office's tour."""
    track = _follow(_way(plan, rng, frames), rng, round(frames * FRAME_S / _STEP_S) + 8)
    clock = np.arange(len(track)) * _STEP_S
    times = np.arange(frames) * FRAME_S + np.clip(rng.normal(0, 0.0015, frames), -0.02, 0.02) + 0.05
    poses = np.stack([np.interp(times, clock, column) for column in track.T], axis=-1)
    labels = tuple(plan.labels[max(int(room), 1) - 1] for room in plan.room_at(poses[:, :2]))
    stamps = start_ns + np.round(times * 1e6).astype(np.int64) * 1000
    return named(stamps, poses, labels)


def _way(plan: FloorPlan, rng: np.random.Generator, frames: int) -> Array:
    """Way points of one drive: round the plan's rooms from a start of its own, beside the others.

    Drives of equally many frames see the same rooms, as many as they have time for, so that one
    can be located by the images of another.
    """
    order = sorted(range(len(plan.routes)), key=lambda k: float(plan.routes[k][0, 0]))
    rooms = 1
    while (
        rooms < len(order) and _round_trip_m(plan, order[: rooms + 1]) < _METRES_PER_FRAME * frames
    ):
        rooms += 1
    order = order[:rooms]
    start = int(rng.integers(rooms))
    order = order[start:] + order[:start]
    points: list[Array] = []
    length = 0.0
    while length < 2 * _METRES_PER_FRAME * frames + 5:
        for k in order:
            route = plan.routes[k][::-1] if rng.random() < 0.15 else plan.routes[k]
            points.append(route + np.clip(rng.normal(0, 0.08, route.shape), -0.16, 0.16))
        length += _round_trip_m(plan, order)
    return np.concatenate(points)


def _round_trip_m(plan: FloorPlan, order: list[int]) -> float:
    """Length of the way through the routes in this order and back to the first."""
    way = np.concatenate([*(plan.routes[k] for k in order), plan.routes[order[0]][:1]])
    return float(np.hypot(*np.diff(way, axis=0).T).sum())


def _follow(way: Array, rng: np.random.Generator, steps: int) -> Array:
    """Poses (steps, 3), heading unrolled, of a pursuit of the way: slow in bends, with stops."""
    segments = np.diff(way, axis=0)
    lengths = np.hypot(*segments.T)
    way = way[np.r_[True, lengths > 0.05]]
    travelled = np.r_[0.0, np.cumsum(np.hypot(*np.diff(way, axis=0).T))]
    pose = np.array([way[0, 0], way[0, 1], np.arctan2(*(way[1] - way[0])[::-1])])
    cruise, wander, speed, turn, done, pause = float(rng.uniform(0.32, 0.45)), 0.0, 0.0, 0.0, 0.0, 0
    poses = np.empty((steps, 3))
    for k in range(steps):
        poses[k] = pose
        pause = pause - 1 if pause > 0 else int(rng.uniform(20, 80)) if rng.random() < 0.0012 else 0
        wander += rng.normal(0, 0.03) - 0.02 * wander
        # The goal runs ahead on the way, but never farther than the look-ahead from the robot.
        while done < travelled[-1]:
            goal = np.array([np.interp(done, travelled, way[:, axis]) for axis in (0, 1)])
            if np.hypot(*(goal - pose[:2])) > _LOOK_AHEAD_M:
                break
            done += 0.04
        bearing = np.arctan2(goal[1] - pose[1], goal[0] - pose[0]) - pose[2] + 0.25 * wander
        bearing = (bearing + np.pi) % (2 * np.pi) - np.pi
        wanted = 0.0 if pause or abs(bearing) > 1.0 else cruise * float(np.cos(bearing)) ** 2
        speed += np.clip(wanted - speed, -0.06, 0.03)
        turn += np.clip((0.0 if pause else 1.4 * bearing) - turn, -0.08, 0.08)
        turn = float(np.clip(turn, -0.9, 0.9))
        pose = pose + _STEP_S * np.array([speed * np.cos(pose[2]), speed * np.sin(pose[2]), turn])
    return poses
