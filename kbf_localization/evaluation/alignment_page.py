"""The part of a page on which a map is aligned by mouse: pairs of points become a command."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.floor_plan_image import FloorPlanImage, load_floor_plan
from kbf_localization.evaluation.report import Widget, write_simple_report

if TYPE_CHECKING:
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.training_map.training_map import TrainingMap

MAX_POINTS = 500
"""Of a path that is drawn."""
MAX_PLAN_WIDTH = 1200
"""Pixels of a plan in a page."""


def alignment_widget(paths: Sequence[Array], command: str, plan: FloorPlanImage | None) -> Widget:
    """Return a part of a page that turns clicked points into `command` with `--pair` options.

    `paths` (t, 2 or more) are the map's drives. Without a `plan` the second point is typed; on one
    the paths are drawn where the pairs move them.
    """
    thinned = [path[:: max(1, len(path) // MAX_POINTS), :2].tolist() for path in paths if len(path)]
    data: dict[str, Any] = {"paths": thinned, "command": command, "plan": None}
    there = (
        '<label>x,y in the other frame, m <input id="align-typed" size="14"></label> '
        '<button id="align-add" type="button">Add</button> '
    )
    second, canvas = "Type where that place is in the other frame, and add it.", ""
    if plan is not None:
        data["plan"] = _plan_data(plan)
        there, second = "", "Click the same place on the plan."
        canvas = '<canvas id="align-plan" role="img" aria-label="The floor plan"></canvas>'
    html = (
        "<section><h2>Align the map</h2>"
        '<p id="align-next" data-first="Click a place in the map that you recognize." '
        f'data-second="{second}"></p>'
        f'<div class="aligning"><canvas id="align-map" role="img" aria-label="The map"></canvas>'
        f"{canvas}</div>"
        f'<p>{there}<button id="align-undo" type="button">Undo</button></p>'
        '<div class="scroll"><table class="metrics"><thead><tr><th>Pair</th><th>x, map</th>'
        "<th>y, map</th><th>x, there</th><th>y, there</th></tr></thead>"
        '<tbody id="align-pairs"></tbody></table></div><p id="align-fit"></p>'
        '<pre id="align-command" tabindex="0" data-hint="Two pairs or more, far apart, give '
        'a command to run."></pre></section>'
    )
    return Widget(html, "align", {"alignment": data})


def _plan_data(plan: FloorPlanImage) -> dict[str, Any]:
    width, height = plan.size_m
    image = plan.image
    if image.shape[1] > MAX_PLAN_WIDTH:
        size = MAX_PLAN_WIDTH, max(1, round(image.shape[0] * MAX_PLAN_WIDTH / image.shape[1]))
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    encoded = base64.b64encode(cv2.imencode(".png", image)[1].tobytes()).decode("ascii")
    return {
        "image": f"data:image/png;base64,{encoded}",
        "origin": list(plan.origin),
        "width": width,
        "height": height,
    }


def write_alignment_page(
    folder: ResultsFolder, training_map: TrainingMap, map_path: Path, plan_path: Path, command: str
) -> Path:
    """Write `align.html`, on which a map is aligned with a floor plan; return its path."""
    paths = [training_map.trajectory(number) for number in range(len(training_map.sources))]
    align = shlex.join(
        ["kbf", "map", "align", str(map_path.resolve()), "--floor-plan", str(plan_path.resolve())]
    )
    return write_simple_report(
        folder,
        f"{map_path.stem} on {plan_path.stem}",
        {"command": command},
        summary="Click three or more places, far apart, first in the map and then on the plan.",
        widget=alignment_widget(paths, align, load_floor_plan(plan_path)),
        name="align.html",
    )
