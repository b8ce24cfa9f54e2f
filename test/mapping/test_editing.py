"""Maps joined, and drives and places taken out of them."""

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.errors import MapError
from kbf_localization.mapping.editing import merge_maps, remove_box, remove_sources
from kbf_localization.motion.noise import MotionNoise
from kbf_localization.training_map import Source, TrainingMap, subset, without_thumbnails
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary

pytestmark = pytest.mark.usefixtures("quick_learning")


def renamed(training_map: TrainingMap) -> tuple[Source, ...]:
    return tuple(replace(source, name=f"{source.name} again") for source in training_map.sources)


def test_a_merged_map_has_all_poses_and_sources(number_map: TrainingMap) -> None:
    noisier = replace(
        number_map,
        motion_variances=3 * number_map.motion_variances,
        fitted=replace(
            number_map.calibration,
            motion_noise=MotionNoise((0.05, 0.005, 0.05), (0.0, 0.1, 0.0), 3),
        ),
        sources=renamed(number_map),
    )
    merged = merge_maps([number_map, noisier])
    np.testing.assert_array_equal(merged.poses, np.tile(number_map.poses, (2, 1)))
    np.testing.assert_array_equal(merged.features, np.tile(number_map.features, (2, 1)))
    np.testing.assert_array_equal(merged.source_of, [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3])
    assert merged.sources == (*number_map.sources, *renamed(number_map))
    np.testing.assert_allclose(merged.motion_variances, 2 * number_map.motion_variances)
    assert merged.thumbnails[9] == b"three"
    assert merged.parameters == number_map.parameters
    assert merged.word_grids is not None and number_map.word_grids is not None
    np.testing.assert_array_equal(merged.word_grids, np.tile(number_map.word_grids, (2, 1)))
    for trajectory, own in zip(merged.trajectories, 2 * number_map.trajectories, strict=True):
        np.testing.assert_array_equal(trajectory, own)
    noise = merged.calibration.motion_noise
    assert noise == MotionNoise((0.05, 0.02, 0.05), (0.001, 0.1, 0.003), 7)


def test_maps_of_frames_that_cannot_be_one_are_refused(number_map: TrainingMap) -> None:
    in_utm = replace(
        number_map,
        poses=number_map.poses + np.array([691_608.25, 5_334_764.5, 0.0]),
        sources=renamed(number_map),
    )
    with pytest.raises(MapError, match="poses would be 53[0-9]{2} km apart: .* different frames"):
        merge_maps([number_map, in_utm])


def test_the_floor_plan_is_that_of_the_first_map_with_one(number_map: TrainingMap) -> None:
    bare = replace(number_map, floor_plan=None, sources=renamed(number_map))
    for maps in ([number_map, bare], [bare, number_map]):
        assert merge_maps(maps).floor_plan is number_map.floor_plan


def test_a_map_without_grids_takes_them_from_the_merged_one(number_map: TrainingMap) -> None:
    bare = replace(number_map, word_grids=None, sources=renamed(number_map))
    merged = merge_maps([number_map, bare])
    assert merged.word_grids is None
    assert np.isfinite(merged.observe(merged.description(3)).contrasts()).all()


def test_parameters_that_differ_are_left_out(number_map: TrainingMap) -> None:
    other = replace(number_map, parameters={}, sources=renamed(number_map))
    assert merge_maps([number_map, other]).parameters == {}


def test_maps_of_other_words_are_refused(number_map: TrainingMap) -> None:
    own = number_map.described_by
    words = Vocabulary(own.vocabulary.words + 1)
    other = replace(number_map, described_by=PyramidDescriber(words, own.layout))
    with pytest.raises(MapError, match="map 2 has other visual words"):
        merge_maps([number_map, other])
    with pytest.raises(MapError, match="nothing to merge"):
        merge_maps([])


def test_a_drive_is_not_merged_twice(number_map: TrainingMap) -> None:
    name = number_map.sources[0].name
    with pytest.raises(MapError, match=f"'{name}' is in the map already"):
        merge_maps([number_map, number_map])


def test_a_subset_keeps_rows_together(world_map: TrainingMap) -> None:
    rows = np.array([3, 70, 149])
    part = subset(world_map, rows)
    np.testing.assert_array_equal(part.poses, world_map.poses[rows])
    np.testing.assert_array_equal(part.features, world_map.features[rows])
    names = [world_map.sources[number].name for number in world_map.source_of[rows]]
    assert [part.sources[number].name for number in part.source_of] == names
    assert sum(source.chosen for source in part.sources) == 3
    assert part.calibration == world_map.calibration


def test_a_removed_drive_leaves_nothing(world_map: TrainingMap) -> None:
    left = remove_sources(world_map, ["first"])
    assert [source.name for source in left.sources] == ["second"]
    np.testing.assert_array_equal(left.poses, world_map.poses[world_map.source_of == 1])
    assert set(left.source_of) == {0}
    np.testing.assert_array_equal(left.trajectory(0), world_map.trajectories[1])
    assert len(left.trajectories) == 1
    assert left.calibration.drives == 1
    assert left.calibration.motion_noise == world_map.calibration.motion_noise


def test_a_box_takes_the_poses_within_it_whatever_the_order_of_its_corners(
    world_map: TrainingMap,
) -> None:
    left = remove_box(world_map, (0.0, 9.0, -9.0, -9.0))
    assert (left.poses[:, 0] > 0.0).all()
    assert len(left) == (world_map.poses[:, 0] > 0.0).sum()
    # Where the drives went is still known, so that a check finds the hole.
    for trajectory, before in zip(left.trajectories, world_map.trajectories, strict=True):
        np.testing.assert_array_equal(trajectory, before)


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
