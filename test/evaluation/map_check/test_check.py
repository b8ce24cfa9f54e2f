"""`check_map` names what is wrong with a map, and predicts what a later drive will meet."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbf_localization import check_map
from kbf_localization.errors import MapError
from kbf_localization.evaluation.frame_pool import map_coverage
from kbf_localization.evaluation.map_check import held_out
from kbf_localization.evaluation.map_check.check import (
    CheckedPath,
    MapCheck,
    stretch_text,
    waypoints,
)
from kbf_localization.evaluation.map_check.held_out import MIN_COVERAGE, make_folds
from kbf_localization.evaluation.map_check.page import write_check
from kbf_localization.evaluation.map_check.stretches import (
    DIRECTIONS,
    MAX_FILLED,
    Stretch,
    badly_known,
    drift_m,
    filled,
    make_stretch,
    sees_nothing,
    without_repeats,
)
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.evaluation.run import replay
from kbf_localization.training_map import TrainingMap, subset
from test.evaluation.chromium import Chromium
from test.evaluation.synthetic import camera_image
from test.filters.synthetic_world import (
    SyntheticDrive,
    World,
    drive,
    drives_of_the_map,
    localizer,
    loop,
    map_of,
)


def holes(training_map: TrainingMap, drives: int = 2) -> list[Stretch]:
    """Stretches without any image on the paths of the map's first drives."""
    found = [
        stretch
        for number in range(drives)
        for stretch in badly_known(training_map, training_map.trajectory(number), number)
    ]
    return [stretch for stretch in without_repeats(training_map, found) if stretch.drives == 0]


pytestmark = pytest.mark.usefixtures("quick_check")


@pytest.fixture(scope="module")
def cut(world_map: TrainingMap) -> TrainingMap:
    """The map without its western part."""
    return subset(world_map, np.flatnonzero(world_map.poses[:, 0] >= -1.0))


@pytest.fixture(scope="module")
def checked(world_map: TrainingMap, quick_check: None) -> MapCheck:
    return check_map(world_map)


@pytest.mark.parametrize(("gap", "spacing"), [(10.0, 0.125), (1e6, 2e6 / MAX_FILLED)])
def test_gaps_of_a_path_are_filled_by_a_bounded_number_of_poses(gap: float, spacing: float) -> None:
    path = np.array([[0.0, 0.0, 0.0], [gap, 0.0, 0.0], [gap, 0.3, 1.0], [gap, 0.3 + gap, 0.0]])
    found = filled(path, scale=1.0)
    assert len(found) <= len(path) + MAX_FILLED + 4
    steps = np.hypot(*np.diff(found[:, :2], axis=0).T)
    assert steps.sum() == pytest.approx(2.0 * gap + 0.3)
    # Two poses more than needed at most, and the gap below half of d₀ is left.
    assert steps.max() == pytest.approx(max(spacing, 0.3), rel=0.05)


def test_the_check_promises_no_more_than_a_later_drive_gets(
    world: World, world_map: TrainingMap, world_drive: SyntheticDrive
) -> None:
    """Of the map's own drives every third image is enough, of the later one every second."""
    drives = [drive.described.part(slice(None, None, 3)) for drive in drives_of_the_map(world)]
    found = check_map(world_map, drives)
    later = replay(world_drive.described.part(slice(None, None, 2)), localizer(world_map))
    measured = float(np.median(position_errors(later)))
    assert found.median_m is not None
    assert found.median_m >= measured / 1.5
    assert found.metrics["expected_beyond_1m"] == 0.0


def test_each_drive_is_held_against_the_others_alone(world_map: TrainingMap) -> None:
    folds = list(make_folds(world_map))
    assert [fold.drive.name for fold in folds] == ["first", "second"]
    assert [fold.training_map.sources[0].name for fold in folds] == ["second", "first"]
    assert sum(len(fold.drive) for fold in folds) == len(world_map)
    assert not any(fold.thinned for fold in folds)


def test_a_loop_driven_in_one_direction_is_one_way(checked: MapCheck) -> None:
    one_way = [stretch for stretch in checked.stretches if stretch.why == "one_way"]
    assert sum(stretch.metres for stretch in one_way) > 15.0
    assert not [stretch for stretch in checked.stretches if stretch.drives == 0]


def test_a_hole_is_found_where_it_was_cut(world_map: TrainingMap, cut: TrainingMap) -> None:
    for known in (cut, replace(cut, trajectories=())):
        found = holes(known)
        assert found
        assert all(stretch.metres > 1.0 for stretch in found)
        assert (map_coverage(cut, found[0].poses) < MIN_COVERAGE).mean() > 0.9
    assert not holes(world_map)


