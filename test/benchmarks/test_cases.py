"""The benchmarks on small inputs: what they give, not how long it takes."""

from types import ModuleType

import cv2
import pytest

from kbf_localization.benchmarks import filter as filter_step
from kbf_localization.benchmarks import rules, simulator, vision

# What makes a benchmark small, and its cases with what their reference is called.
SMALL: dict[ModuleType, tuple[dict[str, int], dict[str, str]]] = {
    filter_step: ({"POSES": 120, "STEPS": 5, "WARM_UP": 5}, {"step_n120": "the paper's formulas"}),
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
def test_a_case_is_a_ratio_to_a_named_reference(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, cases = SMALL[benchmark]
    for name, size in sizes.items():
        monkeypatch.setattr(benchmark, name, size)
    threads = cv2.getNumThreads()
    figures = benchmark.run()
    assert cv2.getNumThreads() == threads
    for name, reference in cases.items():
        case = figures.pop(name)
        assert case["ratio"] == pytest.approx(case["reference_ms"] / case["ours_ms"])
        assert case["ours_ms"] > 0.0 and reference in case["reference"]
    if benchmark is vision:
        ratio = figures["nai_rmse_m"] / figures["nai_rmse_m_opencv"]
        assert figures["nai_rmse_ratio"] == pytest.approx(ratio)
