"""Where and when a simulated camera takes its images: read, varied, or driven room by room."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.cold import read_places
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import wrap_angle
from kbf_localization.simulator.floor_plan import FloorPlan

FRAME_S = 0.2048
"""Between two images, as in COLD."""
_STEP_S = 0.0512
_LOOK_AHEAD_M = 0.45
_METRES_PER_FRAME = 0.07
SIDEWAYS_M, HEADING_RAD, PACE = 0.12, 0.05, (0.85, 1.2)
"""How another drive along the same path differs from the first."""


@dataclass(frozen=True)
class Trajectory:
    """Poses (t, 3) at `stamps_ns` (t,), the room label and the image's file name of each."""

    stamps_ns: Stamps
    poses: Array
    labels: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def first(self, frames: int | None) -> Trajectory:
        """Return the first `frames` frames (all for None)."""
        kept = slice(frames)
        return Trajectory(
            self.stamps_ns[kept], self.poses[kept], self.labels[kept], self.names[kept]
        )


def image_name(stamp_ns: int, pose: Array) -> str:
    """Return the file name that COLD (Saarbrücken, 7 decimals) gives an image."""
    seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
    x, y, heading = (float(value) for value in pose)
    return f"t{seconds}.{rest // 1000:06d}_x{x:.7f}_y{y:.7f}_a{heading:.7f}.jpeg"


def named(stamps_ns: Stamps, poses: Array, labels: tuple[str, ...]) -> Trajectory:
    """Round stamps and poses to what the file names hold: microseconds, 7 digits."""
    stamps = stamps_ns // 1000 * 1000
    rounded = poses.copy()
    rounded[:, 2] = np.clip(wrap_angle(poses[:, 2]), -3.1415926, 3.1415926)
    rounded = np.round(rounded, 7)
    names = tuple(image_name(stamp, pose) for stamp, pose in zip(stamps, rounded))
    return Trajectory(stamps, rounded, labels, names)


def read_trajectory(path: Path) -> Trajectory:
    """Read the trajectory in a COLD `places.lst`; unlike a data set's, it must have no fault."""
    frames, faults = read_places(path)
    if faults:
        raise DatasetError(faults[0])
    for frame in frames:
        if frame.label is None:
            raise DatasetError(f"{path}: {frame.name} has no room label")
    if len(frames) < 2:
        raise DatasetError(f"{path}: has {len(frames)} images; a trajectory needs at least two")
    stamps_ns = np.array([frame.stamp_ns for frame in frames], dtype=np.int64)
    if np.any(np.diff(stamps_ns) <= 0):
        number = int(np.flatnonzero(np.diff(stamps_ns) <= 0)[0]) + 2
        raise DatasetError(f"{path}: times are out of order at image {number}; sort the lines")
    poses = np.array([frame.pose for frame in frames])
    labels = tuple(frame.label or "" for frame in frames)
    return Trajectory(stamps_ns, poses, labels, tuple(frame.name for frame in frames))


def perturbed(trajectory: Trajectory, rng: np.random.Generator, start_ns: int) -> Trajectory:
    """Return another drive along the same path: other offsets, headings, pace and exposure times.

    Offsets wander smoothly (correlated over some 16 s); gaps of the original are left out, and
    images come every FRAME_S as in the original.
    """
    from scipy.ndimage import gaussian_filter1d

    clock = np.cumsum(np.r_[0, np.minimum(np.diff(trajectory.stamps_ns) * 1e-9, 0.5)])
    factor = rng.uniform(*PACE)
    times = np.arange(0.05, clock[-1], FRAME_S * factor)
    unrolled = np.unwrap(trajectory.poses[:, 2])
    poses = np.stack(
        [np.interp(times, clock, column) for column in (*trajectory.poses[:, :2].T, unrolled)], -1
    )
    wander = gaussian_filter1d(rng.standard_normal((3, len(times))), 40.0, axis=1, mode="reflect")
    wander /= max(float(wander.std()), 1e-9)
    poses[:, :2] += SIDEWAYS_M * 0.7 * np.clip(wander[:2], -2, 2).T
    poses[:, 2] += HEADING_RAD * np.clip(wander[2], -2, 2)
    nearest = np.clip(np.searchsorted(clock, times), 0, len(clock) - 1)
    stamps = start_ns + np.round(times / factor * 1e9 + rng.normal(0, 1.5e6, len(times)))
    labels = tuple(trajectory.labels[k] for k in nearest)
    return named(stamps.astype(np.int64), poses, labels)