def test_who_turns_in_a_hole_sees_nothing_either(world_map: TrainingMap, cut: TrainingMap) -> None:
    """The map's drives went round the loop; nobody drove across its hole or looked aside there."""
    found = holes(cut)
    path = world_map.trajectory(0)
    deep = path[map_coverage(cut, path) < 0.1]
    assert len(deep)
    for turned in np.linspace(0.0, 2.0 * np.pi, 9):
        assert sees_nothing(cut, found, deep + np.array([0.0, 0.0, turned])).all()
    known = path[map_coverage(cut, path) > 0.95]
    assert len(known)
    assert not sees_nothing(cut, found, known).any()


def test_a_hole_is_one_hole_from_whichever_side_it_is_driven_into(
    world_map: TrainingMap, cut: TrainingMap
) -> None:
    path = world_map.trajectory(0)
    into = path[map_coverage(cut, path) < MIN_COVERAGE]
    back = into[::-1] + np.array([0.0, 0.0, np.pi])
    found = [
        stretch
        for path in (into, back)
        for stretch in badly_known(cut, path)
        if stretch.drives == 0
    ]
    once = without_repeats(cut, found)
    assert sum(stretch.metres for stretch in found) > 1.9 * sum(stretch.metres for stretch in once)


def test_a_drive_that_the_map_does_not_know_shows_the_hole(
    cut: TrainingMap, world_drive: SyntheticDrive
) -> None:
    later = replace(world_drive, name="later").described.part(slice(None, None, 2))
    found = check_map(cut, [later])
    missing = [stretch for stretch in found.stretches if stretch.drives == 0]
    assert missing
    middle = [
        stretch.poses[len(stretch.poses) // 2, 0] for stretch in missing if stretch.metres > 3.0
    ]
    assert middle
    assert all(x < -1.0 for x in middle)
    assert "no image in the map" in found.advice[0]


def test_a_place_that_is_known_from_other_sides_is_said_to_be(world_map: TrainingMap) -> None:
    """The loop was driven in one direction; a drive in the other direction meets no image."""
    path = world_map.trajectory(0)[::-1] + np.array([0.0, 0.0, np.pi])
    missing = [stretch for stretch in badly_known(world_map, path) if stretch.drives == 0]
    assert missing
    for stretch in missing:
        assert stretch.blind[:, 0].mean() > 0.9
        assert not stretch.blind[:, DIRECTIONS // 2].any()


@pytest.mark.usefixtures("quick_learning")
def test_a_map_of_one_drive_says_that_the_check_flatters(world: World) -> None:
    alone = map_of([drive(world, loop(200), 1, "only")], 80)
    found = check_map(alone)
    assert found.flatters
    assert "flatters" in found.verdict
    assert found.metrics["frames"] == 40


def test_stretches_of_one_light_are_named_where_the_map_knows_several(
    world_map: TrainingMap,
) -> None:
    day, night = world_map.sources
    lights = replace(
        world_map, sources=(replace(day, condition="day"), replace(night, condition="night"))
    )
    rows = np.flatnonzero((world_map.source_of == 0) | (world_map.poses[:, 0] > 0.0))
    path = world_map.poses[world_map.source_of == 0]

    def of_one_light(training_map: TrainingMap) -> list[Stretch]:
        return [stretch for stretch in badly_known(training_map, path) if stretch.why == "light"]

    assert not of_one_light(world_map)
    found = of_one_light(subset(lights, rows))
    assert found
    assert all(np.median(stretch.poses[:, 0]) < 0.0 for stretch in found)


def test_the_drift_is_the_median_of_simulated_odometry(world_map: TrainingMap) -> None:
    """Of a Rayleigh distribution, which it is where both directions err alike."""
    metres, steps, trials = 6.0, 60, 4000
    noise = world_map.calibration.motion_noise.variances(0.5 * metres / steps, 0.0)
    errors = np.random.default_rng(0).normal(size=(trials, steps, 3)) * np.sqrt(noise)
    heading = np.cumsum(errors[..., 2], axis=1) - errors[..., 2]
    step = 0.5 * metres / steps + errors[..., 0]
    x = (step * np.cos(heading) - errors[..., 1] * np.sin(heading)).sum(axis=1)
    y = (step * np.sin(heading) + errors[..., 1] * np.cos(heading)).sum(axis=1)
    measured = np.median(np.hypot(x - 0.5 * metres, y))
    assert drift_m(world_map, metres) == pytest.approx(measured, rel=0.25)


@pytest.mark.usefixtures("quick_learning")
def test_a_hall_of_two_equal_halves_has_look_alikes(world: World, tmp_path: Path) -> None:
    """The same images at places 30 m apart: the map cannot know which, and the page shows it."""
    both = []
    for seed, name in ((1, "first"), (2, "second")):
        near = drive(world, loop(60, wobble=0.03 * seed), seed, name)
        far = replace(near, poses=near.poses + np.array([30.0, 0.0, 0.0]), name=f"{name} again")
        both += [near, far]
    found = check_map(map_of(both, 120))
    assert found.look_alikes
    pair = found.look_alikes[0]
    assert abs(abs(pair.a[0] - pair.b[0]) - 30.0) < 3.0
    assert pair.order > 1
    assert any(stretch.why == "look_alike" for stretch in found.stretches)
    seen = replace(found.training_map, thumbnails=[camera_image(row) for row in range(120)])
    page = write_check(ResultsFolder(tmp_path), replace(found, training_map=seen), {})
    assert "Look-alike 1: " in page.read_text(encoding="utf-8")
    assert (tmp_path / "look_alike_1.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_is_one_file_that_loads_nothing(checked: MapCheck, tmp_path: Path) -> None:
    page = write_check(ResultsFolder(tmp_path), checked, {"command": "kbf map check <office>"})
    text = page.read_text(encoding="utf-8")
    assert page.name == "check.html"
    assert checked.verdict in text
    assert "kbf map check &lt;office&gt;" in text
    assert "http://" not in text
    assert "https://" not in text
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    for key in ("expected_median_m", "expected_beyond_1m", "stretches", "look_alikes", "verdict"):
        assert key in metrics
    assert set(metrics["stretches"][0]) >= {"from", "to", "metres", "why", "expected_error_m"}


def test_a_stretch_is_named_by_places_evenly_along_its_path(checked: MapCheck) -> None:
    """Of a circle of 8 m, which ends where it begins: five places, 2 m apart."""
    angles = np.linspace(0.0, 2.0 * np.pi, 400)
    radius = 8.0 / (2.0 * np.pi)
    circle = np.column_stack((radius * np.cos(angles), radius * np.sin(angles), angles))
    stretch = make_stretch(checked.training_map, circle, "uncovered", 1, 0.1)
    corners = radius * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 0.0]])
    np.testing.assert_allclose(waypoints(stretch), corners, atol=1e-3)
    assert stretch_text(stretch).startswith("(1.3, 0.0) → (0.0, 1.3) → (-1.3, 0.0) → (")


