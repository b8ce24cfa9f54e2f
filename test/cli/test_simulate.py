"""`kbf simulate` writes sequences and names what is wrong in one line."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.vision.camera import PinholeCamera
from test.cli.kbf import done, refused


def test_it_writes_the_drives_and_says_where(tmp_path: Path) -> None:
    options = ("--condition", "night", "--frames", 3, "--size", "96x72", "--jobs", 1)
    output = done("simulate", tmp_path / "office", "--runs", 2, *options)
    for name in ("seq1_night1", "seq1_night2"):
        assert str(tmp_path / "office" / name) in output
        assert len(ColdDrive(tmp_path / "office" / name)) == 3


def test_another_camera_is_rendered_and_written_where_asked_for(tmp_path: Path) -> None:
    office = tmp_path / "office"
    options = ("--runs", 1, "--frames", 2, "--size", "96x72", "--jobs", 1, "--time-offset", 0.05)
    lens = ("--camera-offset", "-0.2,0,0.1,0.1,-0.05", "--distortion", "-0.15", "--camera-info")
    done("simulate", office, *options, *lens)
    drive = ColdDrive(office / "seq1_cloudy1")
    assert isinstance(drive.camera, PinholeCamera) and drive.camera.distortion[0] == -0.15
    assert drive.mount is not None
    assert drive.mount.translation == pytest.approx([-0.2, 0.0, 1.2])
    assert drive.mount.angles == pytest.approx((0.1, -0.05, 0.0))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--size", "large"), "--size large"),
        (("--office-from", "a.lst"), "--office-from"),
        (("--trajectory", "absent.lst"), "absent.lst"),
        (("--size", "5x5", "--frames", "2"), "5x5"),
        (("--camera-offset", "1,2"), "--camera-offset 1,2"),
        (("--camera-offset", "0,0,nan"), "finite"),
        (("--distortion", "barrel"), "--distortion barrel"),
        (("--time-offset", "-1e9"), "time offset"),
    ],
)
def test_a_mistake_is_named_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    assert named in refused("simulate", tmp_path / "office", *arguments)
    assert not (tmp_path / "office").exists()


def test_other_calls_and_lights_drive_other_paths_at_other_times(tmp_path: Path) -> None:
    """Else a map of one call would know the paths, to the bit, that it is tested on."""

    def simulated(folder: str, condition: str, *options: str) -> ColdDrive:
        how = ("--condition", condition, "--frames", 3, "--size", "64x48", "--jobs", 1)
        done("simulate", tmp_path / folder, "--runs", 1, *how, *options)
        return ColdDrive(tmp_path / folder / f"seq1_{condition}1")

    drives = [
        simulated("day", "cloudy"),
        simulated("other", "cloudy"),
        simulated("night", "night"),
    ]
    again = simulated("again/day", "cloudy")
    assert np.array_equal(again.poses, drives[0].poses)
    for first, other in combinations(drives, 2):
        assert not np.allclose(first.poses, other.poses, atol=0.01)
        assert first.stamps_ns[-1] < other.stamps_ns[0] or other.stamps_ns[-1] < first.stamps_ns[0]
    lights = ("cloudy", "sunny")
    same = [simulated(light, light, "--same-paths") for light in lights]
    assert np.array_equal(same[0].poses, same[1].poses)
    assert np.array_equal(same[0].stamps_ns, same[1].stamps_ns)
