"""How well a map's poses are estimated from wheel odometry and images.

Undisturbed, in several offices, where a further drive is localized on each map; then under faults.
Each fault alters two drives through a small office, or renders them with another camera. It is
mastered where the poses are no worse than raw odometry, no accepted closure is wrong, and a line
names the fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Flags, Image
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.parts import AlteredDrive, DrivePart, Part
from kbf_localization.errors import KbfError, ParameterError
from kbf_localization.evaluation.evaluate import (
    evaluate_drives,
    in_map_frame,
    metrics_by_method,
    relative_metrics,
)
from kbf_localization.evaluation.mapping_metrics import mapping_metrics
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.mapping import build_map
from kbf_localization.mapping.poses import with_poses
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.anchors import Anchor
from kbf_localization.pose_graph.closures import MAX_DISTANCE_M, MAX_TURN_RAD
from kbf_localization.pose_graph.estimate import estimate_poses
from kbf_localization.pose_graph.result import PoseEstimates
from kbf_localization.progress import Progress
from kbf_localization.simulator.optics import DEFAULT_CAMERA, SimulatedCamera
from kbf_localization.simulator.simulated_drives import simulate, simulate_along
from kbf_localization.training_map import TrainingMap

KEYS = (
    "raw_ate_rmse_m",
    "ate_rmse_m",
    "ate_max_m",
    "raw_relative_2m_rmse_m",
    "relative_2m_rmse_m",
    "closures",
    "closures_wrong",
    "nees_mean",
    "cpu_s",
)
ERROR_COLUMNS = (
    *("Office, drives", "Raw", "RMSE", "Max", "Raw over 2 m", "Over 2 m"),
    *("Closures (wrong)", "NEES"),
)
USE_COLUMNS = ("Office, drives", "Relative to the map, m", "Absolute, m", "CPU, s", "Used")
LOCALIZATION_KEYS = ("relative_to_map_median_m", "position_median_m")
MAP_POSES = 500


@dataclass(frozen=True)
class Settings:
    """What is driven: numbers of `drives`, images of each, and their size.

    On each map `localized` images of a further drive are localized, none with 0.
    """

    drives: Sequence[int]
    frames: int
    size: tuple[int, int]
    localized: int


def run_buildings(
    folder: Path,
    buildings: int,
    seed: int,
    settings: Settings,
    workers: Workers,
    progress: Progress,
    path: Path | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the keys of `mapping.json` by office and by the number of drives.

    With `path`, a real drive's places.lst, the drives follow perturbed versions of it in an office
    that is built round it.
    """
    found: dict[str, dict[str, Any]] = {}
    for building in range(seed, seed + buildings):
        place = folder / f"office{building}"
        if not place.is_dir():
            runs = max(settings.drives) + 1
            how: dict[str, Any] = {"seed": building, "frames": settings.frames}
            how |= {"size": settings.size, "workers": workers, "progress": progress}
            if path is None:
                simulate(place, runs=runs, **how)
            else:
                simulate_along(place, [path], extra_drives=runs - 1, **how)
        paths = sorted(path for path in place.iterdir() if path.is_dir())
        opened = [open_drive(path) for path in paths]
        by_count: dict[str, Any] = {}
        for count in settings.drives:
            source = with_poses(opened[:count], "odometry", workers=workers, progress=progress)
            assert source.estimates is not None
            metrics = mapping_metrics(opened[:count], source.estimates)
            if settings.localized:
                training_map = source.annotated(
                    build_map(
                        source.drives,
                        poses=MAP_POSES,
                        poses_from="given",
                        workers=workers,
                        progress=progress,
                    )
                )
                metrics["localization"] = _localization(
                    training_map, opened[-1], settings.localized, progress
                )
            by_count[str(count)] = metrics
        found[str(building)] = by_count
    return found


def _localization(
    training_map: TrainingMap, drive: Drive, images: int, progress: Progress
) -> dict[str, float]:
    """Return the errors of the first images of a drive that the map does not know."""
    part = DrivePart(drive, Part(f"first {images}", last=min(images / len(drive), 1.0)))
    results = evaluate_drives([part], training_map, ["kbf"], progress=progress)
    errors = relative_metrics(results, training_map)["kbf"]
    aligned, _ = in_map_frame(results, training_map)
    metrics = metrics_by_method(aligned)["kbf"]
    return {**errors, "position_median_m": metrics["position_median_m"]}