@pytest.mark.browser
def test_a_click_on_a_stretch_shows_it_on_the_plan(
    checked: MapCheck, browser: Chromium, tmp_path: Path
) -> None:
    page = write_check(ResultsFolder(tmp_path), checked, {"command": "kbf map check"})
    browser.open(page, width=390, height=800)
    plan = "document.getElementById('plan').toDataURL()"
    before = browser.run(plan)
    shown = browser.run("document.querySelectorAll('#stretches button').length")
    assert shown == len(checked.stretches) > 0
    browser.page.click("#stretches button")
    assert browser.run(plan) != before
    browser.page.keyboard.press("Escape")
    assert browser.run(plan) == before
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.messages == []


def test_the_spread_is_that_of_the_errors_nearby(checked: MapCheck, tmp_path: Path) -> None:
    path = np.zeros((6, 3))
    path[3:, 0] = 50.0
    errors = np.array([0.1, 0.3, 0.2, 1.0, 1.0, 1.0])
    covered = np.array([True, True, True, True, True, False])
    found = replace(checked, checked=CheckedPath(path, errors, errors, errors, covered))
    np.testing.assert_allclose(found.spread_m, [0.16, 0.16, 0.16, 0.0, 0.0, np.nan])
    write_check(ResultsFolder(tmp_path), found, {"command": "kbf map check"})
    table = (tmp_path / "path.csv").read_text().splitlines()
    assert table[1] == "0.0000,0.0000,0.00000,0.1000,0.1600,1"
    assert table[6] == "50.0000,0.0000,0.00000,,,0"


def test_an_excerpt_is_localized_as_the_part_that_it_is(
    world_map: TrainingMap, world_drive: SyntheticDrive
) -> None:
    whole, rows = world_drive.described, slice(40, 60)
    runs = [replay(part, localizer(world_map)) for part in (whole.part(rows), whole.excerpt(rows))]
    np.testing.assert_array_equal(runs[0].estimates, runs[1].estimates)
    assert len(whole.excerpt(rows).odometry.stamps_ns) < len(whole.odometry.stamps_ns)


def test_a_map_of_few_poses_is_refused(world_map: TrainingMap) -> None:
    with pytest.raises(MapError, match="too small to be checked"):
        check_map(subset(world_map, np.arange(2)))


def test_of_many_images_windows_are_sampled_and_no_more_are_described(
    world_map: TrainingMap, world_drive: SyntheticDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two windows of 40 of the 220 images, with no image in common."""
    monkeypatch.setattr(held_out, "MAX_FRAMES", 80)
    monkeypatch.setattr(held_out, "WINDOW", 40)
    (fold,) = make_folds(world_map, [replace(world_drive, name="later")])
    assert [rows.tolist() for rows in fold.windows] == [[*range(40)], [*range(40, 80)]]
    both_ends = np.r_[0:40, 180:220]
    np.testing.assert_array_equal(fold.drive.stamps_ns, world_drive.stamps_ns[both_ends])
    np.testing.assert_array_equal(fold.truth, world_drive.poses[both_ends])
    assert len(fold.drive.descriptions) == 80
    assert all(len(rows) == 40 for fold in make_folds(world_map) for rows in fold.windows)
