"""`kbf live`: where it serves, and what it refuses."""

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from kbf_localization.cli import live
from kbf_localization.cli.main import EXIT_INTERRUPTED, EXIT_KNOWN_ERROR, app


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["drive1"], "a bag needs --map"),
        (["--map", "office.kbfmap"], "--map a bag"),
        (["--node", "localizer"], "--node localizer: give its full name"),
        (["--node", "/robot1/"], "--node /robot1/: give its full name"),
    ],
)
def test_a_users_mistake_is_one_line(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(app, ["live", *arguments])
    assert result.exit_code == EXIT_KNOWN_ERROR
    assert reason in result.output and len(result.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("host", "token", "expected"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:8642/"),
        ("::1", "secret", "http://[::1]:8642/#token=secret"),
    ],
)
def test_the_address_can_be_opened_and_hides_its_token_from_logs(
    host: str, token: str | None, expected: str
) -> None:
    assert live._address(host, 8642, token) == expected


@pytest.mark.ros
def test_it_serves_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    waiting = SimpleNamespace(Event=lambda: SimpleNamespace(wait=interrupted))
    monkeypatch.setattr(live, "threading", waiting)
    result = CliRunner().invoke(app, ["live", "--port", "0", "--token", ""])
    assert result.exit_code == EXIT_INTERRUPTED, result.output
    assert "Open http://127.0.0.1:" in result.output and "/#token=" in result.output
    assert "Ctrl-C ends it." in result.output
