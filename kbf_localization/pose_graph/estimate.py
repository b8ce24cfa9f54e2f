"""Estimates the poses of drives from wheel odometry and one camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import MapError, ParameterError
from kbf_localization.geometry import difference
from kbf_localization.parallel import Serial, TimedWorkers, Workers
from kbf_localization.pose_graph.anchors import Anchor, anchor_rows
from kbf_localization.pose_graph.closures import (
    OUTLIER,
    Closure,
    Rejected,
    counted_once,
    misfits,
)
from kbf_localization.pose_graph.edges import (
    WHEEL_NOISE,
    OdometryEdges,
    at_least_wheel_noise,
    fitted_noise,
    odometry_edges,
    visual_edges,
    with_noise,
)
from kbf_localization.pose_graph.evidence import Evidence, gather_evidence
from kbf_localization.pose_graph.frame import framed_problem, likely_scale
from kbf_localization.pose_graph.graph import REJECTED_CHI2, Problem
from kbf_localization.pose_graph.joint_adjustment import Adjusted, adjust_with_odometry
from kbf_localization.pose_graph.look_alikes import joins, look_alike_lines
from kbf_localization.pose_graph.prepare import prepare, seconds_into
from kbf_localization.pose_graph.result import (
    ADJUSTMENT,
    ODOMETRY_EDGES,
    VISUAL_EDGES,
    HeldOut,
    HeldOutScore,
    PoseEstimates,
    choose,
    trajectory_of,
)
from kbf_localization.pose_graph.tracks import (
    COARSE_SIGMA_PX,
    FINE_SIGMA_PX,
    TrackBuilder,
    neighbours,
)
from kbf_localization.pose_graph.wheels import (
    WheelErrors,
    describe_scales,
    describe_slips,
    distance_scales,
    slips,
)
from kbf_localization.progress import Progress, no_progress

CLOSURE_PARTNERS = 4
"""Keyframes of other visits that a keyframe's points are seen from in the joint adjustment."""
GIVEN_UP_WEIGHT = 0.25
"""Of a known pose that may be wrong: Geman and McClure's weight at the 99 % bound of its χ²."""
UNJOINED = ("leave_out", "refuse")


