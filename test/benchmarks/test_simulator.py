import cv2
import pytest

from kbf_localization.benchmarks import simulator


def test_a_frame_is_measured_against_its_jpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "FRAMES", 16)
    threads = cv2.getNumThreads()
    case = simulator.run()["frame_640x480"]
    assert case["ratio"] == pytest.approx(case["reference_ms"] / case["ours_ms"])
    assert "JPEG" in case["reference"]
    assert cv2.getNumThreads() == threads
