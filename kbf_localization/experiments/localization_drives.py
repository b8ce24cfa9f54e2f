"""The drives of the localization experiment: real archives, real paths rendered, or invented."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import DatasetError
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.simulator import simulate, simulate_along

PAPERS_SEQUENCES = ("seq1_cloudy1", "seq1_cloudy2", "seq1_cloudy3")
TRAINING_PATH, TEST_PATH = "seq2_cloudy1", "seq1_cloudy1"
INVENTED_FRAMES = 1000


@dataclass(frozen=True)
class Fold:
    """Drives to train on and one to test on."""

    training: tuple[Drive, ...]
    test: Drive


@dataclass(frozen=True)
class Setup:
    """What the experiment runs on, in words, and its folds."""

    description: str
    folds: tuple[Fold, ...]


def real_archives(folder: Path, unpack_to: Path) -> Setup:
    """The paper's protocol: Saarbrücken part A, seq1_cloudy 1–3, each tested in turn.

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
    cold: Path | None,
    size: tuple[int, int],
    seed: int = 0,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> Setup:
    """Rendered images of the office of `seed`, along the real Saarbrücken paths where `cold` has
    them. Drives of that office that are in `folder` from an earlier run are used again.
    """
    folder = folder / f"office{seed}"
    paths = None if cold is None else _real_paths(cold)
    if paths is None:
        names = ["seq1_cloudy1", "seq1_cloudy2", "seq1_cloudy3"]
        if not all((folder / name).is_dir() for name in names):
            simulate(
                folder,
                runs=3,
                frames=INVENTED_FRAMES,
                size=size,
                seed=seed,
                workers=workers,
                progress=progress,
            )
        first, second, test = (ColdDrive(folder / name) for name in names)
        return Setup("invented path, rendered images", (Fold((first, second), test),))
    names = [TRAINING_PATH, TEST_PATH, "further_cloudy1"]
    if not all((folder / name).is_dir() for name in names):
        simulate_along(
            folder,
            paths,
            extra_drives=1,
            size=size,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    trained, test, further = (ColdDrive(folder / name) for name in names)
    words = (
        f"real trajectories {TRAINING_PATH} (train) and {TEST_PATH} (test), a further drive "
        "simulated along the first (train), rendered images, simulated odometry"
    )
    return Setup(words, (Fold((trained, further), test),))


def cold_trajectories() -> Path | None:
    """The folder with COLD's trajectories: KBF_COLD_DATA, or ../shared/data/cold."""
    named = os.environ.get("KBF_COLD_DATA")
    beside = Path(__file__).resolve().parents[3] / "shared" / "data" / "cold"
    folder = Path(named) if named else beside
    return folder if folder.is_dir() else None


def _real_paths(cold: Path) -> Sequence[Path] | None:
    paths = [cold / "saarbruecken" / name for name in (TRAINING_PATH, TEST_PATH)]
    return (
        paths if all((path / "localization" / "places.lst").is_file() for path in paths) else None
    )


def _find(folder: Path, name: str, unpack_to: Path) -> Path:
    """The folder of a sequence, unpacked from its archive where it is only there as one."""
    unpacked = sorted(path for path in folder.rglob(name) if (path / "std_cam").is_dir())
    archives = sorted(folder.rglob(f"{name}.tar"))
    # Freiburg and Ljubljana have sequences of the same names.
    for found in (unpacked, archives):
        found.sort(key=lambda path: "saarbruecken" not in str(path))
    if unpacked:
        return unpacked[0]
    if not archives:
        raise DatasetError(
            f"{folder}: has neither a folder {name} nor {name}.tar; unpack COLD's Saarbrücken "
            "part A archives there"
        )
    target = unpack_to / name
    try:
        with tarfile.open(archives[0]) as archive:
            archive.extractall(target, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise DatasetError(f"{archives[0]}: cannot be unpacked: {error}") from error
    inside = sorted(path.parent for path in target.rglob("std_cam"))
    if not inside:
        raise DatasetError(f"{archives[0]}: has no folder std_cam; is it a COLD sequence?")
    return inside[0]
