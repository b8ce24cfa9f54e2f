import numpy as np
import pytest
from scipy.stats import f, multivariate_t

from kbf_localization.landmarks.bearings import bearings_of, spatial
from kbf_localization.landmarks.calibration import (
    CovarianceModel,
    EvidenceModel,
    HeldOutImage,
    calibrate,
    features,
    fit_covariance,
    fit_likelihood_ratio,
    view_distance,
)
from kbf_localization.landmarks.pose_solver import LandmarkSolver
from test.landmarks.scene import CAMERA, LEVEL, Room


def test_the_model_that_drew_the_errors_is_found_again():
    rng = np.random.default_rng(60)
    truth = CovarianceModel(kappa2=9.0, floor_m=0.02, floor_rad=0.005, growth=3.0)
    claimed, errors = [], []
    distances = rng.uniform(0.0, 1.2, 600)
    for distance in distances:
        sigma = np.array([0.01, 0.01, 0.003]) * rng.uniform(0.3, 2.0)
        claimed.append(np.diag(sigma**2))
        # 98 % of F(2, 4) are below 12.14, where m² = 2 F is 9 in units of the covariance.
        shape = truth.covariance(claimed[-1], distance) * 9.0 / (2.0 * f.ppf(0.98, 2, 4))
        errors.append(multivariate_t(np.zeros(3), shape, df=4, seed=rng).rvs())
    found = fit_covariance(np.array(errors), np.array(claimed), distances)
    for distance in (0.1, 1.0):
        expected = np.sqrt(np.diag(truth.covariance(claimed[0], distance)))
        calibration = np.sqrt(np.diag(found.covariance(claimed[0], distance)))
        np.testing.assert_allclose(calibration, expected, rtol=0.25)


def test_covariance_grows_with_the_distance_to_the_map():
    model, claimed = CovarianceModel(), np.eye(3) * 1e-6
    near, far = model.covariance(claimed, 0.0), model.covariance(claimed, 1.0)
    assert (np.linalg.eigvalsh(far - near) > 0.0).all()
    assert np.isfinite(model.covariance(claimed, np.nan)).all()


def test_evidence_is_the_log_ratio_of_two_gaussians():
    """Two Gaussians with equal variances have a log-likelihood ratio linear in the feature."""
    rng = np.random.default_rng(61)
    count, mean = 20000, 1.5

    def drawn(centre, number):
        inputs = np.zeros((number, 4))
        inputs[:, 0], inputs[:, 1] = 1.0, rng.normal(centre, 1.0, number)
        return inputs

    # The classes' sizes must not matter.
    model = fit_likelihood_ratio(drawn(mean, count), drawn(-mean, count // 4))
    assert model.by_inliers == pytest.approx(2.0 * mean, rel=0.05)
    assert model.offset == pytest.approx(0.0, abs=0.1)


def test_separable_examples_have_a_finite_fit():
    right, wrong = np.tile([1.0, 5.0, 0.6, -0.5], (20, 1)), np.tile([1.0, 1.0, 0.0, -3.0], (20, 1))
    model = fit_likelihood_ratio(right, wrong)
    weights = np.array([model.offset, model.by_inliers, model.by_matched, model.by_spread])
    assert np.isfinite(weights).all() and np.abs(weights).max() < 50.0
    assert right[0] @ weights > 1.0 > -1.0 > wrong[0] @ weights


def test_by_default_a_missing_fix_is_neutral():
    assert EvidenceModel().log_ratio(None) == 0.0
    assert np.isfinite(features(None)).all()


def test_distance_counts_a_radian_as_a_metre():
    poses = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0 * np.pi + 1.0]])
    np.testing.assert_allclose(view_distance(poses, np.zeros(3)), [5.0, 1.0])


def test_held_out_images_teach_both_models():
    rng = np.random.default_rng(62)
    room = Room.of_seed(63, count=160)
    spots = np.column_stack((rng.uniform(-1, 1, (12, 2)), rng.normal(0, 0.1, 12)))
    # Map images 12 to 15 show other points at another place.
    other = Room.of_seed(64, count=160)
    poses = np.concatenate((spots, spots[:4] + np.array([30.0, 0.0, 0.0])))
    tables = [room.table(spots, 0.01, rng), other.table(spots[:4], 0.01, rng)]
    pieces = [table.image(row) for table in tables for row in range(len(table))]
    table = type(tables[0]).of_images(pieces)
    solver = LandmarkSolver(table, poses, 0.3)
    images = []
    for _ in range(16):
        pose = np.array([*rng.uniform(-0.8, 0.8, 2), rng.normal(0, 0.05)])
        found, _ = room.image(spatial(pose), 0.3, rng)
        bearings = bearings_of(found.pixels, CAMERA, LEVEL)
        wrong = np.arange(12, 16)
        images.append(HeldOutImage(bearings, found.descriptors, pose, 0, wrong))
    calibration = calibrate(solver, np.zeros(16, dtype=np.intp), images)
    assert calibration.examples >= 14
    fix = solver.measure(
        images[0].bearings, images[0].descriptors, np.arange(4), images[0].pose, np.eye(3) * 0.01
    )
    assert calibration.evidence.log_ratio(fix) > 1.0
    assert calibration.evidence.log_ratio(None) < -1.0
    assert calibrate(solver, np.zeros(16, dtype=np.intp), []).examples == 0
