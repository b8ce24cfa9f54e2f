"""The tables of measured figures are those of the files that commands wrote."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from test.docs.commands import PROJECT

FILES = sorted(path.name for path in (PROJECT / "docs" / "figures").glob("*.json"))


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = PROJECT / "tools" / "make_docs_figures.py"
    specification = importlib.util.spec_from_file_location("make_docs_figures", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_no_table_differs_from_its_file(tool: ModuleType) -> None:
    for page in tool.PAGES:
        text = page.read_text(encoding="utf-8")
        assert tool.filled(text) == text, f"{page}: run make docs-figures"


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_a_page_that_names_its_command(tool: ModuleType, name: str) -> None:
    pages = [path for path in tool.PAGES if f"<!-- figures/{name}" in path.read_text("utf-8")]
    assert pages
    content = json.loads((PROJECT / "docs" / "figures" / name).read_text("utf-8"))
    assert content["version"] and re.match(r"kbf \w+", content["command"])
    command = re.sub(r" --(output \S+|no-report)", "", content["command"])
    assert any(command in page.read_text("utf-8") for page in pages)


def test_a_stale_figure_is_put_right(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    (tmp_path / "metrics.json").write_text('{"methods": {"kbf": {"position_rmse_m": 0.123}}}')
    (tmp_path / "config.yaml").write_text("command: kbf evaluate drive3 --map office.kbfmap\n")
    tool.take("run", tmp_path)
    stale = (
        "<!-- figures/run.json: position_rmse_m -->\n\n| | kbf |\n| --- | --- |\n| 9 cm |\n\nText"
    )
    expected = "| | kbf |\n| --- | --- |\n| position error, RMSE | 12 cm |\n\nText"
    assert tool.filled(stale).endswith(expected)
    assert tool.filled(tool.filled(stale)) == tool.filled(stale)


def test_figures_in_rows_and_sentences_are_put_right(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    spread = {"position_rmse_m": {"mean": 0.0104, "std": 0.0012}, "share_beyond_1m": 0.0}
    (tmp_path / "metrics.json").write_text(json.dumps({"200": {"kbf": spread}}))
    (tmp_path / "config.yaml").write_text("command: kbf experiment localization\n")
    tool.take("run", tmp_path)
    stale = "<!-- figures/run.json rows: position_rmse_m share_beyond_1m -->\n\n| old |\n\nText"
    assert "| 200 | kernel Bayes filter | 0.010 ± 0.001 | 0 % |\n\nText" in tool.filled(stale)
    sentence = "It errs by <!-- figures/run.json 200.kbf.position_rmse_m -->9 m<!-- --> there."
    assert "-->0.010 ± 0.001 m<!-- -->" in tool.filled(sentence)
