"""Sum rule and Bayes' rule on the map's poses, for a belief of Gaussian points.

Around each component, the kernel mean of the Gaussian on the map's poses is the model-based kernel
sum rule (Mb-KSR) in closed form; the kernel Bayes' rule (KBR) turns it into weights on the few map
poses that the image supports; the alignments of their images with it give a measured pose and
evidence. In a kernel step all components compete in one KBR over the rows of the map that any of
them, or the image's best matches, make active.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dposv
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.bayes_rule import relative_posterior_weights
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.filters.parameters import BeliefParameters
from kbf_localization.geometry import compose, embed, relative, wrap_angle
from kbf_localization.training_map.calibration import (
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
)
from kbf_localization.training_map.training_map import ImageGramCache, MapObservation, map_spacing

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap


MAX_ROWS = 48
"""Map poses nearest to a hypothesis that take part in an update; farther poses have no weight."""

ALIGNED_ROWS = 3
"""The heaviest map poses whose images are aligned with the camera's."""

MIN_WIDTH = 0.2
"""Of k_X, in d₀: a dense map needs no kernel narrower than what its images resolve."""

MAX_DISTANCE = 3.0
"""Kernel widths, inflated by the hypothesis, beyond which map poses are not compared."""


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
        parameters: BeliefParameters = BeliefParameters(),  # noqa: B008 (frozen)
    ) -> None:
        self.poses = training_map.poses
        self.similarity = similarity
        self.parameters = parameters
        places = embed(self.poses)
        spacing = map_spacing(places)
        width = max(parameters.bandwidth * spacing, MIN_WIDTH * similarity.distance_m)
        heading = parameters.heading_bandwidth * similarity.angle_rad
        self.widths = np.array([width, width, heading, heading])
        self._points = places / self.widths
        self._tree, self._places = cKDTree(self._points), cKDTree(places)
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
        found = self.measure(observation, rows, weights, pose, relative_pose)
        if relative_pose.fitted:
            return found
        # Without alignments the pose is a mean over the map's poses. The posterior's mean has the
        # prior in it, which the filter would count twice: the image alone measures.
        even = self.project(rows, np.ones(len(rows)))
        alone = self.posterior_weights(observation, rows, even)
        return replace(found, pose=mean_pose(self.poses[rows], alone, pose))

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
            # No image of a place has more contrast than the model's amplitude.
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

    def nearest_rows(self, pose: Array, count: int, reach: float) -> Rows:
        """Return at most `count` rows of the map, the nearest in metres and radians.

        None is farther than `reach` in either.
        """
        count = min(count, len(self.poses))
        distances, rows = self._places.query(
            embed(pose), k=np.arange(1, count + 1), distance_upper_bound=reach
        )
        return np.asarray(rows, dtype=np.intp)[np.isfinite(distances)]

    def posterior_weights(self, observation: MapObservation, rows: Rows, prior: Array) -> Array:
        """Return α ≥ 0 (s,) on these rows, which sums to one, by the KBR from β `prior` (s,)."""
        similarities = np.nan_to_num(observation.similarities(rows), posinf=0.0)
        highest = float(similarities.max())
        if not highest > 0.0:
            return _normalized(np.maximum(prior, 0.0))
        likelihood = (similarities / highest) ** max(1, round(self.parameters.power))
        rule, delta = self.parameters.rule, self.parameters.delta
        if rule == "plain":
            posterior = prior * likelihood
        else:
            gram = self._gram.block(rows)
            posterior = relative_posterior_weights(prior, gram, likelihood, delta, rule)
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


BEST_ROWS = 40
"""Best matches over the map at which components may be added."""

MAX_ACTIVE_ROWS = 256
"""Rows that the components make active in one kernel Bayes' rule, beside the image's best matches:
its cost grows with their cube."""

ASSOCIATION_GATE = 0.5
"""Separation, in the map's scales, within which a row is a component's."""

MIN_BIRTH_FRACTION = 1e-3
"""Of the posterior weight, on the heaviest row of a place of no component: with less the place
gives no birth."""

CELL_REACH = 3.0
"""Kernel widths beyond which map poses do not count as one cell."""


@dataclass(frozen=True)
class Projection:
    """A belief on the active `rows` (s,) of the map, by the Mb-KSR (section 4.1).

    `means` (s, j) are the components' kernel means there, `weights` (s, j) their β, and `even` (s,)
    the β of the map prior, which is even in space. `coverage` (j,) is κ, the fraction of each
    component that the map's poses can represent.
    """

    rows: Rows
    means: Array
    weights: Array
    even: Array
    coverage: Array


@dataclass(frozen=True, eq=False)
class Birthplace:
    """Rows (b,) of no component round one pose (3,).

    Their posterior `weights` (b,) sum to one.
    `prior` and `posterior` are the place's parts of all weight before and after the rule.
    """

    pose: Array
    rows: Rows
    weights: Array
    prior: float
    posterior: float


@dataclass(frozen=True)
class Posterior:
    """What the KBR (section 3.6) gives: parts of all weight `before` and `after` it, (j,) each.

    They are those of the components; the rest is at the `births`, places of none.
    """

    before: Array
    after: Array
    births: tuple[Birthplace, ...]


