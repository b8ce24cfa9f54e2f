"""The replay: nothing is lost, threads do not change the result, and the node gives the same."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from kbf_localization.arrays import Image
from kbf_localization.evaluation.described_drive import (
    MIN_IMAGES_APART,
    DriveDescribedAhead,
    describe_drive,
    describe_images,
)
from kbf_localization.evaluation.description_cache import CachedDescriber, DescriptionCache
from kbf_localization.evaluation.evaluate import evaluate_drives
from kbf_localization.evaluation.run import Run, localize_drive, replay, with_beliefs
from kbf_localization.evaluation.stopwatch import Stopwatch
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization.localizer import Localizer
from kbf_localization.mapping import build_map
from kbf_localization.parallel import Cores
from kbf_localization.training_map import TrainingMap
from kbf_localization.vision.describer import ImageDescriber, ImageDescription
from kbf_localization.vision.visual_words import PyramidDescriber
from test.conftest import learning_quickly
from test.evaluation.synthetic import SyntheticDrive, synthetic_map, synthetic_run


@pytest.fixture(scope="module")
def drive() -> SyntheticDrive:
    return SyntheticDrive(30)


@pytest.fixture(scope="module")
def training_map() -> TrainingMap:
    with learning_quickly():
        return build_map([SyntheticDrive(60)], poses=30, words=10, seed=1)


def localizer(training_map: TrainingMap, method: str = "kbf") -> Localizer:
    return Localizer(training_map, make_filter(method, training_map))


def replayed(drive: SyntheticDrive, training_map: TrainingMap, method: str = "kbf") -> Run:
    described = describe_drive(drive, training_map.image_describer)
    return replay(described, localizer(training_map, method), method, keep_beliefs=True)


def test_every_image_gets_an_estimate_and_its_truth(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    described = describe_drive(drive, training_map.image_describer)
    run = replay(described, localizer(training_map, "nai"), "nai")
    assert np.array_equal(run.stamps_ns, drive.stamps_ns)
    assert run.truth is not None and np.array_equal(run.truth, drive.poses)
    assert run.frames_dropped == 0 and run.beliefs is None
    assert (run.step_ms >= described.describe_ms).all() and run.step_ms.min() > 0


def test_the_nearest_image_is_the_best_row(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    run = replayed(drive, training_map, "nai")
    assert run.best_rows is not None
    assert np.array_equal(run.estimates, training_map.poses[run.best_rows])


def test_beliefs_and_hypotheses_are_kept_when_asked_for(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    run = replayed(drive, training_map)
    assert run.beliefs is not None and run.hypotheses is not None
    assert len(run.beliefs) == len(run.hypotheses) == len(drive)
    for pose, hypotheses in zip(run.estimates, run.hypotheses, strict=True):
        assert any(np.array_equal(hypothesis.pose, pose) for hypothesis in hypotheses)


@pytest.fixture(scope="module")
def described_before(drive: SyntheticDrive, training_map: TrainingMap) -> Run:
    return replayed(drive, training_map)


@pytest.fixture(params=[1, 4])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of so many cores."""
    monkeypatch.setattr(os, "cpu_count", lambda: request.param)


@pytest.mark.usefixtures("machine")
def test_described_in_passing_or_before_gives_the_same(
    drive: SyntheticDrive, training_map: TrainingMap, described_before: Run
) -> None:
    passing = localize_drive(drive, localizer(training_map))
    poses = [localization.pose for _, localization, _, _ in passing if localization is not None]
    np.testing.assert_array_equal(poses, described_before.estimates)


@pytest.mark.usefixtures("machine")
def test_described_ahead_of_the_filter_or_before_it_gives_the_same_to_the_bit(
    drive: SyntheticDrive, training_map: TrainingMap, described_before: Run
) -> None:
    before = described_before
    ahead = DriveDescribedAhead(drive, training_map.image_describer, Stopwatch())
    runs = [
        replay(ahead, localizer(training_map), "kbf", keep_beliefs=True)
        for _ in ("described now", "kept")
    ]
    for run in runs:
        np.testing.assert_array_equal(run.estimates, before.estimates)
        np.testing.assert_array_equal(run.covariances, before.covariances)
        np.testing.assert_array_equal(run.evidence, before.evidence)
        assert run.states == before.states and run.counts == before.counts
    assert len(ahead.descriptions) == len(drive)


class NoWorkers:
    """Workers that are given nothing."""

    def map(self, function: Callable[..., object], items: Iterable[object]) -> Iterator[object]:
        raise AssertionError("nothing is left to describe")


def test_processes_describe_a_long_drive_as_this_process_does(training_map: TrainingMap) -> None:
    long, describer = SyntheticDrive(MIN_IMAGES_APART), ImageDescriber(training_map.described_by)
    found = describe_images(long, describer, workers=Cores(2))
    expected = describe_drive(long, describer).descriptions
    for (description, _), own in zip(found, expected, strict=True):
        assert_same_description(description, own)


