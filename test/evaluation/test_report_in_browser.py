"""The report opened by a real Chromium: it loads, plays, jumps, and can be seen."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.evaluation.metric_texts import length_text
from kbf_localization.evaluation.report import write_report
from kbf_localization.evaluation.results import ResultsFolder
from test.evaluation.chromium import Chromium
from test.evaluation.synthetic import (
    MIN_EVIDENCE,
    SyntheticDrive,
    drive_named,
    synthetic_map,
    synthetic_run,
)

pytestmark = pytest.mark.browser
FRAME = "Number(document.getElementById('slider').value)"
HOSTILE = (
    "</script><script>console.error('executed')</script><img src=x onerror=console.error('too')>"
    "\"'`{{DATA}} \u202eדרך\u2066 " + "long" * 80
)
"""Ends elements and attributes, names a placeholder, writes from right to left, and is long."""

VISIBLE = """((selector) => {
    const box = document.querySelector(selector).getBoundingClientRect();
    return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
})"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drive = drive_named(HOSTILE, 200)
    training_map = synthetic_map()
    runs = {name: synthetic_run(drive, training_map.poses, name) for name in ("kbf", "nn", "nai")}
    folder = ResultsFolder(tmp_path_factory.mktemp("report"))
    config = {"command": f"kbf evaluate {HOSTILE}", HOSTILE: HOSTILE}
    return write_report(folder, "report.html", HOSTILE, config, runs, training_map, drive)


@pytest.fixture
def opened(browser: Chromium, page: Path) -> Chromium:
    """The page as it is when it has just been opened."""
    browser.open(page)
    return browser


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
def test_it_loads_without_errors_and_is_not_blank(
    browser: Chromium, page: Path, width: int, scheme: str
) -> None:
    browser.open(page, width=width, scheme=scheme)
    browser.wait_for("document.getElementById('clock').textContent.includes('1/200')")
    shot = pixels(browser.page.screenshot())
    assert browser.messages == []
    assert len(np.unique(shot.astype(int) @ (65536, 256, 1))) > 100
    assert (shot.mean() < 100) == (scheme == "dark")
    for canvas in ("camera", "match", "map", "strip", "paths", "errors", "distribution", "sigma"):
        browser.wait_for(f"document.getElementById('{canvas}').width > 0")
        assert inked(browser, canvas), canvas


def test_nothing_is_wider_than_a_phone(browser: Chromium, page: Path) -> None:
    browser.open(page, width=390, height=844)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    shown = browser.run("document.querySelector('#metrics tbody tr').innerText")
    assert re.search(r"\d (mm|cm|m)\b", shown), "the phone's table keeps its units"


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (1366, 650), (800, 900), (390, 844)])
def test_the_player_fits_the_window(browser: Chromium, page: Path, width: int, height: int) -> None:
    browser.open(page, width=width, height=height)
    browser.run("document.getElementById('replay').scrollIntoView()")
    for shown in ("#play", "#slider", "#clock", "#strip", "#camera", "#map"):
        assert browser.run(f"{VISIBLE}({shown!r})"), shown


def test_the_controls_are_in_sight_wherever_the_player_is(browser: Chromium, page: Path) -> None:
    browser.open(page, width=1366, height=650)
    for at in ("#tiles", "#replay"):
        browser.run(f"document.querySelector({at!r}).scrollIntoView()")
        assert browser.run(f"{VISIBLE}('#play')"), at


def test_it_opens_with_the_verdict_of_its_own_figures(opened: Chromium) -> None:
    drive = SyntheticDrive(200)
    run = synthetic_run(drive, synthetic_map().poses, "kbf")
    said = opened.run("document.querySelector('main > section').innerText")
    errors = np.hypot(*(run.estimates - drive.poses)[:, :2].T)
    sure = np.array(run.states) == "tracking"
    assert said.startswith("Found itself after 1.6 s without a hint"), "8 frames of 0.204 s"
    assert f"median {100 * np.median(errors[8:]):.0f} cm" in said
    assert "lost once, for 4 s" in said, "20 frames of 0.204 s"
    assert ("never confident and wrong" in said) == (not (errors[sure] > 1.0).any())
    tile = opened.run("document.querySelector('.tile b').textContent")
    assert tile == f"{100 * np.median(errors):.0f} cm"


