"""What the metrics of `metrics.json` are called, how they are written, and what is good."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class MetricText(NamedTuple):
    """The name of a metric in tables; what it is, and which values are good."""

    label: str
    tip: str


METRIC_TEXTS = {
    "position_rmse_m": MetricText(
        "position error, RMSE",
        "Root mean square of the distances between estimated and true position. "
        "Lower is better; a few gross errors raise it far above the median.",
    ),
    "position_median_m": MetricText(
        "position error, median",
        "Half of the frames are nearer than this to the true position. "
        "Lower is better; below 15 cm is good indoors.",
    ),
    "position_p95_m": MetricText(
        "position error, 95 %",
        "95 of 100 frames are nearer than this to the true position. "
        "Lower is better; below 50 cm is good indoors.",
    ),
    "position_max_m": MetricText(
        "position error, largest",
        "The largest distance to the true position, the time before the first fix included. "
        "Lower is better; before the first fix it may be anything.",
    ),
    "relative_to_map_median_m": MetricText(
        "error relative to the map, median",
        "Error of the pose relative to the nearest map image, on a map in its own frame: what a "
        "robot that returns to a place notices. Lower is better; independent of the map's errors.",
    ),
    "aligned_rmse_m": MetricText(
        "position error, aligned, RMSE",
        "As the RMSE above, after the estimated path was moved and turned onto the truth: evo's "
        "absolute pose error with alignment. Lower is better; equal where both are in one frame.",
    ),
    "relative_1m_rmse_m": MetricText(
        "error over 1 m of path, RMSE",
        "Error of the motion over each metre of the path: evo's relative pose error. "
        "Lower is better; jumps raise it, a constant offset does not.",
    ),
    "heading_rmse_deg": MetricText(
        "heading error, RMSE",
        "Root mean square of the angles between estimated and true heading. "
        "Lower is better; below 5° is good.",
    ),
    "heading_median_deg": MetricText(
        "heading error, median",
        "Half of the frames are nearer than this to the true heading. "
        "Lower is better; below 3° is good.",
    ),
    "share_beyond_1m": MetricText(
        "frames beyond 1 m",
        "Fraction of all frames more than 1 m from the true position, in any state. "
        "Lower is better; 0 % is possible on a map that covers the drive.",
    ),
    "share_tracking": MetricText(
        "frames in state tracking",
        "Fraction of the frames for which the method vouches (state tracking). "
        "Higher is better, as long as few of them are confident and wrong.",
    ),
    "share_degraded": MetricText(
        "time in state degraded",
        "Fraction of the drive's time in which odometry alone carried the pose: no image came, or "
        "none fitted the map. Lower is better; 0 % where the map covers the drive.",
    ),
    "landmarks_used_share": MetricText(
        "frames measured by landmarks",
        "Fraction of the frames whose pose rests on landmarks of the map. "
        "Higher is better; images of blank walls have none.",
    ),
    "inliers_median": MetricText(
        "landmarks in an image, median",
        "Landmarks that agree on the pose, in the frames that landmarks measured. "
        "Higher is better; 12 are the fewest that are used.",
    ),
    "share_confident_wrong": MetricText(
        "frames confident and wrong",
        "Fraction of the frames in state tracking and yet farther from the true position than the "
        "next line says. 0 % is good: a robot acts on these.",
    ),
    "confident_wrong_beyond_m": MetricText(
        "… that is, farther off than",
        "From this error on a pose counts as wrong: 1 m, or the distance d₀ over which the map's "
        "images change where that is less, but no less than 0.3 m. A setting: neither good nor "
        "bad.",
    ),
    "seconds_to_first_fix": MetricText(
        "time to the first fix",
        "From the first image until the state is first tracking; no hint is given. "
        "Lower is better; a few seconds of driving are needed where places look alike.",
    ),
    "within_three_sigma_share": MetricText(
        "frames within 3 σ",
        "Fraction of the frames whose error (on a map in its own frame: relative to the nearest "
        "map image, as the covariance is) is within three published standard deviations σ. "
        "98.9 % for a Gaussian in two dimensions: less is overconfident.",
    ),
    "nees_mean": MetricText(
        "NEES of the position, mean",
        "Squared error (on a map in its own frame: relative to the nearest map image) in units of "
        "the published covariance (normalized estimation error squared). "
        "2 is right: more is overconfident, less is too cautious.",
    ),
    "median_sigma_m": MetricText(
        "published σ, median",
        "Half of the frames are published with a smaller standard deviation (longer axis). "
        "Right where it is about as large as the errors are.",
    ),
    "frames": MetricText(
        "frames", "Images that got an estimate. All of the drive's images is good."
    ),
    "frames_dropped": MetricText(
        "frames without estimate",
        "Images that got none: damaged, without odometry, or dropped by a busy node. 0 is good.",
    ),
    "step_ms_p50": MetricText(
        "time per image, median",
        "From the decoded image to the pose, on the computer of this run. "
        "Good where it is below the time between two images.",
    ),
    "step_ms_p99": MetricText(
        "time per image, 99 %",
        "1 of 100 images takes longer, from the decoded image to the pose. "
        "Good where it is below the time between two images.",
    ),
}
"""By the keys of `metrics.json`, which do not change; what is a setting there has none."""

SIGMA = (
    "The standard deviation of the position that the method publishes, along its longer axis. Good "
    "where the error is rarely above 3 σ."
)
EVIDENCE = (
    "How much more probable the last images are at this pose than elsewhere, as a log-likelihood "
    "ratio. Good above 0; below the map's threshold a pose is no longer trusted."
)

EVENT_TEXTS = {
    "unrecognized_image": "images that fit nowhere on the map: a new view, a covered lens, or an "
    "unknown place",
    "frozen_image": "images equal to the previous, or to the last reference image: the camera "
    "repeats itself, or nothing moves",
    "image_discontinuity": "images that do not continue the previous where odometry leads: the "
    "robot was carried, or the view was blocked for a moment",
    "landmarks_contradict": "images whose landmarks measure a pose that the published one cannot "
    "take on: with few inliers, or farther away than the robot has driven since they last agreed",
    "camera_turned": "images at which the camera looks turned on its mount since the map was made",
    "update_not_positive": "updates whose weights were not positive and were left out",
    "prediction_off_map": "predictions that left the map",
    "unknown_motion": "images before which odometry was missing, so that the motion is unknown",
    "odometry_jump": "motions that no robot makes: the odometry was reset or has jumped",
    "odometry_late": "odometry older than what came before it, left out",
    "odometry_not_finite": "odometry that is no number, left out",
    "odometry_too_far": "odometry with absurd coordinates, left out",
    "image_late": "images older than the previous image, left out",
    "image_before_odometry": "images from before the first odometry, left out",
    "image_without_odometry": "images that no odometry covers, left out",
    "image_dropped": "images that a busy node left out",
    "image_invalid": "images that cannot be decoded",
    "lost": "times that the pose was given up",
    "filter_reset": "restarts of the filter after repeated errors",
    "resets": "restarts because time jumped back",
}
"""What the events of `metrics.json` mean, for people."""


UNITS = {
    "share": "",
    "per_s": "/s",
    "ms": "ms",
    "s": "s",
    "seconds": "s",
    "mb": "MB",
    "percent": "%",
    "bytes": "bytes",
    "deg": "°",
    "m": "m",
}
"""What the words of a metric's name say about its unit, the first that fits."""


