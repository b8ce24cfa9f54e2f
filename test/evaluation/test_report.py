"""The report's page as text: self-contained, within its size, and deaf to what names say."""

import base64
import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.report import (
    Plot,
    Table,
    write_drives_report,
    write_report,
    write_simple_report,
)
from kbf_localization.evaluation.report_data import report_data, shrink, small_images
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.evaluation.verdict import verdict
from test.evaluation.synthetic import (
    SyntheticDrive,
    camera_image,
    drive_named,
    synthetic_map,
    synthetic_run,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{DATA}}\u2028'\""


def write(folder: Path, drive: SyntheticDrive, **config: str) -> str:
    training_map = synthetic_map()
    runs = {name: synthetic_run(drive, training_map.poses, name) for name in ("kbf", "nai")}
    page = write_report(
        ResultsFolder(folder),
        "report.html",
        f"Localization of {drive.name}",
        config,
        runs,
        training_map,
        drive,
    )
    return page.read_text(encoding="utf-8")


def test_the_page_asks_for_nothing_from_outside(tmp_path: Path) -> None:
    page = write(tmp_path, SyntheticDrive(20), command="kbf evaluate x --map y")
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!data:)\w""", page.split("<script", 1)[0])
    assert "kbf evaluate x --map y" in page


def test_names_from_data_stay_text(tmp_path: Path) -> None:
    drive = drive_named(HOSTILE, 20)
    page = write(tmp_path, drive, command=HOSTILE, source=HOSTILE)
    assert "<img src=x" not in page
    assert page.count("<script") == page.count("</script>") == 2
    data = json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])
    assert data["frames"]["labels"][0] == HOSTILE


def test_names_of_several_drives_stay_text(tmp_path: Path) -> None:
    run = synthetic_run(SyntheticDrive(20), synthetic_map().poses, "kbf")
    methods = {"kbf": trajectory_metrics(run)}
    source = {"name": HOSTILE, "condition": HOSTILE, "methods": methods, "verdict": verdict(run)}
    metrics = {"methods": methods, "conditions": {HOSTILE: methods}, "sources": {"01-a/": source}}
    metrics["warnings"] = [f"EVALUATED ON TRAINING DATA: {HOSTILE}"]
    folder = ResultsFolder(tmp_path)
    page = write_drives_report(folder, {"command": HOSTILE}, metrics, ["01-a/"]).read_text("utf-8")
    assert "<img src=x" not in page and page.count("<script") == 1
    assert "Found itself after" in page and 'href="01-a/report.html"' in page
    assert "EVALUATED ON TRAINING DATA" in page


def test_vga_frames_fit_into_fifteen_kilobytes_each() -> None:
    """Noise is the worst that a camera can send: the images shrink until they fit."""

    class Noisy(SyntheticDrive):
        def encoded_images(self, indices=None):  # type: ignore[no-untyped-def]
            rng = np.random.default_rng(0)
            noise = [self._noise(rng) for _ in range(3)]
            for index in range(self.frames) if indices is None else indices:
                yield index, noise[index % 3]

        @staticmethod
        def _noise(rng: np.random.Generator) -> bytes:
            image = rng.integers(0, 256, (480, 640, 3), dtype=np.uint8)
            return cv2.imencode(".jpg", image)[1].tobytes()

    frames, images = small_images(Noisy(100), budget_bytes=1_500_000)
    assert sum(map(len, images)) * 3 / 4 <= 1_500_000 * 1.02
    assert len(frames) == len(images) > 30


def test_what_is_no_image_becomes_no_image() -> None:
    assert shrink(b"", 320, 60) == b""
    assert shrink(b"GIF89a", 320, 60) == b""
    assert shrink(camera_image(1)[:200], 320, 60) == b""
    # The header of a JPEG that claims 65,500 × 65,500 pixels.
    bomb = bytearray(camera_image(1))
    start = bomb.index(b"\xff\xc0")
    bomb[start + 5 : start + 9] = b"\xff\xdc\xff\xdc"
    assert shrink(bytes(bomb), 320, 60) == b""


def test_scans_without_end_are_no_image() -> None:
    grey = np.zeros((48, 64), np.uint8)
    data = cv2.imencode(".jpg", grey, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    last = data.rindex(b"\xff\xda")
    assert shrink(data, 320, 60)
    assert shrink(data[:last] + 200 * data[last:-2] + data[-2:], 320, 60) == b""


def test_belief_weights_keep_sign_and_place() -> None:
    drive, training_map = SyntheticDrive(10), synthetic_map()
    run = synthetic_run(drive, training_map.poses, "kbf")
    assert run.beliefs is not None and run.beliefs[0] is not None
    belief = report_data({"kbf": run}, training_map, drive)["methods"][0]["belief"]
    ends = np.frombuffer(base64.b64decode(belief["ends"]), "<u4")
    rows = np.frombuffer(base64.b64decode(belief["rows"]), "<u4")[: ends[1]]
    levels = np.frombuffer(base64.b64decode(belief["values"]), "i1")[: ends[1]]
    weights = dict(zip(run.beliefs[0].rows, run.beliefs[0].values, strict=True))
    largest = max(map(abs, weights.values()))
    assert len(ends) == 11
    assert levels / 127 == pytest.approx([weights[row] / largest for row in rows], abs=0.5 / 127)
    assert levels.min() < 0 < levels.max()


def test_an_experiments_report_shows_its_plots_and_tables(tmp_path: Path) -> None:
    plot_path = tmp_path / "rmse.png"
    plot_path.write_bytes(b"\x89PNG")
    page = write_simple_report(
        ResultsFolder(tmp_path),
        "Sum rule <b>",
        {"command": "kbf experiment sum-rule --trials 3", "trials": 3},
        verdict_text="It holds <everywhere>.",
        summary="The model helps.\n\nMost of all <here>.",
        tables=[
            Table(
                "Errors",
                ("rule", "mean", "note"),
                [
                    ("Mb-KSR", 0.012345, ""),
                    ("Mb-KSR (est)", "0.02 where the noise is estimated", ""),
                    ("NP-KSR", None, "not measured in this run"),
                    ("best", 0.01, ""),
                ],
            )
        ],
        plots=[Plot(plot_path, "RMSE & n")],
    ).read_text(encoding="utf-8")
    assert "Sum rule &lt;b&gt;" in page and "Most of all &lt;here&gt;." in page
    assert '<p class="verdict">It holds &lt;everywhere&gt;.</p><p>The model helps.' in page
    assert "<td>0.0123</td>" in page and "<td>–</td>" in page
    assert '<td class="long">0.02 where the noise is estimated</td>' in page
    assert '<td class="prose">not measured in this run</td>' in page
    assert 'src="data:image/png;base64,iVBORw=="' in page and "RMSE &amp; n" in page
    assert "kbf experiment sum-rule --trials 3" in page