def mapping_result(found: dict[str, dict[str, Any]]) -> ExperimentResult:
    """Return the tables of mapping errors and of a further drive on the maps, and both as CSV."""
    runs = [
        (f"{building}, {count}", metrics, metrics.get("localization", {}))
        for building, by_count in found.items()
        for count, metrics in by_count.items()
    ]
    errors, use, rows = [], [], []
    for name, metrics, localized in runs:
        *wanted, closures, wrong, nees, cpu_s = (metrics.get(key) for key in KEYS)
        further = [localized.get(key) for key in LOCALIZATION_KEYS]
        used = metrics["used"].replace("_", " ")
        errors.append((name, *wanted, f"{closures} ({wrong})", nees))
        use.append((name, *further, cpu_s, used))
        rows.append((name, *wanted, closures, wrong, nees, cpu_s, *further, used))
    return ExperimentResult(
        title="Maps without a laser",
        metrics=found,
        tables=[
            Table("Errors of the poses in m (NEES: 2 is right)", ERROR_COLUMNS, errors),
            Table("A further drive on these maps: median errors", USE_COLUMNS, use),
        ],
        csv={"mapping.csv": (("office_drives", *KEYS, *LOCALIZATION_KEYS, "used"), rows)},
    )


BEGIN_S, DURATION_S = 15.0, 10.0
"""When a fault that passes begins, and how long it is there."""
SLIP_S = 1.0
"""How long wheels slip, by a metre or by 30°: several times the ordinary speed."""
LONG, DRIFT_RAD_S = 1.05, 0.0048
"""Odometry that is 5 % too long; the simulated wheels' drift once more."""
WING_M, SPEED_M_S = 30.0, 0.5
"""From a wing of the building to the next, which looks the same, and how fast."""
FLOOR_M = 100.0
"""By how much a second floor is drawn beside the first."""
TOLERANCE = 1.02
"""No worse than raw odometry: rounding and interpolation between keyframes aside."""

Drives = Sequence[Drive]


@dataclass(frozen=True)
class Fault:
    """Drives under a fault, and a pattern of the line that must name it; None: none is owed.

    A fault that cannot be seen in the data is not `observable`: what is right there is not known.
    `anchors` are what a user says of the drives.
    """

    drives: Drives
    line: str | None
    observable: bool = True
    anchors: Sequence[Anchor] = ()


def _altered_motions(drive: Drive, alter: Callable[[Array, Array], Array]) -> OdometryLog:
    """Return the odometry whose motions (m, 3), with their times (m,) in s, are altered."""
    log = drive.odometry
    seconds = (log.stamps_ns[1:] - drive.stamps_ns[0]) * 1e-9
    motions = alter(relative(log.poses[:-1], log.poses[1:]), seconds)
    poses = [log.poses[0]]
    for motion in motions:
        poses.append(compose(poses[-1], motion))
    return OdometryLog(log.stamps_ns, np.array(poses), log.covariances)


def _with_odometry(drive: Drive, alter: Callable[[Array, Array], Array]) -> Drive:
    return AlteredDrive(drive, odometry=_altered_motions(drive, alter))


def _too_long(motions: Array, _: Array) -> Array:
    return motions * (LONG, LONG, 1.0)


def _drifting(motions: Array, seconds: Array) -> Array:
    moving = np.hypot(motions[:, 0], motions[:, 1]) > 2e-4
    step = np.diff(seconds, prepend=seconds[0])
    return motions + np.outer(moving * step * DRIFT_RAD_S, (0.0, 0.0, 1.0))


def _slipping(slip: tuple[float, float, float], motions: Array, seconds: Array) -> Array:
    during = (seconds >= BEGIN_S) & (seconds < BEGIN_S + SLIP_S)
    return motions + np.outer(during / during.sum(), slip)


def _frozen(motions: Array, seconds: Array) -> Array:
    return np.where(_during(seconds)[:, None], 0.0, motions)


