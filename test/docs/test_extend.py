"""Every example of docs/extend.md works as it stands, the filter once it is installed."""

import re
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.cli.options import complete_methods
from kbf_localization.errors import ParameterError
from kbf_localization.filters.methods import check_methods, method_names
from kbf_localization.filters.registry import make_filter
from kbf_localization.training_map import TrainingMap

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "extend.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M))


def install(folder: Path, module: str, source: str, entry: str) -> None:
    """Put a package with an entry point where Python finds it."""
    (folder / f"{module}.py").write_text(source)
    (folder / "mine-1.0.dist-info").mkdir()
    about = "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n"
    (folder / "mine-1.0.dist-info" / "METADATA").write_text(about)
    (folder / "mine-1.0.dist-info" / "entry_points.txt").write_text(entry)


def test_a_filter_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_map: TrainingMap
) -> None:
    section = SECTIONS["A filter"]
    (source,) = re.findall(r"```python\n# my_filters\.py\n(.*?)```", section, re.S)
    (entry,) = re.findall(r"```toml\n(.*?)```", section, re.S)
    group, name, target = re.fullmatch(  # type: ignore[union-attr]
        r'\[project\.entry-points\."(.*?)"\]\n(\w+) = "(.*?)"\n', entry
    ).groups()
    install(tmp_path, "my_filters", source, f"[{group}]\n{name} = {target}\nkbf = {target}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert method_names()[-1] == name and method_names().count("kbf") == 1
    assert check_methods(f"kbf,{name}") == ["kbf", name]
    assert complete_methods("kbf,me") == [f"kbf,{name}"]
    observation = world_map.observe(world_map.description(9))
    estimate = make_filter(name, world_map).step(None, observation)
    nearest = world_map.poses[observation.best_rows(5)]
    np.testing.assert_allclose(estimate.pose[:2], nearest[:, :2].mean(axis=0))
    # This package's own names are not taken by others.
    assert type(make_filter("kbf", world_map)).__module__.startswith("kbf_localization")


def test_a_filter_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_map: TrainingMap
) -> None:
    install(tmp_path, "broken", "", "[kbf_localization.filters]\nbroken = broken:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ParameterError, match="the method 'broken' cannot be made"):
        make_filter("broken", world_map)


def run(section: str) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", SECTIONS[section], re.S)
    exec(compile(source, f"extend.md, {section}", "exec"), {})  # noqa: S102 (our own page)


@pytest.mark.usefixtures("quick_learning")
def test_a_data_set_in_memory_is_mapped(capsys: pytest.CaptureFixture[str]) -> None:
    run("A data set")
    assert capsys.readouterr().out.startswith("TrainingMap(20 poses of corridor)")


@pytest.mark.parametrize("section", ["A kernel", "A noise model"])
def test_own_kernels_and_noises_predict(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(section)
    mean = [float(number) for number in capsys.readouterr().out.strip(" []\n").split()]
    # The standard error of 200 samples of a uniform noise on ±0.2 is 0.008.
    assert mean == pytest.approx([1.0, 0.0], abs=0.04)
