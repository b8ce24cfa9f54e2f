"""What the report's page draws, as JSON with arrays packed in base64."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from kbf_localization.arrays import Rows, Stamps
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.evaluation.metric_texts import EVIDENCE, SIGMA, metric_rows
from kbf_localization.evaluation.metrics import (
    error_in_sigmas,
    position_errors,
    position_sigmas,
    trajectory_metrics,
)
from kbf_localization.evaluation.report_images import shrink, small_images
from kbf_localization.evaluation.run import Run
from kbf_localization.filters.base import HypothesisEstimate, Weights
from kbf_localization.filters.methods import TITLES
from kbf_localization.localization.result import State
from kbf_localization.localization.state_monitor import FIRST_PROOF
from kbf_localization.progress import Progress, no_progress

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

SHOWN_WEIGHTS = 160
"""The largest weights of a frame that the player draws; the rest is invisible anyway."""

SHOWN_PROBABILITY = 0.005
"""Hypotheses of less probability are not drawn."""

PLAN_PIXELS = 1600
"""Larger floor plans are made smaller: a screen shows no more."""

SHOWN_MAP_POSES = 20_000
THUMBNAIL = (240, 55)
STATES = tuple(state.value for state in State)


def report_data(
    runs: Mapping[str, Run],
    training_map: TrainingMap,
    drive: Drive,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Everything about one drive that the page's scripts draw."""
    stamps = np.asarray(drive.stamps_ns, dtype=np.int64)
    start_ns = int(stamps[0]) if len(stamps) else 0
    image_frames, images = small_images(drive, progress=progress)
    rows = {int(row) for run in runs.values() for row in _best_rows(run) if row >= 0}
    return {
        "states": STATES,
        "metrics": metric_rows({name: trajectory_metrics(run) for name, run in runs.items()}),
        "tips": {"sigma": SIGMA, "evidence": EVIDENCE},
        "leastEvidence": _least_evidence(runs, training_map),
        "winning": FIRST_PROOF,
        "plan": _plan(training_map.floor_plan),
        "frames": {
            "seconds": packed((stamps - start_ns) * 1e-9),
            "truth": None if drive.poses is None else packed(drive.poses),
            "labels": list(drive.labels) if drive.labels is not None else None,
            "imageFrames": packed(image_frames, np.uint32),
            "images": images,
        },
        "map": {
            "poses": packed(training_map.poses[:SHOWN_MAP_POSES]),
            "count": len(training_map.poses),
            "thumbnails": _thumbnails(training_map, sorted(rows)),
        },
        "methods": [_method(name, run, stamps) for name, run in runs.items()],
    }


def packed(values: Any, dtype: Any = np.float32) -> str:
    """The array's bytes, little-endian and row after row, in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def _method(name: str, run: Run, frame_stamps: Stamps) -> dict[str, Any]:
    counts = {str(reason): int(count) for reason, count in run.counts.items() if count}
    return {
        "name": name,
        "title": TITLES.get(name, "the ROS 2 node's own poses" if name == "node" else name),
        "frames": packed(_nearest(frame_stamps, run.stamps_ns), np.uint32),
        "poses": packed(run.estimates),
        "covariances": packed(run.covariances[:, [0, 0, 1], [0, 1, 1]]),
        "errors": packed(position_errors(run)),
        "sigmas": packed(position_sigmas(run)),
        "errorInSigmas": packed(error_in_sigmas(run)),
        "states": packed([_state_code(state) for state in run.states], np.uint8),
        "evidence": packed(run.evidence),
        "milliseconds": packed(run.step_ms),
        "counts": counts,
        "bestRows": packed(_best_rows(run), np.int32),
        "belief": None if run.beliefs is None else _belief(run.beliefs),
        "hypotheses": _hypotheses(run.hypotheses),
    }


def _belief(beliefs: tuple[Weights | None, ...]) -> dict[str, str]:
    """Each frame's largest weights, as 1/127 of the largest one's size, with their map rows."""
    rows, values, ends = [np.zeros(0)], [np.zeros(0)], [0]
    for weights in beliefs:
        ends.append(ends[-1])
        if weights is not None and len(weights.rows):
            largest = np.argsort(-np.abs(weights.values), kind="stable")[:SHOWN_WEIGHTS]
            scale = float(np.abs(weights.values[largest[0]])) or 1.0
            levels = np.rint(127 * weights.values[largest] / scale)
            seen = np.isfinite(levels) & (levels != 0) & (weights.rows[largest] < SHOWN_MAP_POSES)
            rows.append(weights.rows[largest][seen])
            values.append(levels[seen])
            ends[-1] += len(rows[-1])
    return {
        "ends": packed(ends, np.uint32),
        "rows": packed(np.concatenate(rows), np.uint32),
        "values": packed(np.concatenate(values), np.int8),
    }


def _hypotheses(frames: tuple[tuple[HypothesisEstimate, ...], ...] | None) -> dict[str, str] | None:
    """Each frame's hypotheses, but those too improbable to be seen; None where there are none.

    Probabilities as 1/255, poses and covariances (xx, xy, yy) as 32-bit floats: 27 bytes each.
    """
    if frames is None or not any(frames):
        return None
    kept = [[one for one in frame if one.probability >= SHOWN_PROBABILITY] for frame in frames]
    every = [one for frame in kept for one in frame]
    covariances = np.array([one.covariance for one in every]).reshape(-1, 3, 3)
    return {
        "ends": packed(np.cumsum([0, *map(len, kept)]), np.uint32),
        "numbers": packed([one.number % 2**16 for one in every], np.uint16),
        "probabilities": packed(
            np.rint([255 * min(one.probability, 1.0) for one in every]), np.uint8
        ),
        "poses": packed([one.pose for one in every]),
        "covariances": packed(covariances[:, [0, 0, 1], [0, 1, 1]]),
    }


def _least_evidence(runs: Mapping[str, Run], training_map: TrainingMap) -> float | None:
    """The evidence below which a pose is no longer trusted; None where no method has evidence."""
    if not any(np.isfinite(run.evidence).any() for run in runs.values()):
        return None
    return float(training_map.learned.evidence.low)


def _plan(plan: FloorPlanImage | None) -> dict[str, Any] | None:
    """The floor plan as a black PNG, opaque where a wall is and clear where a robot can go."""
    if plan is None:
        return None
    walls = 254 - np.minimum(plan.image, 254).astype(np.uint8)
    shrunk = min(1.0, PLAN_PIXELS / max(walls.shape))
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
    """Small images of the map poses that were some frame's best match."""
    found = {}
    for row in rows:
        image = shrink(bytes(training_map.thumbnails[row]), *THUMBNAIL)
        if image:
            found[row] = base64.b64encode(image).decode("ascii")
    return found


def _best_rows(run: Run) -> Rows:
    return np.full(len(run), -1, dtype=np.intp) if run.best_rows is None else run.best_rows


def _nearest(stamps_ns: Stamps, wanted_ns: Stamps) -> Rows:
    """The index of the frame nearest in time to each wanted stamp."""
    return np.searchsorted(stamps_ns[1:] + stamps_ns[:-1], 2 * wanted_ns, side="right")


def _state_code(state: str) -> int:
    return STATES.index(state) if state in STATES else 0
