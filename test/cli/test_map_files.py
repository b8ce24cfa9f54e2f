"""Anchors and pairs of points as they are typed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.cli.map_files import parse_anchor, read_pairs
from kbf_localization.errors import ParameterError
from test.pose_graph.world import World, circle, drive

DRIVES = [drive("cloudy1", circle(0.5), World.of_seed(1, 10), first_ns=5_000_000_000)]


def test_an_anchor_names_a_pose_a_drive_and_a_time() -> None:
    for text in ("1.5,-2,90@cloudy1:1.2", "1.5,-2,90@cloudy1:1.2s"):
        anchor = parse_anchor(text, DRIVES)
        assert anchor.pose == pytest.approx((1.5, -2.0, np.pi / 2))
        assert (anchor.drive, anchor.stamp_ns) == (0, 6_200_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1,2@cloudy1:1",
        "1,2,x@cloudy1:1",
        "1,2,3@night1:1",
        "1,2,3@cloudy1:999",
        "nan,0,0@cloudy1:1",
    ],
)
def test_an_anchor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="--anchor"):
        parse_anchor(text, DRIVES)


def test_pairs_are_read_past_a_header_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("x_map,y_map,x_to,y_to\n# doors\n0,0,1,2\n\n3.5,1,4,-1\n")
    np.testing.assert_array_equal(read_pairs(path), [[0, 0, 1, 2], [3.5, 1, 4, -1]])
    path.write_text("0,0,1,2\n1,2,3\n")
    with pytest.raises(ParameterError, match="line 2"):
        read_pairs(path)
