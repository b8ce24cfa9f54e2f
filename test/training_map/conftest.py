"""A small drive and its map, made once; and a map without any images, made of numbers."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.training_map import Source, TrainingMap, build_map
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary
from test.datasets.cold_folders import make_cold_drive


@pytest.fixture(scope="session")
def wall_drive(tmp_path_factory: pytest.TempPathFactory) -> ColdDrive:
    return ColdDrive(make_cold_drive(tmp_path_factory.mktemp("cold") / "seq1_cloudy1", 40))


@pytest.fixture(scope="session")
def wall_map(wall_drive: ColdDrive) -> TrainingMap:
    return build_map([wall_drive], poses=15, words=30)


@pytest.fixture
def number_map() -> TrainingMap:
    """Seven poses with drawn counts; the last pose ends its drive."""
    rng = np.random.default_rng(0)
    settings = DescriberSettings(image_width=96, image_height=80, words=5)
    following, motions = rng.normal(size=(2, 7, 3))
    following[6] = motions[6] = np.nan
    return TrainingMap(
        poses=rng.normal(size=(7, 3)),
        histograms=rng.integers(0, 9, (7, settings.bins), dtype=np.uint8),
        next_poses=following,
        motions=motions,
        vocabulary=Vocabulary(rng.normal(size=(5, 128)).astype(np.float32)),
        describer_settings=settings,
        motion_variances=np.array([1e-4, 2e-4, 3e-5, 4e-5]),
        sources=(Source("drive", "COLD folder", "cloudy", 30, 4), Source("b", "bag", None, 9, 3)),
        source_of=np.array([0, 0, 0, 0, 1, 1, 1]),
        thumbnails=[b"one", b"", b"three", b"4", b"", b"sixth", b"7"],
        parameters={"power": 8.0},
        thresholds={"lost": 0.25},
        warnings=("a line",),
    )


@pytest.fixture
def map_path(tmp_path: Path) -> Path:
    return tmp_path / "office.kbfmap"
