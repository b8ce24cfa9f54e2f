"""Names and messages from files and from the network, made fit for a terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""C0 and C1 but line feeds and tabs; and what turns the direction of writing."""


def shown(text: str) -> str:
    r"""The text with control characters written as \x1b, so that no file's name steers a terminal.

    So are the bytes of names that are not UTF-8, which could not be written at all.
    """
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
