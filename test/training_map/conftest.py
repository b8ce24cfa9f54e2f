"""A small drive and its map, made once; and a map without any images, made of numbers."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.landmarks.landmark_map import LandmarkDescription, LandmarkMap
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.mapping import build_map
from kbf_localization.motion.noise import MotionNoise
from kbf_localization.training_map import Source, TrainingMap
from kbf_localization.training_map.calibration import (
    Calibration,
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
)
from kbf_localization.vision.camera import Mount, PinholeCamera
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary
from test.conftest import learning_quickly
from test.datasets.cold_folders import make_cold_drive


@pytest.fixture(scope="session")
def wall_drive(tmp_path_factory: pytest.TempPathFactory) -> ColdDrive:
    return ColdDrive(make_cold_drive(tmp_path_factory.mktemp("cold") / "seq1_cloudy1", 40))


@pytest.fixture(scope="session")
def wall_map(wall_drive: ColdDrive) -> TrainingMap:
    with learning_quickly():
        return build_map([wall_drive], poses=15, words=30)


CALIBRATION = Calibration(
    similarity=SimilarityModel(0.8, 1.5, 0.5, 1.5),
    likelihood_ratio=LikelihoodRatioModel(5.0, 4.0, -1.0, -2.0, 5.0, 0.3, 2.5, -0.25),
    continuity=LikelihoodRatioModel(6.0, 3.0, -0.5, -1.0, 4.0, 1.0, 0.0, 0.0),
    relative_pose=RelativePoseModel(
        coefficients=((0.0, -3.0, 0.1), (0.5, 0.0, 0.0), (-1.1, 0.0, 0.02)),
        log_variance=((-3.0, -2.0, 0.5), (-3.0, -1.0, 0.25), (-6.0, -4.0, 0.0)),
        prominence_range=(0.1, 0.6),
        separation_range=(0.2, 1.5),
        variance_floor=(0.002, 0.01, 0.001),
        correlation_length=1.25,
        bias_fraction=0.75,
    ),
    motion_noise=MotionNoise((0.01, 0.02, 0.03), (0.001, 0.002, 0.003), 4),
    drives=2,
    probes=77,
    revisits=True,
)


@pytest.fixture
def number_map() -> TrainingMap:
    """Seven poses with drawn counts; the last pose ends its drive."""
    rng = np.random.default_rng(0)
    settings = DescriberSettings(image_width=96, image_height=80, words=5)
    cells = settings.reduced_grid_shape[0] * settings.reduced_grid_shape[1]
    following, motions = rng.normal(size=(2, 7, 3))
    following[6] = motions[6] = np.nan
    return TrainingMap(
        poses=rng.normal(size=(7, 3)),
        features=rng.integers(0, 9, (7, settings.bins), dtype=np.uint8),
        next_poses=following,
        motions=motions,
        described_by=PyramidDescriber(
            Vocabulary(rng.normal(size=(5, 128)).astype(np.float32)), settings
        ),
        motion_variances=np.array([1e-4, 2e-4, 3e-5, 4e-5]),
        sources=(
            Source("drive", "COLD folder", "cloudy", 30, 4, (7, 2**60)),
            Source("b", "bag", None, 9, 3),
        ),
        source_of=np.array([0, 0, 0, 0, 1, 1, 1]),
        thumbnails=[b"one", b"", b"three", b"4", b"", b"sixth", b"7"],
        parameters={"power": 8.0},
        warnings=("a line",),
        word_grids=rng.integers(0, 5, (7, cells), dtype=np.uint8),
        fitted=CALIBRATION,
        floor_plan=FloorPlanImage(
            rng.integers(0, 255, (6, 9), dtype=np.uint8), 0.25, (-1.5, 0.5, 0.125)
        ),
        trajectories=(rng.normal(size=(12, 3)), rng.normal(size=(5, 3))),
        own_frame=True,
        reference_poses=np.vstack((np.full((1, 3), np.nan), rng.normal(size=(6, 3)))),
    )


@pytest.fixture
def map_path(tmp_path: Path) -> Path:
    return tmp_path / "office.kbfmap"


def some_landmarks(poses: np.ndarray) -> LandmarkMap:
    """Landmarks of every image but the last, at random."""
    generator = np.random.default_rng(5)
    images = [
        ImageLandmarks(
            generator.integers(0, 256, (7, 128), dtype=np.uint8),
            generator.uniform(-3.0, 3.0, (7, 3)),
            np.broadcast_to(1e-4 * np.eye(3), (7, 3, 3)),
            np.array([1.1, 0.01, -0.01]),
        )
        for _ in poses[1:]
    ]
    table = LandmarkTable.of_images([*images, ImageLandmarks.none()])
    camera = PinholeCamera.from_focal(96, 80, 70.0, (-0.1, 0.01, 0.0, 0.0))
    return LandmarkDescription(camera, Mount.ahead(1.1)).with_table(table, poses)
