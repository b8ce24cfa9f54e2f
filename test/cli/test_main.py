"""The frame of `kbf`: it starts quickly, lists its commands, and ends as a user expects."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kbf_localization.cli import main
from kbf_localization.cli.console import print_table
from kbf_localization.errors import KbfError

PROGRAM = [sys.executable, "-m", "kbf_localization.cli"]


def command_that(function: object) -> object:
    app = typer.Typer(add_completion=False)
    app.command()(function)  # type: ignore[arg-type]
    return typer.main.get_command(app)


def test_help_lists_every_command_with_its_line() -> None:
    text = CliRunner().invoke(main.app, ["--help"], env={"COLUMNS": "200"}).output
    for name in main.COMMANDS:
        assert name in text
        module = importlib.import_module(f"kbf_localization.cli.{name}")
        assert (module.__doc__ or "").splitlines()[0] in text


def modules_after(script: str) -> set[str]:
    """What a new Python, unwatched by coverage, has imported after running this."""
    ask = "import sys; sys.stderr.write(' '.join(sys.modules))"
    command = [sys.executable, "-c", f"try:\n {script}\nfinally:\n {ask}"]
    watched = ("COVERAGE", "COV_CORE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(watched)}
    return set(subprocess.run(command, capture_output=True, text=True, env=env).stderr.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_nothing_is_imported_beyond_what_parses_the_command_line(option: str) -> None:
    """So it starts at once: no command's module, and of other packages what typer needs."""
    run = f"import sys; from kbf_localization.cli import main; sys.argv = ['kbf', {option!r}]"
    found = modules_after(f"{run}; main.main()")
    assert "kbf_localization.cli.main" in found
    assert not {f"kbf_localization.cli.{name}" for name in main.COMMANDS} & found
    packages = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
    needed = modules_after("import typer, typer.rich_utils")
    assert packages <= {"kbf_localization", "__main__", *needed}


def test_help_is_the_same_without_what_typer_imports_for_it_in_vain() -> None:
    run = "import sys; from kbf_localization.cli import main; sys.argv = ['kbf', '--help']"
    parsers = {"markdown_it", "pygments"} - modules_after("import typer")
    assert not parsers & modules_after(f"{run}; main.main()")
    env = {**os.environ, "COLUMNS": "90", "NO_COLOR": "1"}
    shown = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, env=env).stdout
    # Here, typer has imported all of it.
    complete = (
        CliRunner().invoke(main.app, ["--help"], prog_name="kbf", env={"COLUMNS": "90"}).output
    )
    assert "Commands" in shown and shown == complete


