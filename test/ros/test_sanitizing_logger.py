import pytest
from rclpy.logging import get_logger

from kbf_localization.sanitize import SanitizingLogger


def test_the_log_shows_control_characters(capfd: pytest.CaptureFixture[str]) -> None:
    log = SanitizingLogger(get_logger("robot.localizer"))
    for line in ("map\x1b]52;c;eA==\x07", ValueError("\x9b31m")):
        log.error(line)
    said = capfd.readouterr().err
    assert r"[robot.localizer]: map\x1b]52;c;eA==\x07" in said
    assert r"\x9b31m" in said
    assert not set(said) & set("\x1b\x07\x9b")


def test_a_name_begins_no_line_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    SanitizingLogger(get_logger("localizer")).error("frame 'x\n[FATAL] [1.0] [localizer]: on fire'")
    assert r"frame 'x\n[FATAL] [1.0] [localizer]: on fire'" in capfd.readouterr().err


def test_calls_of_every_severity_may_alternate(capfd: pytest.CaptureFixture[str]) -> None:
    """rclpy refuses a call whose severity is another than before at the same place."""
    log = SanitizingLogger(get_logger("localizer"))
    for number in range(2):
        log.info(f"info {number}")
        log.warning(f"warning {number}")
        log.error(f"error {number}")
    said = capfd.readouterr().err
    assert [said.count(word) for word in ("info ", "warning ", "error ")] == [2, 2, 2]
