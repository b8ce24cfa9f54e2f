"""How a picture compares with the map round a pose: one turn of the kernel Bayes filter there.

The belief there is a Gaussian. Its kernel mean on the map's poses is the model-based kernel sum
rule in closed form; the kernel Bayes' rule turns it into weights on the few map poses that the
picture supports; their alignments with the picture give a measured pose and an evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg.lapack import dposv
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.posterior_weights import block_posterior_weights
from kbf_localization.geometry import compose, embed, relative, wrap_angle
from kbf_localization.training_map.image_gram_cache import ImageGramCache
from kbf_localization.training_map.learned import Evidence, Readout, Resemblance
from kbf_localization.training_map.observation import MapObservation

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

MOST_ROWS = 48
"""Map poses nearest to a belief that take part in an update; farther ones have no weight left."""

ALIGNED = 3
"""The heaviest map poses whose pictures are aligned with the camera's."""

LEAST_WIDTH = 0.2
"""Of k_X, in d₀: a dense map needs no kernel narrower than what its pictures resolve."""

REACH = 3.0
"""Kernel widths, widened by the belief, beyond which map poses are not looked at."""

LEAST_SPACING_M = 0.02
"""Repeated poses (a robot that stood still) must not make the kernel a spike."""


@dataclass(frozen=True)
class ViewParameters:
    """Hyper-parameters of the kernel Bayes' rule round a pose; none has a scale.

    `bandwidth` is σ_p of k_X in units of the map's spacing, `heading_bandwidth` σ_θ in units of φ₀;
    `regularization` is nε in units of k_X(x, x), `delta` is δ in units of max β², `power` that of
    the image kernel. Without `bayes_rule` the weights are plainly β_i k_i, to see what it is worth.
    """

    bandwidth: float = 1.3
    heading_bandwidth: float = 0.9
    regularization: float = 0.1
    delta: float = 0.5
    power: float = 12.0
    bayes_rule: bool = True


def view_parameters(stored: Mapping[str, float]) -> ViewParameters:
    """Those that a map keeps as "kbf.<name>" or "<name>"; defaults for the others."""
    known = {key.removeprefix("kbf."): value for key, value in stored.items()}
    defaults: dict[str, Any] = vars(ViewParameters())
    found = {name: type(usual)(known[name]) for name, usual in defaults.items() if name in known}
    return ViewParameters(**found)


@dataclass(frozen=True)
class View:
    """What a picture tells about a belief round one pose.

    `rows` and `weights` (s,) are the posterior on the map's poses. `share` in [0, 1] says how well
    the map covers the pose, `contrast` and `prominence` how well the picture fits there. `pose`
    (3,) is the measured pose, None where the map has nothing to compare with.
    """

    rows: Rows
    weights: Array
    share: float
    contrast: float
    prominence: float
    pose: Array | None

    @property
    def features(self) -> tuple[float, float, float]:
        """What `Evidence` weighs."""
        return self.contrast, self.prominence, self.share

    def fit(self, evidence: Evidence) -> float:
        """How well the picture fits, whatever the map has there."""
        return float(evidence.fit(*self.features))

    def ratio(self, evidence: Evidence) -> float:
        """The log-likelihood ratio of "here" against "elsewhere"."""
        return float(evidence.ratio(*self.features))


NO_VIEW = View(np.zeros(0, dtype=np.intp), np.zeros(0), 0.0, 0.0, 0.0, None)
"""Where the map has nothing to compare with: the picture says nothing."""


