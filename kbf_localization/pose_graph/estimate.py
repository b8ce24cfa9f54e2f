"""Estimates the poses of drives from wheel odometry and one camera."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive, camera_of, mount_of
from kbf_localization.errors import MapError, ParameterError
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.landmarks.bearings import spatial
from kbf_localization.landmarks.build import relative_to
from kbf_localization.motion.noise import MotionNoise, errors_over_windows, noise_growth
from kbf_localization.parallel import Serial, Workers
from kbf_localization.pose_graph.closures import (
    OUTLIER,
    Closure,
    Rejected,
    as_edges,
    components,
    misfits,
    place_pieces,
    redundancy,
    supported,
    verify,
)
from kbf_localization.pose_graph.graph import (
    GAUGE_SIGMA,
    REJECTED_CHI2,
    Adjusted,
    Anchors,
    Edges,
    OdometryEdges,
    PoseGraph,
    Solution,
    adjust_with_odometry,
    whitening_of,
)
from kbf_localization.pose_graph.keyframes import (
    COARSE_SIGMA_PX,
    FINE_SIGMA_PX,
    DriveOdometry,
    Keyframes,
    TrackBuilder,
    candidates,
    choose_keyframes,
    describe,
    detect,
    has_moved,
    neighbours,
    odometry_at_images,
    still_stretches,
)
from kbf_localization.pose_graph.result import (
    ADJUSTMENT,
    ODOMETRY_EDGES,
    VISUAL_EDGES,
    EstimatedTrajectory,
    HeldOutScore,
    PoseEstimates,
    WheelErrors,
    choose,
    folds,
    prediction_errors,
)
from kbf_localization.progress import Progress, no_progress
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.camera.camera_info import fitted
from kbf_localization.vision.keypoints import Keypoints, mutual_matches, squared_distances
from kbf_localization.vision.self_calibration import MatchedPair, calibrate, choose_pairs

ODOMETRY_M, ODOMETRY_RELATIVE = 0.004, 0.02
ODOMETRY_RAD, ODOMETRY_PER_RAD = np.radians(0.5), 0.04
"""σ of the wheels between keyframes before their noise is fitted: 4 mm + 2 %, 0.5° + 4 %."""
VISUAL_M, VISUAL_RELATIVE = 0.003, 0.02
VISUAL_RAD, VISUAL_PER_RAD = np.radians(0.12), 0.01
"""σ of the motion between keyframes after a drive's own adjustment: images hold the heading."""
AGREEMENT_M = 0.15
"""Median disagreement of images and wheels over 2 m, beyond which the images are not followed."""
WINDOW_M, WINDOW_RAD = 2.0, 2.0
CLOSURE_PARTNERS = 4
"""Keyframes of other visits that a keyframe's points are seen from in the joint adjustment."""
STEP_SIGMA = 1e-3
"""m and rad: the least σ between two keyframes."""
INFLATION = 1.0
"""Of the graph's covariances, whose edges err less independently than it takes them."""
FEW_KEYPOINTS = 30
"""An image with fewer is dark, blank or covered."""
UNJOINED = ("leave_out", "refuse")


