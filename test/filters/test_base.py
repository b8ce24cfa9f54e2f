"""What filters return: weights on the map's poses."""

import numpy as np

from kbf_localization.filters.base import Weights


def test_the_heaviest_weights_come_in_order_and_are_positive() -> None:
    weights = Weights(np.array([7, 2, 9, 4]), np.array([0.1, -0.5, 0.6, 0.3]))
    assert weights.heaviest(2).rows.tolist() == [9, 4]
    everything = weights.heaviest(10)
    assert everything.rows.tolist() == [9, 4, 7]
    assert everything.values.tolist() == [0.6, 0.3, 0.1]
