import numpy as np
from scipy.spatial.transform import Rotation

from kbf_localization.landmarks.bearings import (
    Bearings,
    bearings_of,
    in_base,
    rotations,
)
from test.landmarks.plain_formulas import linearize, linearize_points, residuals
from test.landmarks.scene import CAMERA, LEVEL, Room

STATE = np.array([0.3, -0.2, 0.4, 0.02, 0.03, -0.05])


def test_rotation_is_heading_after_pitch_after_roll():
    expected = Rotation.from_euler("ZYX", [STATE[2], STATE[4], STATE[5]]).as_matrix()
    np.testing.assert_allclose(rotations(STATE), expected, atol=1e-12)


def test_true_points_have_no_residual_and_one_pixel_off_is_one_pixel():
    room = Room.of_seed(1)
    found, rows = room.image(STATE)
    bearings = bearings_of(found.pixels, CAMERA, LEVEL)
    np.testing.assert_allclose(residuals(STATE, room.points[rows], bearings), 0.0, atol=1e-9)
    # In the middle of the image a pinhole's pixel is an angle of 1 / focal length.
    middle = np.array([[160.0, 120.0], [161.0, 120.0]])
    moved = bearings_of(middle, CAMERA, LEVEL)
    ahead = LEVEL.translation + 3.0 * moved.axes[0, 0]
    off = residuals(np.zeros(6), ahead[None], moved[1:])
    np.testing.assert_allclose(np.linalg.norm(off), 1.0, rtol=1e-3)


def test_derivatives_equal_differences():
    room = Room.of_seed(2, count=50)
    found, rows = room.image(STATE)
    bearings = bearings_of(found.pixels, CAMERA, LEVEL)
    state = STATE + np.array([0.02, 0.01, 0.01, -0.01, 0.01, 0.005])
    points = room.points[rows]
    lin = linearize(state, points, bearings)
    alone = linearize_points(state, points, bearings)
    np.testing.assert_array_equal(alone[0], lin.residuals)
    np.testing.assert_array_equal(alone[1], lin.by_point)
    step = 1e-6
    for k in range(6):
        ahead, behind = (
            residuals(state + s * step * np.eye(6)[k], points, bearings) for s in (1, -1)
        )
        np.testing.assert_allclose(lin.by_state[..., k], (ahead - behind) / (2 * step), atol=1e-3)
    for k in range(3):
        ahead, behind = (
            residuals(state, points + s * step * np.eye(3)[k], bearings) for s in (1, -1)
        )
        np.testing.assert_allclose(lin.by_point[..., k], (ahead - behind) / (2 * step), atol=1e-3)


def test_points_behind_the_camera_are_outliers_without_influence():
    bearings = bearings_of(np.array([[160.0, 120.0]]), CAMERA, LEVEL)
    lin = linearize(np.zeros(6), np.array([[-3.0, 0.0, 1.1]]), bearings)
    assert (lin.residuals > 1e5).all()
    assert (lin.by_state == 0.0).all() and (lin.by_point == 0.0).all()


def test_pixels_without_a_ray_have_no_scale():
    class Blind:
        def rays(self, pixels):
            return np.full((len(pixels), 3), np.nan)

        def pixels_per_radian(self, pixels):
            return np.full(len(pixels), np.nan)

    bearings = bearings_of(np.zeros((2, 2)), Blind(), LEVEL)
    assert (bearings.scale == 0.0).all() and np.isfinite(bearings.axes).all()


def test_in_base_inverts_the_pose():
    points = np.array([[1.0, 2.0, 0.5]])
    back = in_base(STATE, points) @ rotations(STATE).T + STATE[[0, 1, 3]]
    np.testing.assert_allclose(back, points, atol=1e-12)


def test_the_field_of_view_holds_the_keypoints_and_no_more():
    """By azimuths and slopes one by one; a pixel without a ray does not widen it."""
    generator = np.random.default_rng(2)
    pixels = generator.uniform((20.0, 20.0), (300.0, 220.0), (60, 2))
    bearings = bearings_of(pixels, CAMERA, LEVEL)
    rays = bearings.axes[:, 0]
    view = bearings.field_of_view
    assert view.holds(rays).all()
    azimuths = np.arctan2(rays[:, 1], rays[:, 0])
    edge = max(abs(azimuths - np.arctan2(*rays.mean(axis=0)[1::-1])))
    np.testing.assert_allclose(view.half, edge, rtol=1e-12)
    assert (view.lowest, view.highest) == (rays[:, 2].min(), rays[:, 2].max())
    behind, above = rays * (-1.0, -1.0, 1.0), rays + np.array([0.0, 0.0, 2.0])
    assert not view.holds(behind).any() and not view.holds(above).any()
    none = Bearings(
        np.concatenate((bearings.axes, -bearings.axes[:1])),
        np.append(bearings.scale, 0.0),
        bearings.centre,
    )
    assert none.field_of_view == view


def test_cells_divide_the_keypoints_directions_by_four_along_each_axis():
    across, slopes = np.meshgrid(np.linspace(-0.4, 0.4, 9), np.linspace(-0.3, 0.3, 9))
    level = np.sqrt(1.0 - slopes.ravel() ** 2)
    rays = np.stack(
        (level * np.cos(across.ravel()), level * np.sin(across.ravel()), slopes.ravel())
    )
    axes = np.repeat(rays.T[:, None], 3, axis=1)
    cells = Bearings(axes, np.ones(81), np.zeros(3)).cells.reshape(9, 9)
    # The borders at a quarter, the half and three quarters lie on directions: those in between.
    column = [0, 0, 1, 1, 2, 2, 3, 3, 3]
    inner = np.array([1, 3, 5, 7])
    expected = np.add.outer(column, 4 * np.array(column))
    np.testing.assert_array_equal(cells[np.ix_(inner, inner)], expected[np.ix_(inner, inner)])
