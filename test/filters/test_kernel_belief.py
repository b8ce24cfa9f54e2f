"""The belief as a value: moments, merging, pruning."""

import numpy as np
import pytest

from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.filters.kernel_belief import (
    MAX_COMPONENTS,
    PRIOR_DOUBT,
    KernelBelief,
    merge_and_prune,
)
from kbf_localization.training_map.calibration import SimilarityModel

SIMILARITY = SimilarityModel(amplitude=1.0, distance_m=1.0, angle_rad=0.4, exponent=2.0)


def component(x, number, probability, sigma=0.05):
    pose = np.array([x, 0.0, 0.0])
    hypothesis = Hypothesis.from_prior(pose, np.eye(3) * sigma**2, number)
    return hypothesis.with_log_weight(np.log(probability))


def test_starts_from_nothing_but_the_null_hypothesis():
    belief = KernelBelief.from_prior(None)
    assert belief.components == () and belief.null_probability == 1.0


def test_starts_from_a_given_pose_with_some_doubt():
    prior = GaussianPrior(np.array([1.0, 2.0, 0.3]), np.eye(3) * 0.04)
    belief = KernelBelief.from_prior(prior)
    np.testing.assert_allclose(belief.components[0].pose, prior.pose)
    assert belief.null_probability == pytest.approx(PRIOR_DOUBT)
    assert belief.weights.sum() + belief.null_probability == pytest.approx(1.0)


def test_the_covariance_is_that_of_draws_from_the_belief():
    rng = np.random.default_rng(0)
    belief = KernelBelief(
        (component(0.0, 1, 0.5, 0.3), component(4.0, 2, 0.3, 0.1)), float(np.log(0.2))
    )
    spread = np.diag([9.0, 4.0, 0.5])
    about = np.array([1.0, 0.0, 0.1])
    draws = [
        *(rng.multivariate_normal(part.pose, part.covariance, int(part.probability * 2e5))
          for part in belief.components),
        rng.multivariate_normal(about, spread, 40_000),
    ]  # fmt: skip
    offsets = np.concatenate(draws) - about
    np.testing.assert_allclose(
        belief.covariance(about, spread), offsets.T @ offsets / len(offsets), atol=0.05
    )


def test_merging_keeps_all_weight_and_says_who_lives_on():
    parts = [component(0.0, 1, 0.4), component(0.05, 2, 0.3), component(3.0, 3, 0.2)]
    merged = merge_and_prune(parts, float(np.log(0.1)), SIMILARITY, None)
    assert merged.merged_into == {1: 1, 2: 1, 3: 3}
    assert [component.number for component in merged.components] == [1, 3]
    assert merged.components[0].probability == pytest.approx(0.7)
    total = sum(component.probability for component in merged.components) + np.exp(merged.log_null)
    assert total == pytest.approx(1.0)


def test_the_published_component_survives_merging_and_pruning():
    parts = [component(0.0, 1, 0.4), component(0.05, 2, 0.3)]
    merged = merge_and_prune(parts, -1.0, SIMILARITY, published=2)
    assert [component.number for component in merged.components] == [2]
    many = [component(3.0 * k, k, 0.5 / (k + 1)) for k in range(MAX_COMPONENTS + 5)]
    far = component(-50.0, 99, 1e-12)
    kept = merge_and_prune([*many, far], -1.0, SIMILARITY, published=99)
    assert len(kept.components) == MAX_COMPONENTS + 1
    assert 99 in [component.number for component in kept.components]


def test_agreement_adds_indistinct_components():
    belief = KernelBelief(
        (component(0.0, 1, 0.5, 0.2), component(0.4, 2, 0.2, 0.2), component(5.0, 3, 0.1)),
        float(np.log(0.2)),
    )
    assert belief.agreement(belief.components[0]) == pytest.approx(0.7)
