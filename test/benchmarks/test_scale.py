"""The scale benchmark on small maps: what it gives, not how long it takes."""

import numpy as np
import pytest

from kbf_localization.benchmarks import scale
from kbf_localization.benchmarks._synthetic_map import SPACING_M, Corridor, synthetic_map
from kbf_localization.vision.describer import ImageDescription
from test.conftest import learning_quickly


@pytest.fixture(scope="module")
def metrics() -> scale.Metrics:
    with pytest.MonkeyPatch.context() as patch, learning_quickly():
        sizes = {"SMALL": 100, "LARGE": 1000, "WARM_UP": 3, "BLOCKS": 2, "STEPS_PER_BLOCK": 3}
        for name, size in (sizes | {"GLOBAL_STARTS": 2, "STEPS_AFTER_START": 3}).items():
            patch.setattr(scale, name, size)
        return scale.run()


@pytest.mark.parametrize("name", ["step_100", "step_1k", "global_1k", "global_second_1k"])
def test_a_timed_case_has_the_keys_of_a_benchmark(metrics: scale.Metrics, name: str) -> None:
    case = metrics[name]
    assert isinstance(case, dict)
    assert min(case["ours_ms"], case["reference_ms"]) > 0.0
    assert set(case) >= {"ratio", "reference"}


def test_a_step_on_the_large_map_is_measured_against_the_one_on_the_small(
    metrics: scale.Metrics,
) -> None:
    assert metrics["step_1k"]["reference_ms"] == metrics["step_100"]["ours_ms"]


def test_memory_and_start_are_plain_numbers(metrics: scale.Metrics) -> None:
    # Python with its libraries takes tens of MB.
    assert 20.0 < metrics["resident_mb_1k"] <= metrics["peak_mb_1k"]
    assert metrics["start_s_1k"] > 0.0
    assert metrics["start_cpu_s_1k"] > 0.0


def test_the_cases_are_named_for_1000_and_100000_poses() -> None:
    assert [scale._short(size) for size in (scale.SMALL, scale.LARGE)] == ["1k", "100k"]


def test_the_corridor_is_as_long_as_its_parameter_says() -> None:
    """The pose moves by the path's length, up to the bending of the half circles."""
    along = np.linspace(0.0, 300.0, 30_001)
    poses = Corridor(301.0).poses(along)
    steps = np.hypot(*np.diff(poses[:, :2], axis=0).T)
    np.testing.assert_allclose(steps, np.diff(along), rtol=1e-5)
    headings = np.arctan2(*np.diff(poses[:, :2], axis=0).T[::-1])
    turned = np.angle(np.exp(1j * (headings - poses[:-1, 2])))
    assert np.abs(turned).max() < 0.005


def test_places_look_less_alike_the_farther_they_are_apart() -> None:
    training_map, corridor = synthetic_map(400)
    view = corridor.views(np.array([200 * SPACING_M]))[0]
    similarities = training_map.observe(ImageDescription(view)).similarities()
    assert similarities[200] == pytest.approx(1.0)
    by_distance = similarities[[200, 202, 205, 210]]
    assert (np.diff(by_distance) < 0.0).all()
    assert similarities[:150].max() < similarities[205]