def test_every_figure_says_what_it_is_and_what_is_good(opened: Chromium) -> None:
    tip = "document.getElementById('tip')"
    for shown in ("#metrics tbody tr", ".tile"):
        count = opened.page.locator(shown).count()
        assert count > 5
        for number in range(count):
            opened.page.locator(shown).nth(number).hover()
            text = opened.run(f"{tip}.hidden ? '' : {tip}.textContent")
            assert len(text.split(". ")) >= 2, (shown, number, text)
            assert opened.run(f"{tip}.getBoundingClientRect().right <= innerWidth")
    opened.page.focus("#now dt:nth-of-type(3)")
    assert "standard deviation" in opened.run(f"{tip}.textContent")
    opened.page.keyboard.press("Escape")
    assert opened.run(f"{tip}.hidden")


def test_a_tap_shows_what_a_figure_is(browser: Chromium, page: Path) -> None:
    browser.open(page, width=390, height=844)
    browser.page.click("#now dt:nth-of-type(4)")
    assert "log-likelihood ratio" in browser.run("document.getElementById('tip').textContent")


def test_sigma_evidence_and_the_methods_are_explained_where_they_stand(opened: Chromium) -> None:
    for canvas, word in (("sigma", "standard deviation"), ("evidence", "log-likelihood ratio")):
        figure = f"document.getElementById('{canvas}').closest('figure')"
        assert word in opened.run(f"{figure}.innerText")
    assert "nearest image" in opened.run("document.querySelector('#metrics thead').innerText")


def test_the_evidence_has_its_threshold(opened: Chromium) -> None:
    """The chart's dashed line has the colour of "lost", which nothing else there has."""
    assert opened.run("data.leastEvidence") == MIN_EVIDENCE
    coloured = """((name) => {
        const probe = document.createElement("canvas").getContext("2d");
        probe.fillStyle = theme.colour(name);
        probe.fillRect(0, 0, 1, 1);
        const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
        const canvas = document.getElementById("evidence");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let rows = 0;
        for (let i = 0; i < pixels.length; i += 4)
            if (pixels[i] === r && pixels[i + 1] === g && pixels[i + 2] === b) rows++;
        return rows;
    })"""
    assert opened.run(f"{coloured}('lost')") > 100
    opened.run(
        "data.leastEvidence = null; drawEvidence(document.getElementById('evidence'), data.methods)"
    )
    assert opened.run(f"{coloured}('lost')") == 0


def test_hypotheses_are_listed_with_their_probabilities(opened: Chromium) -> None:
    listed = "Array.from(document.querySelectorAll('#hypotheses li'), (item) => item.textContent)"
    assert opened.run(listed) == ["place 1 40 %", "place 2 30 %", "elsewhere 30 %"]
    opened.page.keyboard.press("End")
    assert opened.run(listed)[0] == "place 1 97 %"


def test_events_are_marked_and_lead_to_their_frames(opened: Chromium) -> None:
    """The synthetic run localizes for 8 frames, is lost from 120 to 140, and tracks else."""
    events = "Array.from(document.querySelectorAll('#events button'), (item) => item.textContent)"
    assert opened.run(events) == [
        "1.6 s: one place wins (97 %)",
        "1.6 s: tracking",
        "24.5 s: lost",
        "28.6 s: one place wins (97 %)",
        "28.6 s: tracking",
    ]
    frames = []
    for _ in range(3):
        opened.page.keyboard.press("e")
        frames.append(opened.run(FRAME))
    assert frames == [8, 120, 140]
    opened.page.click("#events button.won")
    assert opened.run(FRAME) == 8


