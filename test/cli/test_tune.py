from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kbf_localization.cli.main import app
from kbf_localization.filters.parameters import SEARCH_RANGES

runner = CliRunner()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning")
def test_writes_parameters_that_a_map_can_take(office_drives, tmp_path: Path):
    output = tmp_path / "parameters.yaml"
    first, second = office_drives
    arguments = ["tune", str(first), str(second), "--output", str(output)]
    arguments += ["--train", "0:0.2"]
    arguments += ["--poses", "20", "--budget", "2", "--method", "nn", "--jobs", "1"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "Tuning nn takes about" in result.output
    parameters = yaml.safe_load(output.read_text())["parameters"]
    for name in parameters:
        method, _, parameter = name.partition(".")
        assert parameter in SEARCH_RANGES[method]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parameters.yaml"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--method", "amcl"], "amcl"),
        ([], "another SOURCE"),
        (["--output", "/nowhere/at/all.yaml"], "/nowhere/at"),
    ],
)
def test_a_users_mistake_is_one_line(tmp_path, arguments, complaint):
    sources = [str(tmp_path)] * (2 if "--output" in arguments else 1)
    command = ["tune", *sources, "--output", str(tmp_path / "p.yaml"), *arguments]
    result = runner.invoke(app, command)
    assert result.exit_code == 2
    assert complaint in result.output
    assert "Traceback" not in result.output
