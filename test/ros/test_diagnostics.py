"""What the node says about the images that it gets."""

from collections import Counter
from typing import Any

import pytest

from kbf_localization.events import Event
from kbf_localization.ros.diagnostics import ImageHealth

PERIOD_NS = 33_000_000
VALUES: dict[str, Any] = {
    "watchdog_timeout": 5.0,
    "camera_time_offset": 0.0,
    "image_transport": "raw",
}


class Camera:
    """Sends images by a clock of the test's own, beside odometry of the same time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        self.health = ImageHealth(self.counts, lambda: self.now)

    def send(self, images: int, offset_s: float = 0.0, every: int = 1) -> None:
        for _ in range(images):
            self.now += every * PERIOD_NS * 1e-9
            newest_ns = round(self.now * 1e9)
            missing = self.health.arrived(newest_ns + round(offset_s * 1e9), 0, newest_ns)
            self.counts[Event.IMAGES_MISSING] += missing


@pytest.fixture
def camera() -> Camera:
    return Camera()


def test_nothing_is_said_of_images_that_are_used(camera: Camera) -> None:
    for _ in range(300):
        camera.send(1)
        camera.health.used()
    assert camera.health.diagnostics(VALUES) == {}


def test_refused_images_are_named_with_their_reason_and_offset(camera: Camera) -> None:
    camera.counts["image_late"] = 7
    camera.health.used()
    camera.send(200, offset_s=3.0)
    camera.counts["image_without_odometry"] += 200
    (line,) = camera.health.diagnostics(VALUES).values()
    assert "image_without_odometry 200 times" in line
    assert "image_late" not in line
    assert "stamped 3.00 s ahead of the odometry" in line
    assert line.endswith("set camera_time_offset to -3.00")


def test_offset_beyond_what_the_parameter_can_be_is_not_proposed(camera: Camera) -> None:
    camera.send(200, offset_s=-100.0)
    (line,) = camera.health.diagnostics(VALUES).values()
    assert line.endswith("stamped 100.00 s behind the odometry: synchronize the clocks")


@pytest.mark.parametrize(("transport", "said"), [("raw", True), ("compressed", False)])
def test_many_missing_raw_images_hint_at_the_profile(
    camera: Camera, transport: str, said: bool
) -> None:
    for _ in range(40):
        camera.send(1)
        camera.send(1, every=3)
    camera.health.used()
    found = camera.health.diagnostics({**VALUES, "image_transport": transport})
    assert camera.counts[Event.IMAGES_MISSING] >= 60
    assert ("fastdds_large_images.xml" in found.get("missing", "")) == said
