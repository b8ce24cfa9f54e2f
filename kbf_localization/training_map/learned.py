"""What a map has learned about itself from its own drives: the models that the filter weighs by.

Lengths are in the map's own scales, the d₀ metres and φ₀ radians over which its pictures become
different (`Resemblance`). The numbers are learned by `learning.learn`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.geometry import relative

Triple = tuple[float, float, float]
Table = tuple[Triple, Triple, Triple]

FARTHEST_APPARENT = 2.0
"""Pictures further apart than 2 d₀ look all alike different."""

SAME_VIEW = 0.2
"""Travel, in the map's scales, over which pictures show one view: passing errors then are new."""


@dataclass(frozen=True)
class Resemblance:
    """What contrast to expect between pictures taken d metres and φ radians apart.

    h(d, φ) = A exp(−r^q), r = √((d/d₀)² + (φ/φ₀)²). The contrast of two pictures is the logarithm
    of their similarity, less its median over the map.
    """

    amplitude: float
    distance_m: float
    angle_rad: float
    exponent: float

    @property
    def scales(self) -> Array:
        """(d₀, d₀, φ₀), to make offsets (x, y, heading) comparable."""
        return np.array([self.distance_m, self.distance_m, self.angle_rad])

    def separation(self, offsets: ArrayLike) -> Array:
        """r (...,) of offsets (..., 3) between poses."""
        scaled = np.asarray(offsets, dtype=np.float64) / self.scales
        return np.asarray(np.sqrt((scaled**2).sum(axis=-1)))

    def between(self, a: Array, b: Array) -> float:
        """r of two poses (3,)."""
        return float(self.separation(relative(a, b)))

    def share(self, separation: ArrayLike) -> Array:
        """h / A at separations: 1 at the same pose, 0 far away."""
        return np.asarray(np.exp(-(np.asarray(separation, dtype=np.float64) ** self.exponent)))

    def apparent(self, contrast: ArrayLike) -> Array:
        """The separation at which this contrast is expected, at most `FARTHEST_APPARENT`."""
        least = np.exp(-(FARTHEST_APPARENT**self.exponent))
        share = np.clip(np.asarray(contrast) / self.amplitude, least, 1.0)
        return np.asarray((-np.log(share)) ** (1.0 / self.exponent))

    def travel(self, distance_m: float, turned_rad: float) -> float:
        """The length of a way in the map's scales, d/d₀ + φ/φ₀."""
        return distance_m / self.distance_m + turned_rad / self.angle_rad


@dataclass(frozen=True)
class Evidence:
    """The log-likelihood ratio of "the picture was taken here" against "elsewhere".

    A logistic regression on the contrast, on the prominence of the alignment and on the share of
    the resemblance that is expected; `limit` bounds it, since no one is surer than the number of
    examples seen. Pictures along a short way err alike: over a travel of `correlation` there is one
    independent picture. A share `lasting` of the errors lasts, the rest is white. At right poses
    the evidence has the median `usual`, and is below `low` once in two hundred times.
    """

    contrast: float
    prominence: float
    expected: float
    bias: float
    limit: float
    correlation: float
    usual: float
    low: float
    lasting: float = 1.0

    def fit(self, contrast: ArrayLike, prominence: ArrayLike, share: ArrayLike) -> Array:
        """How well pictures with these features fit, whatever the map has there."""
        logit = (
            self.contrast * np.asarray(contrast)
            + self.prominence * np.asarray(prominence)
            + self.expected * np.asarray(share)
            + self.bias
        )
        return np.asarray(np.clip(logit, -self.limit, self.limit))

    def ratio(self, contrast: ArrayLike, prominence: ArrayLike, share: ArrayLike) -> Array:
        """z of pictures with these features; 0 where the map has nothing to compare with."""
        return weighed(self.fit(contrast, prominence, share), share)

    def lasts(self, travel: float) -> float:
        """The correlation of the lasting errors of pictures so far apart."""
        return float(np.exp(-travel * self.lasting / self.correlation))

    def novelty(self, travel: float) -> float:
        """The share of a picture's evidence that is new after `travel` since the last picture."""
        return novelty(travel, self.correlation)


