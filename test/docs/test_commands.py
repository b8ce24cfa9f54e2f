"""Every command in README and docs works, or, where it needs a robot, names what exists.

Commands of `kbf` are run as written, in their order, on small drives. Those that need a robot, a
ROS installation or many minutes are checked for what they name: launch files and their arguments,
topics, services, make targets, options.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import traceback
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kbf_localization.cli.main import COMMANDS, app, load_command
from test.conftest import HAS_ROS, MadeOnce, learning_quickly
from test.datasets.public_folders import make_seven_scenes
from test.docs.commands import (
    DOCUMENTS,
    PROJECT,
    begins,
    commands_of,
    is_long,
    made_small,
    mentioned_commands,
)

NOT_OURS = [
    "export",
    "pip",
    "tar",
    "ros2",
    "rviz2",
    "rosdep",
    "colcon",
    "git",
    "cd",
    "source",
    "export",
    "pip",
    "make",
    "sudo",
    "python3",
]
DRIVES = ("seq1_cloudy1", "seq1_cloudy2", "seq1_cloudy3")


def run_kbf(arguments: list[str], folder: Path) -> None:
    """In this process: importing everything again would take longer than most commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOME", str(folder))
        result = CliRunner().invoke(app, arguments)
    message = "".join(traceback.format_exception(result.exception)) if result.exception else ""
    assert result.exit_code == 0, f"kbf {shlex.join(arguments)}\n{result.output}{message}"


@pytest.fixture(scope="session")
def recordings(made_once: MadeOnce) -> Path:
    """What a reader is taken to have.

    Three drives, as folders and as bags, COLD's archive, and a sequence in the layout of 7-Scenes.
    """
    with learning_quickly():
        return made_once("recordings", record)


def record(folder: Path) -> None:
    run_kbf(made_small(["kbf", "simulate", "drives", "--runs", "3"])[1:], folder)
    archive = folder / "cold" / "cold-saarbruecken" / "part_a"
    archive.mkdir(parents=True)
    for number, name in enumerate(DRIVES, start=1):
        (archive / name).symlink_to(folder / "drives" / name)
        (folder / name).symlink_to(folder / "drives" / name)
        run_kbf(["convert", f"drives/{name}", f"drive{number}"], folder)
    run_kbf(made_small(["kbf", "map", "build", "drive1", "--output", "office.kbfmap"])[1:], folder)
    make_seven_scenes(folder / "kitchen" / "seq-01", frames=16)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
@pytest.mark.usefixtures("quick_learning")
@pytest.mark.usefixtures("quick_check")
def test_the_commands_of_a_document_run_in_their_order(
    document: Path, recordings: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    commands = [shlex.split(line) for line in commands_of(document)]
    if HAS_ROS:
        request.getfixturevalue("warm_nodes")
    makes = {argument for command in commands for argument in command}
    for name in recordings.iterdir():
        # What a document makes itself is not there before.
        if name.name not in makes or name.name in ("cold",) or not _made_by(commands, name.name):
            (tmp_path / name.name).symlink_to(name)
    for command in commands:
        if command[0] != "kbf" or is_long(command):
            continue
        if command[1] == "replay" and not HAS_ROS:
            continue
        run_kbf(made_small(command)[1:], tmp_path)


def _made_by(commands: list[list[str]], name: str) -> bool:
    """Whether one of these commands writes `name`."""
    return any(
        (begins(command, ("kbf", "simulate")) and command[2] == name)
        or (begins(command, ("kbf", "convert")) and command[3] == name)
        or ("--output" in command and command[command.index("--output") + 1] == name)
        for command in commands
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_not_run_here_name_what_exists(document: Path) -> None:
    for line in commands_of(document):
        subprocess.run(["bash", "-n", "-c", line], check=True)
        command = shlex.split(line)
        if command[0] == "kbf":
            if is_long(command):
                check_options(command)
            continue
        assigns = re.match(r"\w+=", command[0])
        assert assigns or command[0] in NOT_OURS, f"{line}: not known to this test"
        if command[0] == "make":
            targets = re.findall(r"^(\w+):", (PROJECT / "Makefile").read_text(), re.M)
            assert set(command[1:]) <= set(targets), line
        elif command[:3] == ["ros2", "launch", "kbf_localization"]:
            check_launch(command[3:])
        elif command[:2] == ["ros2", "topic"] or command[:3] == ["ros2", "service", "call"]:
            name = next(word for word in command if word.startswith("/")).lstrip("/")
            assert f"`{name}`" in (PROJECT / "docs" / "node.md").read_text(), line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_named_in_a_sentence_exist(document: Path) -> None:
    for command in mentioned_commands(document):
        check_options(list(command))


def check_options(command: list[str]) -> None:
    """The command exists and has the options that are given."""
    assert command[1] in COMMANDS, shlex.join(command)
    found = load_command(command[1])
    for word in command[2:]:
        if getattr(found, "commands", None) is None:
            break
        name = word if word in found.commands else getattr(found, "default", None)
        assert name in found.commands, shlex.join(command)
        found = found.commands[name]
    known = {"--help", *(name for parameter in found.params for name in parameter.opts)}
    for word in command:
        assert not word.startswith("--") or word in known, f"{shlex.join(command)}: {word}"


def check_launch(words: list[str]) -> None:
    """The launch file exists and declares the arguments that are given."""
    root = ET.parse(PROJECT / "launch" / words[0]).getroot()
    declared = {argument.get("name") for argument in root.iter("arg")}
    assert {word.partition(":=")[0] for word in words[1:]} <= declared, words
