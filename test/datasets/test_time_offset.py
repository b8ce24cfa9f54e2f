"""The clocks' offset is found in simulated drives and in images whose motion is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kbf_localization.arrays import Image, Stamps
from kbf_localization.cli.main import app
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.time_offset import estimate_time_offset, image_shifts
from kbf_localization.errors import DatasetError

RNG = np.random.default_rng(5)
PANORAMA = RNG.integers(0, 256, (60, 4000), dtype=np.uint8)
PIXELS_PER_RADIAN = 100


@dataclass(frozen=True)
class TurningCamera:
    """A camera on the spot that looks at a panorama, 10 images a second; odometry 50 Hz."""

    rate: float = 0.4
    frames: int = 200
    path = Path("turning")
    name = "turning"

    def heading(self, seconds: Any) -> Any:
        return self.rate * (np.sin(1.1 * seconds) + 0.5 * np.sin(0.37 * seconds))

    @property
    def stamps_ns(self) -> Stamps:
        return 10**9 + np.arange(self.frames, dtype=np.int64) * 10**8

    @property
    def odometry(self) -> OdometryLog:
        stamps = 10**9 + np.arange(self.frames * 5, dtype=np.int64) * 20_000_000
        headings = self.heading((stamps - 10**9) * 1e-9)
        return OdometryLog(stamps, np.column_stack([0 * headings, 0 * headings, headings]))

    def __len__(self) -> int:
        return self.frames

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        for index, heading in enumerate(self.heading(np.arange(self.frames) * 0.1)):
            # Turned to the left, the camera sees what lies to the left of the panorama.
            left = round(2000 - PIXELS_PER_RADIAN * heading)
            yield index, PANORAMA[:, left : left + 160]


class Offset:
    """A drive whose images are stamped `seconds` later than they were taken."""

    def __init__(self, drive: Any, seconds: float) -> None:
        self._drive, self._ns = drive, round(seconds * 1e9)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drive, name)

    def __len__(self) -> int:
        return len(self._drive)

    @property
    def stamps_ns(self) -> Stamps:
        return np.asarray(self._drive.stamps_ns + self._ns)


def test_shifts_are_those_of_the_panorama() -> None:
    drive: Any = TurningCamera()
    stamps, shifts, _ = image_shifts(drive)
    turned = np.diff(drive.heading((stamps - 10**9) * 1e-9), axis=1)[:, 0]
    # A pixel of 160 is where the panorama was cut to.
    np.testing.assert_allclose(shifts, turned * PIXELS_PER_RADIAN / 160, atol=1.1 / 160)


@pytest.mark.parametrize("seconds", [-0.5, -0.123, 0.0, 0.031, 0.5])
def test_a_known_offset_is_found_to_some_milliseconds(seconds: float) -> None:
    found = estimate_time_offset(Offset(TurningCamera(), seconds))  # type: ignore[arg-type]
    assert found.seconds == pytest.approx(-seconds, abs=0.005)
    assert found.correlation > 0.95 and found.correlation >= found.uncorrected


def test_the_offset_of_simulated_drives_is_within_20_ms(office_drives: tuple[Path, Path]) -> None:
    for path in office_drives:
        drive = open_drive(path)
        images = list(drive.images())
        for seconds in (-0.5, -0.2, 0.0, 0.1, 0.5):
            late: Any = Offset(drive, seconds)
            late.images = lambda images=images: iter(images)  # decoded once for all offsets
            assert estimate_time_offset(late).seconds == pytest.approx(-seconds, abs=0.02)


@pytest.mark.parametrize(
    ("drive", "says"),
    [
        (TurningCamera(rate=0.01), "hardly turns"),
        (TurningCamera(frames=30), "29 pairs of consecutive images, 40 are needed"),
    ],
)
def test_a_drive_that_cannot_tell_says_so(drive: TurningCamera, says: str) -> None:
    with pytest.raises(DatasetError, match=says):
        estimate_time_offset(drive)  # type: ignore[arg-type]


def test_images_of_something_else_are_not_matched() -> None:
    class Noise(TurningCamera):
        def images(
            self, indices: Sequence[int] | None = None
        ) -> Iterator[tuple[int, Image | None]]:
            for index in range(self.frames):
                yield index, RNG.integers(0, 256, (60, 160), dtype=np.uint8)

    with pytest.raises(DatasetError, match="fits the odometry's turns nowhere within 1 s"):
        estimate_time_offset(Noise())  # type: ignore[arg-type]


def test_the_command_says_what_to_set(office_drives: tuple[Path, Path], tmp_path: Path) -> None:
    late: Drive = Offset(open_drive(office_drives[0]), 0.3)  # type: ignore[assignment]
    write_bag(late, tmp_path / "late")
    result = CliRunner().invoke(app, ["check", "time", str(tmp_path / "late")])
    assert result.exit_code == 0, result.output
    assert "too late: run the node with camera_time_offset:=-0." in result.output
    result = CliRunner().invoke(app, ["check", "time", str(office_drives[0])])
    assert "nothing to set" in result.output
