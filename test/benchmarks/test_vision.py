"""The benchmark of image description, on a few frames."""

import cv2
import pytest

from kbf_localization.benchmarks import vision


def test_every_case_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision, "SPEED_FRAMES", 2)
    monkeypatch.setattr(vision, "ROUNDS", 1)
    monkeypatch.setattr(vision, "DRIVE_FRAMES", 6)
    monkeypatch.setattr(vision, "MAP_POSES", 3)
    threads = cv2.getNumThreads()
    cases = vision.run()
    for name in ("dense_sift_640x480", "image_to_pyramid_640x480"):
        case = cases[name]
        assert case["ratio"] == pytest.approx(case["reference_ms"] / case["ours_ms"])
        assert "OpenCV SIFT.compute" in case["reference"]
    assert cases["nai_rmse_ratio"] == pytest.approx(
        cases["nai_rmse_m"] / cases["nai_rmse_m_opencv"]
    )
    assert cv2.getNumThreads() == threads
