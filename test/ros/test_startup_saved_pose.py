"""The pose that survives a restart."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbf_localization.filters.base import GaussianPrior
from kbf_localization.ros.startup import SavedPoseError, load_pose, save_pose, usable_pose
from test.ros.robot import PATIENCE, robot_with_node
from test.ros.world import World

PRIOR = GaussianPrior(np.array([1.0, -2.0, 0.5]), np.diag([0.1, 0.2, 0.05]))


def test_saved_pose_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "pose.json"
    save_pose(path, PRIOR, "office")
    prior = usable_pose(path, "office", max_age=10.0)
    np.testing.assert_array_equal(prior.pose, PRIOR.pose)
    np.testing.assert_array_equal(prior.covariance, PRIOR.covariance)
    assert list(tmp_path.iterdir()) == [path]


def test_pose_of_another_map_is_not_used(tmp_path: Path) -> None:
    save_pose(tmp_path / "pose.json", PRIOR, "office")
    with pytest.raises(SavedPoseError, match="another map"):
        usable_pose(tmp_path / "pose.json", "warehouse", max_age=10.0)


@pytest.mark.parametrize("age", [100.0, -100.0])
def test_old_pose_and_pose_from_the_future_are_not_used(tmp_path: Path, age: float) -> None:
    path = tmp_path / "pose.json"
    save_pose(path, PRIOR, "office")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "saved_at": time.time() - age}))
    with pytest.raises(SavedPoseError, match="s old"):
        usable_pose(path, "office", max_age=10.0)


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "pose.json"
    with pytest.raises(SavedPoseError, match=str(path)):
        save_pose(path, PRIOR, "office")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(
    st.binary(max_size=100)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries(
        {
            "pose": st.lists(st.floats(), min_size=2, max_size=4),
            "covariance": st.lists(st.floats(), min_size=9, max_size=9),
            "map": st.text(max_size=3),
            "saved_at": st.floats(),
        }
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_file_gives_a_finite_pose_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile-pose.json"
    path.write_bytes(content)
    try:
        saved = load_pose(path)
    except SavedPoseError:
        return
    assert np.isfinite(saved.prior.pose).all()
    assert np.linalg.eigvalsh(saved.prior.covariance)[0] >= 0.0


def test_node_starts_where_it_was_stopped(world: World, map_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "pose.json"
    # At a rate of 0 the pose is saved when the node ends, and not before.
    parameters = {"map": str(map_file), "saved_pose_file": str(path), "save_pose_rate": 0.0}
    with robot_with_node(world, parameters) as (robot, process):
        robot.wait_until_heard()
        robot.drive_until_tracking()
        where = robot.metres
        assert not path.exists()
        assert process.interrupt(PATIENCE) == 0
    assert np.hypot(*(load_pose(path).prior.pose[:2] - world.route(where)[:2])) < 0.5
    with robot_with_node(world, parameters) as (robot, process):
        robot.metres = where
        robot.wait_until_heard()
        assert "starting from the pose saved" in process.log()
        assert robot.frame() is not None
        assert robot.error() < 0.5
        assert robot.transform_comes()
