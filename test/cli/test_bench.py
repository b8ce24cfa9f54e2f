"""`kbf bench` finds the benchmarks, runs the chosen and writes what they measured."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbf_localization.cli import bench
from test.cli.kbf import done, refused

CASE = {"ours_ms": 2.0, "reference_ms": 300.0, "ratio": 150.0, "reference": "the formula"}


def test_writes_and_prints_what_a_benchmark_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"update": CASE, "resident_mb_100k": 812.5, "poses_per_s": 29.5}
    module = SimpleNamespace(run=lambda progress: measured)
    monkeypatch.setitem(sys.modules, "kbf_localization.benchmarks.rules", module)
    output = done("bench", "rules", "--output", tmp_path)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics == {"rules": measured}
    assert (tmp_path / "config.yaml").is_file()
    assert "rules.update" in output
    for text in ("2 ms", "300 ms", "150 times", "812 MB", "29.5 /s"):
        assert text in output, text


def test_an_unknown_benchmark_is_named_with_those_that_exist() -> None:
    assert "'no-such'; there are: describers, filter" in refused("bench", "no-such")


def test_every_benchmark_module_has_the_function_that_is_called() -> None:
    names = bench.available()
    assert names == [
        "describers",
        "filter",
        "landmarks",
        "node",
        "rules",
        "scale",
        "simulator",
        "vision",
    ]
    for name in names:
        if name != "node":
            assert callable(import_module(f"kbf_localization.benchmarks.{name}").run)