def test_what_processes_describe_is_in_the_cache_of_this_process(
    training_map: TrainingMap, tmp_path: Path
) -> None:
    long, describer = SyntheticDrive(MIN_IMAGES_APART), ImageDescriber(training_map.described_by)
    with closing(DescriptionCache(tmp_path / "cache")) as cache:
        made = list(describe_images(long, CachedDescriber(describer, cache), workers=Cores(2)))
    with (
        closing(DescriptionCache(tmp_path / "cache")) as cache,
        mock.patch.object(PyramidDescriber, "describe_all", side_effect=AssertionError),
    ):
        kept = list(describe_images(long, CachedDescriber(describer, cache), workers=NoWorkers()))
    for (description, _), (own, _) in zip(kept, made, strict=True):
        assert_same_description(description, own)


def assert_same_description(found: ImageDescription | None, own: ImageDescription | None) -> None:
    """Assert that two descriptions are equal to the bit."""
    assert found is not None and own is not None
    assert found.keypoints is not None and own.keypoints is not None
    assert found.image_size == own.image_size
    np.testing.assert_array_equal(found.features, own.features)
    np.testing.assert_array_equal(found.words, own.words)
    np.testing.assert_array_equal(found.keypoints.pixels, own.keypoints.pixels)
    np.testing.assert_array_equal(found.keypoints.descriptors, own.keypoints.descriptors)


def test_processes_are_not_started_for_a_short_drive(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    assert len(drive) < MIN_IMAGES_APART
    found = describe_images(drive, training_map.image_describer, workers=NoWorkers())
    assert len(list(found)) == len(drive)


def test_all_methods_read_images_that_are_described_once(
    drive: SyntheticDrive, training_map: TrainingMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = []
    describe = ImageDescriber.describe

    def counted(describer: ImageDescriber, image: Image) -> ImageDescription:
        described.append(image)
        return describe(describer, image)

    monkeypatch.setattr(ImageDescriber, "describe", counted)
    (result,) = evaluate_drives([drive], training_map, ["nai", "nn"])
    assert len(described) == len(drive) == len(result.runs["nai"]) == len(result.runs["nn"])


def test_the_replay_gives_what_the_localizer_gives_when_fed_by_hand(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    by_hand = localizer(training_map)
    for stamp, pose in zip(drive.odometry.stamps_ns, drive.odometry.poses, strict=True):
        by_hand.add_odometry(int(stamp), pose)
    found = [
        by_hand.add_image(int(drive.stamps_ns[index]), image)
        for index, image in drive.images()
        if image is not None
    ]
    run = replayed(drive, training_map)
    assert np.array_equal(
        run.estimates, [localization.pose for localization in found if localization is not None]
    )


def test_a_part_of_a_drive_keeps_its_images_and_all_odometry(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    whole = describe_drive(drive, training_map.image_describer)
    part = whole.part(slice(5, None, 4))
    np.testing.assert_array_equal(part.stamps_ns, whole.stamps_ns[5::4])
    assert part.truth is not None
    np.testing.assert_array_equal(part.truth, drive.poses[5::4])
    assert part.descriptions == whole.descriptions[5::4]
    assert part.odometry is whole.odometry
    assert len(replay(part, localizer(training_map, "nai"))) == len(part) == 7


def test_an_image_that_cannot_be_decoded_is_counted(training_map: TrainingMap) -> None:
    class Damaged(SyntheticDrive):
        def images(
            self, indices: Sequence[int] | None = None
        ) -> Iterator[tuple[int, Image | None]]:
            for index, image in super().images(indices):
                yield index, None if index in (3, 4) else image

    run = replayed(Damaged(10), training_map, "nai")
    assert len(run) == 8 and run.frames_dropped == 2
    assert run.counts["image_invalid"] == 2


OFFLINE = synthetic_run(SyntheticDrive(10), synthetic_map(30).poses, "kbf")
NODE = replace(OFFLINE, method="node", beliefs=None, best_rows=None)


def test_a_node_that_agrees_gets_the_offline_beliefs() -> None:
    run, largest = with_beliefs(NODE, OFFLINE)
    assert largest == 0.0 and run.method == "node"
    assert run.beliefs is OFFLINE.beliefs and run.best_rows is OFFLINE.best_rows


def test_a_full_turn_of_heading_is_no_difference() -> None:
    turned = replace(NODE, estimates=NODE.estimates + np.array([0.0, 0.0, 2 * np.pi]))
    run, largest = with_beliefs(turned, OFFLINE)
    assert largest is not None and largest < 1e-12 and run.beliefs is not None


def test_another_pose_has_another_belief() -> None:
    run, largest = with_beliefs(replace(NODE, estimates=NODE.estimates + 1e-6), OFFLINE)
    assert largest is not None and largest > 5e-7 and run.beliefs is None


def test_a_dropped_frame_changes_every_belief_after_it() -> None:
    shorter = replace(NODE, stamps_ns=NODE.stamps_ns[1:], estimates=NODE.estimates[1:])
    assert with_beliefs(shorter, OFFLINE) == (shorter, None)
