"""What the report's page draws: images scaled to a budget, and arrays packed in base64."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.datasets.image_decoding import read_header
from kbf_localization.evaluation.metric_texts import EVENT_TEXTS, EVIDENCE, SIGMA, metric_rows
from kbf_localization.evaluation.metrics import (
    mahalanobis_errors,
    position_errors,
    position_sigmas,
    trajectory_metrics,
)
from kbf_localization.evaluation.run import Run
from kbf_localization.filters.base import HypothesisEstimate, Weights
from kbf_localization.filters.methods import TITLES
from kbf_localization.landmarks.calibration import MIN_INLIERS
from kbf_localization.localization.result import State
from kbf_localization.localization.state_monitor import FIRST_PROOF
from kbf_localization.parallel import in_threads
from kbf_localization.progress import Progress, no_progress, tracked

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap


BUDGET_BYTES = 15_000_000
"""For all images of a page, before base64 makes a third more of them."""

SIZES = ((320, 60), (256, 50), (200, 45), (160, 40))
"""(width in pixels, JPEG quality), tried in this order until a drive fits into the budget."""

SAMPLES = 12

MAX_WEIGHTS_DRAWN = 160
"""The largest weights of a frame that the player draws; the rest is invisible anyway."""

MIN_PROBABILITY_DRAWN = 0.005
"""Hypotheses of less probability are not drawn."""

MAX_PLAN_PIXELS = 1600
"""Larger floor plans are made smaller: a screen shows no more."""

MAX_MATCHES_DRAWN = 100
"""Inlier matches of a frame that the player draws; more would hide the image."""

MAX_MAP_POSES_DRAWN = 20_000
THUMBNAIL = (240, 55)
STATES = tuple(state.value for state in State)


def small_images(
    drive: Drive, budget_bytes: int = BUDGET_BYTES, progress: Progress = no_progress
) -> tuple[list[int], list[str]]:
    """Return the frames that get an image, and the images (base64 JPEG, "" where unreadable).

    A drive too long for the budget at the smallest size keeps every second, third … image.
    """
    frames = len(drive)
    samples = sorted({frames * number // SAMPLES for number in range(SAMPLES)} if frames else [])
    sampled = [data for _, data in drive.encoded_images(samples)]
    width, quality, stride = _fitting(sampled, frames, budget_bytes)
    chosen = list(range(0, frames, stride))
    originals = (data for _, data in drive.encoded_images(chosen))
    # Pillow frees the interpreter while it decodes and encodes.
    shrunk = in_threads(lambda data: shrink(data, width, quality), originals)
    prepared = tracked(shrunk, "preparing the report's images", progress, len(chosen))
    return chosen, [base64.b64encode(image).decode("ascii") for image in prepared]


def shrink(data: bytes, width: int, quality: int) -> bytes:
    """Return a JPEG at most `width` pixels wide, or b"" where `data` is no camera image."""
    header = read_header(data)
    if header is None or not header.is_bounded:
        return b""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            size = (width, max(1, round(image.height * width / image.width)))
            image.draft("RGB", size)
            mode = "L" if image.mode in ("1", "L", "I", "I;16") else "RGB"
            small = image.convert(mode)
            small.thumbnail(size)
            out = io.BytesIO()
            small.save(out, "JPEG", quality=quality)
            return out.getvalue()
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        return b""


def _fitting(originals: Sequence[bytes], frames: int, budget_bytes: int) -> tuple[int, int, int]:
    """Return the first width and quality, and the smallest stride, with which a drive fits."""
    for width, quality in SIZES:
        total = sum(len(shrink(data, width, quality)) for data in originals)
        expected = total / max(len(originals), 1) * frames
        if expected <= budget_bytes:
            return width, quality, 1
    return width, quality, -int(-expected // budget_bytes)


def report_data(
    runs: Mapping[str, Run],
    training_map: TrainingMap,
    drive: Drive,
    progress: Progress = no_progress,
    *,
    truth: Array | None = None,
) -> dict[str, Any]:
    """Return everything about one drive that the page's scripts draw.

    `truth` (t, 3) as for `write_report`.
    """
    truth = drive.poses if truth is None else truth
    stamps = np.asarray(drive.stamps_ns, dtype=np.int64)
    start_ns = int(stamps[0]) if len(stamps) else 0
    image_frames, images = small_images(drive, progress=progress)
    rows = {int(row) for run in runs.values() for row in _best_rows(run) if row >= 0}
    matches = {name: _matches(run, training_map) for name, run in runs.items()}
    rows.update(row for found in matches.values() if found for row in found.rows if row >= 0)
    return {
        "states": STATES,
        "metrics": metric_rows({name: trajectory_metrics(run) for name, run in runs.items()}),
        "events": EVENT_TEXTS,
        "tips": {"sigma": SIGMA, "evidence": EVIDENCE},
        "leastEvidence": _least_evidence(runs, training_map),
        "winning": FIRST_PROOF,
        "plan": plan_data(training_map.floor_plan),
        "frames": {
            "seconds": packed((stamps - start_ns) * 1e-9),
            "truth": None if truth is None else packed(truth, np.float64),
            "labels": list(drive.labels) if drive.labels is not None else None,
            "imageFrames": packed(image_frames, np.uint32),
            "images": images,
        },
        "map": {
            "poses": packed(training_map.poses[:MAX_MAP_POSES_DRAWN], np.float64),
            "count": len(training_map.poses),
            "thumbnails": _thumbnails(training_map, sorted(rows)),
            "lacking": lacking_landmarks(training_map),
        },
        "methods": [
            {**_method(name, run, stamps), "matches": found.packed() if found else None}
            for (name, run), found in zip(runs.items(), matches.values(), strict=True)
        ],
    }


def packed(values: Any, dtype: Any = np.float32) -> str:
    """Return the array's bytes, little-endian and row after row, in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def _method(name: str, run: Run, frame_stamps: Stamps) -> dict[str, Any]:
    counts = {str(reason): int(count) for reason, count in run.counts.items() if count}
    return {
        "name": name,
        "title": TITLES.get(name, "the ROS 2 node's own poses" if name == "node" else name),
        "frames": packed(_nearest(frame_stamps, run.stamps_ns), np.uint32),
        "poses": packed(run.estimates, np.float64),
        "covariances": packed(run.covariances[:, [0, 0, 1], [0, 1, 1]]),
        "errors": packed(position_errors(run)),
        "sigmas": packed(position_sigmas(run)),
        "mahalanobisErrors": packed(mahalanobis_errors(run)),
        "states": packed([_state_code(state) for state in run.states], np.uint8),
        "evidence": packed(run.evidence),
        "milliseconds": packed(run.step_ms),
        "counts": counts,
        "bestRows": packed(_best_rows(run), np.int32),
        "belief": None if run.beliefs is None else _belief(run.beliefs),
        "hypotheses": _hypotheses(run.hypotheses),
    }


