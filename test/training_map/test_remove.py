"""Drives and places taken out of a map."""

import numpy as np
import pytest

from kbf_localization.errors import MapError
from kbf_localization.training_map import TrainingMap, subset, without_thumbnails
from kbf_localization.training_map.remove import remove_box, remove_sources

pytestmark = pytest.mark.usefixtures("quick_learning")


def test_a_subset_keeps_rows_together(world_map: TrainingMap) -> None:
    rows = np.array([3, 70, 149])
    part = subset(world_map, rows)
    np.testing.assert_array_equal(part.poses, world_map.poses[rows])
    np.testing.assert_array_equal(part.features, world_map.features[rows])
    names = [world_map.sources[number].name for number in world_map.source_of[rows]]
    assert [part.sources[number].name for number in part.source_of] == names
    assert sum(source.chosen for source in part.sources) == 3
    assert part.learned == world_map.learned


def test_a_removed_drive_leaves_nothing(world_map: TrainingMap) -> None:
    left = remove_sources(world_map, ["first"])
    assert [source.name for source in left.sources] == ["second"]
    np.testing.assert_array_equal(left.poses, world_map.poses[world_map.source_of == 1])
    assert set(left.source_of) == {0}
    np.testing.assert_array_equal(left.way(0), world_map.ways[1])
    assert len(left.ways) == 1
    assert left.learned.drives == 1
    assert left.learned.motion_noise == world_map.learned.motion_noise


def test_a_box_takes_the_poses_within_it_whatever_the_order_of_its_corners(
    world_map: TrainingMap,
) -> None:
    left = remove_box(world_map, (0.0, 9.0, -9.0, -9.0))
    assert (left.poses[:, 0] > 0.0).all()
    assert len(left) == (world_map.poses[:, 0] > 0.0).sum()
    # Where the drives went is still known, so that a check finds the hole.
    for way, before in zip(left.ways, world_map.ways, strict=True):
        np.testing.assert_array_equal(way, before)


def test_a_map_without_thumbnails_is_the_same_map(world_map: TrainingMap) -> None:
    bare = without_thumbnails(world_map)
    assert not any(bare.thumbnails)
    assert bare.identity == world_map.identity


def test_what_cannot_be_removed_is_said(world_map: TrainingMap) -> None:
    with pytest.raises(MapError, match="no drive 'third': it has first, second"):
        remove_sources(world_map, ["third"])
    with pytest.raises(MapError, match="no pose lies within the box; the map reaches from"):
        remove_box(world_map, (50.0, 50.0, 60.0, 60.0))
    with pytest.raises(MapError, match="nothing would be left"):
        remove_sources(world_map, ["first", "second"])