def _during(seconds: Array) -> Flags:
    return (seconds >= BEGIN_S) & (seconds < BEGIN_S + DURATION_S)


def _seconds(drive: Drive) -> Array:
    return np.asarray((drive.stamps_ns - drive.stamps_ns[0]) * 1e-9)


def _covered(drive: Drive, level: float, always: bool) -> Drive:
    """Return a drive whose images are of one grey level, with the sensor's noise."""
    hidden = np.ones(len(drive), dtype=bool) if always else _during(_seconds(drive))

    def alter(index: int, image: Image) -> Image:
        if not hidden[index]:
            return image
        noise = np.random.default_rng(index).normal(level, 2.0, image.shape)
        return np.clip(np.rint(noise), 0, 255).astype(np.uint8)

    return AlteredDrive(drive, alter=alter)


def _standing(drive: Drive) -> Drive:
    """Return a drive that shows its first image, and whose wheels stand still."""
    count = min(len(drive), 60)
    odometry = drive.odometry
    still = np.tile(odometry.poses[:1], (len(odometry.poses), 1))
    return AlteredDrive(
        drive,
        indices=np.zeros(count, dtype=np.intp),
        stamps_ns=drive.stamps_ns[:count],
        odometry=OdometryLog(odometry.stamps_ns, still),
    )


def _shifted_clock(drive: Drive) -> Drive:
    """Return the same recording again, an hour later by its clock."""
    later = 3_600_000_000_000
    log = drive.odometry
    odometry = OdometryLog(log.stamps_ns + later, log.poses)
    return AlteredDrive(drive, stamps_ns=drive.stamps_ns + later, odometry=odometry)


def _never_near(drive: Drive, other: Drive) -> Drives:
    """Return a quarter of a drive, and the longest part of another that no closure can join."""
    part = DrivePart(drive, Part("first quarter", last=0.25))
    assert part.poses is not None and other.poses is not None
    between = other.poses[:, None] - part.poses[None]
    near = np.hypot(between[..., 0], between[..., 1]) < MAX_DISTANCE_M
    apart = ~(near & (np.abs(wrap_angle(between[..., 2])) < MAX_TURN_RAD)).any(axis=1)
    if not apart.any():
        raise ParameterError("drives this short meet everywhere; give more --frames")
    ends = np.flatnonzero(np.diff(np.r_[False, apart, False]))
    first, last = max(zip(ends[::2], ends[1::2]), key=lambda span: int(span[1] - span[0]))
    seconds = _seconds(other)[[first, last - 1]]
    return part, DrivePart(
        other, Part("away", float(seconds[0]), float(seconds[1]), in_seconds=True)
    )


def _anchored_floors(lower: Drive, second: Drive) -> Fault:
    """Return drives of two floors that look the same, with an anchor in each.

    In the map's frame a floor lies beside the other.
    """
    assert second.poses is not None
    upper = AlteredDrive(second, poses=second.poses + np.array([FLOOR_M, 0.0, 0.0]))
    anchors = []
    for number, drive in enumerate((lower, upper)):
        assert drive.poses is not None
        image = len(drive) // 2
        x, y, heading = (float(value) for value in drive.poses[image])
        anchors.append(Anchor(number, int(drive.stamps_ns[image]), (x, y, heading)))
    return Fault([lower, upper], r"look alike", anchors=anchors)