def test_stand_ins_for_what_help_does_without_make_the_real_thing() -> None:
    if "typer.rich_utils" in modules_after("import typer"):
        pytest.skip("this version of typer imports its help by itself")
    script = (
        "import sys; from kbf_localization.cli.main import import_help; import_help();"
        "import typer.rich_utils as used; stand_in = used.Markdown; made = stand_in('*a*');"
        "from rich.markdown import Markdown;"
        "print(stand_in is not Markdown, type(made) is Markdown)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("name", main.COMMANDS)
def test_each_command_has_help_with_an_example(name: str) -> None:
    def help_of(command: list[str]) -> str:
        result = CliRunner().invoke(main.app, [*command, "--help"], env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        assert "--install-completion" not in result.output
        return result.output

    subcommands = getattr(main.load_command(name), "commands", ())
    texts = [help_of([name])] + [help_of([name, subcommand]) for subcommand in subcommands]
    without_usage = [text.partition("[OPTIONS]")[2] for text in texts]
    assert any(f"kbf {name} " in text for text in without_usage)


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        (["map", "build", "drive"], "--words", "--vocabulary-size"),
        (["map", "build", "drive", "--output", "m.kbfmap"], "--like", "--vocabulary-from"),
        (["map", "build", "drive", "--output", "m.kbfmap"], "--describer", "--descriptor"),
        (["evaluate", "drive"], "--describer", "--descriptor"),
        (["evaluate", "drive"], "--pictures", "--plots"),
        (["replay", "bag"], "--pictures", "--plots"),
    ],
)
def test_an_old_options_name_is_understood_and_said_once(
    command: list[str], old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both names end in the same refusal, for no file is there; the old name adds one line."""
    monkeypatch.chdir(tmp_path)

    def output_of(option: str) -> str:
        values = [] if new == "--plots" else ["1"]
        result = CliRunner().invoke(main.app, [*command, option, *values], env={"COLUMNS": "200"})
        assert result.exit_code == 2, result.output
        return result.output

    note = f"Note: {old} is now {new}; the old name ends with the next release\n"
    assert output_of(old) == note + output_of(new)
    shown = CliRunner().invoke(main.app, [*command, "--help"], env={"COLUMNS": "200"}).output
    assert new in shown and f"{old} " not in shown


def test_after_two_dashes_an_old_name_is_an_argument() -> None:
    result = CliRunner().invoke(main.app, ["evaluate", "--", "--pictures"])
    assert result.exit_code == 2 and "Note:" not in result.output


def test_a_known_error_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KbfError("office.kbfmap: not a map file;\nbuild one with kbf map build")

    monkeypatch.setattr(main, "load_command", lambda name: command_that(fail))
    result = CliRunner().invoke(main.app, ["bench"])
    assert result.exit_code == main.EXIT_KNOWN_ERROR
    assert result.output == ("Error: office.kbfmap: not a map file; build one with kbf map build\n")


def test_an_unknown_command_is_exit_code_2() -> None:
    assert CliRunner().invoke(main.app, ["no-such-command"]).exit_code == 2


def test_a_mistyped_command_names_the_right_command() -> None:
    result = CliRunner().invoke(main.app, ["evaluat"])
    assert result.exit_code == 2
    assert "Did you mean 'evaluate'?" in result.output


@pytest.mark.parametrize("command", [[], ["evaluate"], ["map", "build"], ["replay"]])
def test_help_shows_flags_without_a_type(command: list[str]) -> None:
    text = CliRunner().invoke(main.app, [*command, "--help"]).output
    assert "--help" in text and "<bool>" not in text and "BOOLEAN" not in text


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [
        (signal.SIGINT, main.EXIT_INTERRUPTED),
        (signal.SIGTERM, main.EXIT_TERMINATED),
        (signal.SIGHUP, main.EXIT_TERMINATED),
    ],
)
def test_an_interrupted_command_cleans_up(
    tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    started, cleaned = tmp_path / "started", tmp_path / "cleaned"
    script = f"""
import sys, time, typer
from pathlib import Path
from kbf_localization.cli import main
from kbf_localization.cli.console import print_table
app = typer.Typer(add_completion=False)
@app.command()
def wait():
    try:
        Path({str(started)!r}).touch()
        time.sleep(60)
    finally:
        Path({str(cleaned)!r}).touch()
main.load_command = lambda name: typer.main.get_command(app)
sys.argv = ["kbf", "bench"]
main.main()
"""
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert cleaned.exists()
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("kbf ma", "map"),
        ("kbf map b", "build"),
        ("kbf map build --pos", "--poses"),
        ("kbf evaluate --method k", "kbf"),
        ("kbf evaluate --method nai,k", "nai,kmcf"),
    ],
)
def test_the_shell_completes_commands_and_options(typed: str, completed: str) -> None:
    variables = {
        "_KBF_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    done = subprocess.run(PROGRAM, env={**os.environ, **variables}, capture_output=True, text=True)
    assert completed in done.stdout.splitlines(), done.stderr


def test_columns_of_figures_are_flush_right_and_prose_is_flush_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [("a", 0.5, "12 ± 3 %", "x", "no"), ("b", None, "1 ± 0.5 %", "one word more", "yes")]
    print_table("T", ("What", "Number", "With deviation", "In words", "Whether"), rows)
    first, second = (line for line in capsys.readouterr().out.splitlines() if line[:1] == "│")
    cells = [line.strip("│").split("│") for line in (first, second)]
    for column, flush in ((1, " {:>6} "), (2, " {:>14} "), (3, " {:<13} "), (4, " {:<7} ")):
        assert [row[column] for row in cells] == [
            flush.format(text) for text in ((row[column].strip()) for row in cells)
        ]


def test_units_in_brackets_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("T", ("What", "RMSE [m]"), [("a", 0.5)])
    assert "RMSE [m]" in capsys.readouterr().out
