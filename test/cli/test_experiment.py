import json
from pathlib import Path

import pytest

from test.cli.kbf import done, refused

BEGINS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def test_sum_rule_writes_metrics_table_and_plot(tmp_path: Path) -> None:
    options = ("--trials", 1, "--jobs", 1, "--output", tmp_path)
    output = done("experiment", "sum-rule", *options)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert set(metrics) == {
        "trials", "mb_ksr", "mb_ksr_estimated", "np_ksr", "np_ksr_best", "misspecified_mean",
        "misspecified_noise", "combined",
    }  # fmt: skip
    assert set(metrics["combined"]) == {"np_np", "np_mb", "np_mb_estimated", "mb_np"}
    assert set(metrics["mb_ksr"]) == {"mean", "std"}
    assert "NP + Mb, ε = 0.01" in output and "1 trial" in output and "1 trials" not in output
    assert (tmp_path / "config.yaml").is_file()
    leaves = sum(len(errors) for errors in (*metrics["combined"].values(), metrics["np_ksr"]))
    leaves += 2 + len(metrics["misspecified_mean"]) + len(metrics["misspecified_noise"])
    assert len((tmp_path / "errors.csv").read_text().splitlines()) == 1 + leaves
    for suffix, first in BEGINS.items():
        assert (tmp_path / f"sum_rule.{suffix}").read_bytes().startswith(first)


def test_synthetic_writes_metrics_for_both_grids(tmp_path: Path) -> None:
    options = ("--trials", 1, "--jobs", 1, "--sizes", 8, "--output", tmp_path)
    assert "open grid, mixture" in done("experiment", "synthetic", *options)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert set(metrics) == {"local", "open"}
    assert set(metrics["local"]) == {"gaussian", "mixture", "changed_rotation"}
    assert set(metrics["local"]["gaussian"]["8"]) == {"kbf", "fkbf"}
    assert len((tmp_path / "errors.csv").read_text().splitlines()) == 1 + 2 * 3 * 2
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {f"{name}.{end}" for name in ("synthetic", "weights") for end in BEGINS}


@pytest.mark.parametrize("sizes", ["abc", "2,50", ""])
def test_sizes_that_make_no_sense_are_a_known_error(sizes: str, tmp_path: Path) -> None:
    assert "--sizes" in refused("experiment", "synthetic", "--sizes", sizes, "--output", tmp_path)
