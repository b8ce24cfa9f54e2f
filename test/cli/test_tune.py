from pathlib import Path

import pytest
import yaml

from kbf_localization.filters.parameters import SEARCH_RANGES
from test.cli.kbf import done, refused
from test.datasets.cold_folders import make_cold_drive


@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning")
def test_writes_parameters_that_a_map_can_take(tmp_path: Path):
    drives = [make_cold_drive(tmp_path / f"seq1_cloudy{k}", 40, seed=7) for k in (1, 2)]
    (tmp_path / "tuned").mkdir()
    output = tmp_path / "tuned" / "parameters.yaml"
    options = ("--poses", 20, "--budget", 2, "--method", "nn", "--jobs", 1, "--train", "0:0.5")
    said = done("tune", *drives, "--output", output, *options)
    assert "Tuning nn takes about" in said
    parameters = yaml.safe_load(output.read_text())["parameters"]
    for name in parameters:
        method, _, parameter = name.partition(".")
        assert parameter in SEARCH_RANGES[method]
    assert sorted(path.name for path in output.parent.iterdir()) == ["parameters.yaml"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--method", "amcl"], "amcl"),
        ([], "another SOURCE"),
        (["--output", "/nowhere/at/all.yaml"], "/nowhere/at"),
    ],
)
def test_a_users_mistake_is_one_line(tmp_path, arguments, reason):
    sources = [tmp_path] * (2 if "--output" in arguments else 1)
    assert reason in refused("tune", *sources, "--output", tmp_path / "p.yaml", *arguments)