def unit_of(key: str) -> str:
    """Return the unit of a metric of `metrics.json` by its name; empty for counts and fractions."""
    return next((unit for word, unit in UNITS.items() if f"_{word}_" in f"_{key}_"), "")


def number_text(value: float, digits: int = 3) -> str:
    """Return so many significant digits, or all those before the point."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def length_text(metres: float, fine: bool = False) -> str:
    """Return millimetres, centimetres or metres as a person would say it; `fine`: a digit more."""
    if not math.isfinite(metres):
        return "–"
    size = abs(metres)
    if size < 0.00995:
        return f"{1000 * metres:.0f} mm"
    if size < (0.0995 if fine else 0.0):
        return f"{100 * metres:.1f} cm"
    if size < 0.995:
        return f"{100 * metres:.0f} cm"
    return f"{metres:.2f} m" if size < 9.995 else f"{metres:.1f} m"


def percent_text(fraction: float) -> str:
    """Return a fraction in per cent with two significant digits where it is small."""
    percent = 100.0 * fraction
    if percent == 0.0 or percent == 100.0:
        return f"{percent:.0f} %"
    if percent >= 99.95:
        # 99.96 % is not all.
        return f"{math.floor(100 * percent) / 100:g} %"
    return f"{percent:.2g} %" if percent < 10.0 else f"{percent:.1f} %"


def metric_text(key: str, value: float | None, fine: bool = True) -> str:
    """Return a metric of `metrics.json` with its unit: 7.3 cm, 0.8 %, 12 ms, 3.1 s, 1.4°.

    Without `fine` it is rounded as in a sentence: 7 cm.
    """
    if value is None or not math.isfinite(value):
        return "–"
    unit = unit_of(key)
    if unit == "m":
        return length_text(value, fine)
    if "share" in key:
        return percent_text(value)
    if unit == "°":
        return f"{value:.1f}°"
    if isinstance(value, int):
        return str(value)
    return f"{number_text(value, 3 if fine else 2)} {unit}".strip()


def metric_rows(by_method: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return one row for each metric that a method has, in the order of tables.

    Each has its `key`, `label` and `tip`; `values`, `texts` and rounded `short` texts by method.
    """
    return [
        {
            "key": key,
            **text._asdict(),
            "values": [metrics.get(key) for metrics in by_method.values()],
            "texts": [metric_text(key, metrics.get(key)) for metrics in by_method.values()],
            "short": [metric_text(key, metrics.get(key), False) for metrics in by_method.values()],
        }
        for key, text in METRIC_TEXTS.items()
        if any(key in metrics for metrics in by_method.values())
    ]
