from dataclasses import replace

import numpy as np

from kbf_localization.evaluation.agreement import with_beliefs
from test.evaluation.synthetic import SyntheticDrive, synthetic_map, synthetic_run

DRIVE, MAP = SyntheticDrive(10), synthetic_map(30)
OFFLINE = synthetic_run(DRIVE, MAP.poses, "kbf")
NODE = replace(OFFLINE, method="node", beliefs=None, best_rows=None)


def test_a_node_that_agrees_gets_the_offline_beliefs() -> None:
    run, largest = with_beliefs(NODE, OFFLINE)
    assert largest == 0.0 and run.method == "node"
    assert run.beliefs is OFFLINE.beliefs and run.best_rows is OFFLINE.best_rows


def test_a_full_turn_of_heading_is_no_difference() -> None:
    turned = replace(NODE, estimates=NODE.estimates + np.array([0.0, 0.0, 2 * np.pi]))
    run, largest = with_beliefs(turned, OFFLINE)
    assert largest is not None and largest < 1e-12 and run.beliefs is not None


def test_another_pose_has_another_belief() -> None:
    run, largest = with_beliefs(replace(NODE, estimates=NODE.estimates + 1e-6), OFFLINE)
    assert largest is not None and largest > 5e-7 and run.beliefs is None


def test_a_dropped_frame_changes_every_belief_after_it() -> None:
    shorter = replace(NODE, stamps_ns=NODE.stamps_ns[1:], estimates=NODE.estimates[1:])
    assert with_beliefs(shorter, OFFLINE) == (shorter, None)
