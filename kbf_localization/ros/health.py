"""The figures of a running localizer, for `status` and /diagnostics."""

from __future__ import annotations

import math

from kbf_localization.ros.inputs import Inputs
from kbf_localization.ros.running_localizer import RunningLocalizer


def figures(running: RunningLocalizer, inputs: Inputs) -> dict[str, object]:
    """State, evidence, rates, ages, latencies, and how often what was refused or dropped."""
    last = running.localizer.last
    weights = None if last is None else last.estimate.weights
    values: dict[str, object] = {
        "state": running.localizer.state.value,
        "evidence": math.nan if last is None else last.evidence,
        "stamp_ns": 0 if last is None else last.stamp_ns,
        "step_ms": running.last_step_ms,
        "active_poses": 0 if weights is None else len(weights.rows),
        "latency_ms_p50": running.latency.percentile_ms(50),
        "latency_ms_p99": running.latency.percentile_ms(99),
        "odometry_hz": running.odometry_rate.hertz(),
        "image_hz": running.image_rate.hertz(),
        "pose_hz": running.pose_rate.hertz(),
        "odometry_age_s": _seconds(inputs.odometry_watch.age),
        "image_age_s": _seconds(inputs.image_watch.age),
    }
    values.update(sorted(running.all_counts().items()))
    return values


def _seconds(age: float | None) -> float:
    return math.nan if age is None else age
