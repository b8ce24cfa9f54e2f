"""`kbf bench` finds the benchmarks, runs the chosen ones and writes what they measured."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from kbf_localization.cli import bench, main

CASE = {"ours_ms": 2.0, "reference_ms": 300.0, "ratio": 150.0, "reference": "the formula"}


def test_writes_and_prints_what_a_benchmark_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = SimpleNamespace(run=lambda progress: {"update": CASE, "resident_mb": 812.5})
    monkeypatch.setattr(bench, "available", lambda: {"rules": "invented_benchmark"})
    monkeypatch.setitem(sys.modules, "invented_benchmark", module)
    output = CliRunner().invoke(bench.app, ["rules", "--output", str(tmp_path)]).output
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics == {"rules": {"update": CASE, "resident_mb": 812.5}}
    assert (tmp_path / "config.yaml").is_file()
    assert "rules.update" in output
    assert "150" in output


def test_an_unknown_benchmark_is_named_with_those_that_exist() -> None:
    result = CliRunner().invoke(main.app, ["bench", "no-such"])
    assert result.exit_code == main.EXIT_KNOWN_ERROR
    assert "no-such" in result.output


def test_every_benchmark_module_has_the_function_that_is_called() -> None:
    for name, module in bench.available().items():
        if name != "node":
            assert callable(__import__(module, fromlist=["run"]).run)
