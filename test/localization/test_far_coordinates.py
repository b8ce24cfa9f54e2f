"""In UTM's frame, millions of metres off, everything is as it is at the origin, but moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.methods import METHODS
from kbf_localization.localization import Localizer
from kbf_localization.mapping import load_map
from kbf_localization.training_map import TrainingMap, save_map
from test.filters.synthetic_world import SyntheticDrive, World, drives_of_the_map, map_of

UTM = np.array([691_608.25, 5_334_764.5, 0.0])
STEPS = 25


def moved(training_map: TrainingMap) -> TrainingMap:
    return replace(
        training_map,
        poses=training_map.poses + UTM,
        next_poses=training_map.next_poses + UTM,
        trajectories=tuple(path + UTM for path in training_map.trajectories),
    )


def localized(
    training_map: TrainingMap, drive: SyntheticDrive, method: str, prior: GaussianPrior | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Poses (t, 3), covariances (t, 3, 3) and map→odom (t, 3)."""
    localizer = Localizer(training_map, method)
    odometry = drive.odometry
    for row in range(STEPS):
        stamp = int(odometry.stamps_ns[row]) + 1
        localizer.add_odometry(stamp, odometry.poses[row])
        if row == 0 and prior is not None:
            localizer.set_pose(prior)
        localizer.add_described(stamp, training_map.observe(drive.views[row]))
        assert localizer.last is not None
        yield localizer.last.pose, localizer.last.covariance, localizer.map_to_odom()


@pytest.mark.parametrize("given", [False, True], ids=["from anywhere", "from a given pose"])
@pytest.mark.parametrize("method", METHODS)
def test_a_filter_far_from_the_origin_gives_the_same_poses(
    tiny_map: TrainingMap, world_drive: SyntheticDrive, method: str, given: bool
) -> None:
    """To a thousandth of a millimetre: double precision resolves a nanometre there."""
    start = world_drive.poses[0]
    priors = [GaussianPrior(pose, 0.01 * np.eye(3)) for pose in (start, start + UTM)]
    maps = tiny_map, moved(tiny_map)
    runs = [
        localized(item, world_drive, method, prior if given else None)
        for item, prior in zip(maps, priors, strict=True)
    ]
    for (near, near_covariance, near_odom), (far, far_covariance, far_odom) in zip(*runs):
        np.testing.assert_allclose(far - UTM, near, rtol=0.0, atol=1e-6)
        scale = np.abs(near_covariance).max()
        np.testing.assert_allclose(far_covariance, near_covariance, atol=1e-5 * scale)
        assert (near_odom is None) == (far_odom is None)
        if near_odom is not None:
            np.testing.assert_allclose(far_odom - UTM, near_odom, rtol=0.0, atol=1e-6)


def numbers(tree: Any) -> list[float]:
    if isinstance(tree, dict):
        return [number for value in tree.values() for number in numbers(value)]
    if isinstance(tree, (tuple, list)):
        return [number for value in tree for number in numbers(value)]
    return [float(tree)] if isinstance(tree, (int, float)) else []


@pytest.mark.usefixtures("quick_learning")
def test_a_map_far_from_the_origin_learns_the_same_and_keeps_its_poses(
    world: World, tmp_path: Path
) -> None:
    drives = [replace(drive, poses=drive.poses[::3]) for drive in drives_of_the_map(world)]
    drives = [
        replace(item, motions=item.motions[: len(item) - 1], views=item.views[::3])
        for item in drives
    ]
    near = map_of(drives, 30)
    far = map_of([replace(item, poses=item.poses + UTM) for item in drives], 30)
    np.testing.assert_array_equal(far.poses, near.poses + UTM)
    np.testing.assert_allclose(
        numbers(asdict(far.calibration)), numbers(asdict(near.calibration)), rtol=1e-3, atol=1e-6
    )
    save_map(far, tmp_path / "far.kbfmap")
    np.testing.assert_array_equal(load_map(tmp_path / "far.kbfmap").poses, far.poses)