@dataclass(frozen=True)
class Readout:
    """The offset of the camera from a map pose, read from how the pictures lie over each other.

    `coefficients` (3, 3): rows forward, left, heading; columns shift, zoom, 1; all zero where none
    could be learned. `log_variance` (3, 3) of a measured pose forward (m²), left (m²) and in
    heading (rad²): intercept, slope in the alignment's prominence, slope in the apparent
    separation; both are kept within `prominence` and `apparent` (lowest, highest) as seen while
    learning; `least_variance` (3,) is added. A share `lasting` of the variance is an error that
    lasts: its correlation falls to 1/e over a travel of `correlation`.
    """

    coefficients: Table
    log_variance: Table
    prominence: tuple[float, float]
    apparent: tuple[float, float]
    least_variance: Triple
    correlation: float
    lasting: float

    @property
    def known(self) -> bool:
        """Whether offsets can be read at all."""
        return any(value != 0.0 for row in self.coefficients for value in row)

    def offsets(self, shift: Array, zoom: Array) -> Array:
        """Offsets (m, 3) in the frames of the map poses, for shifts and zooms (m,)."""
        features = np.stack((shift, zoom, np.ones_like(shift)), axis=-1)
        return np.asarray(features @ np.array(self.coefficients).T)

    def variances(self, prominence: ArrayLike, apparent: ArrayLike) -> Array:
        """Variances (..., 3) of poses measured by matches of this quality."""
        features = np.stack(
            (
                np.ones_like(np.asarray(prominence, dtype=np.float64)),
                np.clip(prominence, *self.prominence),
                np.clip(apparent, *self.apparent),
            ),
            axis=-1,
        )
        return np.asarray(np.exp(features @ np.array(self.log_variance).T) + self.least_variance)


@dataclass(frozen=True)
class MotionNoise:
    """Q(u): variances of the odometry's error forward, left and in heading, (3,) each.

    They grow with the distance driven, `per_metre`, and with the angle turned, `per_radian`, so
    that many short steps add up to what one long step gives. `set_aside` stretches of the drives
    were so far off that they count as faults of the record.
    """

    per_metre: Triple
    per_radian: Triple
    set_aside: int = 0

    def variances(self, distance_m: float, turned_rad: float) -> Array:
        """(3,) after driving so far and turning so much."""
        return distance_m * np.array(self.per_metre) + turned_rad * np.array(self.per_radian)


@dataclass(frozen=True)
class Learned:
    """All that a map knows about itself, from `probes` pictures of `drives` drives.

    `film` is the evidence that a picture continues the one before, where odometry leads.
    `revisits` says that the probes were compared with pictures of other times: of other drives, or
    of the same one when it came by again. A map without revisits knows its own limits badly.
    """

    resemblance: Resemblance
    evidence: Evidence
    film: Evidence
    readout: Readout
    motion_noise: MotionNoise
    drives: int
    probes: int
    revisits: bool


def weighed(fit: ArrayLike, share: ArrayLike) -> Array:
    """What a fit counts where the map shows a `share` of what is expected at its own poses."""
    return np.asarray(np.asarray(share, dtype=np.float64) ** 2 * np.asarray(fit))


def novelty(travel: float, correlation: float) -> float:
    """What a further sample adds of what an independent one would, (1 − ρ)/(1 + ρ).

    The errors' correlation is ρ = exp(−travel/correlation).
    """
    return float(np.tanh(0.5 * travel / correlation))


def triple(values: ArrayLike) -> Triple:
    """Three numbers as the models keep them."""
    first, second, third = np.asarray(values, dtype=np.float64)
    return float(first), float(second), float(third)


def table(values: ArrayLike) -> Table:
    """Three rows of three numbers as the models keep them."""
    first, second, third = np.asarray(values, dtype=np.float64)
    return triple(first), triple(second), triple(third)
