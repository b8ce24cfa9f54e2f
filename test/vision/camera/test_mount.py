"""Mounts against scipy's rotations."""

import json
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kbf_localization.errors import ParameterError
from kbf_localization.vision.camera.mount import Mount


def test_a_level_camera_looks_ahead_with_right_and_down_as_axes() -> None:
    mount = Mount.ahead(0.4)
    np.testing.assert_allclose(
        mount.to_base([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        [[0.0, -1.0, 0.4], [0.0, 0.0, -0.6], [1.0, 0.0, 0.4]],
    )
    assert not mount.is_upside_down


def test_a_transform_is_the_pose_of_the_optical_frame() -> None:
    random = np.random.default_rng(2)
    turn, move = Rotation.random(random_state=3), random.normal(size=3)
    mount = Mount.from_transform(move, turn.as_quat())
    points = random.normal(size=(7, 3))
    np.testing.assert_allclose(mount.to_base(points), turn.apply(points) + move)
    np.testing.assert_allclose(mount.to_optical(mount.to_base(points)), points)


@pytest.mark.parametrize("angles", [(0.0, 0.0, 0.0), (0.3, -0.2, 0.1), (-2.0, 1.2, 3.0)])
def test_angles_are_those_of_rep_103(angles: tuple[float, float, float]) -> None:
    mount = Mount.from_angles([0.1, 0.2, 0.3], *angles)
    turn = Rotation.from_euler("ZYX", angles)
    ahead = Mount.ahead().rotation
    np.testing.assert_allclose(mount.rotation, turn.as_matrix() @ ahead, atol=1e-12)
    np.testing.assert_allclose(mount.angles, angles, atol=1e-12)


def test_a_camera_pitched_down_sees_the_floor_ahead() -> None:
    mount = Mount.from_angles([0.0, 0.0, 1.0], pitch=np.pi / 4)
    np.testing.assert_allclose(mount.to_base([[0.0, 0.0, 2**0.5]]), [[1.0, 0.0, 0.0]], atol=1e-12)


def test_a_camera_upside_down_is_found_out() -> None:
    assert Mount.from_angles([0.0, 0.0, 1.0], roll=np.pi).is_upside_down


def test_what_is_stored_is_the_same_mount() -> None:
    mount = Mount.from_angles([0.1, 0.2, 0.3], 0.1, 0.2, 0.3)
    again = Mount.from_dict(json.loads(json.dumps(mount.to_dict())))
    assert again == mount and hash(again) == hash(mount)
    assert again != Mount.ahead()


def test_a_mount_cannot_be_changed() -> None:
    mount = Mount.ahead()
    with pytest.raises(ValueError, match="read-only"):
        mount.translation[0] = 1.0


STORED = Mount.ahead().to_dict()


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        {**STORED, "translation": [0.0, 0.0]},
        {**STORED, "translation": [0.0, 0.0, float("nan")]},
        {**STORED, "translation": [0.0, 0.0, 1e9]},
        {**STORED, "translation": "up"},
        {**STORED, "rotation": [[1.0, 0.0, 0.0]] * 3},
        {**STORED, "rotation": np.diag([1.0, 1.0, -1.0]).tolist()},
        {**STORED, "rotation": np.full((3, 3), np.nan).tolist()},
        {**STORED, "rotation": [[1.0], [2.0, 3.0]]},
    ],
    ids=range(10),
)
def test_a_hostile_mount_is_refused_by_name(stored: Any) -> None:
    with pytest.raises(ParameterError, match="mount"):
        Mount.from_dict(stored)


@pytest.mark.parametrize("quaternion", [(0, 0, 0, 0), (0, 0, 0, 9), (np.nan, 0, 0, 1), (0, 1)])
def test_what_is_no_rotation_is_no_mount(quaternion: Any) -> None:
    with pytest.raises(ParameterError, match="mount"):
        Mount.from_transform([0.0, 0.0, 0.0], quaternion)
