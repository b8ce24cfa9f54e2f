"""The drives of the localization experiment: real archives, real paths rendered, or invented."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from kbf_localization.evaluation.frame_pool import FramePool, describe_drives
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.simulator import simulate, simulate_along

PAPERS_SEQUENCES = ("seq1_cloudy1", "seq1_cloudy2", "seq1_cloudy3")
TRAINING_PATH, TEST_PATH = "seq2_cloudy1", "seq1_cloudy1"
INVENTED_FRAMES = 1000


@dataclass(frozen=True)
class Fold:
    """Drives to train on and one to test on."""

    training: tuple[Drive, ...]
    test: Drive

    def describe(self, seed: int, workers: Workers, progress: Progress) -> FramePool:
        """All frames, the test's last, with words of the training drives alone."""
        return describe_drives(
            self.training, [self.test], seed=seed, workers=workers, progress=progress
        )


@dataclass(frozen=True)
class Setup:
    """What the experiment runs on, in words, and its folds."""

    description: str
    folds: tuple[Fold, ...]


def simulated_drives(folder: Path, conditions: Sequence[str], **how: Any) -> list[Drive]:
    """Drives through an invented office, one in each of these lights; `how` as for `simulate`."""
    paths = simulate(folder, runs=len(conditions), condition=conditions, **how)
    return [open_drive(path) for path in paths]


def real_archives(folder: Path, unpack_to: Path) -> Setup:
    """Return the paper's protocol: Saarbrücken part A, seq1_cloudy 1–3, each tested in turn.

    `folder` holds the sequences unpacked or as `.tar` files, at any depth; archives are unpacked
    into `unpack_to`.
    """
    drives = [ColdDrive(_find(folder, name, unpack_to)) for name in PAPERS_SEQUENCES]
    folds = tuple(
        Fold(tuple(other for other in drives if other is not test), test) for test in drives
    )
    return Setup(f"real images and odometry of {', '.join(PAPERS_SEQUENCES)} in {folder}", folds)


def rendered_drives(
    folder: Path,
    trajectories: Path | None,
    size: tuple[int, int],
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Setup:
    """Return rendered images of the office of `seed`.

    Along the real Saarbrücken paths in `trajectories`
    or, without that folder, along an invented one. Drives of that office that are in `folder` from
    an earlier run are used again.
    """
    folder = folder / f"office{seed}"
    render: Callable[..., object]
    if trajectories is None:
        words = "invented path, rendered images"
        names = PAPERS_SEQUENCES
        render = partial(simulate, folder, runs=3, frames=INVENTED_FRAMES)
    else:
        words = (
            f"real trajectories {TRAINING_PATH} (train) and {TEST_PATH} (test), a further drive "
            "simulated along the first (train), rendered images, simulated odometry"
        )
        names = (TRAINING_PATH, "further_cloudy1", TEST_PATH)
        render = partial(simulate_along, folder, real_paths(trajectories), extra_drives=1)
    if not all((folder / name).is_dir() for name in names):
        render(size=size, seed=seed, workers=workers, progress=progress)
    first, second, test = (ColdDrive(folder / name) for name in names)
    return Setup(words, (Fold((first, second), test),))


def real_paths(folder: Path) -> tuple[Path, Path]:
    """Return the sequences of the training and the test path, at any depth of `folder`."""

    def sequence(name: str) -> Path:
        lists = sorted(folder.rglob(f"{name}/localization/places.lst"), key=_saarbruecken_first)
        if not lists:
            raise DatasetError(
                f"{folder}: has no {name}/localization/places.lst, which is in the archive "
                f"{name}.tar of COLD's Saarbrücken (docs/cold.md)"
            )
        return lists[0].parents[1]

    return sequence(TRAINING_PATH), sequence(TEST_PATH)


def _saarbruecken_first(path: Path) -> bool:
    """Return a key to sort by: Freiburg and Ljubljana have sequences of the same names."""
    return "saarbruecken" not in str(path)


def _find(folder: Path, name: str, unpack_to: Path) -> Path:
    """Return the folder of a sequence, unpacked from its archive where it is only there as one."""
    folders = (path for path in folder.rglob(name) if (path / "std_cam").is_dir())
    unpacked = sorted(folders, key=_saarbruecken_first)
    archives = sorted(folder.rglob(f"{name}.tar"), key=_saarbruecken_first)
    if unpacked:
        return unpacked[0]
    if not archives:
        raise DatasetError(
            f"{folder}: has neither a folder {name} nor {name}.tar; unpack COLD's Saarbrücken "
            "part A archives there"
        )
    target = unpack_to / name
    try:
        # COLD's archives are not compressed: what is unpacked is no larger than the archive.
        with tarfile.open(archives[0], "r:") as archive:
            archive.extractall(target, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise DatasetError(f"{archives[0]}: cannot be unpacked: {error}") from error
    inside = sorted(path.parent for path in target.rglob("std_cam"))
    if not inside:
        raise DatasetError(f"{archives[0]}: has no folder std_cam; is it a COLD sequence?")
    return inside[0]
