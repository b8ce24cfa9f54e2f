"""The live page in a real Chromium: strings are shown as they are, and a wrong token is said."""

from __future__ import annotations

import base64

import cv2
import numpy as np
import pytest

pytest.importorskip("tornado")

from kbf_localization.live.server import Board, LiveSettings, serving
from test.evaluation.chromium import Chromium

PATIENCE = 60.0
HOSTILE = "</script><img src=x onerror=document.title='owned'>\" ' & \u202e " + "long" * 200

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_strings_are_shown_and_never_run(browser: Chromium, scheme: str) -> None:
    board = Board()
    board.put("node", {"name": HOSTILE, "present": True})
    board.put("status", {"message": HOSTILE, "level": 0, "values": {"state": "lost"}})
    board.put("poses", {"poses": [0.0, 0.0, 0.0, 4.0, 3.0, 1.0]})
    sure = {"number": 1, "pose": [1.0, 1.0, 0.5], "probability": 0.7, "sigma": [0.2, 0.1, 0.3]}
    board.put("hypotheses", {"hypotheses": [sure]})
    board.put("camera", b"no image")
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.set_viewport_size({"width": 390, "height": 700})
        browser.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("state.textContent === 'lost' && view.hypotheses.length === 1", PATIENCE)
        assert browser.run("message.textContent") == HOSTILE
        assert browser.run("node.textContent") == HOSTILE
        assert browser.run("document.title") == "kbf live"
        assert browser.run("document.images.length") == 2
        assert browser.run("document.documentElement.scrollWidth") <= 390
        # A click without a drag would set a pose; this page is for looking only.
        assert browser.run("view.onPose") is None


def test_walls_are_drawn_where_the_plan_has_them(browser: Chromium) -> None:
    board = Board()
    board.put("poses", {"poses": [1.0, 1.0, 0.0, 3.0, 3.0, 1.0]})
    # 4 m by 4 m, a cell each metre: a wall along the left, the rest free.
    cells = np.full((4, 4), 255, dtype=np.uint8)
    cells[:, 0] = 0
    image = base64.b64encode(cv2.imencode(".png", cells)[1].tobytes()).decode("ascii")
    board.put("plan", {"image": image, "origin": [0.0, 0.0, 0.0], "resolution": 1.0})
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.set_viewport_size({"width": 1366, "height": 650})
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("view.plan !== null", PATIENCE)
        at = (
            "(x, y) => [...view.canvas.getContext('2d').getImageData(Math.round(view.x(x) * "
            "devicePixelRatio), Math.round(view.y(y) * devicePixelRatio), 1, 1).data].slice(0, 3)"
        )
        wall, floor = browser.run(f"({at})(0.5, 2.2)"), browser.run(f"({at})(2.5, 2.2)")
        assert wall == browser.run("channels(colour('wall'))")
        assert floor == browser.run("channels(colour('floor'))")


def test_a_wrong_token_is_said_and_the_right_one_opens_the_page(browser: Chromium) -> None:
    board = Board()
    board.put("status", {"message": "here", "level": 0, "values": {"state": "tracking"}})
    with serving(board, LiveSettings(port=0, token="right")) as port:  # noqa: S106
        page = f"http://127.0.0.1:{port}/"
        browser.page.goto(f"{page}#token=wrong")
        browser.wait_for("message.textContent.startsWith('wrong token')", PATIENCE)
        assert browser.run("state.textContent") == "waiting"
        browser.page.goto("about:blank")
        browser.page.goto(f"{page}#token=right")
        browser.wait_for("state.textContent === 'tracking'", PATIENCE)


def test_the_page_asks_again_when_the_server_comes_back(browser: Chromium) -> None:
    board = Board()
    board.put("status", {"message": "here", "level": 0, "values": {"state": "tracking"}})
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("state.textContent === 'tracking'", PATIENCE)
    browser.wait_for("message.textContent.endsWith('asking again')", PATIENCE)
    with serving(board, LiveSettings(port=port)):
        browser.wait_for("state.textContent === 'tracking'", PATIENCE)


