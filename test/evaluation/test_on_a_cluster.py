"""Maps and tuning on a Dask cluster of two worker processes: the same as in this process."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.parts import DrivePart, parse_part
from kbf_localization.evaluation.cross_validation import tune
from kbf_localization.evaluation.frame_pool import describe_drives
from kbf_localization.mapping import build_map, held_out
from kbf_localization.parallel import DaskCluster, Serial
from kbf_localization.pose_graph.estimate import estimate_poses
from test.conftest import learning_quickly
from test.datasets.cold_folders import make_cold_drive


def learn_quickly() -> None:
    held_out.RUNS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    """Two workers that learn, as this process does, from a sixth of the images."""
    distributed = pytest.importorskip("distributed", reason="Dask is optional")
    with (
        learning_quickly(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as started,
    ):
        with distributed.Client(started) as client:
            client.run(learn_quickly)
        pool = DaskCluster(started.scheduler_address)
        yield pool
        pool.close()


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> list[ColdDrive]:
    """Two drives past the same wall, of 8 and 7 frames."""
    folder = tmp_path_factory.mktemp("drives")
    return [
        ColdDrive(make_cold_drive(folder / f"seq1_cloudy{number}", frames))
        for number, frames in ((1, 8), (2, 7))
    ]


def test_a_map_built_on_the_cluster_is_the_same_map(
    cluster: DaskCluster, drives: list[ColdDrive]
) -> None:
    here = build_map(drives, poses=6, words=20, seed=3, workers=Serial())
    there = build_map(drives, poses=6, words=20, seed=3, workers=cluster)
    assert there.identity == here.identity
    np.testing.assert_array_equal(there.features, here.features)
    np.testing.assert_array_equal(there.poses, here.poses)
    np.testing.assert_array_equal(there.motion_variances, here.motion_variances)
    assert list(there.thumbnails) == list(here.thumbnails)


@pytest.mark.slow
def test_landmarks_and_closures_on_the_cluster_are_the_same(
    cluster: DaskCluster, office_drives: tuple[Path, Path]
) -> None:
    parts = [DrivePart(ColdDrive(path), parse_part("0:0.25")) for path in office_drives]
    here, there = (
        build_map(parts[:1], poses=8, words=20, workers=workers, landmarks=True).landmarks
        for workers in (Serial(), cluster)
    )
    assert here is not None and there is not None
    rows, poses = np.arange(8), np.zeros((8, 3))
    np.testing.assert_array_equal(here.table.counts(), there.table.counts())
    assert here.table.counts().sum() > 100
    for name in ("descriptors", "points", "covariances", "attitudes"):
        ours, theirs = (getattr(item.table.place(rows, poses), name) for item in (here, there))
        np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-12)
    joined = [estimate_poses(parts, workers=workers) for workers in (Serial(), cluster)]
    assert joined[0].drives_joined == 2 and joined[0].closures
    assert len(joined[0].closures) == len(joined[1].closures)
    for ours, theirs in zip(*(item.trajectories for item in joined), strict=True):
        np.testing.assert_allclose(theirs.poses, ours.poses, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_tuning_on_the_cluster_finds_the_same(
    cluster: DaskCluster, drives: list[ColdDrive]
) -> None:
    pool = describe_drives(drives, words=20)
    here, there = (
        tune(pool, range(2), ["nai"], 6, budget=1, workers=workers)["nai"]
        for workers in (Serial(), cluster)
    )
    assert there.parameters == here.parameters
    # Worker processes may have another number of BLAS threads, which rounds sums differently.
    assert there.rmse_m == pytest.approx(here.rmse_m, rel=1e-9)
    assert there.default_rmse_m == pytest.approx(here.default_rmse_m, rel=1e-9)