def test_a_hypothesis_is_followed_by_its_trail(opened: Chromium) -> None:
    """Number 2 lives in frames 0 to 7, three metres ahead of the estimate."""
    trail = opened.run("trailOf(data.methods[0], 2, 0, 5)")
    ahead = opened.run("Array.from(data.methods[0].poses.subarray(0, 18))")
    assert len(trail) == 18
    assert trail[0::3] == pytest.approx([x + 3 for x in ahead[0::3][::-1]], abs=1e-4)
    assert opened.run("trailOf(data.methods[0], 2, 0, 9)") == []


def test_walls_are_drawn_where_the_plan_has_them(opened: Chromium) -> None:
    """The plan's left wall is from x = -12 m on, 0.3 m thick; at its height nothing else is."""
    opened.wait_for(
        "(walls.draw(viewOf(document.getElementById('paths'), [-13, -7, 13, 7])), true)"
    )
    look = """((x) => {
        const canvas = document.getElementById("paths"), view = viewOf(canvas, [-13, -7, 13, 7]);
        walls.draw(view);
        const ratio = devicePixelRatio;
        return view.context.getImageData(ratio * view.x(x), ratio * view.y(3), 1, 1).data[3];
    })"""
    opened.wait_for(f"{look}(-11.85) > 200")
    assert opened.run(f"{look}(-11.0)") == 0 and opened.run(f"{look}(-12.3)") == 0


def test_lengths_are_written_as_in_the_tables(opened: Chromium) -> None:
    for value in (0.0042, 0.0725, 0.2537, 0.9999, 1.254, 12.34):
        assert opened.run(f"metres({value})") == length_text(value)


def test_names_of_users_stay_text_everywhere(opened: Chromium) -> None:
    assert opened.messages == []
    assert opened.run("document.querySelectorAll('img').length") == 0
    for shown in (
        "h1",
        ".top p",
        "#now dd:last-of-type",
        "#command",
        ".settings th",
        "ul li:last-child",
    ):
        text = opened.run(f"document.querySelector({shown!r}).textContent")
        assert "</script>" in text, shown
    assert opened.run("document.title").startswith("</script>")


def test_play_moves_the_frame_and_pause_stops_it(opened: Chromium) -> None:
    before = opened.run("document.getElementById('map').toDataURL()")
    opened.page.click("#play")
    opened.wait_for(f"{FRAME} >= 5")
    opened.page.click("#play")
    stopped = opened.run(FRAME)
    opened.run("new Promise(done => setTimeout(done, 300))")
    assert opened.run(FRAME) == stopped
    assert opened.run("document.getElementById('map').toDataURL()") != before
    assert opened.messages == []


def test_the_slider_shows_its_frame(opened: Chromium) -> None:
    x, y, width = opened.run(
        """(() => {
            const slider = document.getElementById("slider");
            slider.scrollIntoView({block: "center"});
            const box = slider.getBoundingClientRect();
            return [box.x, box.y + box.height / 2, box.width];
        })()"""
    )
    opened.page.mouse.click(x + width / 2, y)
    opened.wait_for(f"Math.abs({FRAME} - 100) < 6")
    shown = opened.run("document.getElementById('clock').textContent")
    assert f"frame {opened.run(FRAME) + 1}/200" in shown


def test_keys_step_and_reach_the_ends(opened: Chromium) -> None:
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowRight")
    assert opened.run(FRAME) == 2
    opened.page.keyboard.press("End")
    assert opened.run(FRAME) == 199
    opened.page.keyboard.press("ArrowLeft")
    assert opened.run(FRAME) == 198
    opened.page.keyboard.press("Home")
    assert opened.run(FRAME) == 0


def test_a_click_jumps_to_the_worst_frame(opened: Chromium) -> None:
    drive = SyntheticDrive(200)
    run = synthetic_run(drive, synthetic_map().poses, "kbf")
    worst = int(np.argmax(np.hypot(*(run.estimates - drive.poses)[:, :2].T)))
    opened.page.click("#worst button")
    assert opened.run(FRAME) == worst
    assert opened.run("document.querySelector('#worst button').ariaCurrent") == "true"


