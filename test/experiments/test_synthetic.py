import numpy as np
import pytest
from matplotlib.figure import Figure

from kbf_localization.experiments import synthetic
from kbf_localization.experiments.synthetic import (
    METHODS,
    Task,
    draw,
    metrics_of,
    run_task,
    run_trials,
)
from kbf_localization.experiments.synthetic_filter import GRIDS, Grid
from kbf_localization.experiments.trials import OFFSET_POINTS, draw_curve
from kbf_localization.parallel import Serial


@pytest.fixture
def small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of each grid, so that a trial takes a moment."""
    middle = {
        name: Grid(*(values[1:3] for values in vars(grid).values())) for name, grid in GRIDS.items()
    }
    monkeypatch.setattr(synthetic, "GRIDS", middle)


def test_local_grid_is_local_and_open_grid_reaches_beyond_it() -> None:
    local, wide = list(GRIDS["local"]), list(GRIDS["open"])
    assert len(local) == len(wide) == 192
    assert max(p.state_std for p in local) <= 0.4 and max(p.observation_std for p in local) <= 0.4
    assert min(p.delta for p in local) >= 1e-3
    assert max(p.state_std for p in wide) > 1.0 and min(p.delta for p in wide) < 1e-6


def test_test_data_are_not_training_data() -> None:
    _, pairs, states, _ = draw(Task("gaussian", 50, 0, 0))
    assert pairs.states.shape == pairs.following.shape == (50, 2) and states.shape == (100, 2)
    np.testing.assert_array_equal(pairs.following[:-1], pairs.states[1:])
    assert not np.isin(states, pairs.states).any()


@pytest.mark.usefixtures("small_grids")
def test_task_depends_on_nothing_but_itself() -> None:
    task = Task("changed_rotation", 20, 1, 5)
    assert run_task(task) == run_task(task)
    assert run_task(task) != run_task(Task("changed_rotation", 20, 2, 5))


@pytest.mark.usefixtures("small_grids")
def test_metrics_hold_every_grid_panel_size_and_method() -> None:
    outcomes = run_trials(2, 0, (12, 20), Serial())
    metrics = metrics_of(outcomes)
    for grid in ("local", "open"):
        for setting in ("gaussian", "mixture", "changed_rotation"):
            for size in ("12", "20"):
                values = metrics[grid][setting][size]
                assert set(values) == set(METHODS)
                expected = [
                    outcome.mean_squared_error
                    for outcome in outcomes
                    if (outcome.grid, outcome.method) == (grid, "fkbf")
                    and (outcome.task.setting, str(outcome.task.size)) == (setting, size)
                ]
                assert len(expected) == 2
                assert values["fkbf"]["mean"] == pytest.approx(np.mean(expected))


def test_no_error_bar_hides_another() -> None:
    """On the page the curves' bars stand side by side, wherever the data and on whatever scale."""
    figure = Figure()
    axes = figure.subplots()
    axes.set_xscale("log")
    for index in range(3):
        draw_curve(axes, str(index), {n: {"mean": 1.0, "std": 0.1} for n in ("50", "100")}, index)
    lines = [bars.lines[0] for bars in axes.containers]
    places = np.array([line.get_transform().transform(line.get_xydata())[:, 0] for line in lines])
    assert np.diff(places, axis=0) * 72 / figure.dpi == pytest.approx(OFFSET_POINTS)
    assert all((line.get_xdata() == [50, 100]).all() for line in lines)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    assert left < 50 < 100 < right and low < 0.9 < 1.1 < high
