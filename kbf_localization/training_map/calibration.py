"""The calibration of a map: models of similarity, evidence, measured poses and motion noise.

They are fitted to the mapping drives (`mapping.calibrate`) and only held here. Lengths are in the
map's own scales, the d₀ metres and φ₀ radians over which its images become different.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from kbf_localization.arrays import Array
from kbf_localization.geometry import relative
from kbf_localization.motion.noise import MotionNoise, Triple, triple

Table = tuple[Triple, Triple, Triple]

MAX_APPARENT_SEPARATION = 2.0
"""In the map's scales: beyond 2 d₀ the similarity is at background level."""

VIEW_CORRELATION_LENGTH = 0.2
"""Scaled distance over which images show the same view: their white errors are equal within it."""


MIN_PLACE_M = 0.3
"""About the size of a small robot. Close to what it looks at, images cease to look alike within
less, but landmarks measure the pose there, and an error of less is no other place."""


@dataclass(frozen=True)
class SimilarityModel:
    """Predicts the contrast of images taken d metres and φ radians apart.

    h(d, φ) = A exp(−r^q), r = √((d/d₀)² + (φ/φ₀)²). The contrast of two images is the logarithm of
    their similarity, less its median over the map.
    """

    amplitude: float
    distance_m: float
    angle_rad: float
    exponent: float

    @property
    def scales(self) -> Array:
        """Return (d₀, d₀, φ₀), which make offsets (x, y, heading) comparable."""
        return np.array([self.distance_m, self.distance_m, self.angle_rad])

    @property
    def place_m(self) -> float:
        """Return the size of a place: d₀, or that of a robot where the view changes sooner."""
        return max(self.distance_m, MIN_PLACE_M)

    def separation(self, offsets: ArrayLike) -> Array:
        """Return r (...,) of offsets (..., 3) between poses."""
        scaled = np.asarray(offsets, dtype=np.float64) / self.scales
        return np.asarray(np.sqrt((scaled**2).sum(axis=-1)))

    def separation_between(self, a: Array, b: Array) -> float:
        """Return r of two poses (3,)."""
        return float(self.separation(relative(a, b)))

    def relative_similarity(self, separation: ArrayLike) -> Array:
        """Return h / A at separations: 1 at the same pose, 0 far away."""
        return np.asarray(np.exp(-(np.asarray(separation, dtype=np.float64) ** self.exponent)))

    def apparent_separation(self, contrast: ArrayLike) -> Array:
        """Return the separation at which this contrast is expected, bounded above."""
        lowest = np.exp(-(MAX_APPARENT_SEPARATION**self.exponent))
        relative_contrast = np.clip(np.asarray(contrast) / self.amplitude, lowest, 1.0)
        return np.asarray((-np.log(relative_contrast)) ** (1.0 / self.exponent))

    def scaled_distance(self, distance_m: float, turned_rad: float) -> float:
        """Return the length of a path in the map's scales, d/d₀ + φ/φ₀."""
        return distance_m / self.distance_m + turned_rad / self.angle_rad


@dataclass(frozen=True)
class LikelihoodRatioModel:
    """Gives the log-likelihood ratio of "the image was taken here" against "elsewhere".

    A logistic regression on the contrast, on the prominence of the alignment and on the coverage,
    the relative similarity that is expected; `limit` bounds it by the number of examples. Images
    along a short path err alike: as many of them are independent as of an AR(1) sequence whose
    correlation falls to 1/e over a scaled distance of `correlation_length`. A fraction
    `bias_fraction` of the errors' variance is correlated, over 1 / `bias_fraction` times that
    distance, and the rest is white. At right poses the ratio has the median `median` and the 0.5 %
    quantile `q005`.
    """

    contrast_coefficient: float
    prominence_coefficient: float
    coverage_coefficient: float
    intercept: float
    limit: float
    correlation_length: float
    median: float
    q005: float
    bias_fraction: float = 1.0

    def log_odds(self, contrast: ArrayLike, prominence: ArrayLike, coverage: ArrayLike) -> Array:
        """Return the bounded logit of images with these features, whatever the coverage."""
        logit = (
            self.contrast_coefficient * np.asarray(contrast)
            + self.prominence_coefficient * np.asarray(prominence)
            + self.coverage_coefficient * np.asarray(coverage)
            + self.intercept
        )
        return np.asarray(np.clip(logit, -self.limit, self.limit))

    def log_ratio(self, contrast: ArrayLike, prominence: ArrayLike, coverage: ArrayLike) -> Array:
        """Return the log-likelihood ratio; 0 where the map has no image to compare with."""
        return discounted(self.log_odds(contrast, prominence, coverage), coverage)

    def recognition(self, log_odds: float) -> float:
        """Return the probability that an image shows the map, by the log odds where it fits best.

        These are odds against the most similar wrong places. Where places look alike they are below
        zero at right poses too: there an image that fits as right ones do is as likely to show it.
        """
        return float(expit(log_odds - min(self.median, 0.0)))

    def information_fraction(self, scaled_distance: float) -> float:
        """Return the information of an image, after a path, as a fraction of an independent one."""
        return information_fraction(scaled_distance, self.correlation_length)