class KernelStep:
    """Projects components on a map's poses and applies the kernel Bayes' rule to them."""

    def __init__(self, kernel: LocalKernelBayes) -> None:
        self._kernel = kernel
        self._poses = kernel.poses
        self._similarity: SimilarityModel = kernel.similarity
        self._cells = effective_cells(embed(kernel.poses) / kernel.widths)

    def project(
        self, components: Sequence[Hypothesis], observation: MapObservation, search: bool
    ) -> Projection:
        """Return the components' β on the active rows, to which `search` adds the best matches."""
        kernel = self._kernel
        count = max(MAX_ACTIVE_ROWS // (len(components) + 1), 8)
        active = [
            kernel.active_rows(component.pose, component.covariance)[:count]
            for component in components
        ]
        if search:
            active.append(observation.best_rows(BEST_ROWS))
        rows = np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *active]))
        means = np.zeros((len(rows), len(components)))
        norms = np.ones(len(components))
        for k, component in enumerate(components):
            spread = kernel.embedded_covariance(component.pose, component.covariance)
            scale = float(np.linalg.det(np.eye(4) + spread)) ** -0.5
            means[:, k] = scale * kernel.kernel_mean(rows, component.pose, component.covariance)
            norms[k] = float(np.linalg.det(np.eye(4) + 2.0 * spread)) ** -0.5
        # Algorithm 1, weight computation 1: β = (G_X + nεI)⁻¹ m(X), of all components at once.
        right = np.column_stack((means, np.full(len(rows), 1.0 / self._cells)))
        weights = kernel.project(rows, right) if len(rows) else right
        # κ = ⟨m, m̂⟩ / ‖m‖², which is 1 / (1 + nε) at a lone pose of the map.
        represented = np.einsum("ij,ij->j", means, weights[:, :-1]) / norms
        ridge = kernel.parameters.regularization
        return Projection(
            rows=rows,
            means=means,
            weights=weights[:, :-1],
            even=weights[:, -1],
            coverage=np.clip((1.0 + ridge) * represented, 0.0, 1.0),
        )

    def bayes(
        self,
        projection: Projection,
        components: Sequence[Hypothesis],
        masses: Array,
        map_mass: float,
        observation: MapObservation,
        max_births: int,
    ) -> Posterior:
        """Apply the KBR to the prior of `masses` (j,) and of `map_mass` evenly over the map."""
        rows = projection.rows
        nothing = np.zeros(len(components))
        if len(rows) == 0:
            return Posterior(nothing, nothing, ())
        prior = projection.weights @ masses + map_mass * projection.even
        # Algorithm 1, weight computation 2: α = R_{X|Z}(β) k_Z(z).
        posterior = self._kernel.posterior_weights(observation, rows, prior)
        prior = np.maximum(prior, 0.0)
        responsibilities, rest = self._responsibilities(projection, components, masses, map_mass)
        births = self._births(rows, prior * rest, posterior * rest, max_births)
        return Posterior(prior @ responsibilities, posterior @ responsibilities, births)

    def _responsibilities(
        self,
        projection: Projection,
        components: Sequence[Hypothesis],
        masses: Array,
        map_mass: float,
    ) -> tuple[Array, Array]:
        """Return the components' responsibilities (s, j) for each row, and the rest of it (s,).

        A row belongs to components and to the map prior as their kernel means are there; within a
        component's association gate none of it is left to the map prior, unless the component is
        less probable than the map prior is at one place.
        """
        parts = masses * projection.means
        free = np.full(len(projection.rows), map_mass / self._cells)
        for component in components:
            if component.probability < map_mass / self._cells:
                continue
            offsets = np.abs(relative(component.pose, self._poses[projection.rows]))
            sigma = np.sqrt(np.maximum(np.diag(component.covariance), 0.0))
            reach = ASSOCIATION_GATE * self._similarity.scales + 2.0 * sigma
            near = np.hypot(offsets[:, 0], offsets[:, 1]) < reach[:2].max()
            free[near & (offsets[:, 2] < reach[2])] = 0.0
        total = parts.sum(axis=1) + free
        safe = np.where(total > 0.0, total, 1.0)
        return parts / safe[:, None], free / safe

    def _births(
        self, rows: Rows, prior: Array, posterior: Array, max_births: int
    ) -> tuple[Birthplace, ...]:
        """Return the places of rows (s,) with weight of no component, the heaviest first."""
        left = posterior.copy()
        places: list[Birthplace] = []
        while len(places) < max_births and left.max(initial=0.0) > MIN_BIRTH_FRACTION:
            pose = self._poses[rows[int(np.argmax(left))]]
            separations = self._similarity.separation(relative(self._poses[rows], pose))
            near = (separations < ASSOCIATION_GATE) & (left > 0.0)
            total = float(left[near].sum())
            before = float(prior[near].sum())
            places.append(Birthplace(pose, rows[near], left[near] / total, before, total))
            left[near] = 0.0
        return tuple(places)


def effective_cells(points: Array) -> float:
    """Return how many distinct places the map has, Σ_i 1 / Σ_k k_X(X_i, X_k).

    `points` (n, 4) are embedded poses in units of the kernel's widths.
    """
    tree = cKDTree(points)
    pairs = tree.sparse_distance_matrix(tree, CELL_REACH, output_type="ndarray")
    density = np.bincount(pairs["i"], np.exp(-0.5 * pairs["v"] ** 2), len(points))
    return float((1.0 / np.maximum(density, 1.0)).sum())
