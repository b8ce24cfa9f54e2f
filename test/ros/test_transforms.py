"""Transforms of tf: the odometry's chain and the camera's mount."""

import math

import numpy as np
import pytest
from geometry_msgs.msg import TransformStamped
from scipy.spatial.transform import Rotation

from kbf_localization.ros import transforms
from kbf_localization.ros.conversions import transform_message
from kbf_localization.ros.transforms import MountLookup, TransformChain
from kbf_localization.vision.camera import Mount


def edge(parent: str, child: str, pose: tuple[float, float, float]) -> TransformStamped:
    return transform_message(parent, child, 1, np.array(pose))


def test_pose_of_the_base_comes_through_the_chain_of_transforms() -> None:
    """odom → wheels → base, the last one fixed; by hand: turned left, the base is to the left."""
    chain = TransformChain("odom", "base")
    assert chain.add(edge("wheels", "base", (1.0, 0.0, 0.0))) is None
    pose = chain.add(edge("odom", "/wheels", (3.0, 4.0, math.pi / 2)))
    np.testing.assert_allclose(pose, [3.0, 5.0, math.pi / 2], atol=1e-12)
    assert chain.add(edge("map", "odom", (9.0, 9.0, 0.0))) is None
    assert chain.add(edge("base", "camera", (0.1, 0.0, 0.0))) is None


def test_transforms_that_loop_are_named() -> None:
    chain = TransformChain("odom", "base")
    chain.add(edge("wheels", "base", (1.0, 0.0, 0.0)))
    with pytest.raises(ValueError, match="base → wheels → base"):
        chain.add(edge("base", "wheels", (1.0, 0.0, 0.0)))
    np.testing.assert_allclose(chain.add(edge("odom", "wheels", (0.0, 0.0, 0.0))), [1.0, 0.0, 0.0])


