"""Inputs in another unit or shape than what is documented are refused by name."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pytest

from kbf_localization import (
    DatasetError,
    GaussianPrior,
    Localizer,
    ParameterError,
    build_map,
    check_map,
    evaluate,
    localize,
)
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.training_map import TrainingMap
from test.evaluation.synthetic import SyntheticDrive


@dataclass
class Colourful(SyntheticDrive):
    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Any]]:
        for index, data in self.encoded_images(indices):
            yield index, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


class GoodOdometry(SyntheticDrive):
    @property
    def odometry(self) -> OdometryLog:
        return SyntheticDrive(self.frames).odometry


@dataclass
class StampedInSeconds(GoodOdometry):
    @property
    def stamps_ns(self) -> Any:
        return super().stamps_ns * 1e-9


@dataclass
class PosesInDegrees(GoodOdometry):
    @property
    def poses(self) -> Any:
        return super().poses * (1.0, 1.0, 180.0 / np.pi)


@dataclass
class OdometryInDegrees(SyntheticDrive):
    @property
    def odometry(self) -> OdometryLog:
        return OdometryLog(self.stamps_ns, PosesInDegrees(self.frames).poses)


BAD = {
    Colourful: "round_trip: image 0: .*a colour image: give a grey one",
    StampedInSeconds: "round_trip: stamps_ns is float64 .*: give whole nanoseconds",
    PosesInDegrees: "round_trip: the heading is .*, beyond 2 pi: give radians",
    OdometryInDegrees: "round_trip: odometry: the heading is .*, beyond 2 pi: give radians",
}
CALLS: dict[str, Callable[[TrainingMap, Any], object]] = {
    "build_map": lambda office, drive: build_map(drive, poses=10, words=4),
    "localize": lambda office, drive: next(localize(office, drive)),
    "evaluate": lambda office, drive: evaluate(office, drive, "nai"),
    "check_map": lambda office, drive: check_map(office, [drive]),
}


READINGS: dict[str, Callable[[Localizer], object]] = {
    "a colour image: give a grey one": lambda localizer: localizer.add_image(
        1, np.zeros((12, 16, 3), np.uint8)
    ),
    "stamp_ns is 1.5, a float: give whole": lambda localizer: localizer.add_image(
        1.5,  # type: ignore[arg-type]
        np.zeros((12, 16), np.uint8),
    ),
    "stamp_ns is 2.5, a float: give whole": lambda localizer: localizer.add_odometry(
        2.5,  # type: ignore[arg-type]
        (0.0, 0.0, 0.0),
    ),
    "the heading is 90, beyond 2 pi": lambda localizer: localizer.add_odometry(1, (0.0, 0.0, 90.0)),
    "the heading is -45, beyond 2 pi": lambda localizer: localizer.set_pose(
        GaussianPrior(np.array([0.0, 0.0, -45.0]), np.eye(3))
    ),
}


@pytest.fixture(scope="module")
def office() -> TrainingMap:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbf_localization.mapping.held_out.RUNS", 1)
        return build_map(SyntheticDrive(30), poses=24, words=4)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_a_drive_of_ones_own_is_refused(
    kind: type[SyntheticDrive], call: str, office: TrainingMap
) -> None:
    with pytest.raises(DatasetError, match=BAD[kind]):
        CALLS[call](office, kind(12))


@pytest.mark.parametrize("message", READINGS)
def test_a_localizer_refuses_a_reading(message: str, office: TrainingMap) -> None:
    with pytest.raises(ParameterError, match=message):
        READINGS[message](Localizer(office))