def test_a_degraded_robot_is_amber_with_since_when_and_its_growing_sigma(browser: Chromium) -> None:
    board = Board()
    values = {"state": "degraded", "state_since_s": "12.3", "sigma_m": "0.42"}
    reason = "no usable image for 14.3 s and 1.2 m"
    sure = {"number": 1, "pose": [1.0, 1.0, 0.5], "probability": 1.0, "sigma": [0.05, 0.05, 0.0]}
    board.put("poses", {"poses": [0.0, 0.0, 0.0, 4.0, 3.0, 1.0]})
    board.put("pose", {"pose": sure["pose"], "sigma": sure["sigma"]})
    board.put("hypotheses", {"hypotheses": [sure]})
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.set_viewport_size({"width": 1366, "height": 120})
        browser.page.emulate_media(color_scheme="light")
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("view.pose !== null", PATIENCE)
        height = browser.run("document.querySelector('header').offsetHeight")
        board.put("status", {"message": f"degraded: {reason}", "level": 1, "values": values})
        browser.wait_for("state.textContent === 'degraded'", PATIENCE)
        assert browser.run("getComputedStyle(state).backgroundColor") == "rgb(230, 159, 0)"
        assert browser.run("message.textContent") == reason
        assert browser.run("since.textContent") == "for 12 s"
        assert browser.run("sigma.textContent") == "± 42 cm"
        assert browser.run("view.shownSigma()[0]") == pytest.approx(0.42)
        # A long warning moves nothing.
        values["state_since_s"] = "13.0"
        board.put("status", {"message": "degraded: " + "long " * 300, "level": 1, "values": values})
        browser.wait_for("since.textContent === 'for 13 s'", PATIENCE)
        assert browser.run("document.querySelector('header').offsetHeight") == height


def test_inlier_matches_are_drawn_on_both_images_and_the_map_is_zoomed(browser: Chromium) -> None:
    board = Board()
    grey = cv2.imencode(".jpg", np.full((60, 80), 128, dtype=np.uint8))[1].tobytes()
    board.put("camera", grey)
    board.put("match", grey)
    places = [[0.25, 0.25], [0.75, 0.75]]
    content = {"inliers": 2, "row": 7, "camera": places, "map": [places[0], None]}
    board.put("matches", {**content, "points": [[1.0, 1.0], [2.0, 2.0]]})
    ink = (
        "(id) => { const canvas = document.getElementById(id), context = canvas.getContext('2d');"
        "const image = context.getImageData(0, 0, canvas.width, canvas.height).data;"
        "return image.filter((value, k) => k % 4 === 3 && value > 0).length; }"
    )
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.set_viewport_size({"width": 1366, "height": 768})
        browser.page.goto(f"http://127.0.0.1:{port}/")
        drawn = "!camera.hidden && !match.hidden && view.landmarks.length === 2"
        browser.wait_for(drawn, PATIENCE)
        single, both = (
            browser.run(f"({ink})('match-matches')"),
            browser.run(f"({ink})('camera-matches')"),
        )
        assert 0 < single < both
        caption = "document.getElementById('match-caption').textContent"
        assert browser.run(caption) == "map image 7: 1 of them"
        scale = browser.run("view.scale")
        browser.page.click("#zoom-in")
        assert browser.run("view.scale") == pytest.approx(1.5 * scale)
        browser.page.click("#zoom-fit")
        assert browser.run("view.scale") == pytest.approx(scale)


def test_a_finger_scrolls_the_page_and_sets_a_pose_only_when_asked(browser: Chromium) -> None:
    board, set_poses = Board(), []
    board.put("poses", {"poses": [0.0, 0.0, 0.0, 4.0, 3.0, 1.0]})
    settings = LiveSettings(port=0, set_pose=lambda *pose: set_poses.append(pose))
    owner = browser.page.context.browser
    assert owner is not None
    with serving(board, settings) as port:
        page = owner.new_page(
            viewport={"width": 390, "height": 700}, has_touch=True, is_mobile=True
        )
        fingers = page.context.new_cdp_session(page)

        def touch(*paths: list[tuple[float, float]]) -> None:
            """Move each finger along its path."""
            for number, places in enumerate(zip(*paths, strict=True)):
                points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
                kind = "touchMove" if number else "touchStart"
                fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        def at(x: float, y: float) -> tuple[float, float]:
            """Where the map shows a place, in the window."""
            left, top, across, up, scale = page.evaluate(
                "(() => { const box = map.getBoundingClientRect();"
                "return [box.left, box.top, view.left, view.bottom, view.scale]; })()"
            )
            return left + across + scale * x, top + up - scale * y

        def scrolled() -> float:
            return float(page.evaluate("scrollY"))

        page.goto(f"http://127.0.0.1:{port}/")
        page.locator("#set-pose").wait_for()
        middle = at(2.0, 1.5)
        touch([(middle[0], middle[1] - 20 * step) for step in range(10)])
        while scrolled() < 50.0:
            page.wait_for_timeout(20)
        page.locator("#map").scroll_into_view_if_needed()
        page.locator("#set-pose").tap()
        touch([at(1.0, 1.0), at(1.0, 1.4), at(1.0, 2.0)])
        while not set_poses:
            page.wait_for_timeout(20)
        assert page.locator("#set-pose").get_attribute("aria-pressed") == "false"
        scale, (x, y) = page.evaluate("view.scale"), at(2.0, 1.5)
        apart = (20.0, 40.0, 60.0)
        touch([(x - far, y) for far in apart], [(x + far, y) for far in apart])
        assert page.evaluate("view.scale") > 2.0 * scale
        page.context.close()
    assert set_poses == [pytest.approx((1.0, 1.0, np.pi / 2), abs=0.02)]


