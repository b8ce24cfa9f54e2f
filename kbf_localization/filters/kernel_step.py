"""Sum rule and Bayes' rule on the map's poses, for a belief of Gaussian points.

All components compete in one kernel Bayes' rule over the rows of the map that any of them, or the
image's best matches, make active.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.filters.local_posterior import LocalKernelBayes
from kbf_localization.geometry import embed, relative
from kbf_localization.training_map.calibration import SimilarityModel
from kbf_localization.training_map.observation import MapObservation

BEST_ROWS = 40
"""Best matches over the map at which new components may be born."""

MAX_ACTIVE_ROWS = 256
"""Rows in one kernel Bayes' rule: its cost grows with their cube."""

ASSOCIATION_GATE = 0.5
"""Separation, in the map's scales, within which a component claims a row."""

MIN_BIRTH_FRACTION = 1e-3
"""Of the posterior weight: an unclaimed place with less of it gives no component."""

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


@dataclass(frozen=True)
class Birthplace:
    """Unclaimed rows (b,) round one pose (3,), with their posterior `weights` (b,) that sum to one.

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

    They are those of the components; the rest is at the `births`, places that none claims.
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
        active = [kernel.active_rows(one.pose, one.covariance)[:count] for one in components]
        if search:
            active.append(observation.best_rows(BEST_ROWS))
        rows = np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *active]))
        means = np.zeros((len(rows), len(components)))
        norms = np.ones(len(components))
        for k, one in enumerate(components):
            spread = kernel.embedded_covariance(one.pose, one.covariance)
            scale = float(np.linalg.det(np.eye(4) + spread)) ** -0.5
            means[:, k] = scale * kernel.kernel_mean(rows, one.pose, one.covariance)
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
        claims, unclaimed = self._claims(projection, components, masses, map_mass)
        births = self._births(rows, prior * unclaimed, posterior * unclaimed, max_births)
        return Posterior(prior @ claims, posterior @ claims, births)

    def _claims(
        self,
        projection: Projection,
        components: Sequence[Hypothesis],
        masses: Array,
        map_mass: float,
    ) -> tuple[Array, Array]:
        """Return the fractions of each row that components claim (s, j), and that none does (s,).

        A row belongs to components and to the map prior as their kernel means are there; within a
        component's association gate none of it is left to the map prior.
        """
        parts = masses * projection.means
        free = np.full(len(projection.rows), map_mass / self._cells)
        for one in components:
            offsets = np.abs(relative(one.pose, self._poses[projection.rows]))
            sigma = np.sqrt(np.maximum(np.diag(one.covariance), 0.0))
            reach = ASSOCIATION_GATE * self._similarity.scales + 2.0 * sigma
            near = np.hypot(offsets[:, 0], offsets[:, 1]) < reach[:2].max()
            free[near & (offsets[:, 2] < reach[2])] = 0.0
        total = parts.sum(axis=1) + free
        safe = np.where(total > 0.0, total, 1.0)
        return parts / safe[:, None], free / safe

    def _births(
        self, rows: Rows, prior: Array, posterior: Array, max_births: int
    ) -> tuple[Birthplace, ...]:
        """Return the places of rows (s,) with unclaimed weight, the heaviest first."""
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
