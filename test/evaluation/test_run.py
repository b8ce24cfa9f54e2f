"""The offline replay: nothing is lost, and neither threads nor company change what is said."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from kbf_localization.arrays import Image
from kbf_localization.evaluation.run import Run, replay_offline, replay_together
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization.localizer import Localizer
from kbf_localization.training_map import TrainingMap, build_map
from test.evaluation.synthetic import SyntheticDrive


@pytest.fixture(scope="module")
def drive() -> SyntheticDrive:
    return SyntheticDrive(30)


@pytest.fixture(scope="module")
def training_map() -> TrainingMap:
    return build_map([SyntheticDrive(60)], poses=30, words=10, seed=1)


def localizer(training_map: TrainingMap, method: str) -> Localizer:
    return Localizer(training_map, make_filter(method, training_map))


def same(first: Run, second: Run) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True)
        for name in ("stamps_ns", "estimates", "covariances", "evidence", "best_rows")
    )


def test_every_image_gets_an_estimate_and_its_truth(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    run = replay_offline(drive, localizer(training_map, "nai"), "nai")
    assert np.array_equal(run.stamps_ns, drive.stamps_ns)
    assert run.truth is not None and np.array_equal(run.truth, drive.poses)
    assert run.frames_dropped == 0 and run.beliefs is None
    assert run.step_ms.min() > 0


def test_the_nearest_image_is_the_best_row(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    run = replay_offline(drive, localizer(training_map, "nai"), "nai", keep_beliefs=True)
    assert run.best_rows is not None
    assert np.array_equal(run.estimates, training_map.poses[run.best_rows])


def test_threads_and_company_do_not_change_what_a_method_says(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    together = replay_together(
        drive,
        {method: localizer(training_map, method) for method in ("kbf", "nai")},
        keep_beliefs=True,
        threads=4,
    )
    for method in ("kbf", "nai"):
        alone = replay_together(
            drive, {method: localizer(training_map, method)}, keep_beliefs=True, threads=1
        )[method]
        assert same(together[method], alone)


def test_the_replay_says_what_the_localizer_says_when_fed_by_hand(
    drive: SyntheticDrive, training_map: TrainingMap
) -> None:
    by_hand = localizer(training_map, "kbf")
    for stamp, pose in zip(drive.odometry.stamps_ns, drive.odometry.poses, strict=True):
        by_hand.add_odometry(int(stamp), pose)
    said = [
        by_hand.add_image(int(drive.stamps_ns[index]), image)
        for index, image in drive.images()
        if image is not None
    ]
    run = replay_offline(drive, localizer(training_map, "kbf"), "kbf")
    assert np.array_equal(run.estimates, [one.pose for one in said if one is not None])


def test_an_image_that_cannot_be_decoded_is_counted(training_map: TrainingMap) -> None:
    class Damaged(SyntheticDrive):
        def images(
            self, indices: Sequence[int] | None = None
        ) -> Iterator[tuple[int, Image | None]]:
            for index, image in super().images(indices):
                yield index, None if index in (3, 4) else image

    run = replay_offline(Damaged(10), localizer(training_map, "nai"), "nai")
    assert len(run) == 8 and run.frames_dropped == 2
    assert run.counts["image_not_decodable"] == 2
