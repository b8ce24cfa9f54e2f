"""Estimates the offset between the clocks of camera and odometry from a drive's turns."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from kbf_localization.arrays import Array, Image, Stamps
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import DatasetError
from kbf_localization.progress import Progress, no_progress

WIDTH = 160
"""Images are made this wide before they are compared."""
MAX_STEP_NS = 500_000_000
SEARCHED_S, STEP_S = 1.0, 0.01
MIN_PAIRS, MIN_TURN_RAD_PER_S, MIN_CORRELATION = 40, 0.05, 0.6
"""Pairs of images, standard deviation of the yaw rate, and fit, below which no estimate is made."""
FITTING_OFFSET_S = 0.02
"""Offsets up to this hardly matter: a robot that turns by 1 rad/s turns by a degree meanwhile."""
RESAMPLED, BLOCKS = 100, 10
ITERATIONS = 8


@dataclass(frozen=True)
class TimeOffset:
    """Seconds to add to the images' stamps so that they fit the odometry's, and how sure that is.

    `deviation_s` is the standard deviation over resampled stretches of the drive; `correlation` of
    image shift and yaw rate at the offset, `uncorrected` with the stamps as they are; `pairs` of
    consecutive images compared.
    """

    seconds: float
    deviation_s: float
    correlation: float
    uncorrected: float
    pairs: int


def estimate_time_offset(drive: Drive, progress: Progress = no_progress) -> TimeOffset:
    """Return the lag at which the images' horizontal motion fits the odometry's yaw rate best.

    A turn shifts the whole image sideways by as much as the camera turned; driving straight on
    shifts its two halves apart. Raises DatasetError where the drive turns too little to tell.
    """
    stamps, shifts, weights = image_shifts(drive, progress)
    if len(shifts) < MIN_PAIRS:
        raise DatasetError(
            f"{drive.path}: {len(shifts)} pairs of consecutive images, {MIN_PAIRS} are needed to "
            "tell the clocks' offset"
        )
    if not weights.any():
        raise DatasetError(f"{drive.path}: the images show nothing whose motion could be seen")
    seconds = np.diff(stamps, axis=1)[:, 0] * 1e-9
    lags = np.arange(-SEARCHED_S, SEARCHED_S + STEP_S / 2, STEP_S)
    rates = np.stack([_yaw_rates(drive, stamps, lag) for lag in lags])
    turning = float(rates[len(lags) // 2].std())
    if turning < MIN_TURN_RAD_PER_S:
        raise DatasetError(
            f"{drive.path}: hardly turns (yaw rate {turning:.3f} rad/s), which does not tell the "
            "clocks' offset; record one with a few turns on the spot"
        )
    losses, trust = _robust_losses(rates, shifts / seconds, weights)
    total = losses.sum(axis=1)
    at = int(np.argmin(total))
    correlation, uncorrected = (
        _correlation(rates[row], shifts / seconds, trust[at]) for row in (at, len(lags) // 2)
    )
    if correlation < MIN_CORRELATION:
        raise DatasetError(
            f"{drive.path}: the images' motion fits the odometry's turns nowhere within "
            f"{SEARCHED_S:g} s (correlation {correlation:.2f}); are they of the same robot, and "
            "does the camera look ahead?"
        )
    deviation = _deviation(lags, losses)
    return TimeOffset(_lowest(lags, total), deviation, correlation, uncorrected, len(shifts))


def image_shifts(drive: Drive, progress: Progress = no_progress) -> tuple[Stamps, Array, Array]:
    """Return stamps (n, 2) of pairs of consecutive images, shifts (n,) in widths, and weights.

    The scene moves to the right, a positive shift, when the camera turns to the left.
    """
    before: tuple[int, Image] | None = None
    window = np.zeros((0, 0), np.float32)
    found: list[tuple[int, int, float, float]] = []
    for index, image in drive.images():
        progress(index + 1, len(drive), f"comparing images of {drive.name}")
        if image is None:
            before = None
            continue
        height = max(16, round(WIDTH * image.shape[0] / image.shape[1]))
        small = np.asarray(cv2.resize(image, (WIDTH, height), interpolation=cv2.INTER_AREA))
        stamp = int(drive.stamps_ns[index])
        if before is not None and before[1].shape == small.shape:
            if window.shape != small.shape:
                window = np.asarray(cv2.createHanningWindow((WIDTH, height), cv2.CV_32F))
            if stamp - before[0] <= MAX_STEP_NS:
                (shift, _), response = cv2.phaseCorrelate(
                    before[1].astype(np.float32), small.astype(np.float32), window
                )
                found.append((before[0], stamp, shift / WIDTH, max(response, 0.0)))
        before = (stamp, np.asarray(small, dtype=np.uint8))
    table = np.array(found, dtype=np.float64).reshape(-1, 4)
    pairs = np.array([item[:2] for item in found], dtype=np.int64).reshape(-1, 2)
    return pairs, table[:, 2], table[:, 3]


def _yaw_rates(drive: Drive, stamps: Stamps, lag_s: float) -> Array:
    """Return mean yaw rates (n,) of the odometry between the pairs' stamps, `lag_s` later."""
    log = drive.odometry
    headings = np.unwrap(log.poses[:, 2])
    origin = log.stamps_ns[0]
    at = (stamps - origin) * 1e-9 + lag_s
    turned = np.interp(at, (log.stamps_ns - origin) * 1e-9, headings)
    return np.asarray((turned[:, 1] - turned[:, 0]) / (np.diff(stamps, axis=1)[:, 0] * 1e-9))


