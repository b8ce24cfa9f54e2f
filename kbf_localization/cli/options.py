"""Options that several commands have, and what they are read as."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, get_type_hints

from typer import Argument, Option

from kbf_localization.errors import ParameterError

if TYPE_CHECKING:
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.parallel import Workers

SOURCE_HELP = "Bags, or folders of COLD, TUM RGB-D, 7-Scenes, KITTI, OpenLORIS or your own."
_PART = "of each drive: 0:0.7 (fractions of its time), 60s:120s, every:10 or not-every:10."

Sources = Annotated[list[Path], Argument(metavar="SOURCE...", help=SOURCE_HELP)]
Source = Annotated[Path, Argument(metavar="DRIVE", help="A bag or a drive's folder.")]
Bag = Annotated[Path, Argument(metavar="BAG", help="A rosbag2 or a ROS 1 bag.")]
MapFile = Annotated[Path, Argument(metavar="MAP", help="The map file.")]
Train = Annotated[
    Optional[str], Option("--train", metavar="PART", help=f"Build from this part {_PART}")
]
Test = Annotated[Optional[str], Option("--test", metavar="PART", help=f"Replay this part {_PART}")]
_MAP = Option("--map", metavar="MAP", help="The map to localize on.")
OnMap = Annotated[Path, _MAP]
PerhapsOnMap = Annotated[Optional[Path], _MAP]
FloorPlan = Annotated[
    Optional[Path],
    Option(
        "--floor-plan",
        metavar="YAML",
        help="Draw on this plan, map_server's map.yaml; default: the plan in the map.",
    ),
]
Results = Annotated[Optional[Path], Option(metavar="DIR", help="Folder for the results.")]
Storage = Annotated[str, Option(help="mcap or sqlite3.")]
ImageSize = Annotated[str, Option(metavar="WxH", help="Size of rendered images.")]
Seed = Annotated[int, Option(min=0, help="Random seed.")]
Jobs = Annotated[int, Option(help="Worker processes; -1: one for each core.")]


def complete_methods(incomplete: str) -> list[str]:
    """Return what the shell may write for the last name of a list with commas."""
    from kbf_localization.filters.methods import method_names

    *chosen, last = incomplete.split(",")
    before = "".join(f"{name}," for name in chosen)
    return [
        before + name for name in method_names() if name.startswith(last) and name not in chosen
    ]


def _methods(name: str) -> Any:
    text = "Methods, with commas or repeated: kbf, paper, paper-iw, fkbf, nn, nn-paper, nai, kmcf."
    return Option(name, metavar="NAMES", help=text, autocompletion=complete_methods)


Methods = Annotated[Optional[list[str]], _methods("--method")]
ManyMethods = Annotated[Optional[list[str]], _methods("--methods")]
"""As the experiments call it, which run all of them by default."""


def chosen_methods(given: Sequence[str] | None, default: str) -> list[str]:
    """Return the methods of all options together, each once; without any the default."""
    from kbf_localization.filters.methods import check_methods

    return check_methods(",".join(given or [default]))


def parse_image_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Return width and height of a text such as 320x240."""
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if found is None:
        raise ParameterError(f"{option} {text}: give width and height in pixels, such as 320x240")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class Files:
    """A group of options: where a run's results go, and which of them are wanted."""

    output: Results = None
    report: Annotated[bool, Option(help="Write report.html.")] = True
    plots: Annotated[
        bool, Option("--plots", help="Write plots of paths, errors and σ as PNG too.")
    ] = False

    @property
    def wanted(self) -> dict[str, Any]:
        return {"report": self.report, "plots": self.plots}

    def shown(self, folder: ResultsFolder) -> Path:
        """Return the file to look at first."""
        return folder.path / ("report.html" if self.report else "metrics.json")


@dataclass(frozen=True)
class ParallelOptions:
    """A group of options: how the work is spread over processes and machines."""

    jobs: Jobs = -1
    dask: Annotated[
        Optional[str], Option(metavar="ADDRESS", help="Work on this Dask cluster instead.")
    ] = None

    def workers(self) -> Workers:
        from kbf_localization.parallel import make_workers

        return make_workers(self.jobs, self.dask)


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of its arguments that are data classes."""
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    groups = {name: hints.pop(name) for name in own if is_dataclass(hints[name])}
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in own.items()
        if name not in groups
    ]
    for group in groups.values():
        options = get_type_hints(group, include_extras=True)
        hints |= options
        parameters += [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=options[option.name],
            )
            for option in fields(group)
        ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        made = {
            name: group(**{option.name: given.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = hints
    return with_options