def _two_wings(drive: Drive) -> Drive:
    """Return a drive through a wing, without images into the next one, and through that.

    The next wing looks as the first does: its images are the same in other noise.
    """
    log, count = drive.odometry, len(drive)
    period = int(np.median(np.diff(log.stamps_ns)))
    across_ns = round(WING_M / SPEED_M_S) * 1_000_000_000
    crossing = np.arange(period, across_ns, period, dtype=np.int64)
    assert drive.poses is not None
    start = relative(drive.poses[0], drive.poses)
    # From the end of a wing straight to the begin of the next, with the wheels' drift.
    target = np.array([WING_M, 0.0, 0.0])
    fractions = np.r_[0.0, crossing / across_ns, 1.0][:, None]
    straight = start[-1] + fractions * (target - start[-1])
    motions = relative(straight[:-1], straight[1:])
    motions[:, 2] += period * 1e-9 * DRIFT_RAD_S
    first = relative(log.poses[0], log.poses)
    between = [first[-1]]
    for motion in motions:
        between.append(compose(between[-1], motion))
    begin = int(log.stamps_ns[-1])
    later = begin + across_ns - int(log.stamps_ns[0])
    odometry = OdometryLog(
        np.concatenate((log.stamps_ns, begin + crossing, log.stamps_ns + later)),
        np.concatenate((first, between[1:-1], compose(between[-1], first))),
    )
    poses = np.concatenate((start, compose(target, start)))

    def alter(index: int, image: Image) -> Image:
        noise = np.random.default_rng(index).normal(0.0, 3.0, image.shape)
        return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)

    return AlteredDrive(
        drive,
        indices=np.tile(np.arange(count), 2),
        stamps_ns=np.concatenate((drive.stamps_ns, drive.stamps_ns + later)),
        odometry=odometry,
        poses=poses,
        alter=alter,
    )


@dataclass(frozen=True)
class FaultOffice:
    """Rendered drives of an office: those of the default camera, and those with another camera."""

    folder: Path
    seed: int
    frames: int
    size: tuple[int, int]
    workers: Workers
    progress: Progress

    def drives(
        self, name: str = "default", camera: SimulatedCamera = DEFAULT_CAMERA, other: bool = False
    ) -> list[Drive]:
        """Return two drives, rendered once; of the `other` office where asked for."""
        place = self.folder / f"faults{self.seed}_{name}"
        if not place.is_dir():
            simulate(
                place,
                runs=2,
                seed=self.seed + 1000 * other,
                frames=self.frames,
                size=self.size,
                camera=camera,
                workers=self.workers,
                progress=self.progress,
            )
        return [open_drive(path) for path in sorted(place.iterdir()) if path.is_dir()]

    def faults(self) -> dict[str, Callable[[], Fault]]:
        """Return the faults by their names; drives with another camera are rendered when asked."""
        first, second = self.drives()
        metre, turn = (1.0, 0.0, 0.0), (0.0, 0.0, float(np.radians(30.0)))

        def both(alter: Callable[[Array, Array], Array]) -> list[Drive]:
            return [_with_odometry(drive, alter) for drive in (first, second)]

        def slipped(slip: tuple[float, float, float]) -> Fault:
            alter = lambda motions, seconds: _slipping(slip, motions, seconds)  # noqa: E731
            return Fault([first, _with_odometry(second, alter)], r"slip|jumps")

        missing = np.flatnonzero(~_during(_seconds(second)))
        return {
            "undisturbed": lambda: Fault([first, second], None),
            "odometry 5 % too long": lambda: Fault(
                both(_too_long), r"as the wheels report", observable=False
            ),
            "odometry of one drive 5 % too long": lambda: Fault(
                [first, _with_odometry(second, _too_long)], r"more distance than"
            ),
            "heading drift doubled": lambda: Fault(both(_drifting), r"too far left"),
            "images missing for 10 s": lambda: Fault(
                [first, AlteredDrive(second, indices=missing)], r"no images? from"
            ),
            "lens covered for 10 s": lambda: Fault(
                [first, _covered(second, 12.0, False)], r"covered"
            ),
            "lens covered throughout": lambda: Fault(
                [first, _covered(second, 12.0, True)], r"covered"
            ),
            "no texture at all": lambda: Fault(
                [_covered(drive, 128.0, True) for drive in (first, second)], r"covered|blank"
            ),
            "wheel slip of 1 m": lambda: slipped(metre),
            "wheel slip of 30°": lambda: slipped(turn),
            "odometry frozen for 10 s": lambda: Fault(
                [first, _with_odometry(second, _frozen)], r"report no motion"
            ),
            "images 0.2 s late": lambda: Fault(
                self.drives("late", SimulatedCamera(time_offset_s=0.2)), r"stamps are 0\.\d+ s late"
            ),
            "two buildings": lambda: Fault(
                [first, self.drives("other", other=True)[0]], r"nothing joins"
            ),
            "two identical floors": lambda: Fault(
                [first, second], r"Images alone join", observable=False
            ),
            "two identical floors, an anchor in each": lambda: _anchored_floors(first, second),
            "two identical wings in a drive": lambda: Fault([_two_wings(first)], r"look alike"),
            "drives that never meet": lambda: Fault(_never_near(first, second), r"nothing joins"),
            "the same drive twice": lambda: Fault([first, first], r"same drive"),
            "the same drive twice, another clock": lambda: Fault(
                [first, _shifted_clock(first)], r"same drive"
            ),
            "a drive that stands still": lambda: Fault(
                [first, _standing(second)], r"nothing joins"
            ),
            "a drive that stands still, alone": lambda: Fault([_standing(first)], r"stands still"),
            "two images": lambda: Fault(
                [AlteredDrive(first, indices=np.arange(2))], r"no place was recognized"
            ),
            "camera looks 90° to the left": lambda: Fault(
                self.drives("left", SimulatedCamera(yaw_rad=float(np.pi / 2))), r"camera"
            ),
            "camera 0.5 m ahead of the base": lambda: Fault(
                self.drives("ahead", SimulatedCamera(offset_m=(0.5, 0.0, 0.0))), r"camera"
            ),
        }


