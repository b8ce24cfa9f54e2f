"""The ablation: variants differ from the whole filter in one part each, and are all run."""

from dataclasses import fields, replace

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.open import open_drive
from kbf_localization.experiments.ablation import (
    VARIANTS,
    Trial,
    Variant,
    experiment_result,
    orb_keypoints,
    run_trials,
)
from kbf_localization.experiments.localization import Fold, Setup
from kbf_localization.filters.belief_filter import Ablation
from kbf_localization.filters.parameters import BeliefParameters, parameters_of
from kbf_localization.parallel import Serial
from kbf_localization.simulator.simulated_drives import simulate
from kbf_localization.vision.keypoints import squared_distances


def test_each_variant_leaves_out_one_part():
    whole = Variant("everything")
    assert VARIANTS["everything"] == whole
    for name, variant in VARIANTS.items():
        if name != "everything":
            switches = [
                *(getattr(variant.parts, item.name) for item in fields(Ablation)),
                variant.rule == "original",
                variant.read_out,
                variant.landmarks,
                variant.camera_known,
                variant.sift,
            ]
            assert switches.count(False) == (2 if name.startswith("no_landmarks_") else 1)


def test_a_map_remembers_that_the_rule_was_left_out():
    assert parameters_of(BeliefParameters, "kbf", {}).rule == "original"
    assert parameters_of(BeliefParameters, "kbf", {"kbf.rule": "plain"}) == replace(
        BeliefParameters(), rule="plain"
    )


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    paths = simulate(tmp_path_factory.mktemp("office"), runs=3, frames=16, size=(160, 120))
    first, second, test = (open_drive(path) for path in paths)
    return Setup("small", (Fold((first, second), test),))


@pytest.mark.usefixtures("quick_learning")
def test_all_variants_run_on_the_same_maps(setup):
    trials = run_trials([setup], trials=1, sizes=[12], seed=3, workers=Serial())
    assert [trial.method for trial in trials] == list(VARIANTS)
    by_name = {trial.method: trial.metrics for trial in trials}
    for part in ("no_landmarks", "random_walk", "learned_camera", "orb"):
        assert by_name[part] != by_name["everything"]


def test_orb_descriptors_keep_hammings_distance():
    image = cv2.GaussianBlur(
        np.random.default_rng(5).integers(0, 256, (240, 320), dtype=np.uint8), (0, 0), 2.0
    )
    _, bits = cv2.ORB_create(400).detectAndCompute(image, None)
    hamming = (np.unpackbits(bits, axis=1)[:, None] != np.unpackbits(bits, axis=1)).sum(axis=-1)
    squared = squared_distances(*[orb_keypoints(image).descriptors] * 2)
    different = ~np.eye(len(bits), dtype=bool)
    ratio = squared[different] / hamming[different]
    # Half of the axes, in units of 63.75 for a bit; twice the 9 % of bits at random.
    np.testing.assert_allclose(np.median(ratio), 0.5 * 63.75**2, rtol=0.05)
    assert np.std(ratio) < 0.18 * np.median(ratio)


def test_metrics_are_over_offices_and_choices():
    trials = [
        Trial(
            office,
            200,
            "everything",
            0,
            {"position_rmse_m": value, "position_median_m": 0.1, "share_beyond_1m": 0.0},
        )
        for office, value in zip("01", (0.2, 0.4))
    ]
    metrics = experiment_result(trials).metrics["200"]["everything"]["position_rmse_m"]
    assert metrics["mean"] == pytest.approx(0.3) and metrics["std"] == pytest.approx(0.1)
