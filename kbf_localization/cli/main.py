"""The command `kbf`: finds its commands' modules and imports each only when it is called.

A command `name` is the module `cli/name.py`, listed in COMMANDS below. The module has

- a docstring whose first line is the help that `kbf --help` shows; it, or the docstring of each of
  a group's functions, is the command's help, with a worked example as its last paragraph,
- `app = typer.Typer(add_completion=False)`: one `@app.command()` makes a command, several make a
  group (`kbf map build`),
- imports of NumPy and whatever needs it inside its functions,
- `Optional[Path]` for an option that may be left out: typer 0.9 does not know `Path | None`.

A command raises `KbfError` for what a user can put right, and cleans up in `finally`.
"""

import errno
import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from kbf_localization.child_process import ignore_drawing_settings_here
from kbf_localization.cli.interruption import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from kbf_localization.cli.interruption import EXIT_TERMINATED as EXIT_TERMINATED
from kbf_localization.cli.interruption import at_work, end_interrupted, install, was_interrupted
from kbf_localization.errors import (
    DatasetError,
    KbfError,
    MissingDriveError,
    naming_missing_extras,
)
from kbf_localization.limits import MIN_COMMAND_BYTES, check_address_space
from kbf_localization.sanitize import show_errors, shown, shown_traceback

COMMANDS = (
    "demo",
    "simulate",
    "convert",
    "split",
    "check",
    "map",
    "tune",
    "evaluate",
    "replay",
    "compare",
    "live",
    "experiment",
    "bench",
    "cache",
)
RENAMED_OPTIONS = {
    "map": {
        "--like": "--vocabulary-from",
        "--words": "--vocabulary-size",
        "--describer": "--descriptor",
    },
    "evaluate": {"--pictures": "--plots", "--describer": "--descriptor"},
    "replay": {"--pictures": "--plots"},
}
"""Old names by command, accepted until the next release and hidden from --help."""
UsageError: Any = typer.BadParameter.__base__
"""click's, or that of a typer which brings its own click."""
EXIT_UNEXPECTED = 1
EXIT_KNOWN_ERROR = 2
FAULTS_OF_THE_MACHINE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EMFILE,
    errno.ENAMETOOLONG,
)
"""Full or read-only disks, missing rights and the like, wherever they are met."""


def load_command(name: str) -> Any:
    """Return the click command or group of the module `cli/<name>.py`."""
    module = importlib.import_module(f"kbf_localization.cli.{name}")
    _take_help_from_docstrings(module.app, module.__doc__ or "")
    _prepare_for_old_typer(module.app)
    command = typer.main.get_command(module.app)
    command.name = name
    if hasattr(command, "commands"):
        command.help = module.__doc__
    _show_flags_plainly(command)
    return command


def _take_help_from_docstrings(command_app: typer.Typer, module_text: str) -> None:
    """Give each command its help, and its docstring's last paragraph, an example, as epilog."""
    for info in command_app.registered_commands:
        text = inspect.cleandoc(getattr(info.callback, "__doc__", None) or module_text)
        info.help, _, example = text.partition("\n\nExample")
        words = " ".join(f"Example{example}".split())
        info.epilog = re.sub(r"`(.+?)`", r"[bold]\1[/bold]", words) if example else None


def _show_flags_plainly(command: Any) -> None:
    """Hide <bool> beside options that take no value, in a group's commands too."""
    every = command.get_params

    def get_params(ctx: Any) -> Any:
        return _plain_flags(every(ctx))

    command.get_params = get_params
    for subcommand in getattr(command, "commands", {}).values():
        _show_flags_plainly(subcommand)


def _plain_flags(options: Any) -> Any:
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


def _prepare_for_old_typer(command_app: typer.Typer) -> None:
    """Give Ubuntu 24.04's typer 0.9 what newer versions find or assume by themselves."""
    command_app.rich_markup_mode = "rich"
    for info in (*command_app.registered_commands, command_app.registered_callback):
        if info is not None and info.callback is not None:
            # It does not see `Annotated` where `from __future__ import annotations` made a text.
            hints = get_type_hints(info.callback, include_extras=True)
            info.callback.__annotations__ = hints


def _first_line_of_docstring(name: str) -> str:
    # Its module begins with it; parsing all modules takes longer.
    with Path(__file__).with_name(f"{name}.py").open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


