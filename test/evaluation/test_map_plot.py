"""A floor plan is drawn where it lies, and names whatever is in them."""

import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.evaluation.map_plot import draw_floor_plan
from kbf_localization.evaluation.plots import make_figure, save_figure
from kbf_localization.evaluation.results import ResultsFolder


def test_the_axes_show_a_turned_plan_whole_and_nothing_beside_it() -> None:
    # 4 m by 2 m, turned by a quarter: it covers x from 8 to 10 and y from 5 to 9.
    plan = FloorPlanImage(np.zeros((20, 40), np.uint8), 0.1, (10.0, 5.0, np.pi / 2))
    axes = Figure().add_subplot()
    draw_floor_plan(axes, plan)
    axes.plot([8.0, 10.0], [5.0, 9.5])
    margin = axes.margins()[0]
    np.testing.assert_allclose(axes.get_xlim(), (8.0 - 2.0 * margin, 10.0 + 2.0 * margin))
    np.testing.assert_allclose(axes.get_ylim(), (5.0 - 4.5 * margin, 9.5 + 4.5 * margin))


def test_characters_that_no_font_has_are_drawn_without_a_word(tmp_path: Path) -> None:
    """Matplotlib warns of each, with the character itself, which may be an escape."""
    figure, axes = make_figure()
    axes.set_title("\x1b]0;地図\u202e")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert save_figure(ResultsFolder(tmp_path), "plot.png", figure).exists()