def run_fault(fault: Fault, workers: Workers, progress: Progress) -> dict[str, Any]:
    """Return the keys of `mapping.json`, `lines` that were said, and what of it holds."""
    try:
        estimates = estimate_poses(
            fault.drives, anchors=fault.anchors, workers=workers, progress=progress
        )
    except KbfError as error:
        lines = [str(error)]
        return {"used": "refused", "lines": lines, **_judged(fault, {}, lines)}
    metrics = mapping_metrics(fault.drives, estimates)
    lines = said(estimates, metrics)
    return {**metrics, "lines": lines, **_judged(fault, metrics, lines)}


def said(estimates: PoseEstimates, metrics: Mapping[str, Any]) -> list[str]:
    """Return all that `kbf map build` says of the poses, a line each."""
    wheels = [wheel.described for wheel in estimates.wheels] if estimates.closures else []
    return [*estimates.warnings, *wheels, str(metrics["verdict"])]


def _judged(fault: Fault, metrics: Mapping[str, Any], lines: Sequence[str]) -> dict[str, Any]:
    error, raw = metrics.get("ate_rmse_m"), metrics.get("raw_ate_rmse_m")
    named = fault.line is None or any(re.search(fault.line, line) for line in lines)
    no_worse = error is None or raw is None or error <= TOLERANCE * raw + 1e-3
    return {
        "no_worse_than_raw": no_worse,
        "named": named,
        "line": next((x for x in lines if fault.line and re.search(fault.line, x)), None),
        "mastered": bool(no_worse and named and not metrics.get("closures_wrong", 0)),
        "observable": fault.observable,
    }


def run_faults(
    office: FaultOffice, workers: Workers, progress: Progress, only: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return what each fault gave, by its name; of those whose name contains `only`."""
    chosen = {
        name: fault for name, fault in office.faults().items() if only is None or only in name
    }
    return {name: run_fault(fault(), workers, progress) for name, fault in chosen.items()}


def faults_result(found: Mapping[str, Mapping[str, Any]]) -> ExperimentResult:
    """Return the table of faults, and the same as CSV."""
    errors = ("raw_ate_rmse_m", "ate_rmse_m", "closures", "closures_wrong", "nees_mean")
    keys = (*errors, "drives_joined", "used", "mastered", "line")
    rows = [(name, *(metrics.get(key) for key in keys)) for name, metrics in found.items()]
    columns = (
        *("Fault", "Raw, m", "RMSE, m", "Closures", "Wrong", "NEES (2 is right)"),
        *("Joined", "Used", "Mastered"),
    )
    return ExperimentResult(
        title="Faults while a map's poses are estimated",
        metrics={"faults": found},
        tables=[
            Table("Two drives through a small office", columns, [row[:-1] for row in rows]),
            Table("What is said", ("Fault", "Line"), [(row[0], row[-1] or "–") for row in rows]),
        ],
        csv={"faults.csv": (("fault", *keys), rows)},
    )
