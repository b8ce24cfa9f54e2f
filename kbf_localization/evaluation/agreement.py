"""How far the node's poses are from the offline replay's, which they should equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kbf_localization.evaluation.run import Run
from kbf_localization.geometry import wrap_angle

EQUAL = 1e-9


def with_beliefs(node: Run, offline: Run) -> tuple[Run, float | None]:
    """The node's run with the offline replay's beliefs, where the two agree frame by frame.

    The node does not publish its whole belief; that of an equal estimate is equal. Also gives the
    largest difference of the two estimates, in metres or radians; None where frames are missing.
    """
    if not np.array_equal(node.stamps_ns, offline.stamps_ns):
        return node, None
    difference = node.estimates - offline.estimates
    difference[:, 2] = wrap_angle(difference[:, 2])
    largest = float(np.abs(difference).max(initial=0.0))
    if largest > EQUAL:
        return node, largest
    return replace(
        node, beliefs=offline.beliefs, best_rows=offline.best_rows, hypotheses=offline.hypotheses
    ), largest