def test_tf_with_ever_new_frames_does_not_fill_the_memory_nor_hide_the_robots_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever is first: frames that lead nowhere are replaced by newer frames."""
    monkeypatch.setattr(transforms, "MAX_FRAMES", 3)
    chain = TransformChain("odom", "base")
    for child in "abcdef":
        assert chain.add(edge("odom", child, (1.0, 0.0, 0.0))) is None
    assert chain.add(edge("wheels", "base", (1.0, 0.0, 0.0))) is None
    for child in "abcdef":
        assert chain.add(edge("odom", child, (1.0, 0.0, 0.0))) is None
    pose = chain.add(edge("odom", "wheels", (2.0, 0.0, 0.0)))
    np.testing.assert_allclose(pose, [3.0, 0.0, 0.0])
    assert len(chain._tree) == 3


def test_a_tree_of_thousands_of_frames_above_the_base_is_refused_soon() -> None:
    """Each of the transforms is one step more, and must not be as much work as all before it."""
    chain = TransformChain("odom", "base")
    chain.add(edge("0", "base", (1.0, 0.0, 0.0)))
    for number in range(transforms.MAX_LINKS - 2):
        assert chain.add(edge(str(number + 1), str(number), (1.0, 0.0, 0.0))) is None
    for number in range(transforms.MAX_LINKS - 1, 3000):
        with pytest.raises(ValueError, match="more than 100 frames above base"):
            chain.add(edge(str(number), str(number - 1), (1.0, 0.0, 0.0)))
    np.testing.assert_allclose(chain.add(edge("odom", "base", (1.0, 0.0, 0.0))), [1.0, 0.0, 0.0])


def test_a_frame_of_a_megabytes_name_is_refused() -> None:
    chain = TransformChain("odom", "base")
    with pytest.raises(ValueError, match="more than 1000 characters"):
        chain.add(edge("odom", "x" * 1_000_000, (1.0, 0.0, 0.0)))


def placed(parent: str, child: str, matrix: np.ndarray) -> TransformStamped:
    """The rigid transform (4, 4) of `child` in `parent` as a message."""
    message = TransformStamped(child_frame_id=child)
    message.header.frame_id = parent
    at, turn = message.transform.translation, message.transform.rotation
    at.x, at.y, at.z = matrix[:3, 3].tolist()
    turn.x, turn.y, turn.z, turn.w = Rotation.from_matrix(matrix[:3, :3]).as_quat().tolist()
    return message


def rigid(rng: np.random.Generator) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.random(random_state=int(rng.integers(1 << 30))).as_matrix()
    matrix[:3, 3] = rng.uniform(-1.0, 1.0, 3)
    return matrix


def as_matrix(mount: transforms.MountTransform) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_quat(mount.quaternion).as_matrix()
    matrix[:3, 3] = mount.translation
    return matrix


@pytest.mark.parametrize("seed", range(3))
def test_mount_is_the_product_of_the_matrices_between_base_and_camera(seed: int) -> None:
    """Base and camera on two branches: footprint ← body → head → camera."""
    rng = np.random.default_rng(seed)
    body_footprint, body_head, head_camera, odom_body = (rigid(rng) for _ in range(4))
    lookup, camera = MountLookup("footprint"), "camera_optical"
    assert lookup.find(camera) is None
    for transform in (
        placed("head", f"/{camera}", head_camera),
        placed("odom", "body", odom_body),
        placed("body", "footprint", body_footprint),
    ):
        lookup.add(transform, camera)
        assert lookup.find(camera) is None
    lookup.add(placed("/body", "head", body_head), camera)
    mount = lookup.find(camera)
    assert mount is not None
    expected = np.linalg.inv(body_footprint) @ body_head @ head_camera
    np.testing.assert_allclose(as_matrix(mount), expected, atol=1e-12)


def test_camera_in_the_bases_own_frame_looks_ahead_from_its_origin() -> None:
    mount = MountLookup("base").find("base")
    assert mount is not None
    np.testing.assert_array_equal(mount.translation, np.zeros(3))
    # REP 103: an optical frame has x to the right, y down and z ahead.
    expected = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    np.testing.assert_allclose(as_matrix(mount)[:3, :3], expected, atol=1e-12)


@pytest.mark.parametrize(("roll", "upside_down"), [(0.0, False), (np.pi, True)])
def test_a_frame_that_is_upright_is_the_cameras_body_unless_it_is_called_optical(
    roll: float, upside_down: bool
) -> None:
    """By hand: a body that is turned left by 0.3 looks there, whatever its roll."""
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("ZX", [0.3, roll]).as_matrix()
    for frame in ("camera_link", "camera_optical_frame"):
        lookup = MountLookup("base")
        lookup.add(placed("base", frame, matrix), frame)
        found = lookup.find(frame)
        assert found is not None
        mount = Mount.from_transform(found.translation, found.quaternion)
        if frame == "camera_link":
            np.testing.assert_allclose(
                mount.rotation[:, 2], [np.cos(0.3), np.sin(0.3), 0.0], atol=1e-12
            )
            assert mount.is_upside_down == upside_down
        else:
            np.testing.assert_allclose(mount.rotation, matrix[:3, :3], atol=1e-12)


def test_a_mount_may_move_where_a_joint_of_tf_is_between_base_and_camera() -> None:
    lookup = MountLookup("base")
    lookup.add(placed("base", "mast", np.eye(4)), "camera", static=True)
    lookup.add(placed("mast", "camera", np.eye(4)), "camera", static=True)
    lookup.add(placed("odom", "base", np.eye(4)), "camera")
    assert not lookup.may_move("camera")
    lookup.add(placed("base", "mast", np.eye(4)), "camera")
    assert lookup.may_move("camera")
    assert not lookup.may_move("elsewhere")


def test_transforms_that_loop_are_no_mount() -> None:
    lookup = MountLookup("base")
    lookup.add(placed("b", "camera", np.eye(4)), "camera")
    lookup.add(placed("camera", "b", np.eye(4)), "camera")
    assert lookup.find("camera") is None


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_transform_that_is_not_finite_is_no_mount(value: float) -> None:
    transform = placed("base", "camera", np.eye(4))
    transform.transform.translation.x = value
    lookup = MountLookup("base")
    with pytest.raises(ValueError, match="not finite"):
        lookup.add(transform, "camera")
    transform = placed("base", "camera", np.eye(4))
    transform.transform.rotation.w = value
    with pytest.raises(ValueError, match="no unit quaternion"):
        lookup.add(transform, "camera")
    assert lookup.find("camera") is None


def test_mount_a_kilometre_away_is_refused() -> None:
    matrix = np.eye(4)
    matrix[0, 3] = 1000.0
    lookup = MountLookup("base")
    lookup.add(placed("base", "camera", matrix), "camera")
    with pytest.raises(ValueError, match="1000 m from the base"):
        lookup.find("camera")


def test_frames_of_strangers_do_not_push_out_the_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "MAX_FRAMES", 4)
    lookup = MountLookup("base")
    lookup.add(placed("base", "mast", np.eye(4)), "camera")
    lookup.add(placed("mast", "camera", np.eye(4)), "camera")
    for number in range(20):
        lookup.add(placed("world", f"stranger{number}", np.eye(4)), "camera")
    assert lookup.find("camera") is not None
    assert len(lookup._tree) == len(lookup._transforms) == 4