class MapViews:
    """Views of a map round any pose, in the scales of its `resemblance`."""

    def __init__(
        self,
        training_map: TrainingMap,
        resemblance: Resemblance,
        parameters: ViewParameters = ViewParameters(),  # noqa: B008 (frozen)
    ) -> None:
        self.poses = training_map.poses
        self.resemblance = resemblance
        self.parameters = parameters
        spacing = map_spacing(embed(self.poses))
        width = max(parameters.bandwidth * spacing, LEAST_WIDTH * resemblance.distance_m)
        heading = parameters.heading_bandwidth * resemblance.angle_rad
        self.widths = np.array([width, width, heading, heading])
        self._points = embed(self.poses) / self.widths
        self._tree = cKDTree(self._points)
        self._gram = ImageGramCache(training_map, max(1, round(parameters.power)))

    def prepare(self) -> None:
        """Compute the image kernel of a small map now."""
        self._gram.fill()

    def look(
        self,
        picture: MapObservation,
        pose: Array,
        covariance: Array,
        readout: Readout,
        without: Rows | None = None,
    ) -> View:
        """The view round `pose` (3,) of a belief with `covariance` (3, 3).

        Rows in `without` are treated as if the map had none of them.
        """
        rows = self._near(pose, covariance, without)
        if len(rows) == 0:
            return NO_VIEW
        resemblance = self.resemblance
        separations = resemblance.separation(relative(self.poses[rows], pose))
        weights = self._posterior(picture, rows, pose, covariance)
        heaviest = np.argsort(-weights, kind="stable")[:ALIGNED]
        heaviest = heaviest[weights[heaviest] > 0.0]
        mix = weights[heaviest] / weights[heaviest].sum()
        alignments = picture.alignments(rows[heaviest])
        prominence = 0.0
        measured, shares = self.poses[rows], weights
        if alignments is not None and readout.known:
            prominence = float(alignments.prominence.max())
            offsets = readout.offsets(alignments.shift, alignments.zoom)
            measured, shares = compose(self.poses[rows[heaviest]], offsets), mix
        return View(
            rows=rows,
            weights=weights,
            share=float(resemblance.share(separations.min())),
            # A picture without structure is unlike the whole map: no picture of a place is as much
            # more like it than the others as that makes it seem.
            contrast=min(float(mix @ picture.contrasts(rows[heaviest])), resemblance.amplitude),
            prominence=prominence,
            pose=mean_pose(measured, shares, pose),
        )

    def _near(self, pose: Array, covariance: Array, without: Rows | None) -> Rows:
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0)) / self.widths[:3]
        reach = REACH * float(np.sqrt(1.0 + min(float(spread.max()), REACH) ** 2))
        hidden = 0 if without is None else len(without)
        count = min(MOST_ROWS + hidden, len(self.poses))
        distances, rows = self._tree.query(
            embed(pose) / self.widths, k=np.arange(1, count + 1), distance_upper_bound=reach
        )
        rows = np.asarray(rows, dtype=np.intp)[np.isfinite(distances)]
        if without is not None:
            rows = rows[~np.isin(rows, without)][:MOST_ROWS]
        return rows

    def _posterior(
        self, picture: MapObservation, rows: Rows, pose: Array, covariance: Array
    ) -> Array:
        """α ≥ 0 (s,) on these rows: Mb-KSR of the Gaussian, then KBR; sums to one."""
        prior = self._prior(self._points[rows], pose, covariance)
        similarities = np.nan_to_num(picture.similarities(rows), posinf=0.0)
        highest = float(similarities.max())
        if not highest > 0.0:
            return _normalized(np.maximum(prior, 0.0))
        likeness = (similarities / highest) ** max(1, round(self.parameters.power))
        delta = self.parameters.delta * float(np.abs(prior).max()) ** 2
        if not self.parameters.bayes_rule:
            return _normalized(np.maximum(prior, 0.0) * likeness)
        posterior = block_posterior_weights(prior, self._gram.block(rows), likeness, delta)
        # The negative weights of a kernel mean are right in expectations, but measure no pose.
        posterior = np.maximum(posterior, 0.0)
        if not (np.isfinite(posterior).all() and posterior.sum() > 0.0):
            posterior = np.maximum(prior, 0.0) * likeness
        return _normalized(posterior)

    def _prior(self, points: Array, pose: Array, covariance: Array) -> Array:
        """β = (G_X + nεI)⁻¹ m, m_i = ∫ k_X(X_i, x) N(x; pose, covariance) dx, up to a factor.

        Of a Gaussian kernel with covariance R and a Gaussian with P, embedded, m_i is a Gaussian
        with covariance R + P (Mb-KSR); here in units of the kernel's widths, so that R = I.
        """
        jacobian = np.zeros((4, 3))
        jacobian[0, 0] = jacobian[1, 1] = 1.0
        jacobian[2:, 2] = -np.sin(pose[2]), np.cos(pose[2])
        jacobian /= self.widths[:, None]
        offsets = points - embed(pose) / self.widths
        spread = np.eye(4) + jacobian @ covariance @ jacobian.T
        means = np.exp(-0.5 * np.einsum("ij,ji->i", offsets, np.linalg.solve(spread, offsets.T)))
        gram = np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(axis=-1))
        gram.flat[:: len(gram) + 1] += self.parameters.regularization
        _, prior, info = dposv(gram, means)
        return np.asarray(prior if info == 0 else means)


def map_spacing(points: Array) -> float:
    """The median distance of embedded poses (n, 4) to their third nearest neighbour."""
    if len(points) < 2:
        return 1.0
    neighbour = min(3, len(points) - 1)
    distances, _ = cKDTree(points).query(points, k=[neighbour + 1])
    return max(float(np.median(distances)), LEAST_SPACING_M)


def mean_pose(poses: Array, weights: Array, near: Array) -> Array:
    """The weighted mean (3,) of poses (m, 3), headings averaged round that of `near`."""
    mean = weights @ poses
    mean[2] = wrap_angle(near[2] + weights @ wrap_angle(poses[:, 2] - near[2]))
    return np.asarray(mean)


def _normalized(weights: Array) -> Array:
    total = float(weights.sum())
    if total > 0.0 and np.isfinite(total):
        return np.asarray(weights / total)
    return np.full(len(weights), 1.0 / max(len(weights), 1))
