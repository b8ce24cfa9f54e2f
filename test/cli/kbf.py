"""The command `kbf` as tests call it."""

from click.testing import Result
from typer.testing import CliRunner

from kbf_localization.cli.main import app


def kbf(*words: object, width: int = 200) -> Result:
    """What a command line comes to, on a terminal of so many columns."""
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, [str(word) for word in words])


def done(*words: object) -> str:
    """What a command prints that does its work."""
    result = kbf(*words)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: object) -> str:
    """The one line, however wrapped, by which a command refuses a user's mistake."""
    result = kbf(*words)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())
