"""The local kernel step: the posterior on the map's poses around a Gaussian hypothesis.

The kernel mean of the Gaussian on the map's poses is the model-based kernel sum rule (Mb-KSR) in
closed form; the kernel Bayes' rule (KBR) turns it into weights on the few map poses that the image
supports; the alignments of their images with it give a measured pose and evidence.
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
from kbf_localization.filters.image_gram_cache import ImageGramCache
from kbf_localization.geometry import compose, embed, relative, wrap_angle
from kbf_localization.training_map.calibration import (
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
)
from kbf_localization.training_map.observation import MapObservation

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

MAX_ROWS = 48
"""Map poses nearest to a hypothesis that take part in an update; farther ones have no weight."""

ALIGNED_ROWS = 3
"""The heaviest map poses whose images are aligned with the camera's."""

MIN_WIDTH = 0.2
"""Of k_X, in d₀: a dense map needs no kernel narrower than what its images resolve."""

MAX_DISTANCE = 3.0
"""Kernel widths, inflated by the hypothesis, beyond which map poses are not compared."""

MIN_SPACING_M = 0.02
"""Repeated poses (a robot that stood still) must not make the kernel a spike."""


@dataclass(frozen=True)
class KernelBayesParameters:
    """Hyper-parameters of the local kernel step; none has a scale.

    `bandwidth` is σ_p of k_X in units of the map's spacing, `heading_bandwidth` σ_θ in units of φ₀;
    `regularization` is nε in units of k_X(x, x), `delta` is δ in units of max β², `power` that of
    the image kernel. Without `bayes_rule` the weights are β_i k_i, for an ablation.
    """

    bandwidth: float = 1.3
    heading_bandwidth: float = 0.9
    regularization: float = 0.1
    delta: float = 0.5
    power: float = 12.0
    bayes_rule: bool = True


def kernel_bayes_parameters(stored: Mapping[str, float]) -> KernelBayesParameters:
    """Return the parameters stored as "kbf.<name>" or "<name>", defaults for the others."""
    known = {key.removeprefix("kbf."): value for key, value in stored.items()}
    defaults: dict[str, Any] = vars(KernelBayesParameters())
    found = {name: type(value)(known[name]) for name, value in defaults.items() if name in known}
    return KernelBayesParameters(**found)


@dataclass(frozen=True)
class LocalPosterior:
    """The posterior of a hypothesis given an image.

    `rows` and `weights` (s,) are the posterior on the map's poses. `coverage` in [0, 1] tells how
    well the map covers the pose, `contrast` and `prominence` how well the image fits there. `pose`
    (3,) is the measured pose, None where the map has no image to compare with.
    """

    rows: Rows
    weights: Array
    coverage: float
    contrast: float
    prominence: float
    pose: Array | None

    @property
    def features(self) -> tuple[float, float, float]:
        """Return the features of `LikelihoodRatioModel`."""
        return self.contrast, self.prominence, self.coverage

    def log_odds(self, evidence: LikelihoodRatioModel) -> float:
        """Return how well the image fits, whatever the coverage."""
        return float(evidence.log_odds(*self.features))

    def log_ratio(self, evidence: LikelihoodRatioModel) -> float:
        """Return the log-likelihood ratio of "here" against "elsewhere"."""
        return float(evidence.log_ratio(*self.features))


NO_POSTERIOR = LocalPosterior(np.zeros(0, dtype=np.intp), np.zeros(0), 0.0, 0.0, 0.0, None)
"""Where the map has no image to compare with."""


