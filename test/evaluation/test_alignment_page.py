"""The map is aligned by mouse: clicked pairs become a command that moves it there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="Playwright drives the browser")

from kbf_localization.cli.map_files import parse_pair
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.evaluation.alignment_page import alignment_widget
from kbf_localization.evaluation.report import write_simple_report
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.geometry import compose
from kbf_localization.mapping.editing import frame_from_pairs
from test.evaluation.chromium import Chromium

PATH = np.array([[0.0, 0.0], [8.0, 0.0], [8.0, 5.0]])
FRAME = np.array([2.0, -0.5, 0.1])
PLAN = FloorPlanImage(np.full((80, 120), 254, np.uint8), 0.1, (1.0, -1.0, 0.0))


@pytest.mark.browser
def test_three_clicked_pairs_give_the_command_that_aligns(
    tmp_path: Path, browser: Chromium
) -> None:
    page = write_simple_report(
        ResultsFolder(tmp_path),
        "Align",
        {"command": "kbf map align"},
        widget=alignment_widget([PATH], "kbf map align office.kbfmap", PLAN),
    )
    there = compose(FRAME, np.column_stack((PATH, np.zeros(3))))[:, :2]
    browser.open(page)
    for own, other in zip(PATH, there, strict=True):
        for canvas, box, point in (
            ("#align-map", [0.0, 0.0, 8.0, 5.0], own),
            ("#align-plan", [1.0, -1.0, 13.0, 7.0], other),
        ):
            area = browser.page.locator(canvas).bounding_box()
            assert area is not None
            # As the page is documented: the content fills 92 % of the canvas, y upwards.
            height = round(0.75 * area["width"])
            scale = 0.92 * min(area["width"] / (box[2] - box[0]), height / (box[3] - box[1]))
            middle = np.array([box[0] + box[2], box[1] + box[3]]) / 2
            x, y = (point - middle) * [scale, -scale]
            position = {"x": area["width"] / 2 + x, "y": height / 2 + y}
            browser.page.locator(canvas).click(position=position)
    command = browser.run("document.getElementById('align-command').textContent")
    fit = browser.run("document.getElementById('align-fit').textContent")
    assert browser.messages == []
    assert command.startswith("kbf map align office.kbfmap --pair=")
    pairs = [parse_pair(text) for text in re.findall(r"--pair=(\S+)", command)]
    assert len(pairs) == 3
    frame, errors = frame_from_pairs(pairs)
    # Both are rounded, the one to centimetres.
    within = float(fit.removeprefix("The pairs agree within ").removesuffix(" m."))
    assert within == pytest.approx(errors.max(), abs=0.007)
    # A click is whole pixels, some 0.02 m.
    np.testing.assert_allclose(frame, FRAME, atol=0.05)


@pytest.mark.browser
def test_a_typed_place_has_two_numbers(tmp_path: Path, browser: Chromium) -> None:
    page = write_simple_report(
        ResultsFolder(tmp_path),
        "Align",
        {"command": "kbf map build"},
        widget=alignment_widget([PATH], "kbf map align office.kbfmap", None),
    )
    browser.open(page)
    typed, add = browser.page.locator("#align-typed"), browser.page.locator("#align-add")
    for place in ((100, 100), (300, 200)):
        browser.page.locator("#align-map").click(position={"x": place[0], "y": place[1]})
        for text in ("", "1", "1,", "1,b", "1,2,3"):
            typed.fill(text)
            add.click()
            said = browser.run("document.getElementById('align-next').textContent")
            assert said.startswith("Type two numbers")
        typed.fill(" 1.5, -2 ")
        add.click()
    command = browser.run("document.getElementById('align-command').textContent")
    assert browser.messages == []
    pairs = [parse_pair(text) for text in re.findall(r"--pair=(\S+)", command)]
    assert [pair[2:] for pair in pairs] == [[1.5, -2.0]] * 2
