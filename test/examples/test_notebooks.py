"""The notebooks run from top to bottom, hold their outputs, and write nothing where they run."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


# A notebook's sizes, and those that show that it runs.
SMALLER = {
    "frames=300": "frames=200",
    "poses=150": "poses=100",
    "samples, trials = 500, 10": "samples, trials = 250, 4",
}


def cells(name: str, kind: str) -> list[dict[str, Any]]:
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a notebook's code in an empty folder; gives its variables."""
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> dict[str, Any]:
        variables: dict[str, Any] = {"__name__": name}
        with mpl.rc_context({"backend": "agg"}):
            for number, cell in enumerate(cells(name, "code")):
                source = "".join(cell["source"])
                for size, smaller in SMALLER.items():
                    source = source.replace(size, smaller)
                code = compile(source, f"{name}, code cell {number}", "exec")
                exec(code, variables)  # noqa: S102 (our own notebook)
        plt.close("all")
        assert not list(tmp_path.iterdir())
        return variables

    return run


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_outputs_are_stored_with_a_figure_and_without_errors(name: str) -> None:
    numbers = [cell["execution_count"] for cell in cells(name, "code")]
    assert numbers == list(range(1, len(numbers) + 1))
    outputs = [output for cell in cells(name, "code") for output in cell["outputs"]]
    kinds = {output["output_type"] for output in outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.slow
def test_pendulum_shows_what_the_model_is_worth(run) -> None:
    name = "sum_rule_on_your_own_model.ipynb"
    variables = run(name)
    particles, kernel, learnt = variables["errors"].values()
    assert (kernel < 1.5 * particles).all() and (learnt > 2.0 * kernel).all()


def test_belief_is_better_with_its_negative_weights(run) -> None:
    name = "what_a_kernel_belief_looks_like.ipynb"
    variables = run(name)
    narrow = variables["narrow"]
    assert 10.0 * variables["on_points"].distance(narrow) < variables["clipped"].distance(narrow)
    assert variables["posterior"].distance(variables["exact"]) < 0.25 * variables["exact"].norm()


def test_papers_three_observations_hold_in_its_first_figure(run) -> None:
    name = "reproduce_the_papers_first_figure.ipynb"
    variables = run(name)
    known, estimated, learnt = (variables[key] for key in ("known", "estimated", "learnt"))
    assert abs(known.mean() - estimated.mean()) < 0.2 * known.mean()
    means = learnt.mean(axis=0)
    assert known.mean() < 0.5 * means.min() and means.max() > 1.3 * means.min()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning")
def test_drive_is_localized(run) -> None:
    name = "localize_a_drive.ipynb"
    variables = run(name)
    variables["workspace"].cleanup()
    assert len(variables["fixes"]) == len(variables["test"]) == 200
    assert variables["errors"][variables["tracking"]].max() < 1.0
