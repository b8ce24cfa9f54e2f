"""Drives made ready for estimation: odometry, keyframes, keypoints, camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from kbf_localization.datasets.drive import Drive, camera_of, mount_of
from kbf_localization.datasets.time_offset import estimate_time_offset
from kbf_localization.errors import DatasetError, MapError, ParameterError
from kbf_localization.geometry import relative
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.keyframes import (
    KEYFRAME_M,
    KEYFRAME_RAD,
    MAX_PATH_M,
    MAX_TURN_RAD,
    DriveOdometry,
    Keyframes,
    choose_keyframes,
    detect,
    has_moved,
    odometry_at_images,
    still_stretches,
)
from kbf_localization.pose_graph.learned_camera import LearnedCamera
from kbf_localization.progress import Progress, no_progress
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.camera.camera_info import fitted
from kbf_localization.vision.epipolar import (
    DISTORTION,
    FOCAL,
    FORWARD,
    PITCH,
    YAW,
    MatchedPair,
)
from kbf_localization.vision.keypoints import Keypoints, mutual_matches, squared_distances
from kbf_localization.vision.self_calibration import (
    LEVEL_AHEAD,
    UNDETERMINED_FOCAL,
    calibrate,
    choose_pairs,
)

MIN_CLOCK_OFFSET_S, CLOCK_SIGMAS = 0.05, 4.0
"""An offset of the camera's clock that is smaller, or less sure, is not corrected."""
FEW_KEYPOINTS = 30
"""An image with fewer is dark, blank or covered."""
BY_WHEELS = "; there the wheels alone are followed"
BLIND = f": dark, blank or a covered lens{BY_WHEELS}"
MAX_LINES = 5
"""Stretches of a drive that are named."""


@dataclass(frozen=True)
class PreparedDrives:
    """Drives with their odometry, keyframes, keypoints and camera.

    `learned` is the camera where wheels and images taught it, None where it is known.
    """

    drives: Sequence[Drive]
    odometry: tuple[DriveOdometry, ...]
    keyframes: Keyframes
    keypoints: list[Keypoints]
    camera: Camera | None
    mount: Mount
    warnings: tuple[str, ...]
    learned: LearnedCamera | None = None

    def scaled(self, scale: float) -> PreparedDrives:
        """Return the drives with all distances of the wheels times `scale`."""
        return replace(
            self,
            odometry=tuple(wheels.scaled(scale) for wheels in self.odometry),
            keyframes=self.keyframes.scaled(scale),
        )


def prepare(
    drives: Sequence[Drive], scale: float, workers: Workers, progress: Progress
) -> PreparedDrives:
    """Return the drives with keyframes and what their images show; `scale` is the odometry's."""
    offsets = [_clock_offset(drive) for drive in drives]
    odometry = [odometry_at_images(drive, scale, offset) for drive, offset in zip(drives, offsets)]
    warnings: list[str] = []
    for number, drive in enumerate(drives):
        if offsets[number]:
            late = "late" if offsets[number] < 0.0 else "early"
            warnings.append(
                f"{drive.name}: the images' stamps are {abs(offsets[number]):.2f} s {late}; "
                f"corrected here, and on the robot with camera_time_offset:={offsets[number]:.2f}"
            )
        odometry[number], lines = _without_silence(drive, odometry[number], workers)
        warnings += lines
        warnings += [
            f"{drive.name}: the odometry jumps at {seconds_into(drive, int(cut)):.1f} s; the drive "
            "is cut there"
            for cut in odometry[number].cuts
            if not odometry[number].silent[max(int(cut) - 1, 0)]
        ]
    keyframes = choose_keyframes(drives, odometry)
    keypoints, size = detect(drives, keyframes.drive_of, keyframes.image_of, workers, progress)
    for number in range(len(drives)):
        warnings += _blind_stretches(drives, number, keyframes, keypoints)
    camera, mount, learned, lines = _camera(drives, keyframes, keypoints, size)
    return PreparedDrives(
        drives,
        tuple(odometry),
        keyframes,
        keypoints,
        camera,
        mount,
        (*warnings, *lines),
        learned,
    )