def _belief(beliefs: tuple[Weights | None, ...]) -> dict[str, str]:
    """Return each frame's largest weights, in 1/127 of the largest size, with their map rows."""
    rows, values, ends = [np.zeros(0)], [np.zeros(0)], [0]
    for weights in beliefs:
        ends.append(ends[-1])
        if weights is not None and len(weights.rows):
            largest = np.argsort(-np.abs(weights.values), kind="stable")[:MAX_WEIGHTS_DRAWN]
            scale = float(np.abs(weights.values[largest[0]])) or 1.0
            levels = np.rint(127 * weights.values[largest] / scale)
            seen = (
                np.isfinite(levels) & (levels != 0) & (weights.rows[largest] < MAX_MAP_POSES_DRAWN)
            )
            rows.append(weights.rows[largest][seen])
            values.append(levels[seen])
            ends[-1] += len(rows[-1])
    return {
        "ends": packed(ends, np.uint32),
        "rows": packed(np.concatenate(rows), np.uint32),
        "values": packed(np.concatenate(values), np.int8),
    }


def _hypotheses(frames: tuple[tuple[HypothesisEstimate, ...], ...] | None) -> dict[str, str] | None:
    """Return each frame's hypotheses that are probable enough to be seen; None for none at all.

    Probabilities as 1/255, poses and covariances (xx, xy, yy) as 32-bit floats: 27 bytes each.
    """
    if frames is None or not any(frames):
        return None
    kept = [
        [hypothesis for hypothesis in frame if hypothesis.probability >= MIN_PROBABILITY_DRAWN]
        for frame in frames
    ]
    every = [hypothesis for frame in kept for hypothesis in frame]
    covariances = np.array([hypothesis.covariance for hypothesis in every]).reshape(-1, 3, 3)
    return {
        "ends": packed(np.cumsum([0, *map(len, kept)]), np.uint32),
        "numbers": packed([hypothesis.number % 2**16 for hypothesis in every], np.uint16),
        "probabilities": packed(
            np.rint([255 * min(hypothesis.probability, 1.0) for hypothesis in every]), np.uint8
        ),
        "poses": packed([hypothesis.pose for hypothesis in every], np.float64),
        "covariances": packed(covariances[:, [0, 0, 1], [0, 1, 1]]),
    }


