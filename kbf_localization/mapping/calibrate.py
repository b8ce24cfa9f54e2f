"""Calibrates a map: fits the models of `training_map.calibration` to its mapping drives.

Probes, images of the drives with known poses, are compared with map images of other visits, as the
images of a new drive will be: of other drives, or of the same drive on a later visit. Where a drive
revisits nothing, map poses near the probe are left out instead, and the calibration says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.filters.kernel_step import LocalKernelBayes, LocalPosterior
from kbf_localization.filters.parameters import BeliefParameters
from kbf_localization.geometry import compose, embed, relative
from kbf_localization.limits import SCALES
from kbf_localization.mapping.held_out import (
    FIT_ANGLE,
    HOLD_OUT_RADII,
    RUN_LENGTH,
    HeldOutPairs,
    Probes,
    path_lengths_of,
    runs_along,
)
from kbf_localization.mapping.regression import (
    MIN_EXAMPLES,
    Features,
    fit_correlation,
    fit_likelihood_ratio,
    fit_variances,
    robust_ridge,
)
from kbf_localization.motion.noise import MotionNoise, triple
from kbf_localization.training_map.calibration import (
    VIEW_CORRELATION_LENGTH,
    Calibration,
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
    table,
)
from kbf_localization.training_map.map_file import read_map
from kbf_localization.training_map.training_map import TrainingMap, map_spacing

TRACKING_SIGMA = np.array([0.08, 0.08, 0.14])
"""Standard deviation, in d₀ and φ₀, of a right hypothesis during tracking."""


def load_map(path: Path | str, model: Path | str | None = None) -> TrainingMap:
    """Read the map stored at `path`; calibrate it where its version has no calibration.

    Nothing in the file is run, and no more is allocated than its length. `model` is the network
    that the map was made with, which a map of learned descriptors needs to describe further images;
    another file is refused.
    """
    training_map = read_map(path, model)
    if training_map.fitted is None:
        training_map = replace(training_map, fitted=calibrate_from_map(training_map))
    return training_map


def calibrate_from_map(training_map: TrainingMap) -> Calibration:
    """Calibrate a map without its drives: its own poses are the probes."""
    poses, source_of = training_map.poses, training_map.source_of
    path_lengths = path_lengths_of(poses, source_of)
    runs = runs_along(path_lengths, source_of, map_spacing(embed(poses)))
    variances = np.maximum(training_map.motion_variances, 0.0)
    step = np.nanmedian(np.hypot(training_map.motions[:, 0], training_map.motions[:, 1]))
    per_metre = np.array([variances[0], variances[1], variances[2] + variances[3]])
    per_metre = per_metre / max(float(np.nan_to_num(step)), 0.05) + 4e-4
    probes = Probes.of(
        runs,
        poses,
        source_of,
        poses,
        path_lengths,
        lambda row: training_map.observe(training_map.description(row)),
    )
    noise = MotionNoise(triple(per_metre), triple(per_metre))
    return calibrate(training_map, path_lengths, probes, lambda _: noise)


def calibrate(
    training_map: TrainingMap,
    path_lengths: Array,
    probes: Probes,
    motion_noise: Callable[[SimilarityModel], MotionNoise],
    parameters: BeliefParameters = BeliefParameters(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Calibration:
    """Fit all models to the probes; `path_lengths` (n, 2) are those of the map's poses.

    `motion_noise` estimates the odometry's noise over the map's own scales.
    """
    generator = np.random.default_rng(seed)
    pairs = HeldOutPairs(training_map, path_lengths, probes, generator)
    similarity = pairs.similarity
    relative_pose = fit_relative_pose(pairs)
    kernel_step = LocalKernelBayes(training_map, similarity, parameters)
    sigma = TRACKING_SIGMA * similarity.scales
    covariance = np.diag(sigma**2)

    def posterior_of(number: int, pose: Array, without: Rows) -> LocalPosterior:
        return kernel_step.posterior(
            probes.observations[number], pose, covariance, relative_pose, without
        )

    right = []
    for radius in HOLD_OUT_RADII:
        starts = compose(probes.poses, generator.normal(size=probes.poses.shape) * sigma)
        right.append(
            [
                posterior_of(number, start, pairs.hidden(number, radius))
                for number, start in enumerate(starts)
            ]
        )
    return Calibration(
        similarity=similarity,
        likelihood_ratio=fit_place_evidence(pairs, posterior_of, right),
        continuity=fit_continuity(pairs),
        relative_pose=with_errors(relative_pose, pairs, right),
        motion_noise=motion_noise(similarity),
        drives=len(np.unique(training_map.source_of)),
        probes=len(probes),
        revisits=pairs.revisits,
    )


MIN_ELSEWHERE_DISTANCE = 0.8
"""In d₀: poses farther away are elsewhere."""

MIN_COVERAGE = 0.3
"""Coverage of the probes whose evidence counts for its statistics."""

RANDOM_PLACES, DISCONTINUITIES = 2, 4
"""Wrong examples for each probe: random places, and images that do not continue it."""

PosteriorOf = Callable[[int, Array, Rows], LocalPosterior]
"""Gives the local posterior of a probe, by number, round a pose (3,), without some map rows."""


def fit_place_evidence(
    pairs: HeldOutPairs, posterior_of: PosteriorOf, right: Sequence[Sequence[LocalPosterior]]
) -> LikelihoodRatioModel:
    """Fit the evidence for a place.

    `right` are posteriors at the probes' own poses, a sequence for each of `HOLD_OUT_RADII`.
    """
    hardest, random = _elsewhere(pairs, posterior_of)
    # Evidence is for poses that the map covers: the two largest radii are left out.
    evidence = fit_likelihood_ratio(
        [posterior.features for posterior in (*right[0], *right[1])],
        [posterior.features for posterior in hardest],
        [posterior.features for posterior in random],
    )
    return _with_statistics(evidence, pairs, right[0])


def _elsewhere(
    pairs: HeldOutPairs, posterior_of: PosteriorOf
) -> tuple[list[LocalPosterior], list[LocalPosterior]]:
    """Return posteriors of the probes at the most similar wrong place, and at random places."""
    similarity, generator = pairs.similarity, pairs.generator
    offsets = _typical_offsets(pairs)

    def beside(column: int, number: int) -> LocalPosterior:
        """Return the posterior as far beside a map pose as right poses are, with none nearer."""
        offset = offsets[generator.integers(len(offsets))]
        place = compose(pairs.poses[column], offset)
        separation = similarity.separation(relative(pairs.poses, place))
        nearer = separation < float(similarity.separation(offset)) - 1e-9
        return posterior_of(number, place, pairs.rows[nearer | ~pairs.independent[number]])

    hardest: list[LocalPosterior] = []
    random: list[LocalPosterior] = []
    for number in range(len(pairs.probes)):
        away = pairs.distances[number] > MIN_ELSEWHERE_DISTANCE * similarity.distance_m
        away |= pairs.angles[number] > FIT_ANGLE * similarity.angle_rad
        away &= pairs.independent[number] | ~pairs.other.any()
        candidates = np.flatnonzero(away)
        if len(candidates) == 0:
            continue
        best = candidates[np.argsort(-pairs.contrasts[number, candidates])[:3]]
        seen = [beside(int(column), number) for column in best]
        hardest.append(max(seen, key=lambda posterior: (posterior.prominence, posterior.contrast)))
        drawn = generator.choice(candidates, RANDOM_PLACES)
        random += [beside(int(column), number) for column in drawn]
    return hardest, random


def _typical_offsets(pairs: HeldOutPairs) -> Array:
    """Return offsets (m, 3) of the probes from the nearest map pose that they are compared with."""
    found = []
    for number, pose in enumerate(pairs.probes.poses):
        offsets = relative(pairs.poses, pose)
        separation = pairs.similarity.separation(offsets)
        separation[~pairs.independent[number]] = np.inf
        for radius in HOLD_OUT_RADII[:2]:
            separation[separation < radius] = np.inf
            nearest = int(np.argmin(separation))
            if separation[nearest] < 1.5:
                found.append(offsets[nearest])
    return np.array(found or [np.zeros(3)])


def _with_statistics(
    evidence: LikelihoodRatioModel, pairs: HeldOutPairs, right: Sequence[LocalPosterior]
) -> LikelihoodRatioModel:
    """Add the correlation of the evidence along the path, and its quantiles at right poses."""
    covered = [
        number for number, posterior in enumerate(right) if posterior.coverage > MIN_COVERAGE
    ]
    if len(covered) < MIN_EXAMPLES:
        return evidence
    ratios = np.array([right[number].log_ratio(evidence) for number in covered])
    residuals = (ratios - ratios.mean())[:, None]
    length, fraction = fit_residual_correlation(residuals, covered, pairs.probes, pairs.similarity)
    median, q005 = (float(value) for value in np.quantile(ratios, (0.5, 0.005)))
    # The AR(1) sequence with as many independent images has the same integral of its correlation.
    correlation = max(fraction * length, VIEW_CORRELATION_LENGTH)
    return replace(
        evidence,
        correlation_length=correlation,
        median=median,
        q005=min(q005, 0.0),
        bias_fraction=min(correlation / length, 1.0),
    )


def fit_continuity(pairs: HeldOutPairs) -> LikelihoodRatioModel:
    """Fit the evidence that an image was taken where odometry leads from the image before."""
    probes, similarity, generator = pairs.probes, pairs.similarity, pairs.generator
    following: Features = []
    others: Features = []
    for first in range(len(probes)):
        for second in range(first + 1, min(first + RUN_LENGTH // 2, len(probes))):
            if probes.run_of[first] != probes.run_of[second]:
                break
            motion = relative(probes.odometry[first], probes.odometry[second])
            coverage = float(similarity.relative_similarity(similarity.separation(motion)))
            compared = probes.observations[second].compared_with(probes.observations[first])
            following.append((*compared, coverage))
        for second in generator.integers(len(probes), size=DISCONTINUITIES if following else 0):
            if similarity.separation_between(probes.poses[first], probes.poses[second]) > 1.5:
                coverage = following[int(generator.integers(len(following)))][2]
                compared = probes.observations[second].compared_with(probes.observations[first])
                others.append((*compared, coverage))
    return fit_likelihood_ratio(following, others, [])


MAX_ALIGNED_DISTANCE, MAX_ALIGNED_ANGLE = 0.42, 1.15
"""In d₀ and φ₀: images of pairs farther apart cannot be aligned."""

MIN_SIGMA = np.array([0.03, 0.07, 0.07])
"""In d₀ and φ₀: drives along one path say little about errors beside it."""

MAX_ALIGNED_PAIRS = 800
"""Pairs, drawn at random, to which the relative pose is fitted."""


def fit_relative_pose(pairs: HeldOutPairs) -> RelativePoseModel:
    """Fit the linear map from shift and zoom to the offset by robust ridge regression."""
    similarity, probes, training_map = pairs.similarity, pairs.probes, pairs.training_map
    wide = np.zeros((3, 3))
    wide[:, 0] = 2.0 * np.log(0.3 * similarity.scales)
    none = RelativePoseModel(
        coefficients=table(np.zeros((3, 3))),
        log_variance=table(wide),
        prominence_range=(0.0, 1.0),
        separation_range=(0.0, 1.0),
        variance_floor=triple((MIN_SIGMA * similarity.scales) ** 2),
        correlation_length=1.0,
        bias_fraction=1.0,
    )
    near = pairs.independent & (pairs.distances < MAX_ALIGNED_DISTANCE * similarity.distance_m)
    near &= pairs.angles < MAX_ALIGNED_ANGLE * similarity.angle_rad
    numbers, columns = np.nonzero(near)
    if len(numbers) < MIN_EXAMPLES or training_map.word_grids is None:
        return none
    count = min(len(numbers), MAX_ALIGNED_PAIRS)
    chosen = np.sort(pairs.generator.choice(len(numbers), count, replace=False))
    numbers, rows = numbers[chosen], pairs.rows[columns[chosen]]
    features = np.ones((len(chosen), 3))
    for number in np.unique(numbers):
        own = numbers == number
        aligned = probes.observations[number].alignments(rows[own])
        if aligned is None:
            return none
        features[own, 0], features[own, 1] = aligned.shift, aligned.zoom
    targets = relative(training_map.poses[rows], probes.poses[numbers])
    return replace(none, coefficients=table(robust_ridge(features, targets)))


def with_errors(
    relative_pose: RelativePoseModel, pairs: HeldOutPairs, right: Sequence[Sequence[LocalPosterior]]
) -> RelativePoseModel:
    """Add the variances and the correlation of measured poses, by the `right` posteriors.

    The errors are Student's, with a log variance that is linear in the match's quality.
    """
    probes, similarity = pairs.probes, pairs.similarity
    used = [
        (number, posterior, posterior.pose)
        for posteriors in right
        for number, posterior in enumerate(posteriors)
        if posterior.pose is not None
    ]
    if len(used) < MIN_EXAMPLES:
        return relative_pose
    prominence = np.array([posterior.prominence for _, posterior, _ in used])
    apparent = similarity.apparent_separation([posterior.contrast for _, posterior, _ in used])
    errors = np.array([relative(probes.poses[number], pose) for number, _, pose in used])
    result = fit_variances(relative_pose, errors, prominence, apparent, similarity.scales)
    residuals = np.clip(errors / np.sqrt(result.variances(prominence, apparent)), -3.0, 3.0)
    numbers = [number for number, _, _ in used]
    correlation, fraction = fit_residual_correlation(residuals, numbers, probes, similarity, 5.0)
    return replace(result, correlation_length=correlation, bias_fraction=fraction)


def fit_residual_correlation(
    residuals: Array,
    numbers: Sequence[int],
    probes: Probes,
    similarity: SimilarityModel,
    max_length: float | None = None,
) -> tuple[float, float]:
    """Return the correlation length of residuals (u, k) of these probes, and the AR(1) fraction.

    The length is at most `max_length`; by default the longest distance within a run, but not more
    than 1: images a whole scale apart show different views.
    """
    distances, products = [], []
    for first, a in enumerate(numbers):
        for second in range(first + 1, len(numbers)):
            b = numbers[second]
            if b <= a or probes.run_of[a] != probes.run_of[b]:
                break
            path = np.abs(probes.path_lengths[b] - probes.path_lengths[a])
            distances.append(similarity.scaled_distance(*path))
            products.append(float(np.mean(residuals[first] * residuals[second])))
    if len(distances) < MIN_EXAMPLES:
        return 1.0, 1.0
    measured = np.array(products) / max(float(np.mean(residuals**2)), 1e-12)
    return fit_correlation(np.array(distances), measured, max_length or min(max(distances), 1.0))


POSE_BANDWIDTH = 0.4
"""Of the kernel on poses, in d₀ and φ₀: within it, places look alike."""

DENSITY_FLOOR = 1e-3
"""Added to each density, so that a probe without a similar image does not dominate."""

PRIOR_SIGMA = 1.5
"""Of log(−log k) of images of different places, whose prior mean is 0: few probes must not make
the kernel a spike."""

PROBES_PER_OBSERVATION = 10
"""The probes of a run see much the same view: so many count as one independent observation."""

PASSES = 2
"""The pairs that may be compared depend on d₀, which the fitted bandwidths improve."""

LOG_STEPS = (2.0, 2.0, 0.7, 0.25, 0.1)
"""Of the coordinate search: each bandwidth moves by up to two of them, up or down."""


def fit_kernel_scales(
    training_map: TrainingMap,
    path_lengths: Array,
    probes: Probes,
    parameters: BeliefParameters,
    seed: int,
) -> tuple[TrainingMap, Probes]:
    """Return the map with fitted kernel bandwidths, and the probes observed against it."""
    if not training_map.described_by.scales:
        return training_map, probes
    for _ in range(PASSES):
        scales = _best_scales(training_map, path_lengths, probes, parameters, seed)
        training_map = replace(
            training_map, described_by=training_map.described_by.with_scales(scales)
        )
        observations = [training_map.observe(seen.description) for seen in probes.observations]
        probes = replace(probes, observations=observations)
    return training_map, probes


def _best_scales(
    training_map: TrainingMap,
    path_lengths: Array,
    probes: Probes,
    parameters: BeliefParameters,
    seed: int,
) -> tuple[float, ...]:
    """Search along each bandwidth in turn, with decreasing steps."""
    describer = training_map.described_by
    pairs = HeldOutPairs(training_map, path_lengths, probes, np.random.default_rng(seed))
    seen = np.flatnonzero((pairs.independent & (pairs.separations < 1.0)).any(axis=1))
    if len(seen) == 0:
        return describer.scales
    gallery = training_map.gallery
    compared = np.stack(
        [
            gallery.compare(probes.observations[int(k)].description.features, pairs.rows)
            for k in seen
        ],
        axis=1,
    )
    density = np.exp(-0.5 * (pairs.separations[seen] / POSE_BANDWIDTH) ** 2)
    allowed = pairs.independent[seen]
    power = max(1, round(parameters.power))

    def loss(scales: tuple[float, ...]) -> float:
        kernel = np.maximum(describer.with_scales(scales).kernel(compared), 1e-300)
        logarithms = np.where(allowed, power * np.log(kernel), -np.inf)
        weights = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
        densities = (weights * density).sum(axis=1) / weights.sum(axis=1)
        typical = -float(np.median(np.log(kernel)))
        prior = 0.5 * (float(np.log(max(typical, 1e-9))) / PRIOR_SIGMA) ** 2
        return -float(
            np.log(densities + DENSITY_FLOOR).mean()
        ) + prior * PROBES_PER_OBSERVATION / len(seen)

    best = (loss(describer.scales), tuple(describer.scales))
    for step in LOG_STEPS:
        for place in range(len(best[1])):
            tried = [best]
            for move in range(-4, 5):
                scales = list(best[1])
                scales[place] = float(np.clip(scales[place] * np.exp(0.5 * step * move), *SCALES))
                tried.append((loss(tuple(scales)), tuple(scales)))
            best = min(tried)
    return best[1]