@dataclass(frozen=True)
class _Prepared:
    """Drives with their odometry, keyframes, keypoints and camera."""

    drives: Sequence[Drive]
    odometry: tuple[DriveOdometry, ...]
    keyframes: Keyframes
    keypoints: list[Keypoints]
    camera: Camera | None
    mount: Mount
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Anchor:
    """A known pose (x, y in m, heading in rad) of a drive at a time, with its σ."""

    drive: int
    stamp_ns: int
    pose: tuple[float, float, float]
    sigma: tuple[float, float, float] = (0.05, 0.05, 0.03)


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
    were. Distances of the wheels are multiplied by `odometry_scale`. Drives that no closure joins
    are left out and named, or, with `unjoined` = "refuse", a MapError.
    """
    started = time.process_time()
    drives = drives if isinstance(drives, Sequence) else [drives]
    if unjoined not in UNJOINED:
        raise ParameterError(f"unjoined must be {' or '.join(UNJOINED)}, not '{unjoined}'")
    if not 0.1 < odometry_scale < 10.0:
        raise ParameterError(f"the odometry's scale is {odometry_scale}; give 0.1 to 10")
    _refuse_repeated(drives)
    workers = workers or Serial()
    prepared = _prepare(drives, odometry_scale, workers, progress)
    estimator = _Estimator(prepared, anchors, seed, workers, progress)
    found = estimator.estimate()
    if unjoined == "refuse" and found.left_out:
        raise MapError(f"nothing joins {', '.join(found.left_out)} with the other drives")
    return replace(found, cpu_s=time.process_time() - started)


def _refuse_repeated(drives: Sequence[Drive]) -> None:
    if not drives:
        raise MapError("a map needs at least one drive")
    for number, drive in enumerate(drives):
        for other in drives[:number]:
            if len(drive) == len(other) and np.array_equal(drive.stamps_ns, other.stamps_ns):
                raise MapError(
                    f"{drive.path}: is the same drive as {other.path}; a drive that is given twice "
                    "would confirm itself"
                )


def _prepare(
    drives: Sequence[Drive], scale: float, workers: Workers, progress: Progress
) -> _Prepared:
    odometry = [odometry_at_images(drive, scale) for drive in drives]
    warnings: list[str] = []
    for number, drive in enumerate(drives):
        odometry[number], lines = _without_silence(drive, odometry[number], workers)
        warnings += lines
        warnings += [
            f"{drive.name}: the odometry jumps at {_seconds(drive, int(cut)):.1f} s; the drive is "
            "cut there"
            for cut in odometry[number].cuts
            if not odometry[number].silent[max(int(cut) - 1, 0)]
        ]
    keyframes = choose_keyframes(drives, odometry)
    keypoints, size = detect(drives, keyframes.drive_of, keyframes.image_of, workers, progress)
    counts = np.array([len(image) for image in keypoints])
    for number, drive in enumerate(drives):
        few = counts[keyframes.drive_of == number] < FEW_KEYPOINTS
        if few.mean() > 0.1:
            warnings.append(
                f"{drive.name}: {100 * few.mean():.0f} % of its images show next to nothing: dark, "
                "blank or a covered lens; there the wheels alone are followed"
            )
    camera, mount, lines = _camera(drives, keyframes, keypoints, size)
    return _Prepared(
        drives, tuple(odometry), keyframes, keypoints, camera, mount, (*warnings, *lines)
    )


def _seconds(drive: Drive, image: int) -> float:
    return float(drive.stamps_ns[image] - drive.stamps_ns[0]) * 1e-9


def _without_silence(
    drive: Drive, odometry: DriveOdometry, workers: Workers
) -> tuple[DriveOdometry, list[str]]:
    """Cut a drive where its wheels report no motion while its images move."""
    stretches = still_stretches(drive, odometry)
    if not stretches:
        return odometry, []
    # The first and last image may be those of starting and stopping.
    inner = [(first + 1, max(last - 1, first + 1)) for first, last in stretches]
    ends = np.array(inner, dtype=np.intp).ravel()
    found, size = detect([drive], np.zeros(len(ends), np.intp), ends, workers, no_progress)
    cuts, silent, lines = list(odometry.cuts), odometry.silent.copy(), []
    for number, (first, last) in enumerate(stretches):
        if size is None or not has_moved(found[2 * number], found[2 * number + 1], size[0]):
            continue
        silent[first + 1 : last] = True
        cuts.append(last)
        lines.append(
            f"{drive.name}: the wheels report no motion from {_seconds(drive, first):.1f} to "
            f"{_seconds(drive, last):.1f} s while the images move; these images get no pose"
        )
    cut_rows = np.unique(np.array(cuts, dtype=np.intp))
    return replace(odometry, cuts=cut_rows, silent=silent), lines


def _camera(
    drives: Sequence[Drive],
    keyframes: Keyframes,
    keypoints: Sequence[Keypoints],
    size: tuple[int, int] | None,
) -> tuple[Camera | None, Mount, list[str]]:
    """Return the camera that the drives know, else the one learned from wheels and images."""
    cameras = {camera_of(drive) for drive in drives} - {None}
    mounts = {mount_of(drive) for drive in drives} - {None}
    mount = next(iter(mounts)) if len(mounts) == 1 else None
    if len(cameras) > 1 or len(mounts) > 1:
        raise MapError("the drives have different cameras or mounts; estimate them one by one")
    camera = next(iter(cameras), None)
    if camera is not None:
        return camera, mount or Mount.ahead(), []
    if size is None:
        return None, Mount.ahead(), ["no image can be read; the poses are the odometry's"]
    pairs = []
    for piece in np.unique(keyframes.piece_of):
        rows = np.flatnonzero(keyframes.piece_of == piece)
        for one, other in choose_pairs(keyframes.odometry[rows]):
            a, b = int(rows[one]), int(rows[other])
            if abs(keyframes.path_m[a] - keyframes.path_m[b]) > 1.5:
                continue
            first, second, _ = mutual_matches(
                squared_distances(keypoints[a].descriptors, keypoints[b].descriptors)
            )
            pairs.append(
                MatchedPair(
                    keyframes.odometry[a],
                    keyframes.odometry[b],
                    keypoints[a].pixels[first].astype(np.float64),
                    keypoints[b].pixels[second].astype(np.float64),
                )
            )
    try:
        learned = calibrate(pairs, *size, translation=None if mount is None else mount.translation)
    except ParameterError as error:
        return None, Mount.ahead(), [f"{error}; the poses are the odometry's alone"]
    lines = [f"camera learned from wheels and images: {learned.described}", *learned.warnings]
    return fitted(learned.camera, *size), mount or learned.mount, lines


class _Estimator:
    """The steps of the estimation, from prepared drives."""

    def __init__(
        self,
        prepared: _Prepared,
        anchors: Sequence[Anchor],
        seed: int,
        workers: Workers,
        progress: Progress,
    ) -> None:
        self.prepared, self.keyframes = prepared, prepared.keyframes
        self.seed, self.workers, self.progress = seed, workers, progress
        self.given = anchors
        self.builder: TrackBuilder | None = None
        if prepared.camera is not None:
            self.builder = TrackBuilder(
                prepared.keypoints, prepared.camera, prepared.mount, workers, progress
            )

    def estimate(self) -> PoseEstimates:
        keyframes = self.keyframes
        wheels = np.zeros((len(self.prepared.drives), 2))
        odometry = self._odometry_edges()
        visual, agreement = self._visual_odometry(odometry, wheels)
        local = visual if agreement < AGREEMENT_M else keyframes.odometry
        closures, rejected, support = self._closures(visual, local)
        kept_pieces, start = self._place(closures, support, local)
        kept = kept_pieces[keyframes.piece_of]
        closures = [c for c in closures if kept[c.first] and kept[c.second]]
        rows = np.flatnonzero(kept)
        anchors = self._anchors(kept)
        start = self._anchored(start, anchors, kept)
        problem = _Problem(self, rows, anchors, start)
        first = problem.solve(odometry, closures)
        if closures:
            noise = self._noise(odometry.corrected(first.wheels), first.poses, rows)
            odometry = self._with_noise(odometry, noise)
        solution = problem.solve(odometry, closures)
        fits = solution.closure_chi2 < REJECTED_CHI2
        rejected += [Rejected(c, OUTLIER) for c, fit in zip(closures, fits) if not fit]
        closures = [c for c, fit in zip(closures, fits) if fit]
        visual_edges = self._visual_edges(visual)
        methods = [ODOMETRY_EDGES]
        if self.builder is not None and agreement < AGREEMENT_M:
            methods += [VISUAL_EDGES, ADJUSTMENT]
        used, score = self._choose(problem, odometry, visual_edges, closures, methods)
        poses, final_wheels = self._run(used, problem, odometry, visual_edges, closures)
        wrong = misfits(closures, poses)
        if wrong.any():
            rejected += [Rejected(c, OUTLIER) for c, bad in zip(closures, wrong) if bad]
            closures = [c for c, bad in zip(closures, wrong) if not bad]
            poses, final_wheels = self._run(used, problem, odometry, visual_edges, closures)
        edges = odometry
        if used != ODOMETRY_EDGES:
            edges = self._with_noise(visual_edges, self._noise(visual_edges.motions, poses, rows))
        covariances = self._covariances(problem, edges, closures, poses)
        return self._result(
            (poses, final_wheels, covariances), closures, rejected, used, score, kept_pieces
        )

    def _covariances(
        self,
        problem: _Problem,
        edges: OdometryEdges,
        closures: list[Closure],
        poses: Array,
    ) -> Array:
        """Return the poses' covariances (n, 3, 3); closures near each other count once."""
        counts = redundancy(closures, self.keyframes)
        alone = [
            replace(closure, covariance=closure.covariance * count)
            for closure, count in zip(closures, counts)
        ]
        return INFLATION * problem.covariances(edges, alone, poses)

    def _odometry_edges(self) -> OdometryEdges:
        """Return the wheels' motions between keyframes, with the usual noise of wheels."""
        keyframes = self.keyframes
        first = keyframes.consecutive()
        motions = relative(keyframes.odometry[first], keyframes.odometry[first + 1])
        driven = keyframes.path_m[first + 1] - keyframes.path_m[first]
        metres = ODOMETRY_M + ODOMETRY_RELATIVE * driven
        radians = ODOMETRY_RAD + ODOMETRY_PER_RAD * np.abs(motions[:, 2])
        variances = np.stack((metres, metres, radians), axis=1) ** 2
        return OdometryEdges(
            first,
            first + 1,
            motions,
            whitening_of(variances[:, :, None] * np.eye(3)),
            keyframes.drive_of[first],
            keyframes.moving_s[first + 1] - keyframes.moving_s[first],
        )

    def _visual_odometry(self, odometry: OdometryEdges, wheels: Array) -> tuple[Array, float]:
        """Return the poses of each piece by its own images and wheels, and their disagreement."""
        keyframes = self.keyframes
        if self.builder is None:
            return keyframes.odometry, np.inf
        states = spatial(keyframes.odometry)
        partners = neighbours(keyframes)
        points = self.builder.points(states, partners, COARSE_SIGMA_PX, "matching keyframes")
        groups = [found.group for found in points if found.group is not None]
        self._visual_states = states
        if not groups:
            return keyframes.odometry, np.inf
        firsts = np.flatnonzero(np.r_[True, np.diff(keyframes.piece_of) != 0])
        gauge = Anchors(firsts, keyframes.odometry[firsts], np.full((len(firsts), 3), GAUGE_SIGMA))
        self.progress(0, 1, "visual odometry")
        adjusted = adjust_with_odometry(states, wheels, groups, odometry, gauge)
        self._visual_states = adjusted.states
        visual = adjusted.states[:, :3]
        errors = [
            np.hypot(*error[:2])
            for piece in np.unique(keyframes.piece_of)
            for error in errors_over_windows(
                [
                    (
                        visual[keyframes.piece_of == piece],
                        keyframes.odometry[keyframes.piece_of == piece],
                    )
                ],
                WINDOW_M,
                1e3,
            )[0]
        ]
        return visual, float(np.median(errors)) if errors else np.inf

    def _closures(self, visual: Array, local: Array) -> tuple[list[Closure], list[Rejected], Rows]:
        none = np.empty(0, dtype=np.intp)
        if self.builder is None or self.prepared.camera is None:
            return [], [], none
        keyframes = self.keyframes
        states = self._visual_states
        points = self.builder.points(
            states, neighbours(keyframes), FINE_SIGMA_PX, "triangulating points", landmarks=True
        )
        landmarks = [
            None if found.landmarks is None else relative_to(state[:3], found.landmarks)
            for state, found in zip(states, points)
        ]
        self.progress(0, 1, "looking for closures")
        vectors = describe(self.prepared.keypoints, self.seed)
        pairs = candidates(vectors, keyframes)
        found = verify(
            pairs,
            self.prepared.keypoints,
            landmarks,
            self.prepared.camera,
            self.prepared.mount,
            self.workers,
            self.progress,
        )
        return supported(found, keyframes, local)

    def _place(
        self, closures: Sequence[Closure], support: Rows, local: Array
    ) -> tuple[Flags, Array]:
        """Return which pieces share a frame or are anchored, and the poses of all keyframes."""
        keyframes = self.keyframes
        piece_of = keyframes.piece_of
        groups = components(closures, piece_of)
        sizes = np.bincount(groups[piece_of])
        anchored = {int(piece_of[row]) for row in self._anchor_rows()}
        largest = int(np.argmax(sizes))
        root = int(np.flatnonzero(groups == largest)[0])
        usable = [
            (closure, count)
            for closure, count in zip(closures, support)
            if groups[piece_of[closure.first]] == groups[piece_of[closure.second]]
        ]
        chosen, counts = [c for c, _ in usable], np.array([n for _, n in usable], dtype=np.intp)
        poses, placed = place_pieces(chosen, counts, piece_of, local, root)
        for piece in anchored - set(np.flatnonzero(placed).tolist()):
            if len(anchored) > 1 or not placed.any():
                placed |= groups == groups[piece]
        return placed, poses

    def _anchor_rows(self) -> list[int]:
        """Return the keyframe nearest in time to each anchor."""
        rows = []
        for anchor in self.given:
            own = np.flatnonzero(self.keyframes.drive_of == anchor.drive)
            gap = np.abs(self.keyframes.stamps_ns[own] - anchor.stamp_ns)
            rows.append(int(own[np.argmin(gap)]))
        return rows

    def _anchors(self, kept: Flags) -> Anchors:
        rows = self._anchor_rows()
        used = [number for number, row in enumerate(rows) if kept[row]]
        if not used:
            first = int(np.flatnonzero(kept)[0])
            origin = np.zeros((1, 3))
            return Anchors(np.array([first]), origin, np.full((1, 3), GAUGE_SIGMA))
        nodes, poses, sigmas = [], [], []
        for number in used:
            anchor, row = self.given[number], rows[number]
            wheels = self.prepared.odometry[anchor.drive]
            stamps = self.prepared.drives[anchor.drive].stamps_ns
            image = int(np.argmin(np.abs(stamps - anchor.stamp_ns)))
            back = relative(wheels.poses[image], self.keyframes.odometry[row])
            nodes.append(row)
            poses.append(compose(np.array(anchor.pose), back))
            sigmas.append(anchor.sigma)
        return Anchors(np.array(nodes, dtype=np.intp), np.array(poses), np.array(sigmas))

    def _anchored(self, start: Array, anchors: Anchors, kept: Flags) -> Array:
        """Return the start moved so that the first anchor holds."""
        moved = start.copy()
        at = int(anchors.rows[0])
        moved[kept] = compose(anchors.poses[0], relative(start[at], start[kept]))
        return np.asarray(moved)

    def _noise(self, motions: Array, poses: Array, rows: Rows) -> MotionNoise:
        """Fit the noise of motions between keyframes to the poses (n, 3), over windows of 2 m."""
        keyframes, first = self.keyframes, self.keyframes.consecutive()
        pairs = []
        for piece in np.unique(keyframes.piece_of[rows]):
            own = np.flatnonzero(keyframes.piece_of == piece)
            chain = [np.zeros(3)]
            for edge in np.flatnonzero(keyframes.piece_of[first] == piece):
                chain.append(compose(chain[-1], motions[edge]))
            if len(own) > 2:
                pairs.append((poses[own], np.array(chain)))
        errors, lengths = errors_over_windows(pairs, WINDOW_M, WINDOW_RAD)
        per_metre, per_radian, outliers = noise_growth(errors, lengths, WINDOW_M, WINDOW_RAD)
        return MotionNoise(
            (float(per_metre[0]), float(per_metre[1]), float(per_metre[2])),
            (float(per_radian[0]), float(per_radian[1]), float(per_radian[2])),
            outliers,
        )

    def _with_noise(self, edges: OdometryEdges, noise: MotionNoise) -> OdometryEdges:
        driven = self.keyframes.path_m[edges.second] - self.keyframes.path_m[edges.first]
        turned = np.abs(edges.motions[:, 2])
        variances = driven[:, None] * np.array(noise.per_metre)
        variances = variances + turned[:, None] * np.array(noise.per_radian) + STEP_SIGMA**2
        return replace(edges, whitening=whitening_of(variances[:, :, None] * np.eye(3)))

    def _visual_edges(self, visual: Array) -> OdometryEdges:
        edges = self._odometry_edges()
        motions = relative(visual[edges.first], visual[edges.second])
        driven = np.hypot(motions[:, 0], motions[:, 1])
        sigma_m = VISUAL_M + VISUAL_RELATIVE * driven
        sigma_rad = VISUAL_RAD + VISUAL_PER_RAD * np.abs(motions[:, 2])
        sigmas = np.stack((sigma_m, sigma_m, sigma_rad), axis=1)
        still = np.zeros(len(edges))
        return replace(
            edges,
            motions=motions,
            whitening=whitening_of((sigmas**2)[:, :, None] * np.eye(3)),
            seconds=still,
        )

    def _choose(
        self,
        problem: _Problem,
        odometry: OdometryEdges,
        visual: OdometryEdges,
        closures: list[Closure],
        methods: list[str],
    ) -> tuple[str, HeldOutScore | None]:
        if len(methods) == 1:
            return ODOMETRY_EDGES, None
        split = folds(closures, self.keyframes)
        if split is None:
            return ODOMETRY_EDGES, None
        training = [c for c, out in zip(closures, split) if not out]
        testing = as_edges([c for c, out in zip(closures, split) if out])
        scores = {}
        for method in methods:
            self.progress(0, 1, "predicting closures that are left out")
            poses, _ = self._run(method, problem, odometry, visual, training)
            scores[method] = prediction_errors(testing, poses)
        return choose(scores), HeldOutScore(
            len(testing), {name: float(np.mean(values)) for name, values in scores.items()}
        )

    def _run(
        self,
        method: str,
        problem: _Problem,
        odometry: OdometryEdges,
        visual: OdometryEdges,
        closures: list[Closure],
    ) -> tuple[Array, Array]:
        """Return poses (n, 3) and the wheels' errors (d, 2) by one of the methods."""
        solution = problem.solve(odometry if method == ODOMETRY_EDGES else visual, closures)
        if method == ODOMETRY_EDGES:
            return solution.poses, solution.wheels
        if method == VISUAL_EDGES:
            # Visual edges have no drift of wheels: it shows in the graph on the wheels' own.
            return solution.poses, problem.solve(odometry, closures).wheels
        adjusted = self._adjust(problem, solution, odometry, closures)
        return adjusted.states[:, :3], adjusted.wheels

    def _adjust(
        self,
        problem: _Problem,
        solution: Solution,
        odometry: OdometryEdges,
        closures: list[Closure],
    ) -> Adjusted:
        assert self.builder is not None
        states = self._visual_states.copy()
        states[:, :3] = solution.poses
        partners = _with_closures(neighbours(self.keyframes), closures)
        rows = problem.rows
        partners = [
            others if problem.kept[row] else others[:0] for row, others in enumerate(partners)
        ]
        points = self.builder.points(states, partners, COARSE_SIGMA_PX, "joint adjustment")
        groups = [
            replace(found.group, images=problem.local[found.group.images])
            for found in points
            if found.group is not None
        ]
        wheels = np.zeros((len(self.prepared.drives), 2))
        adjusted = adjust_with_odometry(
            states[rows], wheels, groups, problem.edges_of(odometry), problem.anchors
        )
        states[rows] = adjusted.states
        return replace(adjusted, states=states)

    def _result(
        self,
        final: tuple[Array, Array, Array],
        closures: list[Closure],
        rejected: list[Rejected],
        used: str,
        score: HeldOutScore | None,
        kept_pieces: Flags,
    ) -> PoseEstimates:
        poses, wheels, covariances = final
        keyframes, prepared = self.keyframes, self.prepared
        kept = kept_pieces[keyframes.piece_of]
        trajectories = tuple(
            _trajectory(
                drive, number, prepared.odometry[number], keyframes, kept, poses, covariances
            )
            for number, drive in enumerate(prepared.drives)
        )
        left_out = [
            drive.name
            for number, drive in enumerate(prepared.drives)
            if not kept[keyframes.drive_of == number].any()
        ]
        lines = [f"{name}: nothing joins it with the other drives; left out" for name in left_out]
        for piece in np.flatnonzero(~kept_pieces):
            own = np.flatnonzero(keyframes.piece_of == piece)
            drive = prepared.drives[int(keyframes.drive_of[own[0]])]
            if drive.name not in left_out:
                first, last = (
                    _seconds(drive, int(keyframes.image_of[own[end]])) for end in (0, -1)
                )
                lines.append(
                    f"{drive.name}: nothing joins {first:.0f} to {last:.0f} s with the rest; "
                    "left out"
                )
        if not closures:
            lines.append(
                "no place was recognized twice: the poses are the odometry's, with its drift; "
                "drive a loop, or the same path again in the same direction"
            )
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
            held_out=score,
            camera=prepared.camera,
            mount=prepared.mount if prepared.camera is not None else None,
            warnings=(*prepared.warnings, *lines),
            cpu_s=0.0,
        )