@dataclass(frozen=True)
class Matches:
    """The inlier matches of each frame that are drawn, frame after frame.

    `rows` (t,) is the map image with most of them, -1 where there are none; `counts` (t,) are all
    inliers, `ends` (t + 1,) bounds those drawn: their places in the camera's image and, where
    they were matched with that map image, in it, as 1/254 of its size (255: elsewhere), and their
    positions (m, 2) on the plan.
    """

    rows: list[int]
    counts: list[int]
    ends: list[int]
    camera: list[Array]
    map_image: list[Array]
    points: list[Array]

    def packed(self) -> dict[str, str]:
        """Return the arrays for the page."""
        return {
            "rows": packed(self.rows, np.int32),
            "counts": packed(self.counts, np.uint32),
            "ends": packed(self.ends, np.uint32),
            "camera": packed(np.concatenate([np.zeros((0, 2)), *self.camera]), np.uint8),
            "mapImage": packed(np.concatenate([np.zeros((0, 2)), *self.map_image]), np.uint8),
            "points": packed(np.concatenate([np.zeros((0, 2)), *self.points])),
        }


def _matches(run: Run, training_map: TrainingMap) -> Matches | None:
    """Return the inlier matches of a run; None where landmarks measured no pose."""
    landmarks = training_map.landmarks
    if landmarks is None or run.fixes is None or not any(run.fixes):
        return None
    found = Matches([], [], [0], [], [], [])
    for fix in run.fixes:
        found.ends.append(found.ends[-1])
        found.counts.append(0 if fix is None else fix.inliers)
        found.rows.append(-1 if fix is None else fix.best_row)
        if fix is None:
            continue
        own = fix.landmarks[:, 0] == found.rows[-1]
        # Those with the map image that is shown come first.
        chosen = np.argsort(~own, kind="stable")[:MAX_MATCHES_DRAWN]
        points = fix.points[chosen]
        places = landmarks.map_image_places(found.rows[-1], points)
        found.camera.append(_levels(landmarks.image_places(fix.state, points)))
        found.map_image.append(_levels(np.where(own[chosen, None], places, np.nan)))
        found.points.append(points[:, :2])
        found.ends[-1] += len(chosen)
    return found


def _levels(places: Array) -> Array:
    """Return places in an image as 1/254 of its size; 255 where they are not in it."""
    inside = np.isfinite(places).all(axis=1, keepdims=True)
    return np.where(inside, np.rint(254.0 * np.clip(np.nan_to_num(places), 0.0, 1.0)), 255.0)


def lacking_landmarks(training_map: TrainingMap) -> list[int] | None:
    """Return the map images with too few landmarks to measure a pose; None for a map of none."""
    if training_map.landmarks is None:
        return None
    counts = training_map.landmarks.table.counts()[:MAX_MAP_POSES_DRAWN]
    return [int(row) for row in np.flatnonzero(counts < MIN_INLIERS)]


def _least_evidence(runs: Mapping[str, Run], training_map: TrainingMap) -> float | None:
    """Return the evidence below which a pose is not trusted; None where no method has evidence."""
    if not any(np.isfinite(run.evidence).any() for run in runs.values()):
        return None
    return float(training_map.calibration.likelihood_ratio.q005)


def plan_data(plan: FloorPlanImage | None) -> dict[str, Any] | None:
    """Return the floor plan as a black PNG, opaque at walls and clear where a robot can go."""
    if plan is None:
        return None
    walls = 254 - np.minimum(plan.image, 254).astype(np.uint8)
    shrunk = min(1.0, MAX_PLAN_PIXELS / max(walls.shape))
    height, width = (max(1, round(size * shrunk)) for size in walls.shape)
    image = Image.fromarray(walls).resize((width, height), Image.Resampling.BOX)
    out = io.BytesIO()
    Image.merge("LA", (Image.new("L", image.size), image)).save(out, "PNG", optimize=True)
    return {
        "image": base64.b64encode(out.getvalue()).decode("ascii"),
        "size": plan.size_m,
        "origin": plan.origin,
    }


def _thumbnails(training_map: TrainingMap, rows: list[int]) -> dict[int, str]:
    """Return small images of the map poses that were some frame's best match."""
    stored = (bytes(training_map.thumbnails[row]) for row in rows)
    images = in_threads(lambda data: shrink(data, *THUMBNAIL), stored)
    return {
        row: base64.b64encode(image).decode("ascii")
        for row, image in zip(rows, images, strict=True)
        if image
    }


def _best_rows(run: Run) -> Rows:
    return np.full(len(run), -1, dtype=np.intp) if run.best_rows is None else run.best_rows


def _nearest(stamps_ns: Stamps, wanted_ns: Stamps) -> Rows:
    """Return the index of the frame nearest in time to each wanted stamp."""
    return np.searchsorted(stamps_ns[1:] + stamps_ns[:-1], 2 * wanted_ns, side="right")


def _state_code(state: str) -> int:
    return STATES.index(state) if state in STATES else 0