def test_a_pose_set_far_off_the_map_is_answered_by_its_distance(browser: Chromium) -> None:
    board, set_poses = Board(), []
    board.put("poses", {"poses": [0.0, 0.0, 0.0, 4.0, 3.0, 1.0]})
    settings = LiveSettings(port=0, set_pose=lambda *pose: set_poses.append(pose))
    with serving(board, settings) as port:
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("view.poses.length > 0 && usage.startsWith('Click')", PATIENCE)
        browser.run("sendPose([4, -1, 0])")
        assert "That is 4.0 m from the nearest map pose" in browser.page.inner_text("#hint")
        browser.run("sendPose([0.3, 0.4, 0])")
        assert browser.page.inner_text("#hint").startswith("Click where the robot is")


def test_an_uncertainty_of_millimetres_is_not_nothing(browser: Chromium) -> None:
    board = Board()
    values = {"state": "tracking", "sigma_m": "0.0042"}
    board.put("status", {"message": "tracking", "level": 0, "values": values})
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("sigma.textContent === '± 4 mm'", PATIENCE)


def test_an_image_of_the_past_is_faint_and_dated(browser: Chromium) -> None:
    board = Board()
    board.put("poses", {"poses": [0.0, 0.0, 0.0, 4.0, 3.0, 1.0]})
    board.put("camera", cv2.imencode(".jpg", np.full((24, 32), 90, dtype=np.uint8))[1].tobytes())
    board.put("matches", {"inliers": 20, "row": 7, "camera": [], "map": [], "points": [2.0, 1.0]})
    caption = "document.getElementById('camera-caption').textContent"
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for(f"{caption} === 'camera: 20 inlier matches' && seenAt > 0", PATIENCE)
        assert browser.run("view.landmarks.length") == 2
        browser.run("(() => { seenAt -= 7500; showAge(); })()")
        assert browser.run(caption) == "camera, 7 s ago"
        assert browser.run("view.landmarks.length") == 0
        opacity = "getComputedStyle(document.getElementById('camera')).opacity"
        assert browser.run(opacity) == "0.4"


def test_without_images_the_robot_is_drawn_where_odometry_has_carried_it(browser: Chromium) -> None:
    board = Board()
    board.put("poses", {"poses": [0.0, 0.0, 0.0, 4.0, 3.0, 1.0]})
    sure = {"number": 1, "pose": [1.0, 1.0, 0.5], "probability": 1.0, "sigma": [0.05, 0.05, 0.0]}
    board.put("pose", {"pose": sure["pose"], "sigma": sure["sigma"]})
    board.put("hypotheses", {"hypotheses": [sure]})
    values = {"state": "tracking", "sigma_m": "0.05", "x_m": "1", "y_m": "1", "yaw_rad": "0.5"}
    board.put("status", {"message": "tracking", "level": 0, "values": values})
    with serving(board, LiveSettings(port=0)) as port:
        browser.page.goto(f"http://127.0.0.1:{port}/")
        browser.wait_for("view.hypotheses.length === 1 && view.pose !== null", PATIENCE)
        browser.run("(() => { estimatedAt -= 5000; })()")
        values |= {"state": "degraded", "sigma_m": "0.3", "x_m": "2.5", "y_m": "1.5"}
        board.put("status", {"message": "degraded", "level": 1, "values": values})
        browser.wait_for("state.textContent === 'degraded'", PATIENCE)
        assert browser.run("view.pose.pose") == [2.5, 1.5, 0.5]
        assert browser.run("view.pose.sigma[0]") == 0.3
        assert browser.run("view.hypotheses.length") == 0