def estimate_poses(
    drives: Drive | Sequence[Drive],
    *,
    anchors: Sequence[Anchor] = (),
    odometry_scale: float = 1.0,
    unjoined: str = "leave_out",
    seed: int = 0,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> PoseEstimates:
    """Estimate the poses of all images of drives from their wheels and images.

    The first pose of the first drive that is kept is the origin, unless `anchors` say where drives
    were. Distances of the wheels are multiplied by `odometry_scale`; anchors some metres apart tell
    what is left of a wrong scale. Drives that no closure joins are left out and named, or, with
    `unjoined` = "refuse", a MapError.
    """
    drives = drives if isinstance(drives, Sequence) else [drives]
    if unjoined not in UNJOINED:
        raise ParameterError(f"unjoined must be {' or '.join(UNJOINED)}, not '{unjoined}'")
    if not 0.1 < odometry_scale < 10.0:
        raise ParameterError(f"the odometry's scale is {odometry_scale}; give 0.1 to 10")
    _refuse_repeated(drives)
    workers = TimedWorkers(workers or Serial())
    prepared = prepare(drives, odometry_scale, workers, progress)
    builder = None
    if prepared.camera is not None:
        builder = TrackBuilder(
            prepared.keypoints,
            prepared.camera,
            prepared.mount,
            workers,
            progress,
            prepared.learned,
        )
    evidence = gather_evidence(prepared, builder, seed, workers, progress)
    if builder is not None and evidence.prepared.learned is not None:
        builder = builder.with_camera(evidence.prepared.learned)
    found = _Estimator(evidence.held_by(anchors), builder, anchors, progress).estimate()
    if unjoined == "refuse" and found.left_out:
        raise MapError(f"nothing joins {', '.join(found.left_out)} with the other drives")
    scale = odometry_scale * found.odometry_scale
    return replace(found, odometry_scale=scale, cpu_s=workers.cpu_s)


def _refuse_repeated(drives: Sequence[Drive]) -> None:
    if not drives:
        raise MapError("a map needs at least one drive")
    for number, drive in enumerate(drives):
        for other in drives[:number]:
            if _same_recording(drive, other):
                raise MapError(
                    f"{drive.path}: is the same drive as {other.path}; a drive that is given twice "
                    "would confirm itself"
                )


def _same_recording(drive: Drive, other: Drive) -> bool:
    """Tell whether two drives are one, by images' times and by wheels, whatever the clock says."""
    if len(drive) != len(other) or len(drive.odometry.poses) != len(other.odometry.poses):
        return False
    later = other.stamps_ns[0] - drive.stamps_ns[0]
    return bool(
        np.array_equal(drive.stamps_ns + later, other.stamps_ns)
        and (later == 0 or np.array_equal(drive.odometry.poses, other.odometry.poses))
    )


class _Estimator:
    """The steps of the estimation, from the evidence of images and wheels."""

    def __init__(
        self,
        evidence: Evidence,
        builder: TrackBuilder | None,
        anchors: Sequence[Anchor],
        progress: Progress,
    ) -> None:
        self.evidence, self.builder = evidence, builder
        self.given, self.progress = anchors, progress
        self.scale_known, self.lines = False, list[str]()

    def estimate(self) -> PoseEstimates:
        scale = 1.0
        if len(self.given) > 1:
            scale, self.scale_known = likely_scale(self.evidence, self.given, self.progress)
            self.evidence = self.evidence.scaled(scale)
        evidence, keyframes = self.evidence, self.evidence.prepared.keyframes
        problem, kept_pieces = framed_problem(evidence, self.given)
        kept, rows = problem.kept, problem.rows
        rejected = list(evidence.rejected)
        closures = [c for c in evidence.closures if kept[c.first] and kept[c.second]]
        odometry, noise = evidence.odometry_edges(), WHEEL_NOISE
        solution = problem.solve(odometry, closures)
        if closures:
            noise = fitted_noise(
                odometry.corrected(solution.wheels), solution.poses, keyframes, rows
            )
            odometry = with_noise(odometry, noise, keyframes)
            solution = problem.solve(odometry, closures)
        self.lines = self._given_up(kept, problem.anchors.doubtful, solution.anchor_weights)
        # What contradicts all else is given up for good before images decide the rest.
        problem = problem.with_anchor_weights(solution.anchor_weights)
        fits = solution.closure_chi2 < REJECTED_CHI2
        rejected += [Rejected(c, OUTLIER) for c, fit in zip(closures, fits) if not fit]
        closures = [c for c, fit in zip(closures, fits) if fit]
        visual = visual_edges(keyframes, evidence.states[:, :3])
        edges = {ODOMETRY_EDGES: odometry, VISUAL_EDGES: visual, ADJUSTMENT: visual}
        used, score = self._choose(problem, edges, HeldOut.folds(closures, keyframes))
        found = self._run(used, problem, edges, closures)
        wrong = misfits(closures, found.states[:, :3])
        rejected += [Rejected(c, OUTLIER) for c, bad in zip(closures, wrong) if bad]
        closures = [c for c, bad in zip(closures, wrong) if not bad]
        if wrong.any():
            found = self._run(used, problem, edges, closures)
        poses = found.states[:, :3]
        if used == ODOMETRY_EDGES:
            noise = at_least_wheel_noise(noise)
        else:
            noise = fitted_noise(visual.motions, poses, keyframes, rows)
        used_edges = with_noise(edges[used], noise, keyframes)
        # Closures near each other see the same points, so that they count once.
        alone = counted_once(closures, keyframes)
        covariances = problem.covariances(used_edges, alone, poses, keyframes.path_m)
        covariances += found.pose_covariances
        result = self._result((found, covariances), closures, rejected, used, score, kept_pieces)
        return replace(result, odometry_scale=scale)

    def _given_up(self, kept: Flags, doubtful: Flags, weights: Array) -> list[str]:
        """Name drives some of whose known poses contradict all else."""
        drives, keyframes = self.evidence.prepared.drives, self.evidence.prepared.keyframes
        held = kept[anchor_rows(self.given, keyframes)]
        drive_of = np.array([anchor.drive for anchor in self.given], dtype=np.intp)[held]
        lines = []
        for number in np.unique(drive_of[doubtful]) if held.any() else ():
            own = weights[(drive_of == number) & doubtful]
            given_up = int((own < GIVEN_UP_WEIGHT).sum())
            if given_up:
                lines.append(
                    f"{drives[number].name}: {given_up} of {len(own)} known poses contradict the "
                    "wheels and images, and do not hold the map"
                )
        return lines

    def _choose(
        self, problem: Problem, edges: dict[str, OdometryEdges], folds: Sequence[HeldOut]
    ) -> tuple[str, HeldOutScore | None]:
        """Return the method that closures left out decide for, and the errors of all."""
        if not folds or self.builder is None:
            return ODOMETRY_EDGES, None
        errors: dict[str, list[Array]] = {method: [] for method in edges}
        for number, fold in enumerate(folds):
            self.progress(number, len(folds), "predicting closures that are left out")
            for method, found in errors.items():
                predicted = self._run(method, problem, edges, fold.training)
                found.append(fold.errors(predicted.states[:, :3]))
        stacked = {method: np.concatenate(found) for method, found in errors.items()}
        stretches = np.concatenate([fold.stretches for fold in folds])
        means = {method: float(found.mean()) for method, found in stacked.items()}
        return choose(stacked, stretches), HeldOutScore(len(stretches), means)

    def _run(
        self,
        method: str,
        problem: Problem,
        edges: dict[str, OdometryEdges],
        closures: list[Closure],
    ) -> Adjusted:
        """Return states (n, 6) and the wheels' errors (d, 2) by one of the methods."""
        solution = problem.solve(edges[method], closures)
        states = self.evidence.states.copy()
        states[:, :3] = solution.poses
        if method == ODOMETRY_EDGES:
            return Adjusted(states, solution.wheels)
        if method == VISUAL_EDGES:
            # Visual edges have no drift of wheels: it shows in the graph on the wheels' own.
            wheels = problem.solve(edges[ODOMETRY_EDGES], closures).wheels
            by_camera = self._followed(problem, closures, states)
            return Adjusted(states, wheels, self.evidence.prepared.learned, by_camera)
        found = Adjusted(states, np.zeros((problem.drives, 2)), self.evidence.prepared.learned)
        # Points that are triangulated at adjusted poses leave out wrong matches.
        for sigma_px in (COARSE_SIGMA_PX, FINE_SIGMA_PX):
            found = self._adjust(problem, found, edges[ODOMETRY_EDGES], closures, sigma_px)
        return found

    def _followed(self, problem: Problem, closures: list[Closure], states: Array) -> Array | None:
        """Return how states (n, 6) of the graph on visual edges follow a learned camera."""
        learned, by_camera = self.evidence.prepared.learned, self.evidence.by_camera
        if learned is None or by_camera is None:
            return None
        found = np.zeros_like(by_camera)
        for number, sigma in enumerate(np.sqrt(np.diag(learned.covariance))):
            moved = self.evidence.states + sigma * by_camera[:, :, number]
            edges = visual_edges(self.evidence.prepared.keyframes, moved[:, :3])
            followed = problem.solve(edges, closures).poses
            found[:, :3, number] = difference(followed, states[:, :3]) / sigma
        return found

    def _adjust(
        self,
        problem: Problem,
        start: Adjusted,
        odometry: OdometryEdges,
        closures: list[Closure],
        sigma_px: float,
    ) -> Adjusted:
        assert self.builder is not None
        builder = self.builder
        if start.camera is not None and start.camera is not builder.learned:
            builder = builder.with_camera(start.camera)
        states, rows = start.states.copy(), problem.rows
        partners = _with_closures(neighbours(self.evidence.prepared.keyframes), closures)
        partners = [
            others if problem.kept[row] else others[:0] for row, others in enumerate(partners)
        ]
        points = builder.points(states, partners, sigma_px, "joint adjustment")
        groups = [
            replace(found.group, images=problem.local[found.group.images])
            for found in points
            if found.group is not None
        ]
        adjusted = adjust_with_odometry(
            states[rows],
            start.wheels,
            groups,
            problem.edges_of(odometry),
            problem.anchors,
            builder.learned,
        )
        states[rows] = adjusted.states
        by_camera = adjusted.by_camera
        if by_camera is not None:
            by_camera = np.full((len(states), *by_camera.shape[1:]), np.nan)
            by_camera[rows] = adjusted.by_camera
        return replace(adjusted, states=states, by_camera=by_camera)

    def _result(
        self,
        final: tuple[Adjusted, Array],
        closures: list[Closure],
        rejected: list[Rejected],
        used: str,
        score: HeldOutScore | None,
        kept_pieces: Flags,
    ) -> PoseEstimates:
        found, covariances = final
        poses, wheels = found.states[:, :3], found.wheels
        prepared = self.evidence.prepared
        keyframes = prepared.keyframes
        kept = kept_pieces[keyframes.piece_of]
        trajectories = tuple(
            trajectory_of(
                drive, number, prepared.odometry[number], keyframes, kept, poses, covariances
            )
            for number, drive in enumerate(prepared.drives)
        )
        left_out = [
            drive.name
            for number, drive in enumerate(prepared.drives)
            if not kept[keyframes.drive_of == number].any()
        ]
        lines = [
            *self.lines,
            *(f"{name}: nothing joins it with the other drives; left out" for name in left_out),
        ]
        for piece in np.flatnonzero(~kept_pieces):
            own = np.flatnonzero(keyframes.piece_of == piece)
            drive = prepared.drives[int(keyframes.drive_of[own[0]])]
            if drive.name not in left_out:
                first, last = (
                    seconds_into(drive, int(keyframes.image_of[own[end]])) for end in (0, -1)
                )
                lines.append(
                    f"{drive.name}: nothing joins {first:.0f} to {last:.0f} s with the rest; "
                    "left out"
                )
        if not closures and len(self.given) < 2:
            lines.append(
                "no place was recognized twice: the poses are the odometry's, with its drift; "
                "drive a loop, or the same path again in the same direction"
            )
        if closures:
            lines += self._wheel_lines(poses, wheels, kept)
        lines += look_alike_lines(rejected, poses)
        camera, mount = prepared.camera, prepared.mount
        if prepared.learned is not None:
            learned = found.camera or prepared.learned
            camera, mount = learned.camera, learned.mount
            lines += learned.lines
        return PoseEstimates(
            trajectories=trajectories,
            keyframes=keyframes,
            closures=tuple(closures),
            rejected=tuple(rejected),
            wheels=tuple(
                WheelErrors(drive.name, float(bias), float(scale))
                for drive, (bias, scale) in zip(prepared.drives, wheels)
            ),
            used=used,
            drives_joined=len(prepared.drives) - len(left_out),
            left_out=tuple(left_out),
            anchors=len(self.given),
            scale_known=self.scale_known,
            held_out=score,
            camera=camera,
            mount=mount if camera is not None else None,
            warnings=(*prepared.warnings, *lines),
            joins=joins(
                closures,
                rejected,
                poses,
                keyframes,
                [drive.name for drive in prepared.drives],
                {anchor.drive for anchor in self.given},
            ),
        )

    def _wheel_lines(self, poses: Array, wheels: Array, kept: Flags) -> list[str]:
        """Name slips, and drives whose wheels report other distances."""
        prepared = self.evidence.prepared
        keyframes, drives = prepared.keyframes, prepared.drives
        edges = odometry_edges(keyframes)
        names = [drive.name for drive in drives]
        scales = distance_scales(edges, poses, kept, keyframes.path_m, len(drives))
        found = slips(edges, wheels, poses, kept)
        begins = [int(drive.stamps_ns[0]) for drive in drives]
        return [
            *describe_scales(*scales, names, self.scale_known),
            *describe_slips(found, keyframes, names, begins),
        ]


def _with_closures(partners: Sequence[Rows], closures: Sequence[Closure]) -> list[Rows]:
    """Return the partners with keyframes of other visits, those with most inliers."""
    linked: dict[int, list[tuple[int, int]]] = {}
    for closure in closures:
        linked.setdefault(closure.first, []).append((-closure.inliers, closure.second))
        linked.setdefault(closure.second, []).append((-closure.inliers, closure.first))
    found = []
    for row, others in enumerate(partners):
        best = dict.fromkeys(other for _, other in sorted(linked.get(row, [])))
        extra = [other for other in best if other not in others][:CLOSURE_PARTNERS]
        found.append(np.array([*others, *extra], dtype=np.intp))
    return found
