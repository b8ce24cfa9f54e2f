import numpy as np
import pytest
from scipy.optimize import least_squares

from kbf_localization.landmarks.adjustment import (
    POINT_PRIOR_M,
    PointGroup,
    adjust,
    eliminate,
)
from kbf_localization.landmarks.bearings import Bearings, bearings_of, spatial
from kbf_localization.landmarks.triangulation import ROBUST_CHI2
from test.landmarks.plain_formulas import linearize, residuals
from test.landmarks.scene import CAMERA, LEVEL, Room

POSES = np.array(
    [
        [0.0, 0.0, 0.0],
        [0.4, 0.2, 0.1],
        [-0.3, 0.3, -0.1],
        [0.1, -0.5, 0.2],
        [0.8, 0.1, 0.0],
        [0.5, -0.3, -0.1],
    ]
)


def scene(seed, noise_px=0.0, attitude=0.0):
    """True states, and two groups of points that all images see, as far as they do."""
    rng = np.random.default_rng(seed)
    room = Room.of_seed(seed, count=160)
    truth = spatial(POSES)
    truth[:, 4:] += rng.normal(0.0, attitude, (len(POSES), 2))
    groups = []
    for part in (slice(0, 80), slice(80, 160)):
        points = room.points[part]
        axes = np.zeros((len(POSES), 80, 3, 3))
        scale = np.zeros((len(POSES), 80))
        seen = np.zeros((len(POSES), 80), dtype=bool)
        for view, state in enumerate(truth):
            found, rows = Room(points, room.descriptors[part]).image(state, noise_px, rng)
            bearings = bearings_of(found.pixels, CAMERA, LEVEL)
            axes[view, rows], scale[view, rows] = bearings.axes, bearings.scale
            seen[view, rows] = True
        bearings = Bearings(axes, scale, LEVEL.translation)
        groups.append(PointGroup(np.arange(len(POSES)), bearings, seen, points))
    return truth, groups, rng


def moved_points(groups, rng, sigma_m):
    return [
        PointGroup(g.images, g.bearings, g.seen, g.points + rng.normal(0, sigma_m, g.points.shape))
        for g in groups
    ]


def first(bearings, count=12):
    return Bearings(bearings.axes[:, :count], bearings.scale[:, :count], bearings.centre)


def beyond_a_similarity(states, truth):
    """RMS distance after the best shift, turn and scaling, which images alone leave open."""
    found, true = states[:, 0] + 1j * states[:, 1], truth[:, 0] + 1j * truth[:, 1]
    design = np.column_stack((true, np.ones(len(true))))
    fitted = design @ np.linalg.lstsq(design, found, rcond=None)[0]
    return np.sqrt(np.mean(np.abs(found - fitted) ** 2))


def test_eliminated_points_leave_the_schur_complement_of_all_normal_equations():
    truth, groups, rng = scene(39, noise_px=0.5)
    states = truth + rng.normal(0.0, 0.01, truth.shape)
    (group,) = moved_points(groups[:1], rng, 0.05)
    views, count = group.seen.shape
    plain = linearize(states, np.broadcast_to(group.points, (views, count, 3)), group.bearings)
    # One row of the Jacobian for each pixel coordinate, by all states and then by all points.
    jacobian = np.zeros((views, count, 2, 6 * views + 3 * count))
    for view in range(views):
        jacobian[view, ..., 6 * view : 6 * view + 6] = plain.by_state[view]
        for point in range(count):
            at = 6 * views + 3 * point
            jacobian[view, point, :, at : at + 3] = plain.by_point[view, point]
    chi2 = (plain.residuals**2).sum(axis=-1) / 0.5**2
    root = np.where(group.seen, 1.0 / (0.5 * (1.0 + chi2 / ROBUST_CHI2)), 0.0)[..., None]
    rows = (jacobian * root[..., None]).reshape(-1, jacobian.shape[-1])
    normal, gradient = rows.T @ rows, rows.T @ (plain.residuals * root).ravel()
    own = 6 * views
    normal[own:, own:] += np.eye(3 * count) / POINT_PRIOR_M**2
    coupling = np.linalg.solve(normal[own:, own:], normal[own:, :own]).T
    part = eliminate(states, group, group.points, 0.5)
    expected = normal[:own, :own] - coupling @ normal[own:, :own]
    size = np.abs(normal).max()
    np.testing.assert_allclose(part.normal, expected, atol=1e-9 * size)
    expected = gradient[:own] - coupling @ gradient[own:]
    np.testing.assert_allclose(part.gradient, expected, atol=1e-9 * np.abs(gradient).max())
    change = rng.normal(0.0, 0.01, (views, 6))
    expected = np.linalg.solve(
        normal[own:, own:], gradient[own:] + normal[own:, :own] @ change.ravel()
    )
    moved = part.moved(group.points, change) - group.points
    np.testing.assert_allclose(moved, -expected.reshape(-1, 3), atol=1e-9)


