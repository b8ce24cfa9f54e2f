"""The fault experiment: what each fault does to a drive, and how a run under it is scored."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import ParameterError
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.run import Run
from kbf_localization.experiments.faults import (
    BEGIN_S,
    FAULT_TITLES,
    MIN_IMAGES_AFTER_KIDNAPPING,
    Case,
    all_faults,
    check_faults,
    covered,
    crowd,
    dimmed,
    disturbed_images,
    frozen,
    kidnapped,
    late,
    mirrored,
    other_drives,
    upside_down,
    wrong_map,
)
from kbf_localization.experiments.faults_run import Outcome, metrics_of, score
from kbf_localization.geometry import relative
from kbf_localization.simulator.simulated_drives import simulate
from kbf_localization.training_map.calibration import SimilarityModel
from kbf_localization.vision.describer import ImageDescriber, ImageDescription

FRAME_NS = 200_000_000
FRAMES = 500


def drive():
    """Round a circle of 5 m at 0.5 m/s; the odometry is exact, in its own frame."""
    angle = np.arange(FRAMES) * 0.02
    truth = np.column_stack((5 * np.sin(angle), 5 - 5 * np.cos(angle), angle))
    stamps = np.arange(FRAMES) * FRAME_NS
    return DescribedDrive(
        name="round",
        condition=None,
        stamps_ns=stamps,
        truth=truth,
        odometry=OdometryLog(stamps, relative(np.array([1.0, 2.0, 0.5]), truth)),
        descriptions=tuple(ImageDescription(np.array([k])) for k in range(FRAMES)),
        describe_ms=np.zeros(FRAMES),
    )


@pytest.fixture
def building():
    """What the faults of odometry and stamps need of a building."""
    similarity = SimilarityModel(amplitude=0.9, distance_m=1.5, angle_rad=0.4, exponent=1.5)
    known = SimpleNamespace(
        poses=drive().truth[:400], calibration=SimpleNamespace(similarity=similarity)
    )
    return SimpleNamespace(described=(drive(),), training_map=known, seed=0)


def run(error, states):
    count = len(error)
    return Run(
        method="kbf",
        stamps_ns=np.arange(count) * FRAME_NS,
        estimates=np.column_stack((np.zeros(count), error, np.zeros(count))),
        covariances=np.tile(np.eye(3), (count, 1, 1)),
        truth=np.zeros((count, 3)),
        states=tuple(states),
        evidence=np.zeros(count),
        step_ms=np.zeros(count),
        odometry=np.zeros((count, 3)),
    )


def case(count, disturbed, no_pose_is_right=False):
    when = np.zeros(count, dtype=bool)
    when[disturbed] = True
    stamps = np.arange(count) * FRAME_NS
    return Case(SimpleNamespace(stamps_ns=stamps), None, when, no_pose_is_right)


def test_a_fault_that_passes_is_timed_from_its_beginning_and_from_its_end():
    states = ["tracking"] * 22 + ["lost"] * 18 + ["tracking"] * 10
    error = np.r_[np.zeros(20), np.full(18, 3.0), np.zeros(12)]
    metrics = score(run(error, states), case(50, slice(20, 30)))
    assert metrics["seconds_to_lost"] == pytest.approx(0.4)
    assert metrics["seconds_to_recover"] == pytest.approx(2.0)
    assert metrics["confident_wrong_share"] == pytest.approx(2 / 30)
    assert metrics["tracking_share"] == pytest.approx(12 / 30)
    assert metrics["false_lost"] == 0.0
    # Wheels at rest keep the right pose from before the fault.
    assert metrics["disturbed_rmse_m"] == pytest.approx(3.0)
    assert metrics["dead_reckoned_rmse_m"] == pytest.approx(0.0)


def test_lost_is_false_where_nothing_is_wrong():
    states = ["tracking"] * 5 + ["lost"] * 3 + ["tracking"] * 20 + ["lost"] * 22
    metrics = score(run(np.zeros(50), states), case(50, slice(25, 40)))
    assert metrics["false_lost"] == 1.0
    never_ending = score(run(np.zeros(50), states), case(50, slice(None)))
    assert never_ending["false_lost"] == 2.0 and never_ending["seconds_to_recover"] is None


def test_a_robot_that_never_comes_back_counts_as_lost_to_the_end():
    states = ["tracking"] * 10 + ["lost"] * 40
    metrics = score(run(np.full(50, 2.0), states), case(50, slice(10, 11)))
    assert metrics["seconds_to_lost"] == 0.0
    assert metrics["seconds_to_recover"] == pytest.approx(39 * 0.2)


def test_on_another_buildings_map_all_tracking_is_wrong():
    states = ["localizing"] * 10 + ["tracking"] * 4 + ["lost"] * 6
    metrics = score(run(np.zeros(20), states), case(20, slice(None), no_pose_is_right=True))
    assert metrics["confident_wrong_share"] == pytest.approx(0.2)
    assert metrics["seconds_to_lost"] == pytest.approx(0.8)


def test_never_tracking_is_never_confident():
    metrics = score(run(np.full(20, 9.0), ["localizing"] * 20), case(20, slice(None)))
    assert metrics["confident_wrong_share"] == 0.0 and metrics["seconds_to_lost"] is None


def test_metrics_have_mean_deviation_and_the_worst_run():
    def outcome(wrong, tracking, lost):
        metrics = {"confident_wrong_share": wrong, "tracking_share": tracking, "false_lost": 0.0}
        metrics |= {"seconds_to_lost": lost, "seconds_to_recover": None}
        metrics |= {"disturbed_rmse_m": 0.2, "dead_reckoned_rmse_m": None}
        return Outcome("dim", "office", 0, metrics)

    metrics = metrics_of([outcome(0.0, 0.9, None), outcome(0.1, 0.5, 3.0)])["dim"]
    assert metrics["confident_wrong_share"] == {"mean": 0.05, "std": 0.05, "worst": 0.1}
    assert metrics["tracking_share"]["worst"] == 0.5
    assert metrics["seconds_to_lost"] == {"mean": 3.0, "std": 0.0, "worst": 3.0}
    assert metrics["seconds_to_recover"] == {"mean": None, "std": None, "worst": None}


def test_faults_are_chosen_by_name():
    assert len(check_faults(None)) == 21
    assert check_faults("night, dim,night") == ["night", "dim"]
    assert check_faults("frozen_image,late_images") == ["frozen_picture", "late_pictures"]
    with pytest.raises(ParameterError, match="no fault is called 'fog'"):
        check_faults("fog")
    with pytest.raises(ParameterError, match="no fault is named"):
        check_faults(" , ")


def motions(log):
    return relative(log.poses[:-1], log.poses[1:])


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("odometry_scaled", (1.3, 1.3, 1.0)),
        ("odometry_heading_inverted", (1.0, 1.0, -1.0)),
        ("odometry_backwards", (-1.0, -1.0, 1.0)),
    ],
)
def test_wrong_odometry_errs_in_every_step(building, name, factors):
    (case,) = all_faults(1)[name](building, building)
    np.testing.assert_allclose(
        motions(case.drive.odometry), motions(drive().odometry) * np.array(factors), atol=1e-9
    )
    assert case.disturbed.all()


def test_frozen_odometry_goes_on_as_before_when_it_comes_back(building):
    (case,) = all_faults(1)["odometry_frozen"](building, building)
    found, ordinary = motions(case.drive.odometry), motions(drive().odometry)
    rows = np.flatnonzero(case.disturbed)
    assert len(rows) == 150 and rows[0] * 0.2 == BEGIN_S
    still = np.zeros(len(found), dtype=bool)
    still[rows[0] : rows[-1]] = True
    np.testing.assert_allclose(found[still], 0.0, atol=1e-9)
    np.testing.assert_allclose(found[~still], ordinary[~still], atol=1e-9)


def test_a_frozen_camera_repeats_one_image(building):
    (case,) = frozen(30.0, building, building)
    seen = np.array([int(image.features[0]) for image in case.drive.descriptions])
    assert set(seen[case.disturbed]) == {150}
    np.testing.assert_array_equal(seen[~case.disturbed], np.flatnonzero(~case.disturbed))


def test_late_images_show_where_the_robot_was(building):
    (case,) = late(0.4, building, building)
    seen = np.array([int(image.features[0]) for image in case.drive.descriptions])
    np.testing.assert_array_equal(case.drive.stamps_ns, (seen + 2) * FRAME_NS)
    np.testing.assert_allclose(relative(drive().truth[seen + 2], case.drive.truth), 0.0, atol=1e-9)


def test_each_kidnapping_is_a_run_of_its_own(building):
    cases = list(kidnapped(3, building, building))
    assert len(cases) == 3
    for case in cases:
        (seam,) = np.flatnonzero(case.disturbed)
        motion = case.drive.truth[seam, :2] - case.drive.truth[seam - 1, :2]
        assert np.hypot(*motion) >= 3.0
        assert len(case.drive) - seam >= MIN_IMAGES_AFTER_KIDNAPPING
        np.testing.assert_allclose(motions(case.drive.odometry)[seam - 1], 0.0, atol=1e-9)


IMAGE = np.random.default_rng(5).integers(0, 256, (240, 320)).astype(np.uint8)


@pytest.mark.parametrize("fraction", [0.5, 0.7])
def test_a_crowd_hides_its_fraction_of_the_pixels_and_moves(fraction):
    now, later = (crowd(fraction, IMAGE, at, np.random.default_rng(0)) for at in (0.0, 3.0))
    # A pixel behind the crowd may have the scene's grey by chance, one time in 256.
    assert fraction - 0.02 < np.mean(now != IMAGE) < fraction + 0.1
    assert np.mean((now != IMAGE) & (later == IMAGE)) > 0.05


def test_mounting_faults_turn_the_image():
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(mirrored(IMAGE, 0.0, rng)[3, 7], IMAGE[3, 320 - 1 - 7])
    np.testing.assert_array_equal(upside_down(IMAGE, 0.0, rng)[3, 7], IMAGE[240 - 1 - 3, 312])


def test_little_light_leaves_little_of_the_image():
    rng = np.random.default_rng(0)
    assert abs(np.corrcoef(covered(IMAGE, 0.0, rng).ravel(), IMAGE.ravel())[0, 1]) < 0.02
    dim = dimmed(IMAGE, 0.0, rng)
    assert dim.mean() == pytest.approx(0.25 * IMAGE.mean(), rel=0.05)
    assert np.corrcoef(dim.ravel(), IMAGE.ravel())[0, 1] > 0.9


class Brightness:
    """Describes an image by its mean."""

    def describe(self, image):
        return ImageDescription(np.array([int(image.mean())]))

    def describe_all(self, images):
        return [self.describe(image) for image in images]


def test_images_are_disturbed_before_they_are_described(building, tmp_path):
    (path,) = simulate(tmp_path, runs=1, frames=3, size=(64, 48))
    real = open_drive(path)
    described = DescribedDrive(
        real.name,
        None,
        BEGIN_S * 1e9 * np.arange(3),
        real.poses,
        real.odometry,
        tuple(ImageDescription(np.array([-1])) for _ in range(3)),
        np.zeros(3),
    )
    building.tests, building.described = (real,), (described,)
    building.training_map = SimpleNamespace(image_describer=Brightness())
    white = partial(np.full_like, fill_value=255)
    (case,) = disturbed_images(lambda image, *_: white(image), 20.0, building, building)
    assert [int(image.features[0]) for image in case.drive.descriptions] == [-1, 255, -1]


def test_drives_have_the_keypoints_that_landmarks_need(building, tmp_path):
    (path,) = simulate(tmp_path, runs=1, frames=3, size=(160, 120))
    drive = open_drive(path)
    building.training_map = SimpleNamespace(image_describer=ImageDescriber(Brightness()))
    building.tests, building.further = (drive,), {"night": (drive,)}
    building.described = (describe_drive(drive, building.training_map.image_describer),)
    for fault in (
        partial(other_drives, "night"),
        wrong_map,
        partial(disturbed_images, mirrored, float("inf")),
    ):
        (case,) = fault(building, building)
        assert all(len(image.keypoints) > 0 for image in case.drive.descriptions)


def test_a_turned_camera_sees_another_image_on_the_same_path(tmp_path):
    def rendered(name, turned):
        (path,) = simulate(
            tmp_path / name, runs=1, frames=2, size=(64, 48), camera_turned_rad=turned
        )
        opened = open_drive(path)
        return opened, np.stack([image for _, image in opened.images()]).astype(int)

    straight, ordinary = rendered("straight", 0.0)
    _, full_turn = rendered("full", 2 * np.pi)
    turned, other = rendered("turned", np.radians(20.0))
    assert np.abs(full_turn - ordinary).mean() < 1.0 < np.abs(other - ordinary).mean()
    np.testing.assert_array_equal(turned.poses, straight.poses)
    np.testing.assert_array_equal(turned.odometry.poses, straight.odometry.poses)


def test_every_fault_has_a_name_for_tables_and_plots():
    assert list(FAULT_TITLES) == list(all_faults(1))
