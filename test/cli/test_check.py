"""`kbf check` prints topics, findings and a verdict, and exits by it."""

from pathlib import Path

import pytest

from test.cli.kbf import kbf, refused
from test.datasets.cold_folders import make_cold_drive


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from kbf_localization.datasets.bag_writer import write_bag
    from kbf_localization.datasets.cold import ColdDrive

    folder = tmp_path_factory.mktemp("check")
    write_bag(ColdDrive(make_cold_drive(folder / "straight")), folder / "bag")
    return folder / "bag"


def test_a_straight_drive_is_usable_with_warnings(bag: Path) -> None:
    result = kbf("check", bag)
    assert result.exit_code == 1
    for topic, use in (("/odom", "odometry"), ("/ground_truth", "known poses")):
        assert any(topic in line and use in line for line in result.output.splitlines())
    assert "Frames: odometry odom" in result.output
    verdict = next(line for line in result.output.splitlines() if line.startswith("Usable"))
    assert "clocks of camera and odometry" in verdict and "places seen again" in verdict


def test_every_topic_that_is_used_is_named_with_its_use(tmp_path: Path) -> None:
    from kbf_localization.datasets.bag_writer import write_bag
    from kbf_localization.datasets.open import open_drive
    from kbf_localization.simulator.simulated_drives import simulate

    (folder,) = simulate(tmp_path, runs=1, frames=4, size=(64, 48))
    write_bag(open_drive(folder), tmp_path / "bag")
    lines = kbf("check", tmp_path / "bag").output.splitlines()
    for topic, use in (("/camera_info", "calibration"), ("/tf_static", "camera mount")):
        assert any(topic in line and use in line for line in lines)


def test_what_cannot_be_opened_is_unusable_and_its_topics_are_shown(bag: Path) -> None:
    result = kbf("check", bag, "--image-topic", "/front", width=400)
    assert result.exit_code == 2
    assert "no topic /front" in result.output
    assert "Unusable for a map: reading." in result.output
    assert any("/image/compressed" in line for line in result.output.splitlines())
    assert kbf("check", bag.parent / "absent").exit_code == 2


def test_the_worst_of_several_recordings_decides(bag: Path) -> None:
    (bag.parent / "empty").mkdir()
    result = kbf("check", bag, bag.parent / "empty")
    assert result.exit_code == 2
    assert "Usable, with warnings" in result.output and "Unusable" in result.output


def test_the_clocks_alone_are_checked_by_name(bag: Path) -> None:
    assert "29 pairs of consecutive images, 40 are needed" in refused("check", "time", bag)


def test_an_error_of_map_build_points_to_the_check(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    message = refused("map", "build", tmp_path / "empty", "--output", tmp_path / "m.kbfmap")
    assert "kbf check SOURCE looks at the whole recording" in message


def test_a_mistyped_name_is_one_line_without_further_advice(tmp_path: Path) -> None:
    for command in (("check",), ("map", "build", "--output", tmp_path / "m.kbfmap")):
        message = refused(*command, tmp_path / "absent")
        assert message == f"Error: {tmp_path / 'absent'}: no such file or folder"
