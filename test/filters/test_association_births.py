"""What the associator makes of an image at hypotheses, and at the places of births."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from kbf_localization.filters.association import MAX_ALIGNMENT_RATIO, Association, Associator
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.filters.kernel_step import Birthplace, LocalPosterior
from kbf_localization.training_map.calibration import (
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
)

COEFFICIENT = 3.0
RATIO = LikelihoodRatioModel(2.0, COEFFICIENT, 0.0, -1.0, 6.0, 1.0, 2.0, -1.0)
NOTHING = ((0.0, 0.0, 0.0),) * 3
RELATIVE_POSE = RelativePoseModel(
    NOTHING, NOTHING, (0.0, 1.0), (0.0, 2.0), (0.04, 0.04, 0.01), 1.0, 0.5
)
CALIBRATION = SimpleNamespace(
    similarity=SimilarityModel(1.0, 1.0, 0.5, 2.0),
    likelihood_ratio=RATIO,
    relative_pose=RELATIVE_POSE,
)
WITHOUT_LANDMARKS = SimpleNamespace(has_landmarks=False)


def posterior(prominence: float, pose: np.ndarray | None) -> LocalPosterior:
    return LocalPosterior(np.array([3]), np.ones(1), 0.9, 0.5, prominence, pose)


class Measured:
    """A local kernel step whose posteriors are given, one for each place in turn."""

    def __init__(self, *posteriors: LocalPosterior) -> None:
        self.posteriors = list(posteriors)

    def measure(self, *_: object) -> LocalPosterior:
        return self.posteriors.pop(0)


def place(x: float) -> Birthplace:
    return Birthplace(np.array([x, 0.0, 0.0]), np.array([3]), np.ones(1), 0.1, 0.2)


def test_the_alignment_divides_the_odds_of_places_by_its_calibrated_coefficient() -> None:
    associator = Associator(Measured(), CALIBRATION)
    component = Hypothesis.from_prior(np.zeros(3), np.eye(3), 1)
    seen = [
        Association(component, posterior(prominence, None), 0.0) for prominence in (0.2, 0.7, -9.0)
    ]
    ratios = associator.alignment_ratios(seen)
    # The best alignment loses nothing; no alignment rules a place out.
    assert ratios == pytest.approx([-0.5 * COEFFICIENT, 0.0, -MAX_ALIGNMENT_RATIO])
    assert len(associator.alignment_ratios([])) == 0


def test_births_are_numbered_without_gaps_where_a_place_measures_no_pose() -> None:
    poses = [np.array([1.0, 2.0, 0.3]), np.array([5.0, 1.0, -0.2])]
    local = Measured(posterior(0.4, poses[0]), posterior(0.4, None), posterior(0.4, poses[1]))
    places = [place(1.0), place(3.0), place(5.0)]
    births = Associator(local, CALIBRATION).births(places, WITHOUT_LANDMARKS, 7, thorough=True)
    assert list(births) == [places[0], places[2]]
    assert [birth.hypothesis.number for birth in births.values()] == [7, 8]
    for birth, pose in zip(births.values(), poses, strict=True):
        np.testing.assert_array_equal(birth.hypothesis.pose, pose)
        # Without landmarks a birth errs as matches do: the floor and the constant term, e⁰.
        np.testing.assert_allclose(
            np.linalg.eigvalsh(birth.hypothesis.covariance), [1.01, 1.04, 1.04]
        )


def test_a_read_out_moves_no_component_that_it_does_not_measure() -> None:
    associator = Associator(Measured(), CALIBRATION)
    component = Hypothesis.from_prior(np.zeros(3), np.eye(3), 1)
    seen = Association(component, posterior(0.4, np.array([0.5, 0.0, 0.0])), 2.0)
    assert associator.correct(component, seen, 0.0, continues=True) is None
    nowhere = replace(seen, posterior=posterior(0.4, None))
    assert associator.correct(component, nowhere, 1.0, continues=True) is None
    moved, _ = associator.correct(component, seen, 1.0, continues=True)
    assert 0.0 < moved.pose[0] < 0.5
