"""Every example of docs/python.md runs as it stands, one after the other."""

import re
from pathlib import Path

import pytest

import kbf_localization
from test.conftest import MadeOnce

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.fixture
def drives(made_once: MadeOnce) -> Path:
    """The page's drives, smaller."""
    return made_once(
        "page-drives",
        lambda folder: kbf_localization.simulate(
            folder, runs=2, seed=1, frames=80, size=(160, 120)
        ),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning")
def test_examples_run_and_print(
    drives: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "drives").symlink_to(drives, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    printed = {}
    for example in EXAMPLES:
        heading = PAGE[: PAGE.index(example)].rpartition("\n## ")[2].partition("\n")[0]
        code = compile(example.replace("poses=120", "poses=50"), f"python.md, {heading}", "exec")
        exec(code, {})  # noqa: S102
        printed[heading] = printed.get(heading, "") + capsys.readouterr().out
    assert "seq1_cloudy1: 80 images" in printed["Open a drive"]
    assert "TrainingMap(50 poses of seq1_cloudy1) (50, 3)" in printed["Build a map"]
    assert len(printed["Localize a drive"].splitlines()) > 20
    assert "tracking" in printed["Localize live"]
    assert (tmp_path / "evaluation" / "report.html").is_file()
    assert "seq1_night1: 20 images" in printed["Simulate a drive"]
    assert "State.UNINITIALIZED" in printed["Localize live"]
    assert "expect an error of" in printed["Check a map"]
    *_, last = printed["Errors"].splitlines()
    assert len(printed["Errors"].splitlines()) == 3 and last in PAGE


@pytest.mark.parametrize("name", kbf_localization.__all__)
def test_page_names_everything_that_is_exported_and_an_example_uses_it(name: str) -> None:
    assert f"`{name}`" in PAGE
    assert any(name in example for example in EXAMPLES)
