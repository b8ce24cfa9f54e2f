"""What is said of a belief: its published pose, and when it is not to be trusted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from kbf_localization.events import Event
from kbf_localization.filters.hypothesis import Continuity, Hypothesis
from kbf_localization.filters.kernel_belief import KernelBelief
from kbf_localization.filters.publication import ImageAssociations, Publisher
from kbf_localization.training_map.calibration import SimilarityModel

SIMILARITY = SimilarityModel(amplitude=1.0, distance_m=1.0, angle_rad=0.4, exponent=2.0)
CALIBRATION = SimpleNamespace(similarity=SIMILARITY, likelihood_ratio=SimpleNamespace(q005=-2.0))
POSES = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [9.0, 6.0, 0.0]])
MOTION = np.array([0.1, 0.0, 0.0])
STEADY = Continuity(0.0)


def belief_of(probability, number=4):
    component = Hypothesis.from_prior(np.array([3.0, 0.0, 0.0]), np.eye(3) * 1e-4, number)
    component = component.with_log_weight(np.log(probability))
    return KernelBelief((component,), float(np.log(1.0 - probability)), 0.0, 0.0, number + 1)


def said(belief, continuity=STEADY, broken=False, publisher=None, travel=0.1):
    publisher = publisher or Publisher(CALIBRATION, POSES)
    seen = ImageAssociations((), (), 0.0, continuity)
    publisher.update(belief, seen, MOTION, travel, 1.0)
    return publisher.estimate(belief, seen, broken, None)


def test_a_belief_without_components_publishes_the_map_as_a_whole():
    estimate = said(KernelBelief.from_prior(None))
    np.testing.assert_array_equal(estimate.pose, POSES[1])
    positions = POSES[:, :2]
    second_moment = ((positions - POSES[1, :2]) ** 2).mean(axis=0)
    np.testing.assert_allclose(np.diag(estimate.covariance)[:2], second_moment)
    assert estimate.confidence.probability == 0.0


def test_the_probability_is_that_of_the_component_unless_odometry_is_broken():
    belief = belief_of(0.95)
    assert said(belief).confidence.probability == pytest.approx(0.95)
    assert said(belief, broken=True).confidence.probability == 0.0


@pytest.mark.parametrize(
    ("since_landmarks_m", "confirms", "probability"),
    [(0.0, True, 0.95), (0.0, False, 0.0), (0.1, True, 0.0), (np.inf, True, 0.0)],
)
def test_broken_odometry_does_not_matter_where_landmarks_measure_the_pose(
    since_landmarks_m, confirms, probability
):
    belief = belief_of(0.95)
    component = replace(belief.components[0], since_landmarks_m=since_landmarks_m)
    belief = replace(belief, components=(component,))
    item = looked_for_in_vain(component)
    item.confirms = confirms
    publisher = Publisher(CALIBRATION, POSES)
    seen = ImageAssociations((item,), (), 2.0, STEADY)
    publisher.update(belief, seen, MOTION, 0.1, 1.0)
    confidence = publisher.estimate(belief, seen, True, None).confidence
    assert confidence.probability == pytest.approx(probability)


@pytest.mark.parametrize(("scale_m", "sigma_m"), [(2.0, 0.6), (0.3, 0.09), (0.05, 0.09)])
def test_a_pose_is_certain_within_a_fraction_of_a_place_but_no_less_than_of_a_robot(
    scale_m, sigma_m
):
    scaled = SimpleNamespace(
        similarity=replace(SIMILARITY, distance_m=scale_m),
        likelihood_ratio=CALIBRATION.likelihood_ratio,
    )
    estimate = said(belief_of(0.95), publisher=Publisher(scaled, POSES))
    assert estimate.confidence.max_sigma_m == pytest.approx(sigma_m)


def test_events_name_what_is_wrong_with_the_image():
    belief = belief_of(0.95)
    assert [event.value for event in said(belief, Continuity(0.0, frozen=True)).events] == [
        "frozen_image"
    ]
    assert "image_discontinuity" in [event.value for event in said(belief, Continuity(0.5)).events]


def test_nothing_confirms_a_pose_where_the_image_shows_nothing():
    publisher = Publisher(CALIBRATION, POSES)
    assert not said(belief_of(0.95), publisher=publisher).confidence.confirmed
    assert publisher.number == 4 and not publisher.switched


def looked_for_in_vain(component):
    coverage = SimpleNamespace(coverage=1.0, rows=[])
    return SimpleNamespace(
        hypothesis=component,
        posterior=coverage,
        unmeasured=True,
        fix=None,
        confirms=True,
        contradicted=False,
        evidence=lambda floor: 2.0,
    )


@pytest.mark.parametrize(("since_landmarks_m", "verified"), [(np.inf, False), (3.0, True)])
def test_a_pose_is_verified_once_landmarks_that_the_map_has_there_measured_it(
    since_landmarks_m, verified
):
    belief = belief_of(0.95)
    component = replace(belief.components[0], since_landmarks_m=since_landmarks_m)
    belief = replace(belief, components=(component,))
    publisher = Publisher(CALIBRATION, POSES)
    seen = ImageAssociations((looked_for_in_vain(component),), (), 2.0, STEADY)
    publisher.update(belief, seen, MOTION, 0.1, 1.0)
    assert publisher.estimate(belief, seen, False, None).confidence.verified == verified


def test_where_no_landmarks_are_looked_for_a_pose_needs_none():
    assert said(belief_of(0.95)).confidence.verified


def test_landmarks_that_contradict_the_pose_interrupt_its_confirmation():
    belief = belief_of(0.95)
    item = looked_for_in_vain(belief.components[0])
    for contradicted in (False, True):
        item.confirms, item.contradicted = not contradicted, contradicted
        publisher = Publisher(CALIBRATION, POSES)
        seen = ImageAssociations((item,), (), 2.0, STEADY)
        publisher.update(belief, seen, MOTION, 0.1, 1.0)
        estimate = publisher.estimate(belief, seen, False, None)
        assert estimate.confidence.confirmed != contradicted
        assert estimate.confidence.interrupted == contradicted
        assert (Event.LANDMARKS_CONTRADICT in estimate.events) == contradicted