class _Problem:
    """The graph of the keyframes that are kept."""

    def __init__(self, estimator: _Estimator, rows: Rows, anchors: Anchors, start: Array) -> None:
        self.rows, self.start = rows, start
        count = len(estimator.keyframes)
        self.kept = np.zeros(count, dtype=bool)
        self.kept[rows] = True
        self.local = np.full(count, -1, dtype=np.intp)
        self.local[rows] = np.arange(len(rows))
        self.drives = len(estimator.prepared.drives)
        self.anchors = replace(anchors, rows=self.local[anchors.rows])

    def edges_of(self, edges: OdometryEdges) -> OdometryEdges:
        own = self.kept[edges.first] & self.kept[edges.second]
        return OdometryEdges(
            self.local[edges.first[own]],
            self.local[edges.second[own]],
            edges.motions[own],
            edges.whitening[own],
            edges.drive[own],
            edges.seconds[own],
        )

    def _graph(self, edges: OdometryEdges, closures: Sequence[Closure]) -> PoseGraph:
        found = as_edges(closures)
        local = Edges(
            self.local[found.first], self.local[found.second], found.motions, found.whitening
        )
        return PoseGraph(len(self.rows), self.drives, self.edges_of(edges), local, self.anchors)

    def solve(self, edges: OdometryEdges, closures: Sequence[Closure]) -> Solution:
        found = self._graph(edges, closures).solve(self.start[self.rows])
        poses = self.start.copy()
        poses[self.rows] = found.poses
        return replace(found, poses=poses)

    def covariances(self, edges: OdometryEdges, closures: Sequence[Closure], poses: Array) -> Array:
        """Return covariances (n, 3, 3) at given poses (n, 3), NaN for what is not kept."""
        weights = np.ones(len(closures))
        at = Solution(poses[self.rows], np.zeros((self.drives, 2)), weights, weights)
        blocks = np.full((len(self.start), 3, 3), np.nan)
        blocks[self.rows] = self._graph(edges, closures).covariances(at)
        return blocks


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


