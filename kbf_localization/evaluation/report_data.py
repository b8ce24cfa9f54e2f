"""What the report's page draws, as JSON with arrays packed in base64."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.metrics import (
    UNITS,
    error_in_sigmas,
    position_errors,
    position_sigmas,
    trajectory_metrics,
)
from kbf_localization.evaluation.report_images import shrink, small_images
from kbf_localization.evaluation.results import to_plain
from kbf_localization.evaluation.run import Run
from kbf_localization.filters.base import Weights
from kbf_localization.filters.registry import TITLES
from kbf_localization.localization.result import State
from kbf_localization.progress import Progress, no_progress

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

SHOWN_WEIGHTS = 160
"""The largest weights of a frame that the player draws; the rest is invisible anyway."""

SHOWN_MAP_POSES = 20_000
THUMBNAIL = (240, 55)
STATES = tuple(state.value for state in State)
LABELS = {
    "position_rmse_m": "position error, RMSE",
    "position_median_m": "position error, median",
    "position_p95_m": "position error, 95 %",
    "position_max_m": "position error, largest",
    "heading_rmse_deg": "heading error, RMSE",
    "heading_median_deg": "heading error, median",
    "share_beyond_1m": "frames beyond 1 m",
    "share_tracking": "frames in state tracking",
    "within_three_sigma_share": "frames within 3 σ",
    "median_sigma_m": "published σ, median",
    "frames": "frames",
    "frames_dropped": "frames without estimate",
    "step_ms_p50": "time per image, median",
    "step_ms_p99": "time per image, 99 %",
}


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
        "metrics": metrics_table({name: trajectory_metrics(run) for name, run in runs.items()}),
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


def metrics_table(by_method: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """One row for each figure that a method has, in the order of tables."""
    return [
        {
            "key": key,
            "label": LABELS.get(key, key),
            "unit": unit,
            "values": [to_plain(figures.get(key)) for figures in by_method.values()],
        }
        for key, unit in UNITS.items()
        if any(key in figures for figures in by_method.values())
    ]


def packed(values: Any, dtype: Any = np.float32) -> str:
    """The array's bytes, little-endian and row after row, in base64."""
    array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


def _method(name: str, run: Run, frame_stamps: NDArray[np.int64]) -> dict[str, Any]:
    covariances = run.covariances
    counts = {str(reason): int(count) for reason, count in run.counts.items() if count}
    return {
        "name": name,
        "title": TITLES.get(name, "the ROS 2 node's own poses" if name == "node" else name),
        "frames": packed(_nearest(frame_stamps, run.stamps_ns), np.uint32),
        "poses": packed(run.estimates),
        "covariances": packed(
            np.stack((covariances[:, 0, 0], covariances[:, 0, 1], covariances[:, 1, 1]), axis=1)
        ),
        "errors": packed(position_errors(run)),
        "sigmas": packed(position_sigmas(run)),
        "errorInSigmas": packed(error_in_sigmas(run)),
        "states": packed([_state_code(state) for state in run.states], np.uint8),
        "evidence": packed(run.evidence),
        "milliseconds": packed(run.step_ms),
        "counts": counts,
        "bestRows": packed(_best_rows(run), np.int32),
        "belief": None if run.beliefs is None else _belief(run.beliefs),
    }


def _belief(beliefs: tuple[Weights | None, ...]) -> dict[str, str]:
    """Each frame's largest weights, as 1/127 of the largest one's size, with their map rows."""
    rows, values, ends = [], [], [0]
    for weights in beliefs:
        if weights is not None and len(weights.rows):
            largest = np.argsort(-np.abs(weights.values), kind="stable")[:SHOWN_WEIGHTS]
            scale = float(np.abs(weights.values[largest[0]])) or 1.0
            levels = np.rint(127 * weights.values[largest] / scale)
            seen = np.isfinite(levels) & (levels != 0) & (weights.rows[largest] < SHOWN_MAP_POSES)
            rows.append(weights.rows[largest][seen])
            values.append(levels[seen])
        ends.append(ends[-1] + (len(rows[-1]) if weights is not None and len(weights.rows) else 0))
    return {
        "ends": packed(ends, np.uint32),
        "rows": packed(np.concatenate(rows) if rows else [], np.uint32),
        "values": packed(np.concatenate(values) if values else [], np.int8),
    }


def _thumbnails(training_map: TrainingMap, rows: list[int]) -> dict[int, str]:
    """Small images of the map poses that were some frame's best match."""
    found = {}
    for row in rows:
        image = shrink(bytes(training_map.thumbnails[row]), *THUMBNAIL)
        if image:
            found[row] = base64.b64encode(image).decode("ascii")
    return found


def _best_rows(run: Run) -> NDArray[np.intp]:
    return np.full(len(run), -1, dtype=np.intp) if run.best_rows is None else run.best_rows


def _nearest(stamps_ns: NDArray[np.int64], wanted_ns: NDArray[np.int64]) -> NDArray[np.intp]:
    """The index of the frame nearest in time to each wanted stamp."""
    right = np.clip(np.searchsorted(stamps_ns, wanted_ns), 1, max(len(stamps_ns) - 1, 1))
    right = np.minimum(right, len(stamps_ns) - 1)
    left = np.maximum(right - 1, 0)
    nearer_left = wanted_ns - stamps_ns[left] < stamps_ns[right] - wanted_ns
    return np.where(nearer_left, left, right)


def _state_code(state: str) -> int:
    return STATES.index(state) if state in STATES else 0
