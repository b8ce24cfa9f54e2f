"""The kernel Bayes filter of poses with a model of the motion: Algorithm 1 of the paper, no more.

Its lines are methods: initial prior sampling (`reset`), initial filtering (the first `step`), the
computation of G_{X'|X} α (`_moved_mean`), weight computation 1 (`_predict`) and weight computation
2 (`_update`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.embeddings.bayes_rule import relative_posterior_weights
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.kernels import GaussianKernel
from kbf_localization.embeddings.linear_solver import RidgeSolver, conjugate_gradients
from kbf_localization.embeddings.noise import GaussianNoise
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule
from kbf_localization.events import Event
from kbf_localization.filters.base import Estimate, GaussianPrior, Weights, is_known
from kbf_localization.filters.parameters import KernelParameters
from kbf_localization.geometry import difference, embed, unembed
from kbf_localization.motion.odometry_model import transition
from kbf_localization.training_map.training_map import (
    ImageGramCache,
    MapObservation,
    TrainingMap,
    map_spacing,
)

NEGLIGIBLE = 1e-7
"""Weights below this fraction of the largest are dropped."""

MIN_PRIOR_SAMPLES, MAX_PRIOR_SAMPLES = 100, 2000
"""Of a given prior n samples are drawn, as many as the map has poses, within these bounds: fewer
do not represent a Gaussian, more change nothing and cost time."""

UNKNOWN_MOTION = 0.5
"""Standard deviation, in kernel widths, of a motion that the odometry does not measure."""


@dataclass(frozen=True)
class Belief:
    """Weighted embedded points (m, 4); those of an update are poses of the map."""

    points: Array
    weights: Array


class PoseKernelBayesFilter:
    """Filters poses on a training map by hybrid kernel Bayesian inference (Algorithm 1).

    A step computes on the part of the map where the belief is.
    """

    def __init__(
        self,
        training_map: TrainingMap,
        parameters: KernelParameters = KernelParameters(),  # noqa: B008 (frozen)
    ) -> None:
        self.space = PoseSpace(
            training_map.poses, parameters.bandwidth, parameters.heading_bandwidth
        )
        self._parameters = parameters
        self._power = max(1, round(parameters.power))
        kernel = self.space.kernel
        noise = np.asarray(training_map.motion_variances) * parameters.noise_inflation
        self._motion_rule = ModelBasedSumRule(_moved_points, GaussianNoise(np.diag(noise)), kernel)
        unknown = GaussianNoise(np.diag((UNKNOWN_MOTION * self.space.widths) ** 2))
        self._standstill_rule = ModelBasedSumRule(_same_points, unknown, kernel)
        ridge = parameters.regularization * kernel.at_zero()
        self._projection = MapProjection(self.space, ridge)
        self._image_gram = ImageGramCache(training_map, self._power)
        self._min_sigma = 0.25 * self.space.widths[[0, 0, 2]]
        self.reset()

    def prepare(self) -> None:
        """Compute now what the first images would else wait for."""
        self._image_gram.fill()

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Sample the initial prior: n samples of `prior`, or the map's n poses where it is None.

        The map's poses stand for the uniform distribution over the mapped area.
        """
        self._events: list[Event] = []
        points = self.space.points if prior is None else self._samples(prior)
        self._belief = Belief(points, np.full(len(points), 1.0 / len(points)))
        self._starts = True

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        """Make one turn of Algorithm 1.

        At the first step after `reset` no motion means that there was none, and G_{X'|X} is
        k(X_i, X̃_j); at later steps that it is unknown.
        """
        self._events = []
        # Compute G_{X'|X}, and weight computation 1: β by the model-based kernel sum rule.
        prior = self._predict(motion)
        # Observe z_t, and weight computation 2: α by the kernel Bayes' rule.
        posterior = self._update(prior, observation)
        self._starts = False
        self._belief = Belief(self.space.points[posterior.rows], posterior.values)
        # Estimation: the mode's mean, the pre-image and the point of the highest weight.
        points = point_estimates(posterior, self.space, self._min_sigma)
        return Estimate(
            pose=points.mode_mean,
            covariance=points.covariance,
            highest_weight_pose=points.highest_weight,
            weights=posterior,
            evidence=float("nan"),
            events=tuple(self._events),
            preimage_pose=points.preimage,
        )

    def _predict(self, motion: Array | None) -> Weights:
        """Weight computation 1: β = (G_X + nεI)⁻¹ G_{X'|X} α, normalized."""
        projected = self._projection.weights(self._moved_mean(self._belief, motion))
        total = float(projected.values.sum())
        if np.isfinite(total) and total > 1e-9 * float(np.abs(projected.values).sum()):
            return Weights(projected.rows, projected.values / total)
        self._events.append(Event.PREDICTION_OFF_MAP)
        rows = np.unique(self.space.nearest(self._belief.points))
        return Weights(rows, np.full(len(rows), 1.0 / len(rows)))

    def _moved_mean(self, belief: Belief, motion: Array | None) -> KernelMean:
        """Return Σ_j α_j m_{X_t | x_{t-1} = X_j}, whose values at X_i are G_{X'|X} α."""
        mean = KernelMean(belief.points, belief.weights, self.space.kernel)
        if motion is None and self._starts:
            return mean
        if not is_known(motion):
            return self._standstill_rule(mean)
        return self._motion_rule(mean, motion)

    def _update(self, prior: Weights, observation: MapObservation) -> Weights:
        """Weight computation 2: α = R_{X|Z}(β) k_Z(z_t), on the support of β, normalized."""
        kept = without_negligible(prior)
        prior = Weights(kept.rows, kept.values / kept.values.sum())
        similarities = np.nan_to_num(observation.similarities(prior.rows), posinf=0.0, neginf=0.0)
        highest = float(similarities.max(initial=0.0))
        if not highest > 0.0:
            self._events.append(Event.UNRECOGNIZED_IMAGE)
            return prior
        likeness = (similarities / highest) ** self._power
        posterior = relative_posterior_weights(
            prior.values,
            self._image_gram.block(prior.rows),
            likeness,
            self._parameters.delta,
            self._parameters.rule,
        )
        total = float(posterior.sum())
        if not (np.isfinite(total) and total > 1e-12 * float(np.abs(posterior).sum())):
            self._events.append(Event.UPDATE_NOT_POSITIVE)
            return prior
        kept = without_negligible(Weights(prior.rows, posterior / total))
        return Weights(kept.rows, kept.values / kept.values.sum())

    def _samples(self, prior: GaussianPrior) -> Array:
        """Return embedded samples (n, 4) of p(x_1), the same for the same prior."""
        generator = np.random.default_rng(0)
        count = int(np.clip(len(self.space), MIN_PRIOR_SAMPLES, MAX_PRIOR_SAMPLES))
        covariance = np.asarray(prior.covariance, dtype=np.float64)
        return embed(generator.multivariate_normal(prior.pose, covariance, count, method="svd"))


