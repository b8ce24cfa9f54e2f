"""Whole simulated drives on disk: through an invented office, or along real trajectories.

The increments of their wheel odometry err as those of a real robot's wheels do. The error against
the truth, measured on COLD's Freiburg seq1_night1, has three traits that white noise lacks: heavy
tails (0.014 m RMS but 0.005 m median over 0.2 s), lateral slip that persists for about a second,
and a heading that wobbles round a constant bias of 0.005 rad/s instead of diffusing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

import cv2
import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.camera_file import CAMERA_FILE, write_camera_file
from kbf_localization.datasets.cold import (
    CONDITIONS,
    IMAGES,
    ODOMETRY,
    OTHER_CAMERA,
    PLACES,
    SIMULATED_NOTE,
)
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.files import new_folder
from kbf_localization.datasets.floor_plan_image import write_floor_plan
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import compose, interpolate, relative, wrap_angle
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.simulator.floor_plan import FloorPlan
from kbf_localization.simulator.lighting import lighting_for
from kbf_localization.simulator.lookup import Camera
from kbf_localization.simulator.optics import DEFAULT_CAMERA, Optics, SimulatedCamera
from kbf_localization.simulator.people import walkers_along
from kbf_localization.simulator.plans import plan_office, plan_round
from kbf_localization.simulator.renderer import Renderer
from kbf_localization.simulator.scene import scene
from kbf_localization.simulator.sensor import Sensor
from kbf_localization.simulator.trajectory import (
    FRAME_S,
    Trajectory,
    drive_through,
    perturbed,
    read_trajectory,
)

PERIOD_S = 0.05

_HEADING_BIAS = 0.0048  # rad/s
_HEADING_WOBBLE = np.radians(1.05)  # standard deviation, with _WOBBLE_S correlation time
_WOBBLE_S = 1.5
_FORWARD_DRIFT = 0.017  # m/s, slow: wheel radius, floor
_FORWARD_DRIFT_S = 15.0
_FORWARD_JITTER = 0.0105  # m per square root of 0.2 s
_SIDE_SLIP = 0.037  # m/s
_SIDE_SLIP_S = 0.8
_BURSTS = 0.95  # standard deviation of the logarithm of the noise's size, correlated over _BURST_S
_BURST_S = 1.0


def _coloured(rng: np.random.Generator, steps: int, correlation_s: float) -> Array:
    """Return Gauss–Markov noise (steps,) of unit variance and time constant `correlation_s`."""
    keep = float(np.exp(-PERIOD_S / correlation_s))
    noise = rng.standard_normal(steps)
    noise[1:] *= np.sqrt(1 - keep**2)
    return _decaying_sum(noise, keep)


def _decaying_sum(steps: Array, keep: float) -> Array:
    """Return y[t] = steps[t] + keep y[t-1]: lfilter([1], [1, -keep], steps), slow to import."""
    return np.array(list(accumulate(steps.tolist(), lambda y, step: step + keep * y)))


def drive_wheels(stamps_ns: Stamps, poses: Array, rng: np.random.Generator) -> OdometryLog:
    """Return the log, 20 readings a second in an odometry frame, of a robot that took `poses`."""
    first, last = int(stamps_ns[0]) - 200_000_000, int(stamps_ns[-1]) + 200_000_000
    clock = np.arange(first, last, round(PERIOD_S * 1e9), dtype=np.int64) // 1000 * 1000
    there = interpolate(stamps_ns, poses, clock)
    truth = relative(there[:-1], there[1:])
    moving = (np.hypot(truth[:, 0], truth[:, 1]) > 2e-4) | (np.abs(truth[:, 2]) > 4e-4)
    motion = truth + np.where(moving[:, None], _errors(len(truth), rng), 0.0)
    start = np.array([*rng.uniform(-5, 5, 2), rng.uniform(-np.pi, np.pi)])
    heading = start[2] + np.r_[0.0, np.cumsum(motion[:, 2])]
    steps = compose(np.stack([0 * heading, 0 * heading, heading], -1)[:-1], motion)[:, :2]
    places = start[:2] + np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
    return OdometryLog(clock, np.column_stack([places, wrap_angle(heading)]))


def _errors(steps: int, rng: np.random.Generator) -> Array:
    """Return errors (steps, 3) of the readings' increments in the robot's frame."""
    size = np.exp(_BURSTS * _coloured(rng, steps, _BURST_S) - _BURSTS**2)
    jitter = _FORWARD_JITTER * np.sqrt(PERIOD_S / 0.2) * rng.standard_normal(steps) * size
    forward = jitter + _FORWARD_DRIFT * PERIOD_S * _coloured(rng, steps, _FORWARD_DRIFT_S)
    # Slip that comes in bursts: its size varies more slowly than the slip itself.
    sideways = _SIDE_SLIP * PERIOD_S * _coloured(rng, steps, _SIDE_SLIP_S) * size
    keep = float(np.exp(-PERIOD_S / _WOBBLE_S))
    kicks = _HEADING_WOBBLE * np.sqrt(1 - keep**2) * rng.standard_normal(steps) * size
    wobble = _decaying_sum(kicks, keep)
    turning = np.diff(wobble, prepend=0.0) + _HEADING_BIAS * PERIOD_S
    return np.stack([forward, sideways, turning], axis=-1)


_CHUNK = 50
_JPEG_QUALITY = 90
_FIRST_STAMP_NS = 1_152_200_000_000_000_000
_HOUR_NS = 3_600_000_000_000
_MAX_DRIVE = 1_500_000
_BLOCK, _BLOCK_HOURS = 1000, 100
"""Drives of a block are an hour apart, blocks so many hours: the last drive is in 2023, and ROS's
seconds end in 2038."""


def simulate(
    folder: Path,
    *,
    runs: int = 3,
    condition: str | Sequence[str] = "cloudy",
    seed: int = 0,
    frames: int = 1000,
    size: tuple[int, int] = (640, 480),
    camera_turned_rad: float | Sequence[float] = 0.0,
    camera: SimulatedCamera = DEFAULT_CAMERA,
    first_drive: int = 0,
    period_s: float = FRAME_S,
    plan: FloorPlan | None = None,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> list[Path]:
    """Write `runs` drives through the invented office of `seed`, or `plan`; returns their folders.

    The drives differ in path, time of day and people; `condition` is one for all or one for each,
    and so is `camera_turned_rad`, by how much the camera looks to the left of where the robot goes.
    `camera` has another mount, lens or clock than the default camera; `camera_turned_rad` comes on
    top of its mount. They are named `seq1_<condition><number>` in `folder`. A drive's number in the
    office, counted from `first_drive`, decides path, time, people and wheel slip: calls with other
    numbers give other drives. An image is taken each `period_s`.
    """
    conditions = [condition] * runs if isinstance(condition, str) else list(condition)
    turned = np.broadcast_to(camera_turned_rad, runs)
    if runs < 1 or frames < 2 or len(conditions) != runs:
        raise DatasetError(
            f"cannot simulate {runs} runs of {frames} frames in {len(conditions)} conditions; "
            "give at least one run, two frames, and one condition for each run"
        )
    plan = plan or plan_office(seed)
    drives = []
    for k, number in enumerate(_drive_numbers(first_drive, runs)):
        start = _FIRST_STAMP_NS + _hours(number) * _HOUR_NS
        generator = np.random.default_rng([seed, 20, number])
        trajectory = drive_through(plan, generator, start, frames, period_s)
        name = f"seq1_{conditions[k]}{k + 1}"
        drives.append(_Drive(name, trajectory, conditions[k], number, float(turned[k])))
    return _write(folder, plan, drives, size, camera, workers, progress)


def simulate_along(
    folder: Path,
    trajectories: Sequence[Path],
    *,
    office_from: Sequence[Path] = (),
    extra_drives: int = 0,
    condition: str = "cloudy",
    seed: int = 0,
    frames: int | None = None,
    size: tuple[int, int] = (640, 480),
    camera_turned_rad: float = 0.0,
    camera: SimulatedCamera = DEFAULT_CAMERA,
    first_drive: int = 0,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> list[Path]:
    """Render images at the poses and stamps of real trajectories, all in one office.

    Each of `trajectories` is a COLD `places.lst` (or a sequence's folder that has one); all are in
    one frame. The office is built round all of them and those of `office_from`, so that drives
    rendered by several calls are of one office when the union and the seed are the same. Stamps,
    poses, labels and file names are the originals'. `extra_drives` further drives follow a
    perturbed version of the longest trajectory, numbered from `first_drive`. The camera looks by
    `camera_turned_rad` to the left of where the robot goes, beyond the mount of `camera`. To train
    on seq2 and one further drive and to test on seq1:

        seq2, seq1, extra = simulate_along(folder, [seq2_places, seq1_places], extra_drives=1)

    Returns the folders, in the order of `trajectories`, then the extra drives.
    """
    if not trajectories or extra_drives < 0:
        raise DatasetError("give at least one trajectory and no negative number of extra drives")
    places = [_places_file(path) for path in trajectories]
    real = [read_trajectory(path) for path in places]
    round_them = [read_trajectory(_places_file(path)) for path in office_from]
    plan = plan_round([*real, *round_them], seed)
    drives = [
        _Drive(
            _sequence_name(path, condition, k),
            trajectory.first(frames),
            condition,
            k,
            camera_turned_rad,
        )
        for k, (path, trajectory) in enumerate(zip(places, real))
    ]
    longest = max(real, key=len)
    for k, drive in enumerate(_drive_numbers(first_drive, extra_drives), start=1):
        number = len(real) + drive
        start = int(longest.stamps_ns[-1]) + (_hours(drive) + 1) * _HOUR_NS
        further = perturbed(longest, np.random.default_rng([seed, 21, number]), start)
        name = f"further_{condition}{k}"
        drives.append(_Drive(name, further.first(frames), condition, number, camera_turned_rad))
    return _write(folder, plan, drives, size, camera, workers, progress)


def _drive_numbers(first: int, count: int) -> range:
    if not 0 <= first <= _MAX_DRIVE:
        raise DatasetError(f"drive {first}: the first number is 0 to {_MAX_DRIVE}")
    return range(first, first + count)


def _hours(number: int) -> int:
    """Return how long after the first drive this one begins."""
    block, within = divmod(number, _BLOCK)
    return block * _BLOCK_HOURS + within


@dataclass(frozen=True)
class _Drive:
    name: str
    trajectory: Trajectory
    condition: str
    number: int
    camera_turned_rad: float


def _places_file(path: Path) -> Path:
    return path / PLACES if path.is_dir() else path


def _sequence_name(places: Path, condition: str, number: int) -> str:
    """Return the sequence's own name where the list is in its folder, with the rendered light."""
    name = places.parent.parent.name
    if places.parent.name != "localization" or not name:
        return f"along{number + 1}_{condition}1"
    for other in CONDITIONS:
        name = name.replace(other, condition)
    return name


def _write(
    folder: Path,
    plan: FloorPlan,
    drives: Sequence[_Drive],
    size: tuple[int, int],
    camera: SimulatedCamera,
    workers: Workers | None,
    progress: Progress,
) -> list[Path]:
    if min(size) < 32 or max(size) > 4096:
        raise DatasetError(f"images of {size[0]}x{size[1]} pixels: each side must be 32 to 4096")
    names = [drive.name for drive in drives]
    for name in names:
        if names.count(name) > 1:
            raise DatasetError(f"two drives would be called {name}; rename one sequence's folder")
        if (folder / name).exists():
            raise DatasetError(
                f"{folder / name}: exists already; remove it or choose another folder"
            )
    for drive in drives:
        trajectory = drive.trajectory
        # It takes its place only when all is written.
        with new_folder(folder / drive.name) as sequence:
            for part in (Path(IMAGES), Path(PLACES).parent, Path(ODOMETRY).parent):
                (sequence / part).mkdir(parents=True)
            note = "Images and wheel odometry of this sequence are simulated.\n"
            if not camera.is_default:
                note += f"{OTHER_CAMERA}.\n"
            if camera.write_info:
                write_camera_file(sequence / CAMERA_FILE, camera.lens(*size), camera.mount)
            (sequence / SIMULATED_NOTE).write_text(note, encoding="ascii")
            write_floor_plan(sequence, *plan.image(), plan.origin)
            _write_places(sequence / PLACES, trajectory)
            rng = np.random.default_rng([plan.seed, 22, drive.number])
            odometry = drive_wheels(trajectory.stamps_ns, trajectory.poses, rng)
            _write_odometry(sequence / ODOMETRY, odometry)
            _write_images(sequence / IMAGES, plan, drive, camera, size, workers, progress)
    return [folder / name for name in names]


def _write_places(path: Path, trajectory: Trajectory) -> None:
    """Write a `places.lst`: "<image file name> <room label>" a line, in time order."""
    lines = (f"{name} {label}\n" for name, label in zip(trajectory.names, trajectory.labels))
    path.write_text("".join(lines), encoding="ascii")


def _write_odometry(path: Path, log: OdometryLog) -> None:
    """Write an `odom.tdf`: field 3 seconds, 4 microseconds, 8 x, 9 y, 11 heading, from 0."""
    lines = []
    for number, (stamp_ns, (x, y, heading)) in enumerate(zip(log.stamps_ns, log.poses)):
        seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
        stamp = f"{seconds} {rest // 1000:06d}"
        lines.append(f"odom {number} pose {stamp} 0 0 0 {x:.6f} {y:.6f} 0 {heading:.6f}\n")
    path.write_text("".join(lines), encoding="ascii")


def _write_images(
    folder: Path,
    plan: FloorPlan,
    drive: _Drive,
    camera: SimulatedCamera,
    size: tuple[int, int],
    workers: Workers | None,
    progress: Progress,
) -> None:
    done, total, doing = 0, len(drive.trajectory), f"rendering {drive.name}"
    chunks = [range(first, min(first + _CHUNK, total)) for first in range(0, total, _CHUNK)]
    progress(done, total, doing)
    render = partial(_render, folder, plan, drive, camera, size)
    for count in (workers or Serial()).map(render, chunks):
        done += count
        progress(done, total, doing)


def _render(
    folder: Path,
    plan: FloorPlan,
    drive: _Drive,
    camera: SimulatedCamera,
    size: tuple[int, int],
    frames: range,
) -> int:
    """Write some of a drive's images, which do not depend on the others; returns how many."""
    width, height = size
    lighting = lighting_for(drive.condition, plan.seed, drive.number)
    optics = Optics(camera, width, height)
    renderer = Renderer(scene(plan, lighting, width), optics.level)
    sensor = Sensor(Camera(width, height), lighting)
    trajectory = drive.trajectory
    eyes = camera.eyes(trajectory.stamps_ns, trajectory.poses)
    about = walkers_along(trajectory.stamps_ns, trajectory.poses, plan.seed, drive.number)
    turning = np.gradient(np.unwrap(trajectory.poses[:, 2]), trajectory.stamps_ns * 1e-9)
    for k in frames:
        rng = np.random.default_rng([plan.seed, 23, drive.number, k])
        shake = float(rng.normal(0, 0.7)) * height / 480
        eye = eyes[k] + np.array([0.0, 0.0, drive.camera_turned_rad])
        light = optics.image(renderer.render(eye, about[k], shake))
        image = sensor.expose(light, float(np.clip(turning[k], -2, 2)), rng)
        ok, data = cv2.imencode(".jpeg", image, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
        if not ok:
            raise DatasetError(f"{trajectory.names[k]}: cannot be encoded as JPEG")
        (folder / trajectory.names[k]).write_bytes(data.tobytes())
    return len(frames)
