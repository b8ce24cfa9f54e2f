"""Thresholds that a map learns from its own drives."""

import numpy as np
import pytest

from kbf_localization.datasets.open import open_drive
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localizer, State
from kbf_localization.localization.calibration import calibrate
from kbf_localization.training_map import build_map, with_parameters


@pytest.fixture(scope="module")
def drives(office_drives):
    return [open_drive(path) for path in office_drives]


@pytest.fixture(scope="module")
def calibrated(drives):
    bare = build_map(drives, poses=150)
    return with_parameters(bare, bare.parameters, calibrate(bare, drives))


def test_what_is_learned_is_finite_and_in_its_range(calibrated):
    learned = calibrated.thresholds
    assert 0.0 < learned["lost_share"] < 1.0
    assert 0.0 < learned["tracking_share"] <= 0.5
    assert 0.0 < learned["usual_evidence"] <= 1.0
    assert 0.0 < learned["least_similarity"] < 1.0
    assert learned["jump_m"] > 0.0 and learned["covariance_scale"] >= 1.0


def test_too_short_drives_teach_nothing(drives):
    class Short:
        def __init__(self, drive, count):
            self._drive, self._count = drive, count

        def __getattr__(self, name):
            value = getattr(self._drive, name)
            return value[: self._count] if name in ("stamps_ns", "poses", "labels") else value

        def __len__(self):
            return self._count

    short = [Short(drive, 15) for drive in drives]
    assert calibrate(build_map(short, poses=20, words=20), short) == {}


def located(training_map, drive, images):
    """The localizations of a drive's frames, with `images` in place of some of them."""
    localizer = Localizer(training_map, make_filter("kbf", training_map))
    for stamp, pose in zip(drive.odometry.stamps_ns, drive.odometry.poses, strict=True):
        localizer.add_odometry(int(stamp), pose)
    said = []
    for index, image in drive.images():
        one = localizer.add_image(int(drive.stamps_ns[index]), images.get(index, image))
        said.append(one)
    return said


def nonsense(kind, shape):
    if kind == "black":
        return np.zeros(shape, np.uint8)
    if kind == "white":
        return np.full(shape, 255, np.uint8)
    return np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)


@pytest.mark.parametrize("kind", ["black", "white", "noise"])
def test_nonsense_does_not_relocate_the_robot_and_its_uncertainty_grows(calibrated, drives, kind):
    drive = drives[0]
    _, first = next(iter(drive.images([0])))
    covered = {index: nonsense(kind, first.shape) for index in range(60, 80)}
    said = located(calibrated, drive, covered)
    before, during = said[59], said[60:80]
    assert before.state is State.TRACKING
    assert all("image_like_nothing" in one.estimate.events for one in during)
    steps = np.diff([one.pose[:2] for one in (before, *during)], axis=0)
    assert np.hypot(*steps.T).max() < 0.3
    sigmas = [np.trace(one.covariance[:2, :2]) for one in (before, *during)]
    assert (np.diff(sigmas) >= 0.0).all()
    assert said[95].state is State.TRACKING


def test_a_camera_that_stays_covered_ends_in_lost_with_a_wide_covariance(calibrated, drives):
    drive = drives[0]
    _, first = next(iter(drive.images([0])))
    said = located(calibrated, drive, dict.fromkeys(range(60, 150), np.zeros_like(first)))
    assert said[-1].state is State.LOST
    assert np.sqrt(np.diag(said[-1].published_covariance))[:2].min() > 1.0
