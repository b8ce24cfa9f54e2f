"""The benchmarks on small inputs: what they give, not how long it takes."""

from types import ModuleType

import cv2
import pytest

from kbf_localization.benchmarks import filter as filter_step
from kbf_localization.benchmarks import landmarks, rules, simulator, vision
from kbf_localization.benchmarks._timing import case

# What makes a benchmark small, and its cases with what their reference is called.
SMALL: dict[ModuleType, tuple[dict[str, int], dict[str, str]]] = {
    filter_step: ({"POSES": 120, "STEPS": 5, "WARM_UP": 5}, {"step_n120": "the paper's formulas"}),
    landmarks: (
        {"FRAMES": 2, "ROUNDS": 1, "IMAGES": 3},
        {"keypoints_320x240": "OpenCV SIFT", "fix": "solvePnPRansac"},
    ),
    rules: ({"POSES": 300}, {"restricted_update_n2000": "the paper's formula"}),
    simulator: ({"FRAMES": 16}, {"frame_640x480": "JPEG"}),
    vision: (
        {"SPEED_FRAMES": 2, "ROUNDS": 1, "DRIVE_FRAMES": 6, "MAP_POSES": 3},
        dict.fromkeys(
            ("dense_sift_640x480", "image_to_pyramid_640x480", "dense_sift_same_patch_640x480"),
            "OpenCV SIFT.compute",
        ),
    ),
}


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("benchmark", SMALL, ids=lambda module: module.__name__)
def test_a_benchmark_measures_its_cases_against_named_references(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, cases = SMALL[benchmark]
    for name, size in sizes.items():
        monkeypatch.setattr(benchmark, name, size)
    threads = cv2.getNumThreads()
    metrics = benchmark.run()
    assert cv2.getNumThreads() == threads
    for name, reference in cases.items():
        found = metrics[name]
        assert min(found["ours_ms"], found["reference_ms"]) > 0.0
        assert reference in found["reference"]


def test_landmark_fixes_are_as_accurate_as_opencvs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both use the same matches, so that their errors differ by little."""
    for name, size in {"FRAMES": 2, "ROUNDS": 1}.items():
        monkeypatch.setattr(landmarks, name, size)
    metrics = landmarks.run()
    assert metrics["fix_found_fraction"] == 1.0
    assert metrics["fix_median_error_m"] < 1.25 * metrics["fix_median_error_m_opencv"]


def test_a_case_is_the_median_of_each_side_and_how_many_times_as_fast_ours_is() -> None:
    """Medians 2 ms and 200 ms by hand: a mean, or an inverted ratio, gives other numbers."""
    assert case([1.0, 2.0, 9.0], [300.0, 100.0, 200.0], "the formula") == {
        "ours_ms": 2.0,
        "reference_ms": 200.0,
        "ratio": 100.0,
        "reference": "the formula",
    }
