"""Make the pictures of README and docs from one drive and a map.

python tools/make_docs_images.py DRIVE MAP
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

PROJECT = Path(__file__).resolve().parents[1]
IMAGES = PROJECT / "docs" / "images"
sys.path.insert(0, str(PROJECT))


def save_small(picture: Image.Image, name: str, width: int, colours: int = 96) -> None:
    """As PNG with a palette, which is a third of the size."""
    picture = picture.convert("RGB")
    picture.thumbnail((width, 4 * width), Image.Resampling.LANCZOS)
    picture.quantize(colours, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def save_figure(figure: Figure, name: str, width: int) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=150)
    save_small(Image.open(drawn), name, width, colours=48)


def picture_of_report(report: Path, frame: int) -> Image.Image:
    """The report's replay player at a frame, as Chromium shows it."""
    from test.evaluation.chromium import Chromium, find_chromium

    executable = find_chromium()
    if executable is None:
        raise SystemExit("install Chromium: the picture of the report is taken with it")
    with tempfile.TemporaryDirectory() as profile:
        browser = Chromium(executable, Path(profile))
        try:
            browser.open(report, width=1240, height=860)
            browser.run(
                "const slider = document.getElementById('slider');"
                f"slider.value = {frame}; slider.dispatchEvent(new Event('input'));"
            )
            time.sleep(1)
            return Image.open(io.BytesIO(browser.screenshot()))
        finally:
            browser.close()


def main(drive_path: str, map_path: str) -> None:
    from kbf_localization.datasets.open import open_drive
    from kbf_localization.evaluation.animation import save_animation
    from kbf_localization.evaluation.evaluate import evaluate_drives
    from kbf_localization.evaluation.plots import draw_belief, draw_error_over_time
    from kbf_localization.evaluation.report import write_report
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.training_map import load_map

    IMAGES.mkdir(parents=True, exist_ok=True)
    drive, training_map = open_drive(Path(drive_path)), load_map(Path(map_path))
    runs = evaluate_drives([drive], training_map, ["kbf", "nai"])[0].runs
    run = runs["kbf"]
    save_animation(IMAGES / "demo.gif", run, training_map, drive)

    figure = Figure(figsize=(10, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    tracking = next(row for row in range(len(run)) if run.states[row] == "tracking")
    later = min(tracking + 60, len(run) - 1)
    for axes, frame, title in zip(
        figure.subplots(2, 1), (1, later), ("the second image", "some images later"), strict=True
    ):
        draw_belief(axes, run, frame, training_map.poses, title)
    figure.axes[0].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
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
            f"Localization of {drive.name}",
            config,
            runs,
            training_map,
            drive,
        )
        save_small(
            picture_of_report(report, int(np.clip(later, 0, len(drive) - 1))), "report.png", 1240
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