def test_a_click_on_the_error_strip_jumps_there(opened: Chromium) -> None:
    opened.page.click("#strip")
    assert abs(opened.run(FRAME) - 100) <= 1


def test_another_method_can_be_replayed(opened: Chromium) -> None:
    before = opened.run("document.getElementById('now').textContent")
    opened.run(
        """(() => {
            const select = document.getElementById("method");
            select.value = "1";
            select.dispatchEvent(new Event("change"));
        })()"""
    )
    assert opened.run("document.getElementById('now').textContent") != before
    assert opened.messages == []


def test_the_theme_button_turns_light_into_dark(browser: Chromium, page: Path) -> None:
    browser.open(page, scheme="light")
    light = pixels(browser.page.screenshot()).mean()
    browser.page.click("#theme")
    assert pixels(browser.page.screenshot()).mean() < light / 2


def test_drawing_a_frame_is_no_more_work_in_a_longer_drive(
    browser: Chromium, tmp_path: Path
) -> None:
    """The strokes of a frame in the middle: of 400 frames no more than of 100, but for a few."""
    training_map = synthetic_map(50)
    strokes = {}
    for frames in (100, 400):
        drive = SyntheticDrive(frames)
        runs = {"kbf": synthetic_run(drive, training_map.poses, "kbf")}
        folder = ResultsFolder(tmp_path / str(frames))
        folder.path.mkdir()
        browser.open(write_report(folder, "report.html", "long", {}, runs, training_map, drive))
        strokes[frames] = browser.run(
            f"""(() => {{
                let count = 0;
                for (const name of ["moveTo", "lineTo", "arc", "ellipse", "fillRect"]) {{
                    const own = CanvasRenderingContext2D.prototype[name];
                    CanvasRenderingContext2D.prototype[name] = function (...values) {{
                        count++;
                        own.apply(this, values);
                    }};
                }}
                const slider = document.getElementById("slider");
                slider.value = {frames // 2};
                slider.dispatchEvent(new Event("input"));
                return count;
            }})()"""
        )
    assert 50 < strokes[400] < strokes[100] + 50


def test_inlier_matches_are_drawn_on_both_images_and_on_the_plan(opened: Chromium) -> None:
    """Landmarks 3 m ahead and 1.2 m aside are seen 120 px · 1.2 / 3 beside the image's middle."""
    opened.run("player.goToSeconds(data.seconds[20])")
    opened.wait_for("document.getElementById('camera-caption').textContent.includes('12 inlier')")
    caption = "document.getElementById('match-caption').textContent"
    assert opened.run(caption).endswith(": 8 of them")
    first = "data.methods[0].matches.camera.slice(2 * data.methods[0].matches.ends[20]).slice(0, 2)"
    right = 0.5 + 120.0 * 1.2 / 3.0 / 160.0
    below = 0.5 + 120.0 * 0.5 / 3.0 / 120.0
    assert opened.run(f"Array.from({first})") == [round(254 * right), round(254 * below)]
    shot = "document.getElementById('map').toDataURL()"
    drawn = opened.run(shot)
    opened.page.keyboard.press("m")
    assert opened.run("document.getElementById('camera-caption').textContent") == "camera"
    assert opened.run(shot) != drawn
    assert opened.run("data.lacking") == [0]


def test_a_window_without_room_draws_without_complaint(browser: Chromium, page: Path) -> None:
    browser.open(page, width=1366, height=120)
    browser.run("document.getElementById('map').style.minHeight = '0'")
    browser.run("document.querySelector('.map').style.height = '10px'")
    browser.run("player.goToSeconds(10)")
    assert browser.messages == []


def test_events_are_explained_in_words(opened: Chromium) -> None:
    shown = opened.run("document.getElementById('event-texts').textContent")
    assert "odometry jump" in shown and "reset or has jumped" in shown