@dataclass(frozen=True)
class RelativePoseModel:
    """Reads the camera's offset from a map pose off the alignment of the two images.

    `coefficients` (3, 3): rows forward, left, heading; columns shift, zoom, 1; all zero where none
    could be fitted. `log_variance` (3, 3) of a measured pose forward (m²), left (m²) and in
    heading (rad²): intercept, slope in the alignment's prominence, slope in the apparent
    separation; both are clipped to the ranges of the fit; `variance_floor` (3,) is added. A
    fraction `bias_fraction` of the variance is a Gauss–Markov bias, whose correlation falls to 1/e
    over a scaled distance of `correlation_length`.
    """

    coefficients: Table
    log_variance: Table
    prominence_range: tuple[float, float]
    separation_range: tuple[float, float]
    variance_floor: Triple
    correlation_length: float
    bias_fraction: float

    @property
    def fitted(self) -> bool:
        """Tell whether offsets can be read at all."""
        return any(value != 0.0 for row in self.coefficients for value in row)

    def offsets(self, shift: Array, zoom: Array) -> Array:
        """Return offsets (m, 3) in the frames of the map poses, for shifts and zooms (m,)."""
        features = np.stack((shift, zoom, np.ones_like(shift)), axis=-1)
        return np.asarray(features @ np.array(self.coefficients).T)

    def variances(self, prominence: ArrayLike, apparent: ArrayLike) -> Array:
        """Return the variances (..., 3) of poses measured by alignments of this quality."""
        features = np.stack(
            (
                np.ones_like(np.asarray(prominence, dtype=np.float64)),
                np.clip(prominence, *self.prominence_range),
                np.clip(apparent, *self.separation_range),
            ),
            axis=-1,
        )
        return np.asarray(np.exp(features @ np.array(self.log_variance).T) + self.variance_floor)


@dataclass(frozen=True)
class Calibration:
    """All models of a map, fitted to `probes` images of `drives` drives.

    `likelihood_ratio` is the evidence for a place, `continuity` that an image continues the
    previous image, where odometry leads. `revisits` tells whether the probes were compared with
    images of other times: of other drives, or of the same drive on a later visit. Without revisits
    the calibration is optimistic.
    """

    similarity: SimilarityModel
    likelihood_ratio: LikelihoodRatioModel
    continuity: LikelihoodRatioModel
    relative_pose: RelativePoseModel
    motion_noise: MotionNoise
    drives: int
    probes: int
    revisits: bool


def discounted(log_odds: ArrayLike, coverage: ArrayLike) -> Array:
    """Weigh log odds by the squared coverage: an image says little where the map has few."""
    return np.asarray(np.asarray(coverage, dtype=np.float64) ** 2 * np.asarray(log_odds))


def information_fraction(scaled_distance: float, correlation: float) -> float:
    """Return the information of a further AR(1) sample relative to an independent one.

    It is (1 − ρ)/(1 + ρ), where the errors' correlation is ρ = exp(−scaled_distance/correlation).
    """
    return float(np.tanh(0.5 * scaled_distance / correlation))


def table(values: ArrayLike) -> Table:
    """Return three rows of three numbers as the models hold them."""
    first, second, third = np.asarray(values, dtype=np.float64)
    return triple(first), triple(second), triple(third)
