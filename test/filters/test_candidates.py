"""What a picture tells about places, and what it does not."""

import numpy as np
import pytest

from kbf_localization.filters.candidates import Candidate
from kbf_localization.filters.hypothesis import given
from kbf_localization.training_map.learned import Evidence
from kbf_localization.training_map.view import NO_VIEW, View

EVIDENCE = Evidence(9.0, 35.0, -9.0, -10.0, 5.0, 0.3, 2.0, -1.0)
SOMEWHERE = given(np.zeros(3), np.eye(3), 1)


def candidate(view: View) -> Candidate:
    return Candidate(SOMEWHERE, view, view.fit(EVIDENCE))


def view(share: float, contrast: float) -> View:
    return View(np.zeros(1, dtype=np.intp), np.ones(1), share, contrast, 0.3, None)


@pytest.mark.parametrize("contrast", [0.1, 0.5, 0.9])
def test_a_picture_that_fits_somewhere_tells_its_evidence(contrast):
    one = candidate(view(0.8, contrast))
    assert one.ratio() == pytest.approx(one.view.ratio(EVIDENCE))


def test_a_picture_that_fits_nowhere_favours_no_place_off_the_map():
    """Where it fits best it tells as little as where the map has nothing to compare it with."""
    best, worse, off = (candidate(one) for one in (view(0.9, 0.4), view(0.9, 0.2), NO_VIEW))
    floor = max(best.fit, worse.fit, off.fit)
    assert floor < 0.0
    assert best.ratio(floor) == off.ratio(floor) == 0.0
    assert worse.ratio(floor) < 0.0
