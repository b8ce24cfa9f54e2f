"""The folder of a run: its names, its link, and that its files are whole or not there."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from kbf_localization.errors import KbfError
from kbf_localization.evaluation.results import ResultsFolder


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_without_output_gets_a_dated_folder_and_latest_points_there(
    in_empty_folder: Path,
) -> None:
    first = ResultsFolder.create("evaluate")
    second = ResultsFolder.create("experiment sum-rule")
    assert first.path.parent == second.path.parent == Path("results")
    assert first.path.name.endswith("-evaluate")
    assert second.path.name.endswith("-experiment-sum-rule")
    assert Path("results/latest").resolve() == second.path.resolve()


def test_two_runs_in_one_second_have_different_folders(in_empty_folder: Path) -> None:
    assert len({ResultsFolder.create("bench").path for _ in range(5)}) == 5


def test_a_named_output_is_used_as_it_is(tmp_path: Path) -> None:
    assert ResultsFolder.create("bench", tmp_path / "a" / "b").path == tmp_path / "a" / "b"
    assert not (tmp_path / "a" / "latest").exists()


def test_an_output_that_is_a_file_is_a_known_error(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(KbfError, match="taken.*--output"):
        ResultsFolder.create("bench", tmp_path / "taken")


def test_metrics_are_strict_json_with_plain_numbers(tmp_path: Path) -> None:
    metrics = {"a": np.float32(0.5), "b": np.arange(3), "c": float("nan"), 2000: np.bool_(True)}
    path = ResultsFolder(tmp_path).write_metrics(metrics)
    assert path.name == "metrics.json"
    assert json.loads(path.read_text()) == {"a": 0.5, "b": [0, 1, 2], "c": None, "2000": True}


def test_the_configuration_is_yaml(tmp_path: Path) -> None:
    path = ResultsFolder(tmp_path).write_config({"map": Path("office.kbfmap"), "poses": 1000})
    assert yaml.safe_load(path.read_text()) == {"map": "office.kbfmap", "poses": 1000}


def test_a_file_whose_writing_fails_is_not_there(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    results.write_text("report.html", "old")
    with pytest.raises(ZeroDivisionError), results.writing("report.html") as path:
        path.write_text(f"half {1 / 0}")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "old"


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../outside", ".", ""])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(KbfError, match="not a file name within"):
        ResultsFolder(tmp_path / "run").file(name)


def test_a_link_in_the_folder_does_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    with pytest.raises(KbfError, match="not a file name within"):
        ResultsFolder(tmp_path / "run").file("link/outside")


def test_a_file_name_that_is_not_utf8_is_written_by_its_bytes(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    strange = Path(os.fsdecode(b"drive\xff"))
    folder.write_metrics({"source": strange})
    folder.write_config({"source": strange})
    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))["source"]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))["source"]
