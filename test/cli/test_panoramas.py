"""Drives whose images are panoramas, from `camera.yaml` or CameraInfo to centimetres."""

import json
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.camera_file import write_camera_file
from kbf_localization.datasets.open import open_drive
from kbf_localization.mapping import load_map
from kbf_localization.vision.camera import Mount, PanoramaCamera
from test.cli.kbf import done
from test.ros.world import World

pytestmark = pytest.mark.usefixtures("quick_learning")

CAMERAS = {
    "a mirrored cylinder": PanoramaCamera(480, 120, -480 / (2.0 * np.pi), 80.0, 100.0, 50.0),
    "equirectangular": PanoramaCamera.level(480, 120, "linear"),
}
YAW_RAD = 0.7


def panorama(world: World, camera: PanoramaCamera, pose: Array) -> Image:
    """What the world shows all round, by the camera's own rays."""
    across = camera.rays(np.column_stack([np.arange(480.0), np.full(480, camera.horizon_row)]))
    upright = camera.rays(np.column_stack([np.full(120, camera.ahead_column), np.arange(120.0)]))
    to_right = np.arctan2(across[:, 0], across[:, 2]) - YAW_RAD
    fall = upright[:, 1] / np.hypot(upright[:, 0], upright[:, 2])
    return world.seen(pose, to_right, np.repeat(fall[:, None], 480, axis=1))


@pytest.mark.parametrize("kind", CAMERAS)
def test_a_map_of_panoramas_measures_poses_to_a_centimetre(tmp_path: Path, kind: str) -> None:
    """The map's drive does not know how its camera is turned; the other is a bag with all of it."""
    world, camera = World(), CAMERAS[kind]
    seen = partial(panorama, world, camera)
    mapped = world.write_cold(tmp_path / "seq1_cloudy1", 45, 0.0, 0.0, seen)
    driven = world.write_cold(tmp_path / "seq1_cloudy2", 25, 0.55, 0.15, seen)
    write_camera_file(mapped / "camera.yaml", camera)
    turned = Mount.from_angles([0.0, 0.0, 1.2], yaw=YAW_RAD)
    write_camera_file(driven / "camera.yaml", camera, turned)
    done("convert", driven, tmp_path / "bag")
    assert open_drive(tmp_path / "bag").camera == camera
    built = done("map", "build", mapped, "--output", tmp_path / "round.kbfmap", "--jobs", 1)
    assert "learned from the drives: calibrated PanoramaCamera, looks" in " ".join(built.split())
    training_map = load_map(tmp_path / "round.kbfmap")
    thumbnail = cv2.imdecode(np.frombuffer(training_map.thumbnails[0], np.uint8), cv2.IMREAD_COLOR)
    assert thumbnail is not None
    assert thumbnail.shape[1] / thumbnail.shape[0] == pytest.approx(480 / 120, rel=0.02)
    landmarks = training_map.landmarks
    assert landmarks is not None and landmarks.camera == camera
    np.testing.assert_allclose(landmarks.mount.angles, [YAW_RAD, 0.0, 0.0], atol=0.01)
    done(
        *("evaluate", tmp_path / "bag", "--map", tmp_path / "round.kbfmap"),
        *("--no-report", "--output", tmp_path / "out"),
    )
    found = json.loads((tmp_path / "out" / "metrics.json").read_text())["methods"]["kbf"]
    assert found["position_rmse_m"] < 0.01
    assert found["share_tracking"] > 0.9