class LazyCommands(TyperGroup):
    """Lists the commands from their sources and imports only the called command."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stand-in with the command's one-line help: enough for listing and completion."""
        if cmd_name not in self.list_commands(ctx):
            return None
        return TyperCommand(name=cmd_name, help=_first_line_of_docstring(cmd_name))

    def get_params(self, ctx: Any) -> Any:
        return _plain_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command by its name; suggest the nearest names to a mistyped name."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = " or ".join(f"'{name}'" for name in get_close_matches(args[0], COMMANDS))
            hint = f" Did you mean {near}?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        # Help and completion do without the numeric libraries.
        if not ctx.resilient_parsing and not {"--help", "-h"} & set(args):
            check_address_space(MIN_COMMAND_BYTES)
        name, command, rest = super().resolve_command(ctx, args)
        renamed = RENAMED_OPTIONS.get(str(name), {})
        if not ctx.resilient_parsing:
            rest = _with_new_names(rest, renamed)
        return name, command and load_command(str(name)), rest

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if was_interrupted():  # of which some library has made another error
                raise KeyboardInterrupt from error
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            with naming_missing_extras(), at_work():
                return self._invoke(ctx)
        except KbfError as error:
            _say(f"Error: {error}{_whole_recording(ctx, error)}")
            raise typer.Exit(EXIT_KNOWN_ERROR) from error
        except OSError as error:
            if not _of_the_machine(error):
                raise
            place = f"{error.filename}: " if error.filename else ""
            _say(f"Error: {place}{error.strerror}")
            raise typer.Exit(EXIT_KNOWN_ERROR) from error
        except (MemoryError, ImportError) as error:
            if isinstance(error, ImportError) and "failed to map segment" not in str(error):
                raise
            _say("Error: there is too little memory for this")
            raise typer.Exit(EXIT_KNOWN_ERROR) from error
        except KeyboardInterrupt as error:
            _say("Interrupted.")
            end_interrupted()
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except UsageError as error:
            # An argument may be the name of a file that the shell has put in for a pattern.
            error.message = shown(error.message)
            raise


def _of_the_machine(error: OSError) -> bool:
    """Tell whether the disk is the reason, also where `tempfile` finds no folder with room."""
    no_temporary = error.filename is None and "temporary directory" in str(error.strerror)
    return error.errno in FAULTS_OF_THE_MACHINE or no_temporary


def _whole_recording(ctx: Any, error: KbfError) -> str:
    """Point from a drive that no map can be built from to the check of all of it."""
    unusable = isinstance(error, DatasetError) and not isinstance(error, MissingDriveError)
    if ctx.invoked_subcommand != "map" or not unusable:
        return ""
    return " (kbf check SOURCE looks at the whole recording)"


def _with_new_names(args: list[str], renamed: Mapping[str, str]) -> list[str]:
    """Replace old names of options by their new names, and say so once for each."""
    options = args[: args.index("--")] if "--" in args else args
    replaced = []
    used = set()
    for argument in options:
        name, equals, value = argument.partition("=")
        if name in renamed:
            used.add(name)
            argument = renamed[name] + equals + value
        replaced.append(argument)
    for name in sorted(used):
        _say(f"Note: {name} is now {renamed[name]}; the old name ends with the next release")
    return replaced + args[len(options) :]


def _say(message: str) -> None:
    """Print one line on standard error, however long."""
    typer.echo(shown(" ".join(message.split())), err=True)


app = typer.Typer(
    name="kbf",
    cls=LazyCommands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from kbf_localization import __version__  # reads the package's metadata

        typer.echo(f"kbf_localization {__version__}")
        raise typer.Exit


@app.callback(epilog="Try it: [bold]kbf demo[/bold]. Each command explains itself: kbf map --help.")
def kbf(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Tell a mobile robot where it is, from wheel odometry and one camera."""


HELP_DOES_WITHOUT = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Classes that typer imports for its help, which takes longer than all else, and never makes."""


def import_help() -> None:
    """Import typer's help without the parser of Markdown and the highlighter of tracebacks.

    Stand-ins, which import the real classes when they are called, are there meanwhile. Versions of
    typer that import their help by themselves, such as 0.9, have it whole already.
    """
    stand_ins = {
        module: _stand_in(module, name)
        for module, name in HELP_DOES_WITHOUT.items()
        if module not in sys.modules
    }
    sys.modules.update(stand_ins)
    try:
        importlib.import_module("typer.rich_utils")
    except ImportError:  # Another version needs more of them, or has no rich: it imports by itself.
        sys.modules.pop("typer.rich_utils", None)
    finally:
        for module in stand_ins:
            del sys.modules[module]


def _stand_in(module: str, name: str) -> ModuleType:
    def make(_: type, *arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **options)

    found = ModuleType(module)
    setattr(found, name, type(name, (), {"__new__": make}))
    return found


def main() -> None:
    install()
    if not sys.argv[1:] or {"--help", "-h"} & set(sys.argv):
        import_help()
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a pipe of few characters gets the others as in \u2192.
        if isinstance(stream, TextIOWrapper):  # not where it was closed
            stream.reconfigure(errors="backslashreplace")
    show_errors()
    ignore_drawing_settings_here()
    try:
        app(prog_name="kbf")
    except Exception as error:
        # Before typer's own hook, which sends control characters to the terminal.
        sys.stderr.write(shown_traceback(error))
        sys.exit(EXIT_UNEXPECTED)


if __name__ == "__main__":
    main()
