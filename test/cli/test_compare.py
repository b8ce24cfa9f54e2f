"""`kbf compare` from folders of results to tables, metrics and a page in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from test.cli.kbf import kbf, refused
from test.evaluation.chromium import Chromium
from test.evaluation.test_compare import DRIVE, results

HOSTILE = "<img src=x onerror=console.error(1)>'\"\u202e" + "long" * 30


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("compare")
    first = results(folder / "before", DRIVE, "kbf", "nai")
    second = results(folder / HOSTILE, DRIVE, "kbf", forward_m=0.5)
    options = ("--method", "kbf", "--output", folder / "out")
    result = kbf("compare", first, second, *options, width=300)
    assert result.exit_code == 0, result.output
    return folder / "out", result.output


def test_it_prints_differences_with_their_spread(compared: tuple[Path, str]) -> None:
    folder, output = compared
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["reference"] == "before"
    (label, differences), *_ = metrics["differences"].items()
    median = differences["position_median_m"]
    assert median["verdict"] == "worse" and median["low"] < median["difference"] < median["high"]
    figures = metrics["methods"]
    expected = figures[label]["position_median_m"] - figures["before"]["position_median_m"]
    assert median["difference"] == pytest.approx(expected)
    assert "95 % of resamples" in output and "worse" in output and "position_median_m" not in output


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    assert "trajectory_truth.tum" in refused("compare", tmp_path, tmp_path)


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_shows_errors_on_one_axis(
    compared: tuple[Path, str], browser: Chromium, width: int, scheme: str
) -> None:
    browser.open(compared[0] / "report.html", width=width, scheme=scheme)
    browser.wait_for("document.querySelector('canvas.chart').width > 0")
    assert browser.messages == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert "worse than before" in browser.run("document.querySelector('.verdict').textContent")
    inked = """(() => {
        const canvas = document.querySelector("canvas.chart");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(pixels.data.buffer)).size;
    })()"""
    assert browser.run(inked) > 20