def without_negligible(weights: Weights) -> Weights:
    """Return the weights above a fraction of the largest."""
    sizes = np.abs(weights.values)
    kept = sizes > NEGLIGIBLE * sizes.max(initial=0.0)
    return Weights(weights.rows[kept], weights.values[kept])


def _moved_points(points: Array, motion: Array) -> Array:
    """Return f on embedded points (n, 4)."""
    return transition(unembed(points), motion)


def _same_points(points: Array) -> Array:
    return points


REACH = 7.0
"""Kernel widths beyond which a kernel mean's weights on the map are taken to be zero."""

MARGIN = 4.0
"""Kernel widths by which a kept neighbourhood is larger, so that it serves for many steps."""

WHOLE_MAP_LIMIT = 2500
"""Up to this many poses one inverse of the whole matrix is kept: 50 MB, and it is faster."""


SMALL_MAP = 400
"""Up to this many poses the whole map is solved for: finding the near poses takes longer."""

DENSE_LIMIT = 800
"""On a larger map, beliefs that reach more poses than this are solved for sparsely."""


class MapProjection:
    """Solves the sum rule's system on the poses near a kernel mean, `ridge` being nε.

    What is solved is local: far from the mean β vanishes. Either the inverse of the whole matrix
    is kept, or that of a neighbourhood of the robot, until the robot leaves it; a belief that is
    all over a large map is solved for without any inverse.
    """

    def __init__(self, space: PoseSpace, ridge: float) -> None:
        self._space = space
        self._ridge = ridge
        self._rows = np.zeros(0, dtype=np.intp)
        self._inverse: Array = np.zeros((0, 0))

    @property
    def _keeps_whole_map(self) -> bool:
        return len(self._space) <= WHOLE_MAP_LIMIT

    def weights(self, mean: KernelMean) -> Weights:
        """Return β on the rows of the map where it is not zero, not normalized."""
        if len(self._space) <= SMALL_MAP:
            rows = np.arange(len(self._space))
        else:
            rows = self._space.near(mean.points, REACH)
        if len(rows) == 0:
            return Weights(rows, np.zeros(0))
        if len(rows) > DENSE_LIMIT and not self._keeps_whole_map:
            return Weights(rows, scattered_weights(self._space, self._ridge, mean, rows, REACH))
        values = mean.evaluate(self._space.points[rows])
        inside = self._positions(rows, mean)
        if 3 * len(inside) > len(self._rows):
            # Gathering a large block costs more than a product with zeros in it.
            padded = np.zeros(len(self._rows))
            padded[inside] = values
            return Weights(rows, (self._inverse @ padded)[inside])
        return Weights(rows, self._inverse[np.ix_(inside, inside)] @ values)

    def _positions(self, rows: NDArray[np.intp], mean: KernelMean) -> NDArray[np.intp]:
        """Return where `rows` stand in the kept neighbourhood, moved when they are not in it."""
        inside = np.searchsorted(self._rows, rows)
        held = len(self._rows) > 0 and inside[-1] < len(self._rows)
        if held and np.array_equal(self._rows[inside], rows):
            return inside
        if self._keeps_whole_map:
            self._rows = np.arange(len(self._space))
        else:
            wider = self._space.near(mean.points, REACH + MARGIN)
            self._rows = wider if len(wider) <= 2 * DENSE_LIMIT else rows
        points = self._space.points[self._rows]
        solver = RidgeSolver(self._space.kernel.gram(points, points), self._ridge)
        self._inverse = solver.solve(np.eye(len(points)))
        return np.searchsorted(self._rows, rows)


