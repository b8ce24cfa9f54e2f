"""Changes map files and seals them again, as whoever forges one would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from kbf_localization.training_map.map_file import seal


@contextmanager
def resealed(path: Path) -> Iterator[h5py.File]:
    with h5py.File(path, "r+") as file:
        yield file
    with path.open("r+b") as sealed:
        seal(sealed)


def redescribe(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a map's description."""
    with resealed(path) as file:
        content = json.loads(file["description"][()])
        change(content)
        del file["description"]
        file.create_dataset("description", data=np.bytes_(json.dumps(content).encode()))
