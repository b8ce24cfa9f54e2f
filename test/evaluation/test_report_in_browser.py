"""The report opened by a real Chromium: it loads, plays, jumps, and can be seen."""

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.evaluation.report import write_report
from kbf_localization.evaluation.results import ResultsFolder
from test.evaluation.chromium import Chromium, chromium, find_chromium
from test.evaluation.synthetic import SyntheticDrive, synthetic_map, synthetic_run

pytestmark = pytest.mark.browser
FRAME = "Number(document.getElementById('slider').value)"
HOSTILE = "<img src=x onerror=console.error('executed')>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drive = SyntheticDrive(200, name=HOSTILE, labels=(HOSTILE,) * 200, warnings=(HOSTILE,))
    training_map = synthetic_map()
    runs = {name: synthetic_run(drive, training_map.poses, name) for name in ("kbf", "nn", "nai")}
    folder = ResultsFolder(tmp_path_factory.mktemp("report"))
    config = {"command": f"kbf evaluate {HOSTILE}"}
    return write_report(folder, "report.html", HOSTILE, config, runs, training_map, drive)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium here: install the package chromium to test the report's page")
    with chromium(executable) as one:
        yield one


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR))


def inked(browser: Chromium, canvas: str) -> bool:
    """Whether anything is drawn on a canvas."""
    return bool(
        browser.run(
            f"""(() => {{
                const canvas = document.getElementById({canvas!r});
                const context = canvas.getContext("2d");
                const area = context.getImageData(0, 0, canvas.width, canvas.height);
                return area.data.some((value) => value > 0);
            }})()"""
        )
    )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_it_loads_without_complaint_and_is_not_blank(
    browser: Chromium, page: Path, width: int, scheme: str
) -> None:
    browser.open(page, width=width, scheme=scheme)
    browser.wait_for("document.getElementById('clock').textContent.includes('1/200')")
    shot = pixels(browser.page.screenshot())
    assert browser.messages == []
    assert len(np.unique(shot.reshape(-1, 3), axis=0)) > 100
    assert (shot.mean() < 100) == (scheme == "dark")
    for canvas in ("camera", "match", "map", "strip", "paths", "errors", "distribution", "sigma"):
        browser.wait_for(f"document.getElementById('{canvas}').width > 0")
        assert inked(browser, canvas), canvas


def test_nothing_is_wider_than_a_phone(browser: Chromium, page: Path) -> None:
    browser.open(page, width=390, height=844)
    assert browser.run("document.documentElement.scrollWidth") <= 390


def test_play_moves_the_frame_and_pause_stops_it(browser: Chromium, page: Path) -> None:
    browser.open(page)
    before = browser.run("document.getElementById('map').toDataURL()")
    browser.page.click("#play")
    browser.wait_for(f"{FRAME} >= 5")
    browser.page.click("#play")
    stopped = browser.run(FRAME)
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run(FRAME) == stopped
    assert browser.run("document.getElementById('map').toDataURL()") != before
    assert browser.messages == []


def test_the_slider_shows_its_frame(browser: Chromium, page: Path) -> None:
    browser.open(page)
    x, y, width = browser.run(
        """(() => {
            const slider = document.getElementById("slider");
            slider.scrollIntoView({block: "center"});
            const box = slider.getBoundingClientRect();
            return [box.x, box.y + box.height / 2, box.width];
        })()"""
    )
    browser.page.mouse.click(x + width / 2, y)
    browser.wait_for(f"Math.abs({FRAME} - 100) < 6")
    shown = browser.run("document.getElementById('clock').textContent")
    assert f"frame {browser.run(FRAME) + 1}/200" in shown


def test_keys_step_and_reach_the_ends(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.page.keyboard.press("ArrowRight")
    browser.page.keyboard.press("ArrowRight")
    assert browser.run(FRAME) == 2
    browser.page.keyboard.press("End")
    assert browser.run(FRAME) == 199
    browser.page.keyboard.press("ArrowLeft")
    assert browser.run(FRAME) == 198
    browser.page.keyboard.press("Home")
    assert browser.run(FRAME) == 0


def test_a_click_jumps_to_the_worst_frame(browser: Chromium, page: Path) -> None:
    drive = SyntheticDrive(200)
    run = synthetic_run(drive, synthetic_map().poses, "kbf")
    worst = int(np.argmax(np.hypot(*(run.estimates - drive.poses)[:, :2].T)))
    browser.open(page)
    browser.page.click("#worst button")
    assert browser.run(FRAME) == worst
    assert browser.run("document.querySelector('#worst button').ariaCurrent") == "true"


def test_a_click_on_the_error_strip_jumps_there(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.page.click("#strip")
    assert abs(browser.run(FRAME) - 100) <= 1


def test_another_method_can_be_replayed(browser: Chromium, page: Path) -> None:
    browser.open(page)
    before = browser.run("document.getElementById('now').textContent")
    browser.run(
        """(() => {
            const select = document.getElementById("method");
            select.value = "1";
            select.dispatchEvent(new Event("change"));
        })()"""
    )
    assert browser.run("document.getElementById('now').textContent") != before
    assert browser.messages == []


def test_the_theme_button_turns_light_into_dark(browser: Chromium, page: Path) -> None:
    browser.open(page, scheme="light")
    light = pixels(browser.page.screenshot()).mean()
    browser.page.click("#theme")
    assert pixels(browser.page.screenshot()).mean() < light / 2


def test_drawing_a_frame_does_not_take_longer_in_a_longer_drive(
    browser: Chromium, tmp_path: Path
) -> None:
    """The same map, 1000 frames against 100: the medians are within a factor of three."""
    training_map = synthetic_map(1000)
    milliseconds = {}
    for frames in (100, 1000):
        drive = SyntheticDrive(frames)
        runs = {name: synthetic_run(drive, training_map.poses, name) for name in ("kbf", "nai")}
        folder = ResultsFolder(tmp_path / str(frames))
        folder.path.mkdir()
        path = write_report(folder, "report.html", "long", {}, runs, training_map, drive)
        browser.open(path)
        milliseconds[frames] = browser.run(
            f"""(() => {{
                const slider = document.getElementById("slider"), times = [];
                for (let frame = 0; frame < {frames}; frame += {frames // 100}) {{
                    const start = performance.now();
                    slider.value = frame;
                    slider.dispatchEvent(new Event("input"));
                    times.push(performance.now() - start);
                }}
                return times.sort((a, b) => a - b)[50];
            }})()"""
        )
    assert milliseconds[1000] < 3 * milliseconds[100]
