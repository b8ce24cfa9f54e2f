"""The conversions of docs/getting_poses.md give the pose that this package reads."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "getting_poses.md"
# A camera at (1, 2, 3) in the world, turned by any rotation; x right, y down, z forward.
CAMERA_TO_WORLD = Rotation.from_euler("zyx", [0.4, -0.7, 1.1])
POSITION = np.array([1.0, 2.0, 3.0])
EXPECTED = np.r_[POSITION, CAMERA_TO_WORLD.as_quat()]


def functions() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for source in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        exec(source, found)  # noqa: S102 (our own page)
    return found


def test_colmap_projects_a_point_as_the_camera_does() -> None:
    """COLMAP's x_camera = R x_world + t, in units of 0.5 m."""
    world_to_camera = CAMERA_TO_WORLD.inv()
    translation = -world_to_camera.apply(POSITION / 0.5)
    x, y, z, w = world_to_camera.as_quat()
    found = functions()["from_colmap"]((w, x, y, z), translation, 0.5)
    np.testing.assert_allclose(found[:3], POSITION)
    assert abs(found[3:] @ EXPECTED[3:]) > 1.0 - 1e-12


def test_arkits_axes_are_turned_about_x() -> None:
    transform = np.eye(4)
    ahead, down = CAMERA_TO_WORLD.apply([0, 0, 1]), CAMERA_TO_WORLD.apply([0, 1, 0])
    right = CAMERA_TO_WORLD.apply([1, 0, 0])
    transform[:3, :3] = np.column_stack([right, -down, -ahead])
    transform[:3, 3] = POSITION
    found = functions()["from_arkit"](transform)
    np.testing.assert_allclose(found[:3], POSITION)
    assert abs(found[3:] @ EXPECTED[3:]) > 1.0 - 1e-12
