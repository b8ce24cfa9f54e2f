"""Make the images of README and docs from one drive and a map.

python tools/make_docs_images.py DRIVE MAP

The animation kidnap.gif is what `kbf demo --kidnap` makes.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
sys.path.insert(0, str(PROJECT))

from kbf_localization.arrays import Array  # noqa: E402 (the path is set above)
from kbf_localization.evaluation.plots import draw_weights  # noqa: E402
from kbf_localization.evaluation.run import Run  # noqa: E402


def save_figure(figure: Figure, name: str, width: int) -> None:
    """As PNG of this width in pixels, with all its colours."""
    figure.savefig(IMAGES / name, dpi=width / figure.get_figwidth())


def screenshot_of_report(report: Path, frame: int) -> Image.Image:
    """Return the report's replay player at a frame, as Chromium shows it."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        raise SystemExit("install Chromium: the image of the report is taken with it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 720})
        page.goto(report.resolve().as_uri())
        page.locator("#slider").fill(str(frame))
        page.evaluate("document.getElementById('replay').scrollIntoView()")
        page.get_by_text(f"frame {frame + 1}/").wait_for()
        page.wait_for_timeout(1000)  # until the frame's images are decoded
        screenshot = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
        return screenshot


def most_undecided(run: Run) -> int:
    """Return the frame whose second hypothesis is the most probable.

    There several are to be seen.
    """

    def second(row: int) -> float:
        return sorted((0.0, 0.0, *(hypothese.probability for hypothese in run.hypotheses[row])))[-2]

    return max(range(len(run)), key=second)


def draw_belief(axes: Axes, run: Run, frame: int, map_poses: Array, title: str) -> None:
    """Return the weights on the map's poses at one frame: positive discs, negative diamonds."""
    axes.plot(*map_poses[:, :2].T, ".", color="0.8", markersize=3, label="map poses")
    weights = run.beliefs[frame]
    draw_weights(axes, map_poses[weights.rows, :2], weights.values)
    axes.plot(*run.truth[frame, :2], "o", ms=11, mfc="none", mec="black", mew=2, label="truth")
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal", title=title)


def main(drive_path: str, map_path: str) -> None:
    from kbf_localization.datasets.open import open_drive
    from kbf_localization.evaluation.evaluate import evaluate_drives
    from kbf_localization.evaluation.plots import draw_error_over_time
    from kbf_localization.evaluation.report import write_report
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.mapping import load_map

    IMAGES.mkdir(parents=True, exist_ok=True)
    drive, training_map = open_drive(Path(drive_path)), load_map(Path(map_path))
    runs = evaluate_drives([drive], training_map, ["kbf", "nai"])[0].runs
    run = runs["kbf"]

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    later = len(run) // 2
    left, right = figure.subplots(1, 2)
    draw_belief(left, run, 0, training_map.poses, "after the first image")
    draw_belief(right, run, later, training_map.poses, "tracking, seen from near")
    x, y = run.estimates[later, :2]
    right.set(xlim=(x - 1.2, x + 1.2), ylim=(y - 1.2, y + 1.2))
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_figure(figure, "belief.png", 900)

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    draw_error_over_time(figure.subplots(), runs)
    save_figure(figure, "error_over_time.png", 900)

    config = {"command": "kbf demo"}
    with tempfile.TemporaryDirectory() as folder:
        report = write_report(
            ResultsFolder(Path(folder)),
            "report.html",
            f"{drive.name} on {Path(map_path).stem}",
            config,
            runs,
            training_map,
            drive,
        )
        screenshot = screenshot_of_report(report, most_undecided(run))
        screenshot.convert("RGB").save(IMAGES / "report.jpg", quality=82)


if __name__ == "__main__":
    main(*sys.argv[1:3])