def test_true_states_stay_where_they_are():
    truth, groups, _ = scene(40)
    found = adjust(truth, groups, 0.3)
    np.testing.assert_allclose(found.states, truth, atol=1e-7)
    assert len(found.misfits) == 0


def test_noisy_poses_come_nearer_to_the_truth():
    truth, groups, rng = scene(41, noise_px=0.2, attitude=0.003)
    given = spatial(POSES + rng.normal(0, [0.02, 0.02, 0.006], POSES.shape))
    groups = moved_points(groups, rng, 0.05)
    found = adjust(given, groups, 0.2, (0.02, 0.02, 0.006))
    assert beyond_a_similarity(found.states, truth) < 0.1 * beyond_a_similarity(given, truth)
    before, after = given - truth, found.states - truth
    before, after = before - before.mean(axis=0), after - after.mean(axis=0)
    assert np.abs(after[:, 2]).mean() < 0.4 * np.abs(before[:, 2]).mean()
    assert np.abs(after[:, 4]).mean() < 0.002


def test_the_result_is_the_least_squares_solution_of_all_unknowns_together():
    """With residuals far below ROBUST_CHI2 the weights are those of plain least squares."""
    truth, groups, rng = scene(42, noise_px=0.01)
    groups = [
        PointGroup(g.images, first(g.bearings), g.seen[:, :12], g.points[:12]) for g in groups
    ]
    given = spatial(POSES + rng.normal(0, 0.002, POSES.shape))
    sigma = np.array([0.01, 0.01, 0.004, 0.01, 0.01, 0.01])
    count = truth.size

    def cost(unknown):
        states, points = unknown[:count].reshape(-1, 6), unknown[count:].reshape(-1, 3)
        terms = [((states - given) / sigma).ravel()]
        for group, part in zip(groups, np.split(points, [12])):
            for view, state in enumerate(states):
                view_bearings = Bearings(
                    group.bearings.axes[view], group.bearings.scale[view], LEVEL.translation
                )
                off = residuals(state, part, view_bearings)[group.seen[view]] / 1.0
                terms.append(off.ravel())
        return np.concatenate(terms)

    start = np.concatenate([given.ravel(), *(g.points.ravel() for g in groups)])
    expected = least_squares(cost, start, xtol=1e-12, ftol=1e-12).x[:count].reshape(-1, 6)
    found = adjust(given, groups, 1.0, tighten=False)
    np.testing.assert_allclose(found.states, expected, atol=2e-4)


def test_an_image_with_a_wrong_pose_is_named():
    truth, groups, _ = scene(43, noise_px=0.2)
    given = truth.copy()
    given[3, :2] += [0.15, -0.1]
    found = adjust(given, groups, 0.2)
    assert found.misfits.tolist() == [3]
    assert beyond_a_similarity(found.states, truth) < 0.4 * beyond_a_similarity(given, truth)


def test_exact_poses_move_less_where_priors_are_tightened():
    truth, groups, _ = scene(45, noise_px=0.3)
    loose, tight = (adjust(truth, groups, 0.3, tighten=tighten) for tighten in (False, True))
    off = [np.abs(found.states - truth)[:, :3].mean() for found in (loose, tight)]
    assert off[1] < 0.9 * off[0]


@pytest.mark.parametrize("seen", [False, True])
def test_images_that_see_nothing_keep_their_priors(seen):
    truth, groups, _ = scene(44)
    blind = [
        PointGroup(g.images, g.bearings, g.seen & seen & (np.arange(80) < 1), g.points)
        for g in groups
    ]
    found = adjust(truth, blind, 0.3)
    np.testing.assert_allclose(found.states, truth, atol=1e-6)
    assert all(np.isfinite(points).all() for points in found.points)
