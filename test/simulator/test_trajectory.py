"""Lists of places are read exactly, and file names say what the images' poses are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.errors import DatasetError
from kbf_localization.simulator.trajectory import named, perturbed, read_trajectory

LINES = (
    "t1152212857.193444_x0.3068230_y-0.0158034_a-0.0096662.jpeg CR-A\n"
    "t1152212857.398868_x0.3111470_y-0.0155626_a-0.0081455.jpeg 2PO1-A\n"
)


def test_stamps_are_exact_and_names_and_labels_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "places.lst"
    path.write_text(LINES)
    trajectory = read_trajectory(path)
    assert trajectory.stamps_ns.tolist() == [1152212857193444000, 1152212857398868000]
    np.testing.assert_array_equal(trajectory.poses[0], [0.3068230, -0.0158034, -0.0096662])
    assert trajectory.labels == ("CR-A", "2PO1-A")
    assert [f"{n} {r}" for n, r in zip(trajectory.names, trajectory.labels)] == LINES.splitlines()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 images"),
        (LINES.splitlines()[0], "has 1 images"),
        (LINES + "image7.jpeg CR-A\n", "line 3"),
        (LINES + LINES, "out of order"),
        (LINES.replace("CR-A", ""), "193444.* has no room label"),
    ],
)
def test_a_bad_list_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "places.lst"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message) as caught:
        read_trajectory(path)
    assert str(path) in str(caught.value)


def test_a_missing_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none\.lst"):
        read_trajectory(tmp_path / "none.lst")


def test_a_named_trajectory_is_read_back_as_it_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stamps = 1_152_200_000_000_000_000 + np.cumsum(rng.integers(10**8, 10**9, 200))
    poses = rng.uniform(-20, 20, (200, 3))
    trajectory = named(stamps, poses, ("CR-A",) * 200)
    path = tmp_path / "places.lst"
    path.write_text("".join(f"{name} CR-A\n" for name in trajectory.names))
    again = read_trajectory(path)
    np.testing.assert_array_equal(again.stamps_ns, trajectory.stamps_ns)
    np.testing.assert_array_equal(again.poses, trajectory.poses)
    assert np.abs(again.stamps_ns - stamps).max() < 1000
    assert np.abs(again.poses[:, :2] - poses[:, :2]).max() <= 0.5000001e-7
    assert np.abs(again.poses[:, 2]).max() < np.pi


def test_another_drive_along_a_path_stays_near_it_at_its_own_pace() -> None:
    """Along x at 0.5 m/s, with a break of a minute that the other drive does not make."""
    seconds = 0.2 * np.arange(400) + np.where(np.arange(400) < 200, 0.0, 60.0)
    poses = np.column_stack((0.1 * np.arange(400), np.zeros((400, 2))))
    labels = ("CR-A",) * 200 + ("2PO1-A",) * 200
    trajectory = named((1e9 * seconds).astype(np.int64), poses, labels)
    factors = []
    for seed in range(5):
        other = perturbed(trajectory, np.random.default_rng(seed), 10**18)
        assert np.abs(other.poses[:, 1]).max() <= 0.7 * 2 * 0.12 + 1e-6
        assert np.abs(other.poses[:, 2]).max() <= 2 * 0.05 + 1e-6
        between = np.diff(other.stamps_ns) * 1e-9
        assert between.min() > 0.0 and np.median(between) == pytest.approx(0.2048, abs=0.002)
        assert other.stamps_ns[0] > 10**18
        factors.append(0.5 * len(other) * 0.2048 / 40.0)
        change = other.labels.index("2PO1-A")
        assert other.poses[change, 0] == pytest.approx(20.0, abs=0.5)
    assert all(1 / 1.25 < factor < 1 / 0.8 for factor in factors) and np.ptp(factors) > 0.05
