"""Numbers in messages and in the saved pose that no robot sends."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from geometry_msgs.msg import Pose
from hypothesis import strategies as st

from kbf_localization.limits import MAX_COORDINATE_M
from kbf_localization.ros.conversions import planar_covariance, planar_pose
from kbf_localization.ros.startup import SavedPoseError, first_pose, load_pose
from test.fuzzing import changed_trees, edited, edits, fuzzed


@pytest.mark.parametrize("x", [1e308, -1e308, 1.1 * MAX_COORDINATE_M])
def test_a_position_beyond_any_map_is_refused(x: float) -> None:
    pose = Pose()
    pose.orientation.w, pose.position.x = 1.0, x
    with pytest.raises(ValueError, match="beyond"):
        planar_pose(pose)


@pytest.mark.parametrize("place", [0, 7, 35, 5])
def test_a_covariance_beyond_any_doubt_is_refused(place: int) -> None:
    values = np.diag(np.ones(6)).reshape(36)
    values[place] = 1e308
    with pytest.raises(ValueError, match="beyond"):
        planar_covariance(values)


GOOD = {"pose": [1, 2, 0.5], "covariance": [1, 0, 0, 0, 1, 0, 0, 0, 1], "map": "m", "saved_at": 1}


@pytest.mark.parametrize(
    "damaged",
    [
        {**GOOD, "pose": [10**400, 0, 0]},
        {**GOOD, "covariance": [10**400] * 9},
        {**GOOD, "saved_at": 10**400},
        {**GOOD, "pose": [1e300, 0, 0]},
        {**GOOD, "pose": [0, 0, 1e5]},
        {**GOOD, "covariance": [1e300, 0, 0, 0, 1, 0, 0, 0, 1]},
        {**GOOD, "covariance": [-1, 0, 0, 0, 1, 0, 0, 0, 1]},
        {**GOOD, "pose": [[1], [2], [[3]]]},
        [GOOD],
        7,
    ],
)
def test_a_damaged_saved_pose_is_one_line_and_the_node_starts_without_it(
    tmp_path: Path, damaged: object
) -> None:
    path = tmp_path / "pose.json"
    path.write_text(json.dumps(damaged))
    assert_is_left_out(path)


@pytest.mark.parametrize(
    "content",
    [b'{"pose": [' + b"9" * 5000 + b", 0, 0]}", b"[" * 50_000, b"\xff\xfe", b"", b"x" * 200_000],
)
def test_so_is_a_file_that_is_no_saved_pose(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pose.json"
    path.write_bytes(content)
    assert_is_left_out(path)


@fuzzed("saved pose", tree=changed_trees(GOOD), changes=edits | st.just([]))
def test_so_is_a_saved_pose_with_anything_changed(
    tmp_path: Path, tree: object, changes: list[tuple[float, int, bytes]]
) -> None:
    path = tmp_path / "pose.json"
    path.write_bytes(edited(json.dumps(tree).encode(), changes))
    try:
        saved = load_pose(path)
    except SavedPoseError as error:
        assert "\n" not in str(error)
    else:
        assert np.isfinite(saved.prior.pose).all()
        assert np.linalg.eigvalsh(saved.prior.covariance)[0] > 0.0


def test_so_are_a_pipe_and_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        assert_is_left_out(path)


def assert_is_left_out(path: Path) -> None:
    with pytest.raises(SavedPoseError) as raised:
        load_pose(path)
    assert "\n" not in str(raised.value)
    values = {
        "saved_pose_file": str(path),
        "always_reset_initial_pose": False,
        "saved_pose_max_age": 1e9,
        "set_initial_pose": False,
    }
    prior, said = first_pose(values, "m")
    assert prior is None
    assert said.endswith("starting from anywhere on the map")
