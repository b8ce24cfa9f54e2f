"""The node's state as diagnostic messages."""

from __future__ import annotations

from collections.abc import Mapping

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from kbf_localization.localization import State

_LEVELS = {
    State.UNINITIALIZED: DiagnosticStatus.WARN,
    State.LOCALIZING: DiagnosticStatus.WARN,
    State.TRACKING: DiagnosticStatus.OK,
    State.LOST: DiagnosticStatus.ERROR,
}
_MESSAGES = {
    State.UNINITIALIZED: "uninitialized: waits for images and odometry",
    State.LOCALIZING: "localizing: the place is not certain yet",
    State.TRACKING: "tracking",
    State.LOST: "lost: the images do not fit the map where the robot should be",
}


def status(
    name: str,
    hardware_id: str,
    state: State,
    complaints: tuple[str, ...],
    values: Mapping[str, object],
) -> DiagnosticStatus:
    """The state, what is wrong with the topics, and figures."""
    level = _LEVELS[state]
    if complaints and level == DiagnosticStatus.OK:
        level = DiagnosticStatus.WARN
    return DiagnosticStatus(
        level=level,
        name=name,
        hardware_id=hardware_id,
        message="; ".join((_MESSAGES[state], *complaints)),
        values=[KeyValue(key=key, value=_text(value)) for key, value in values.items()],
    )


def inactive(name: str, hardware_id: str, label: str) -> DiagnosticStatus:
    """The status of a node that does not run."""
    return DiagnosticStatus(
        level=DiagnosticStatus.STALE, name=name, hardware_id=hardware_id, message=label
    )


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
