"""What the experiments' commands have in common: options, rendered drives, and the record."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

from typer import Option

from kbf_localization.cli.console import command_line, print_line, print_table
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import ParameterError

if TYPE_CHECKING:
    from kbf_localization.experiments.localization import Setup
    from kbf_localization.experiments.result import ExperimentResult
    from kbf_localization.parallel import Workers
    from kbf_localization.progress import Progress

_PATHS = "Folder with the paths of COLD's Saarbrücken seq1_cloudy1 and seq2_cloudy1 (places.lst)"
Trials = Annotated[int, Option(min=1, help="Independent trials.")]
Sizes = Annotated[str, Option(help="Numbers n of training poses or pairs, separated by commas.")]
Buildings = Annotated[int, Option(min=1, help="Invented offices, of consecutive seeds.")]
MapPoses = Annotated[int, Option(min=50, help="Poses of each map.")]
Trajectories = Annotated[
    Optional[Path], Option(help=f"{_PATHS}, to render images along. Default: an invented path.")
]
MorePaths = Annotated[Optional[Path], Option(help=f"{_PATHS}: one more building, round them.")]
KeptDrives = Annotated[
    Optional[Path], Option(help="Keep the rendered drives in this folder, and use them again.")
]


def parse_sizes(text: str) -> list[int]:
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ParameterError(f"--sizes {text}: give whole numbers, such as 50,100,200") from None
    if numbers[0] < 4:
        raise ParameterError(f"--sizes {text}: cross validation needs at least 4 training pairs")
    return numbers


class Record:
    """The folder of an experiment, with its configuration and what it found."""

    def __init__(self, experiment: str, output: Path | None, **settings: Any) -> None:
        from kbf_localization.evaluation.results import ResultsFolder

        self.folder = ResultsFolder.create(f"experiment {experiment}", output)
        self._config: dict[str, Any] = {"command": command_line(), "experiment": experiment}
        self.note(**settings)

    def note(self, **settings: Any) -> None:
        """Add to the configuration."""
        self._config |= settings
        self.folder.write_config(self._config)

    def finish(self, found: ExperimentResult) -> None:
        """Write all files, and print the tables."""
        report = found.write(self.folder, self._config)
        for table in found.tables:
            print_table(table.title, table.columns, table.rows)
        print_line(f"Results: {report}")


@contextmanager
def rendering(kept: Path | None = None) -> Iterator[tuple[Path, Progress]]:
    """Yield a folder for rendered drives, removed at the end unless `kept`, and a progress."""
    with tempfile.TemporaryDirectory(prefix="kbf-drives-") as folder, show_progress() as progress:
        yield kept or Path(folder), progress


def rendered_offices(
    folder: Path,
    trajectories: Path | None,
    size: tuple[int, int],
    seed: int,
    count: int,
    workers: Workers,
    progress: Progress,
) -> dict[int, Setup]:
    """Render the drives of `count` offices of consecutive seeds; return them by seed."""
    from kbf_localization.experiments.localization import rendered_drives

    return {
        number: rendered_drives(folder, trajectories, size, number, workers, progress)
        for number in range(seed, seed + count)
    }