KERNEL_REACH = 6.0
"""Kernel widths beyond which k_X is left out: it is 1.5e-8 of its highest value there."""


def scattered_weights(
    space: PoseSpace, ridge: float, mean: KernelMean, rows: NDArray[np.intp], reach: float
) -> Array:
    """Return β (m,) on these rows (m,) of the map: (G_X + nεI)⁻¹ (m(X_i)), `ridge` being nε.

    Pairs farther apart than `reach` kernel widths are never looked at, in the mean as in G_X: a
    global belief on a map of 100,000 poses spreads over thousands of rows in hundreds of places.
    """
    tree = cKDTree(space.scaled[rows])
    points = space.points[rows]
    pairs = tree.sparse_distance_matrix(
        cKDTree(mean.points / space.widths), reach, output_type="ndarray"
    )
    values = mean.profile(points[pairs["i"]] - mean.points[pairs["j"]])
    weighted = mean.weights[pairs["j"]] * values
    values = np.bincount(pairs["i"], weighted, len(rows)).astype(np.float64)
    near = tree.sparse_distance_matrix(tree, KERNEL_REACH, output_type="ndarray")
    kernel = space.kernel.at_zero() * np.exp(-0.5 * near["v"] ** 2)
    gram = csr_matrix((kernel, (near["i"], near["j"])), shape=(len(rows), len(rows)))
    return conjugate_gradients(lambda weights: gram @ weights + ridge * weights, values)


STARTS = 30
MAX_ITERATIONS = 20
MODE_RADIUS = 3.0
"""Kernel widths round the mode within which poses belong to it."""

CLEAR_MODE_FRACTION = 0.8
"""Fraction of the weight from which on other modes do not widen the covariance."""


@dataclass(frozen=True)
class PointEstimates:
    """Point estimates (3,) of a belief, and the covariance (3, 3) round `mode_mean`."""

    highest_weight: Array
    preimage: Array
    mode_mean: Array
    covariance: Array