def drive_through(
    plan: FloorPlan,
    rng: np.random.Generator,
    start_ns: int,
    frames: int,
    period_s: float = FRAME_S,
) -> Trajectory:
    """Return `frames` images, one each `period_s`, of a robot that makes the office's tour."""
    seconds = frames * period_s
    track = _follow(_path(plan, rng, round(seconds / FRAME_S)), rng, round(seconds / _STEP_S) + 8)
    clock = np.arange(len(track)) * _STEP_S
    jitter = np.clip(rng.normal(0, 0.0015, frames), -0.1 * period_s, 0.1 * period_s)
    times = np.arange(frames) * period_s + jitter + 0.05
    poses = np.stack([np.interp(times, clock, column) for column in track.T], axis=-1)
    labels = tuple(plan.labels[max(int(room), 1) - 1] for room in plan.room_at(poses[:, :2]))
    stamps = start_ns + np.round(times * 1e6).astype(np.int64) * 1000
    return named(stamps, poses, labels)


def _path(plan: FloorPlan, rng: np.random.Generator, frames: int) -> Array:
    """Return a drive's waypoints: round the plan's rooms from a random start, beside the others.

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
    """Return the path length through the routes in this order and back to the first."""
    path = np.concatenate([*(plan.routes[k] for k in order), plan.routes[order[0]][:1]])
    return float(np.hypot(*np.diff(path, axis=0).T).sum())


def _follow(path: Array, rng: np.random.Generator, steps: int) -> Array:
    """Return poses (steps, 3), heading unrolled, of a path pursuit: slow in bends, with stops."""
    segments = np.diff(path, axis=0)
    lengths = np.hypot(*segments.T)
    path = path[np.r_[True, lengths > 0.05]]
    travelled = np.r_[0.0, np.cumsum(np.hypot(*np.diff(path, axis=0).T))]
    pose = np.array([path[0, 0], path[0, 1], np.arctan2(*(path[1] - path[0])[::-1])])
    cruise, wander, speed, turn, done, pause = float(rng.uniform(0.32, 0.45)), 0.0, 0.0, 0.0, 0.0, 0
    poses = np.empty((steps, 3))
    for k in range(steps):
        poses[k] = pose
        pause = pause - 1 if pause > 0 else int(rng.uniform(20, 80)) if rng.random() < 0.0012 else 0
        wander += rng.normal(0, 0.03) - 0.02 * wander
        # The goal runs ahead on the path, but never farther than the look-ahead from the robot.
        while done < travelled[-1]:
            goal = np.array([np.interp(done, travelled, path[:, axis]) for axis in (0, 1)])
            if np.hypot(*(goal - pose[:2])) > _LOOK_AHEAD_M:
                break
            done += 0.04
        bearing = np.arctan2(goal[1] - pose[1], goal[0] - pose[0]) - pose[2] + 0.25 * wander
        bearing = float(wrap_angle(bearing))
        wanted = 0.0 if pause or abs(bearing) > 1.0 else cruise * float(np.cos(bearing)) ** 2
        speed += np.clip(wanted - speed, -0.06, 0.03)
        turn += np.clip((0.0 if pause else 1.4 * bearing) - turn, -0.08, 0.08)
        turn = float(np.clip(turn, -0.9, 0.9))
        pose = pose + _STEP_S * np.array([speed * np.cos(pose[2]), speed * np.sin(pose[2]), turn])
    return poses