def _blind_stretches(
    drives: Sequence[Drive], number: int, keyframes: Keyframes, keypoints: Sequence[Keypoints]
) -> list[str]:
    """Name where a drive has no images, or images that show nothing, and where it stands still."""
    drive = drives[number]
    rows = np.flatnonzero(keyframes.drive_of == number)
    driven = float(keyframes.path_m[rows[-1]] - keyframes.path_m[rows[0]])
    turns = relative(keyframes.odometry[rows[0]], keyframes.odometry[rows])[:, 2]
    if driven < KEYFRAME_M and float(np.abs(turns).max()) < KEYFRAME_RAD:
        return [f"{drive.name}: stands still all the time; it shows one place, and no path"]
    seeing = rows[[len(keypoints[int(row)]) >= FEW_KEYPOINTS for row in rows]]
    if not len(seeing):
        return [f"{drive.name}: all its images show next to nothing{BLIND}"]
    lines = []
    ends = np.unique(np.r_[rows[0], seeing, rows[-1]])
    for first, last in pairwise(ends.tolist()):
        if keyframes.piece_of[first] != keyframes.piece_of[last]:
            continue
        driven = float(keyframes.path_m[last] - keyframes.path_m[first])
        turned = abs(float(relative(keyframes.odometry[first], keyframes.odometry[last])[2]))
        if driven > MAX_PATH_M or turned > MAX_TURN_RAD:
            begin, end = (
                seconds_into(drive, int(keyframes.image_of[row])) for row in (first, last)
            )
            what = f"{drive.name}: no images from {begin:.1f} to {end:.1f} s{BY_WHEELS}"
            if last > first + 1:
                what = (
                    f"{drive.name}: the images from {begin:.1f} to {end:.1f} s show next to nothing"
                    f"{BLIND}"
                )
            lines.append(what)
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"{drive.name}: {len(lines) - MAX_LINES} more such stretches"]
    return lines


def _clock_offset(drive: Drive) -> float:
    """Return the seconds to add to the images' stamps; 0 where they fit, or where none can tell."""
    try:
        offset = estimate_time_offset(drive)
    except DatasetError:
        return 0.0
    sure = abs(offset.seconds) > CLOCK_SIGMAS * offset.deviation_s
    return offset.seconds if sure and abs(offset.seconds) > MIN_CLOCK_OFFSET_S else 0.0


def seconds_into(drive: Drive, image: int) -> float:
    """Return the time of an image since the drive's first."""
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
            f"{drive.name}: the wheels report no motion from {seconds_into(drive, first):.1f} to "
            f"{seconds_into(drive, last):.1f} s while the images move; these images get no pose"
        )
    cut_rows = np.unique(np.array(cuts, dtype=np.intp))
    return replace(odometry, cuts=cut_rows, silent=silent), lines


def _camera(
    drives: Sequence[Drive],
    keyframes: Keyframes,
    keypoints: Sequence[Keypoints],
    size: tuple[int, int] | None,
) -> tuple[Camera | None, Mount, LearnedCamera | None, list[str]]:
    """Return the camera and the mount that the drives know, else learned from wheels and images."""
    cameras = {camera_of(drive) for drive in drives} - {None}
    mounts = {mount_of(drive) for drive in drives} - {None}
    mount = next(iter(mounts)) if len(mounts) == 1 else None
    if len(cameras) > 1 or len(mounts) > 1:
        raise MapError("the drives have different cameras or mounts; estimate them one by one")
    camera = next(iter(cameras), None)
    if camera is not None and mount is not None:
        return camera, mount, None, []
    if size is None:
        return None, Mount.ahead(), None, ["no image can be read; the poses are the odometry's"]
    return _learned(camera, mount, _matched_pairs(keyframes, keypoints), size)


def _learned(
    camera: Camera | None, mount: Mount | None, pairs: list[MatchedPair], size: tuple[int, int]
) -> tuple[Camera | None, Mount, LearnedCamera | None, list[str]]:
    """Learn what is None of camera and mount, as `_camera` returns them.

    A known camera whose mount wheels and images do not show looks ahead and is level.
    """
    place = None if mount is None else mount.translation
    try:
        learned = calibrate(pairs, *size, camera=camera, translation=place)
    except ParameterError as error:
        if camera is not None:
            return camera, Mount.ahead(), None, [f"{LEVEL_AHEAD}: {error}"]
        return None, Mount.ahead(), None, [f"{error}; the poses are the odometry's alone"]
    if camera is not None and not learned.shows_turn:
        return camera, Mount.ahead(), None, [LEVEL_AHEAD, *learned.warnings]
    what = "camera" if camera is None else "the camera's mount"
    lines = [f"{what} learned from wheels and images: {learned.described}"]
    if learned.focal_sigma > UNDETERMINED_FOCAL:
        lines += learned.warnings
        return None, Mount.ahead(), None, [*lines, "the poses are the odometry's alone"]
    found, mounted = fitted(learned.camera, *size), mount or learned.mount
    free = np.array(
        [
            *([FOCAL, DISTORTION] if camera is None else []),
            *([PITCH, YAW, FORWARD] if mount is None else []),
        ],
        dtype=np.intp,
    )
    adjustable = LearnedCamera.of(found, mounted, free, learned.sigmas[free], learned.warnings)
    return found, mounted, adjustable, lines


def _matched_pairs(keyframes: Keyframes, keypoints: Sequence[Keypoints]) -> list[MatchedPair]:
    """Match the keypoints of keyframes that are near each other by the odometry."""
    pairs = []
    for piece in np.unique(keyframes.piece_of):
        rows = np.flatnonzero(keyframes.piece_of == piece)
        for row, other in choose_pairs(keyframes.odometry[rows]):
            a, b = int(rows[row]), int(rows[other])
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
                    float(keyframes.moving_s[b] - keyframes.moving_s[a]),
                )
            )
    return pairs