def point_estimates(belief: Weights, space: PoseSpace, min_sigma: Array) -> PointEstimates:
    """Estimate poses from normalized weights; `min_sigma` (3,) is the covariance's floor."""
    points, weights = space.scaled[belief.rows], belief.values
    heaviest = int(np.argmax(weights))
    mode = _mode(points, weights)
    positive = np.maximum(weights, 0.0)
    near = ((points - mode) ** 2).sum(axis=1) <= MODE_RADIUS**2
    fraction = positive[near].sum() / positive.sum()
    if not fraction > 0.0:
        near[heaviest], fraction = True, 0.0
        positive[heaviest] = max(positive[heaviest], np.finfo(np.float64).tiny)
    mean = positive[near] @ points[near] / positive[near].sum()
    mode_mean = unembed(mean * space.widths)
    counted = near if fraction >= CLEAR_MODE_FRACTION else np.ones(len(near), dtype=bool)
    covariance = _spread(space.poses[belief.rows[counted]], positive[counted], mode_mean)
    return PointEstimates(
        highest_weight=space.poses[belief.rows[heaviest]].copy(),
        preimage=unembed(mode * space.widths),
        mode_mean=mode_mean,
        covariance=covariance + np.diag(min_sigma**2),
    )


def _mode(points: Array, weights: Array) -> Array:
    """Return the maximum of the kernel mean by fixed-point iteration.

    It starts from the highest of the heaviest map poses (the paper's iterationGaussPointEstimate).
    Points are in units of the kernel's widths.
    """
    heaviest = np.argsort(-weights)[:STARTS]
    squared = ((points[heaviest][:, None] - points[None]) ** 2).sum(axis=-1)
    heights = np.exp(-0.5 * squared) @ weights
    best = int(np.argmax(heights))
    mode, height = points[heaviest[best]], np.finfo(np.float64).tiny
    current = mode
    for _ in range(MAX_ITERATIONS):
        pull = np.exp(-0.5 * ((points - current) ** 2).sum(axis=1)) * weights
        total = float(pull.sum())
        if not total >= height:
            break
        mode, height = current, total
        following = pull @ points / total
        if ((following - current) ** 2).sum() < 1e-12:
            break
        current = following
    return np.asarray(mode)


def _spread(poses: Array, weights: Array, centre: Array) -> Array:
    """Return the weighted second moment (3, 3) of poses (s, 3) round `centre`."""
    offsets = difference(poses, centre)
    return np.asarray((weights[:, None] * offsets).T @ offsets / weights.sum())


COVER_RADIUS = 3.0
"""Balls of this many kernel widths cover the points whose neighbourhood is asked for."""


class PoseSpace:
    """Poses (n, 3), embedded as `points` (n, 4), and the kernel k_X of widths `widths` (4,)."""

    def __init__(self, poses: Array, bandwidth: float, heading_bandwidth: float) -> None:
        self.poses = np.asarray(poses, dtype=np.float64)
        self.points = embed(self.poses)
        position = bandwidth * map_spacing(self.points)
        self.widths = np.array([position, position, heading_bandwidth, heading_bandwidth])
        self.kernel = GaussianKernel(np.diag(self.widths**2))
        self.scaled = self.points / self.widths
        self._tree = cKDTree(self.scaled)

    def __len__(self) -> int:
        return len(self.poses)

    def near(self, points: Array, reach: float) -> NDArray[np.intp]:
        """Return rows of the map within `reach` kernel widths of any of the embedded points (m, 4).

        A few more are found: the points are covered by balls, one for each bunch of them.
        """
        scaled = points / self.widths
        found: list[int] = []
        uncovered = np.ones(len(scaled), dtype=bool)
        while uncovered.any():
            centre = scaled[int(np.argmax(uncovered))]
            distances = np.sqrt(((scaled - centre) ** 2).sum(axis=1))
            covered = distances <= COVER_RADIUS
            spread = float(distances[covered].max())
            found += self._tree.query_ball_point(centre, reach + spread)
            uncovered &= ~covered
        return np.unique(np.array(found, dtype=np.intp))

    def nearest(self, points: Array) -> NDArray[np.intp]:
        """Return the row of the map nearest to each of the embedded points (m, 4)."""
        _, rows = self._tree.query(points / self.widths)
        return np.asarray(rows, dtype=np.intp)