def _trajectory(
    drive: Drive,
    number: int,
    odometry: DriveOdometry,
    keyframes: Keyframes,
    kept: Flags,
    poses: Array,
    covariances: Array,
) -> EstimatedTrajectory:
    """Return the poses of all images: along the odometry, bent to both keyframes around."""
    count = len(odometry.poses)
    found = np.full((count, 3), np.nan)
    blocks = np.full((count, 3, 3), np.nan)
    for piece in np.unique(keyframes.piece_of[(keyframes.drive_of == number) & kept]):
        rows = np.flatnonzero(keyframes.piece_of == piece)
        images = keyframes.image_of[rows]
        for left, right in zip(range(len(rows)), [*range(1, len(rows)), len(rows) - 1]):
            a, b = rows[left], rows[right]
            span = np.arange(images[left], images[right] + 1)
            along = relative(odometry.poses[images[left]], odometry.poses[span])
            reached = compose(poses[a], along)
            bend = relative(reached[-1], poses[b])
            driven = odometry.path_m[span] - odometry.path_m[images[left]]
            steps = np.arange(len(span))
            measure = driven + 1e-6 * steps
            fraction = measure / max(float(measure[-1]), 1e-9)
            found[span] = compose(reached, fraction[:, None] * bend)
            blocks[span] = (1.0 - fraction)[:, None, None] * covariances[a] + fraction[
                :, None, None
            ] * covariances[b]
    found[:, 2] = wrap_angle(found[:, 2])
    return EstimatedTrajectory(drive.name, found, blocks, odometry.poses)
