"""The folder that a run writes its results into; each file appears whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from kbf_localization.atomic_write import atomic_write, check_writable
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import KbfError

RESULTS = Path("results")


@dataclass(frozen=True)
class ResultsFolder:
    """A folder for one run: `results/<time>-<command>`, or the folder that the user named."""

    path: Path

    @classmethod
    def create(
        cls, command: str, output: Path | None = None, *, latest: bool = True
    ) -> ResultsFolder:
        """Make the folder; without `output` also point `results/latest` at it, if `latest`."""
        try:
            if output is not None:
                output.mkdir(parents=True, exist_ok=True)
                check_writable(output)
                return cls(output)
            return cls(_make_dated_folder(command, latest))
        except OSError as error:
            folder = output or RESULTS
            raise KbfError(
                f"{folder}: cannot write results there ({error.strerror}); name another folder "
                "with --output"
            ) from error

    def file(self, name: str) -> Path:
        """Return the path of a file in this folder, its parent made; a name never leads outside."""
        root = self.path.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root) or path == root:
            raise KbfError(f"{name!r}: not a file name within the results folder {self.path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a path to write to that becomes `name` at the end, or is removed after an error.

        It has the suffix of `name`, by which some libraries choose the format.
        """
        path = self.file(name)
        try:
            with atomic_write(path) as temporary:
                yield temporary
        except OSError as error:
            if error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error

    def write_text(self, name: str, text: str) -> Path:
        with self.writing(name) as temporary:
            # A file name that is not UTF-8 is shown by its bytes.
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        return self.file(name)

    def write_metrics(self, metrics: Mapping[str, Any]) -> Path:
        """Write `metrics.json`; NumPy's numbers become plain, and null if not finite."""
        text = json.dumps(to_plain(metrics), indent=2, ensure_ascii=False, allow_nan=False)
        return self.write_text("metrics.json", text + "\n")

    def write_config(self, config: Mapping[str, Any]) -> Path:
        """Write `config.yaml`: what was run, with every setting."""
        text = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
        return self.write_text("config.yaml", text)


def numbered_names(drives: Sequence[Drive]) -> list[str]:
    """Return a file's or folder's name for each drive: its number, and what is safe of its name."""
    return [
        f"{number:02d}-{re.sub(r'[^A-Za-z0-9_-]+', '_', drive.name)[:60]}"
        for number, drive in enumerate(drives, start=1)
    ]


def to_plain(value: Any) -> Any:
    """Return `value` as the types that JSON has."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


def _make_dated_folder(command: str, latest: bool) -> Path:
    RESULTS.mkdir(exist_ok=True)
    stem = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{command.replace(' ', '-')}"
    for attempt in count(1):
        path = RESULTS / (stem if attempt == 1 else f"{stem}-{attempt}")
        with suppress(FileExistsError):
            path.mkdir()
            break
    if latest:
        _point_latest_at(path)
    return path


def _point_latest_at(path: Path) -> None:
    """Replace the link in one step, so that a reader always finds some folder behind it."""
    link = RESULTS / "latest"
    temporary = RESULTS / f".latest-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.name, target_is_directory=True)
    temporary.replace(link)
