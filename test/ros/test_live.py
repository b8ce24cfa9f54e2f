"""The live page in a real Chromium, fed by the real node over DDS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nav_msgs.msg import OccupancyGrid
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from kbf_localization.datasets.floor_plan_image import FREE, OCCUPIED, UNKNOWN, FloorPlanImage
from kbf_localization.filters.base import HypothesisEstimate
from kbf_localization.live.server import Board, LiveSettings, serving
from kbf_localization.ros.conversions import planar_pose
from kbf_localization.ros.live import LiveListener, _ignoring_errors, listening
from kbf_localization.ros.node_process import NodeProcess
from kbf_localization.ros.outputs import hypothesis_markers, occupancy_grid
from test.evaluation.chromium import Chromium
from test.ros.robot import PATIENCE, Robot
from test.ros.world import MAP_POSES


@pytest.fixture(scope="module")
def map_file(landmark_map_file: Path) -> Path:
    return landmark_map_file


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    board = Board()
    with (
        listening("/localizer", board) as listener,
        serving(board, LiveSettings(port=0, set_pose=listener.set_pose)) as port,
    ):
        yield f"http://127.0.0.1:{port}/"


def drive_until(robot: Robot, condition: Callable[[], Any]) -> Any:
    """Drive on until the page shows what it should; return the condition's value."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, "the page does not show it"
        robot.frame()
    return value


MATCHED = """matches.inliers >= 12 && view.landmarks.length && view.hypotheses.length ? {
  camera: matches.camera,
  landmarks: view.landmarks,
  pose: view.hypotheses[view.hypotheses.length - 1].pose,
} : null"""
"""All of one moment: the page drops landmarks and hypotheses when no image comes for a while."""


@pytest.mark.browser
def test_the_page_shows_the_running_node_and_sets_its_pose(
    browser: Chromium, address: str, robot: Robot, node: NodeProcess
) -> None:
    page = browser.page
    # Nobody looks: nothing that only the page shows is made.
    for topic in ("hypotheses", "best_match/compressed"):
        assert robot.wait_for(lambda topic=topic: robot.node.count_publishers(topic) == 1)
        assert robot.node.count_subscribers(topic) == 0
    page.set_viewport_size({"width": 1366, "height": 650})
    browser.messages.clear()
    page.goto(address)
    drive_until(robot, lambda: bool(browser.run("view.hypotheses.length && view.poses.length")))
    drive_until(robot, lambda: browser.run("state.textContent") == "tracking")
    drive_until(robot, lambda: bool(browser.run("camera.naturalWidth && match.naturalWidth")))
    shown = drive_until(robot, lambda: browser.run(MATCHED))
    assert np.hypot(*np.subtract(shown["pose"][:2], robot.pose[:2])) < 1.0
    assert all(0.0 <= value <= 1.0 for place in shown["camera"] for value in place)
    points = np.array(shown["landmarks"])
    # They lie on the walls of the room, 9 m by 6 m.
    assert np.median(np.abs(np.abs(points / (4.5, 3.0)).max(axis=1) - 1.0)) < 0.05
    assert browser.run("view.poses.length") == 3 * MAP_POSES
    assert "Hz" in browser.run("images.textContent") and "ms" in browser.run("latency.textContent")
    assert browser.run("node.textContent") == "/localizer"
    assert browser.run("document.documentElement.scrollWidth") <= 1366

    # Press at (1, 0.5), drag upward: the robot is there and looks along y.
    x, y = browser.run("[view.x(1), view.y(0.5)]")
    box = browser.run("(({left, top}) => [left, top])(view.canvas.getBoundingClientRect())")
    page.mouse.move(box[0] + x, box[1] + y)
    page.mouse.down()
    page.mouse.move(box[0] + x, box[1] + y - 60, steps=3)
    page.mouse.up()
    said = "starting from the given pose (1.00, 0.50, 1.57)"
    assert robot.wait_for(lambda: said in node.log()), node.log()
    assert [line for line in browser.messages if "the page asked" not in line] == []
    page.goto("about:blank")
    assert robot.wait_for(lambda: robot.node.count_subscribers("hypotheses") == 0)


@pytest.mark.browser
def test_the_page_finds_a_node_that_starts_again(browser: Chromium, map_file: Path) -> None:
    board, name = Board(), "/again/localizer"
    parameters = {"map": str(map_file)}
    with listening(name, board), serving(board, LiveSettings(port=0)) as port:
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("message.textContent.endsWith('waiting for it')", PATIENCE)
        for _ in range(2):
            with NodeProcess(parameters, namespace="/again"):
                browser.wait_for("state.textContent === 'uninitialized'", PATIENCE)
                browser.wait_for(f"view.poses.length === {3 * MAP_POSES}", PATIENCE)
            browser.wait_for("state.textContent === 'waiting'", PATIENCE)
        assert browser.run("hint.textContent").startswith("For looking only.")


def test_hypotheses_are_ellipses_of_two_standard_deviations() -> None:
    turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    covariance = np.diag([0.0, 0.0, 0.01])
    covariance[:2, :2] = turn @ np.diag([0.09, 0.01]) @ turn.T
    hypothesis = HypothesisEstimate(np.array([1.0, 2.0, 3.0]), covariance, 0.25, 7)
    clear, ellipse, arrow, words = hypothesis_markers(Header(), [hypothesis]).markers
    assert clear.action == Marker.DELETEALL
    assert {marker.id for marker in (ellipse, arrow, words)} == {7}
    assert (ellipse.scale.x, ellipse.scale.y) == pytest.approx((4 * 0.3, 4 * 0.1))
    along = planar_pose(ellipse.pose)[2]
    assert np.sin(along - 0.5) == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(planar_pose(arrow.pose), hypothesis.pose)
    assert arrow.color.a == 0.25 and words.text == "25 %"


def test_a_floor_plan_is_published_as_map_server_would() -> None:
    image = np.array([[OCCUPIED, FREE, UNKNOWN], [FREE, FREE, OCCUPIED]], dtype=np.uint8)
    grid = occupancy_grid(Header(), FloorPlanImage(image, 0.5, (1.0, 2.0, 0.0)))
    assert isinstance(grid, OccupancyGrid)
    assert (grid.info.width, grid.info.height, grid.info.resolution) == (3, 2, 0.5)
    # The lower row first.
    assert list(grid.data) == [0, 0, 100, 100, 0, -1]
    assert (grid.info.origin.position.x, grid.info.origin.position.y) == (1.0, 2.0)


@pytest.mark.parametrize("width", [0, 3])
def test_a_plan_that_cannot_be_shown_is_passed_over(width: int) -> None:
    """Of no cells, which no image has; and of fewer than it says."""
    board = Board()
    grid = OccupancyGrid()
    grid.info.width = width
    _ignoring_errors(LiveListener(None, "/localizer", board)._on_plan)(grid)
    assert board.since(-1) == (0, {})