def _robust_losses(rates: Array, speeds: Array, weights: Array) -> tuple[Array, Array]:
    """Return losses and trust (lags, n) of the lines speed = a·rate + b, one fitted for each lag.

    Images of people, or of a wall that fills half the view, move differently: the loss is
    Cauchy's, log(1 + (r/c)²), at the scale of the lag that fits best, so that they hardly count.
    """
    trust = np.tile(weights / weights.mean(), (len(rates), 1))
    given = trust[0]
    for _ in range(ITERATIONS):
        weights = trust / trust.sum(axis=1, keepdims=True)
        x = rates - (rates * weights).sum(axis=1, keepdims=True)
        y = speeds - weights @ speeds[:, None]
        slope = (weights * x * y).sum(axis=1) / np.maximum((weights * x * x).sum(axis=1), 1e-12)
        residuals = y - slope[:, None] * x
        scale = 2.0 * 1.4826 * np.median(np.abs(residuals), axis=1)
        trust = given / (1.0 + (residuals / np.maximum(scale, 1e-9)[:, None]) ** 2)
    best = max(float(scale.min()), 1e-9)
    return given * np.log1p((residuals / best) ** 2), trust


def _correlation(rates: Array, speeds: Array, trust: Array) -> float:
    """Return weighted correlation of yaw rates and the images' speeds, both (n,)."""
    weights = trust / trust.sum()
    x, y = rates - rates @ weights, speeds - speeds @ weights
    return float((x * y) @ weights / np.sqrt(max((x**2 @ weights) * (y**2 @ weights), 1e-24)))


def _lowest(lags: Array, loss: Array) -> float:
    """Return the lag of the least loss, by a parabola through it and its neighbours."""
    at = int(np.clip(np.argmin(loss), 1, len(lags) - 2))
    low, least, high = loss[at - 1 : at + 2]
    bend = low - 2.0 * least + high
    return float(lags[at] + (0.5 * STEP_S * (low - high) / bend if bend > 0.0 else 0.0))


def _deviation(lags: Array, losses: Array) -> float:
    """Return the estimate's standard deviation by a block bootstrap over the drive."""
    rng = np.random.default_rng(0)
    stretches = [part.sum(axis=1) for part in np.array_split(losses, BLOCKS, axis=1)]
    estimates = [
        _lowest(lags, np.sum([stretches[i] for i in rng.integers(0, BLOCKS, BLOCKS)], axis=0))
        for _ in range(RESAMPLED)
    ]
    return float(np.std(estimates))
