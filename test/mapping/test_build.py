"""Maps built from drives."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.errors import MapError
from kbf_localization.geometry import compose, wrap_angle
from kbf_localization.mapping import build_map
from kbf_localization.mapping.frames import TRAJECTORY_STEP_M, gather_frames
from kbf_localization.parallel import Cores
from kbf_localization.training_map import TrainingMap
from test.datasets.cold_folders import make_cold_drive

pytestmark = pytest.mark.usefixtures("quick_learning")


def test_a_map_holds_poses_and_their_images(wall_drive: ColdDrive, wall_map: TrainingMap) -> None:
    assert len(wall_map) == 15
    describer = wall_map.described_by
    frames = [int(np.argmin(np.abs(wall_drive.poses[:, 0] - x))) for x in wall_map.poses[:, 0]]
    for row, (_, image) in enumerate(wall_drive.images(frames)):
        assert image is not None
        described, kept = describer.describe(image), wall_map.description(row)
        np.testing.assert_array_equal(described.features, kept.features)
        np.testing.assert_array_equal(described.words, kept.words)
        assert wall_map.thumbnails[row][:2] == b"\xff\xd8"
    assert wall_map.sources[0].name == "seq1_cloudy1"
    assert wall_map.sources[0].condition == "cloudy"
    assert (wall_map.sources[0].frames, wall_map.sources[0].chosen) == (40, 15)


def test_a_held_out_frame_is_most_like_a_neighbour_of_its(
    office_drives: tuple[Path, Path], office_map: TrainingMap
) -> None:
    drive = ColdDrive(office_drives[0])
    apart = np.abs(drive.poses[:, None] - office_map.poses[None]).max(axis=2).min(axis=1)
    held_out = np.flatnonzero(apart > 0.0)
    assert len(held_out) > 30
    right = []
    for index, image in drive.images(held_out.tolist()):
        assert image is not None
        observation = office_map.observe(office_map.described_by.describe(image))
        offset = office_map.poses[observation.best_rows(1)[0]] - drive.poses[index]
        turned = abs(wrap_angle(offset[2]))
        right.append(np.hypot(*offset[:2]) < 0.5 and turned < np.deg2rad(30.0))
    assert np.mean(right) >= 0.9


def test_a_map_knows_the_trajectory_of_its_drive_beside_its_poses(
    wall_drive: ColdDrive, wall_map: TrainingMap
) -> None:
    (trajectory,) = wall_map.trajectories
    assert wall_drive.poses is not None
    np.testing.assert_array_equal(trajectory[[0, -1]], wall_drive.poses[[0, -1]])
    steps = np.diff(wall_drive.poses[:, :2], axis=0)
    longest = 2 * TRAJECTORY_STEP_M + np.hypot(*steps.T).max()
    assert np.hypot(*np.diff(trajectory[:, :2], axis=0).T).max() <= longest
    assert len(trajectory) <= len(wall_drive.poses)


def test_motions_lead_from_each_pose_to_the_next(wall_map: TrainingMap) -> None:
    known = np.isfinite(wall_map.motions).all(axis=1)
    np.testing.assert_array_equal(known, np.isfinite(wall_map.next_poses).all(axis=1))
    # The true poses go straight along x at heading 0.125, the odometry along x at heading 0.5.
    assert known.sum() >= 14
    expected = compose([0.0, 0.0, -0.5], [0.1, 0.0, 0.5])
    np.testing.assert_allclose(wall_map.motions[known], np.tile(expected, (known.sum(), 1)), 1e-6)


def test_workers_change_nothing(wall_drive: ColdDrive, wall_map: TrainingMap) -> None:
    parallel = build_map([wall_drive], poses=15, words=30, workers=Cores(2))
    assert parallel.identity == wall_map.identity
    assert parallel.calibration == wall_map.calibration


def test_describing_leaves_opencvs_threads_as_they_were(wall_drive: ColdDrive) -> None:
    threads = cv2.getNumThreads()
    cv2.setNumThreads(3)
    try:
        build_map([wall_drive], poses=2, words=10)
        assert cv2.getNumThreads() == 3
    finally:
        cv2.setNumThreads(threads)


def test_seed_and_selection_change_the_map(wall_drive: ColdDrive, wall_map: TrainingMap) -> None:
    other = build_map([wall_drive], poses=15, words=30, select="random", seed=1)
    assert other.identity != wall_map.identity
    assert len(other) == 15


def test_several_drives_make_one_map(tmp_path: Path, wall_drive: ColdDrive) -> None:
    night = ColdDrive(make_cold_drive(tmp_path / "seq1_night1", 20, seed=5))
    both = build_map([wall_drive, night], poses=60, words=30, select="random")
    assert [source.chosen for source in both.sources] == [40, 20]
    assert [source.condition for source in both.sources] == ["cloudy", "night"]
    np.testing.assert_array_equal(both.source_of, [0] * 40 + [1] * 20)
    # The last frame of each drive has no next one.
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(both.motions[:, 0])), [39, 59])


def test_an_undecodable_image_is_left_out_with_a_warning(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", 12)
    broken = sorted((folder / "std_cam").iterdir())[4]
    broken.write_bytes(broken.read_bytes()[:500])
    built = build_map([ColdDrive(folder)], poses=12, words=20)
    assert len(built) == 11
    assert any("1 of 12 chosen images" in warning for warning in built.warnings)


def test_no_decodable_image_is_one_error(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", 4)
    for path in (folder / "std_cam").iterdir():
        path.write_bytes(b"")
    with pytest.raises(MapError, match="no image can be decoded"):
        build_map([ColdDrive(folder)], poses=4)


def test_tiny_images_are_one_error(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", 4)
    for path in (folder / "std_cam").iterdir():
        cv2.imwrite(str(path), np.zeros((20, 20), dtype=np.uint8))
    with pytest.raises(MapError, match="too small"):
        build_map([ColdDrive(folder)], poses=4)


def test_a_drive_without_poses_is_refused(wall_drive: ColdDrive) -> None:
    drive = ColdDrive(wall_drive.path)
    drive.poses = None  # type: ignore[assignment]
    with pytest.raises(MapError, match="no known poses"):
        build_map([drive], poses_from="given")


def test_a_drive_without_poses_gets_those_of_its_odometry(wall_drive: ColdDrive) -> None:
    drive = ColdDrive(wall_drive.path)
    drive.poses = None  # type: ignore[assignment]
    built = build_map([drive], poses=8)
    assert len(built) == 8
    assert any("were estimated from wheel odometry" in line for line in built.warnings)


def test_frames_without_a_known_pose_are_passed_over(wall_drive: ColdDrive) -> None:
    drive = ColdDrive(wall_drive.path)
    drive.poses[[1, 5, 6]] = np.nan
    built = build_map([drive], poses=100, words=20)
    assert len(built) == 37
    assert np.isfinite(built.poses).all()
    assert np.isnan(built.motions[:, 0]).sum() == 3


def test_a_gap_ends_a_step(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", 20)
    for path in sorted((folder / "std_cam").iterdir())[8:14]:
        path.unlink()
    frames = gather_frames([ColdDrive(folder)])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(frames.motions[:, 0])), [7, 13])


def test_a_part_of_the_frames_has_gaps_where_some_are_left_out(
    tmp_path: Path, wall_drive: ColdDrive
) -> None:
    other = ColdDrive(make_cold_drive(tmp_path / "other", 12, seed=5))
    part = gather_frames([wall_drive, other]).part(np.array([40, 41, 42, 45, 46, 51]))
    assert part.drives == [other] and not part.drive_of.any()
    np.testing.assert_array_equal(part.index_of, [0, 1, 2, 5, 6, 11])
    np.testing.assert_array_equal(part.poses, other.poses[part.index_of])
    for steps in (part.motions, part.next_poses):
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(steps).all(axis=1)), [2, 4, 5])


def test_asking_for_no_poses_or_no_drives_is_refused(wall_drive: ColdDrive) -> None:
    with pytest.raises(MapError, match="at least one pose"):
        build_map([wall_drive], poses=0)
    with pytest.raises(MapError, match="at least one drive"):
        build_map([])
    with pytest.raises(MapError, match="select"):
        build_map([wall_drive], select="best")


def test_images_of_another_size_are_brought_to_the_maps(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", 6)
    path = sorted((folder / "std_cam").iterdir())[3]
    small = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    cv2.imwrite(str(path), cv2.resize(small, (320, 240)))
    built = build_map([ColdDrive(folder)], poses=6, words=20)
    assert len(built) == 6
    assert any("1 of 6 chosen images were resized to 160x120" in line for line in built.warnings)
    assert (built.described_by.layout.image_width, built.described_by.layout.image_height) == (
        160,
        120,
    )
    shutil.rmtree(folder)