class LocalKernelBayes:
    """Computes local posteriors on a map, in the scales of its `similarity` model."""

    def __init__(
        self,
        training_map: TrainingMap,
        similarity: SimilarityModel,
        parameters: KernelBayesParameters = KernelBayesParameters(),  # noqa: B008 (frozen)
    ) -> None:
        self.poses = training_map.poses
        self.similarity = similarity
        self.parameters = parameters
        spacing = map_spacing(embed(self.poses))
        width = max(parameters.bandwidth * spacing, MIN_WIDTH * similarity.distance_m)
        heading = parameters.heading_bandwidth * similarity.angle_rad
        self.widths = np.array([width, width, heading, heading])
        self._points = embed(self.poses) / self.widths
        self._tree = cKDTree(self._points)
        self._gram = ImageGramCache(training_map, max(1, round(parameters.power)))

    def prepare(self) -> None:
        """Compute the image kernel of a small map in advance."""
        self._gram.fill()

    def posterior(
        self,
        observation: MapObservation,
        pose: Array,
        covariance: Array,
        relative_pose: RelativePoseModel,
        without: Rows | None = None,
    ) -> LocalPosterior:
        """Return the posterior of a hypothesis at `pose` (3,) with `covariance` (3, 3).

        Rows in `without` are treated as if the map did not have them.
        """
        rows = self.active_rows(pose, covariance, without)
        if len(rows) == 0:
            return NO_POSTERIOR
        # Mb-KSR, section 4.1, and KBR, section 3.6.
        prior = self.project(rows, self.kernel_mean(rows, pose, covariance))
        weights = self.posterior_weights(observation, rows, prior)
        return self.measure(observation, rows, weights, pose, relative_pose)

    def measure(
        self,
        observation: MapObservation,
        rows: Rows,
        weights: Array,
        pose: Array,
        relative_pose: RelativePoseModel,
    ) -> LocalPosterior:
        """Return the posterior of `weights` ≥ 0 (s,), which sum to one, around `pose` (3,)."""
        similarity = self.similarity
        separations = similarity.separation(relative(self.poses[rows], pose))
        heaviest = np.argsort(-weights, kind="stable")[:ALIGNED_ROWS]
        heaviest = heaviest[weights[heaviest] > 0.0]
        mix = weights[heaviest] / weights[heaviest].sum()
        alignments = observation.alignments(rows[heaviest])
        prominence = 0.0
        measured, measured_weights = self.poses[rows], weights
        if alignments is not None and relative_pose.fitted:
            prominence = float(alignments.prominence.max())
            offsets = relative_pose.offsets(alignments.shift, alignments.zoom)
            measured = compose(self.poses[rows[heaviest]], offsets)
            measured_weights = mix
        return LocalPosterior(
            rows=rows,
            weights=weights,
            coverage=float(similarity.relative_similarity(separations.min())),
            # An image without structure is unlike the whole map, which exaggerates its contrast: no
            # image of a place has more than the model's amplitude.
            contrast=min(float(mix @ observation.contrasts(rows[heaviest])), similarity.amplitude),
            prominence=prominence,
            pose=mean_pose(measured, measured_weights, pose),
        )

    def active_rows(self, pose: Array, covariance: Array, without: Rows | None = None) -> Rows:
        """Return the rows of the map that a Gaussian around `pose` (3,) reaches, nearest first."""
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0)) / self.widths[:3]
        radius = MAX_DISTANCE * float(np.sqrt(1.0 + min(float(spread.max()), MAX_DISTANCE) ** 2))
        hidden = 0 if without is None else len(without)
        count = min(MAX_ROWS + hidden, len(self.poses))
        distances, rows = self._tree.query(
            embed(pose) / self.widths, k=np.arange(1, count + 1), distance_upper_bound=radius
        )
        rows = np.asarray(rows, dtype=np.intp)[np.isfinite(distances)]
        if without is not None:
            rows = rows[~np.isin(rows, without)][:MAX_ROWS]
        return rows

    def posterior_weights(self, observation: MapObservation, rows: Rows, prior: Array) -> Array:
        """Return α ≥ 0 (s,) on these rows, which sums to one, by the KBR from β `prior` (s,)."""
        similarities = np.nan_to_num(observation.similarities(rows), posinf=0.0)
        highest = float(similarities.max())
        if not highest > 0.0:
            return _normalized(np.maximum(prior, 0.0))
        likelihood = (similarities / highest) ** max(1, round(self.parameters.power))
        delta = self.parameters.delta * float(np.abs(prior).max()) ** 2
        if not self.parameters.bayes_rule:
            return _normalized(np.maximum(prior, 0.0) * likelihood)
        posterior = block_posterior_weights(prior, self._gram.block(rows), likelihood, delta)
        # The negative weights of a kernel mean are right in expectations, but measure no pose.
        posterior = np.maximum(posterior, 0.0)
        if not (np.isfinite(posterior).all() and posterior.sum() > 0.0):
            posterior = np.maximum(prior, 0.0) * likelihood
        return _normalized(posterior)

    def kernel_mean(self, rows: Rows, pose: Array, covariance: Array) -> Array:
        """Return m_i = ∫ k_X(X_i, x) N(x; pose, covariance) dx (s,), up to a factor.

        For a Gaussian kernel with covariance R and a Gaussian with P, embedded, m_i is a Gaussian
        with covariance R + P; here in units of the kernel's widths, so that R = I.
        """
        offsets = self._points[rows] - embed(pose) / self.widths
        spread = np.eye(4) + self.embedded_covariance(pose, covariance)
        return np.asarray(
            np.exp(-0.5 * np.einsum("ij,ji->i", offsets, np.linalg.solve(spread, offsets.T)))
        )

    def embedded_covariance(self, pose: Array, covariance: Array) -> Array:
        """Return that (4, 4) of a Gaussian on poses, in R⁴ in units of the kernel's widths."""
        jacobian = np.zeros((4, 3))
        jacobian[0, 0] = jacobian[1, 1] = 1.0
        jacobian[2:, 2] = -np.sin(pose[2]), np.cos(pose[2])
        jacobian /= self.widths[:, None]
        return np.asarray(jacobian @ covariance @ jacobian.T)

    def project(self, rows: Rows, means: Array) -> Array:
        """Return β = (G_X + nεI)⁻¹ m on these rows, for kernel means (s,) or (s, j) there."""
        points = self._points[rows]
        gram = np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(axis=-1))
        gram.flat[:: len(gram) + 1] += self.parameters.regularization
        _, prior, info = dposv(gram, means)
        return np.asarray(prior if info == 0 else means)


def map_spacing(points: Array) -> float:
    """Return the median distance of embedded poses (n, 4) to their third nearest neighbour."""
    if len(points) < 2:
        return 1.0
    neighbour = min(3, len(points) - 1)
    distances, _ = cKDTree(points).query(points, k=[neighbour + 1])
    return max(float(np.median(distances)), MIN_SPACING_M)


def mean_pose(poses: Array, weights: Array, near: Array) -> Array:
    """Return the weighted mean (3,) of poses (m, 3), headings averaged around that of `near`."""
    mean = weights @ poses
    mean[2] = wrap_angle(near[2] + weights @ wrap_angle(poses[:, 2] - near[2]))
    return np.asarray(mean)


def _normalized(weights: Array) -> Array:
    total = float(weights.sum())
    if total > 0.0 and np.isfinite(total):
        return np.asarray(weights / total)
    return np.full(len(weights), 1.0 / max(len(weights), 1))
