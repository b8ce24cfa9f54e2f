"""The commands that README and docs tell a reader to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")])

# Options that make a command small enough for a test; all else is as written.
SMALLER = {
    ("kbf", "simulate"): ["--frames", "24", "--size", "160x120", "--jobs", "1"],
    ("kbf", "map", "build"): ["--poses", "12", "--vocabulary-size", "8", "--jobs", "1", "--force"],
    ("kbf", "experiment", "localization"): [
        *("--trials", "1", "--sizes", "8", "--methods", "nai"),
        *("--budget", "1", "--jobs", "1"),
    ],
    ("kbf", "tune"): ["--poses", "10", "--budget", "1", "--jobs", "1"],
}
# These run for minutes, or until they are ended, and have their own tests; here their names and
# options are checked.
LONG = (("kbf", "demo"), ("kbf", "bench"), ("kbf", "experiment"), ("kbf", "live"))


def commands_of(document: Path) -> list[str]:
    """The lines of a document's bash blocks, continued lines joined, comments left out."""
    blocks = re.findall(r"^```bash\n(.*?)^```", document.read_text("utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def mentioned_commands(document: Path) -> set[tuple[str, ...]]:
    """Commands of kbf that a document names within a sentence, such as `kbf map build`."""
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.M | re.S)
    return {
        tuple(words)
        for words in (shlex.split(found) for found in re.findall(r"`(kbf [a-z][^`|…]*)`", text))
    }


def is_long(command: list[str]) -> bool:
    """Whether it is only checked; an experiment on given drives is as small as they are."""
    return any(begins(command, start) for start in LONG) and "--cold" not in command


def begins(command: list[str], start: tuple[str, ...]) -> bool:
    return tuple(command[: len(start)]) == start


def made_small(command: list[str]) -> list[str]:
    """The command with the options of SMALLER in place of its own."""
    for start, options in SMALLER.items():
        if begins(command, start):
            kept, names = list(command), options[::2]
            for name in names:
                if name in kept:
                    at = kept.index(name)
                    del kept[at : at + 2]
            return kept + options
    return command
