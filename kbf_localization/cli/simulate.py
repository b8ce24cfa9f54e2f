"""Render drives through a simulated office, in COLD's layout.

Folder name and lighting decide which paths are driven, so that the drives of two calls differ; the
same call again gives the same drives.

Example: `kbf simulate office --runs 3 --seed 2` writes three drives of one office;
`kbf simulate along --trajectory seq1/localization/places.lst` renders at a real drive's poses and
stamps.
"""

from __future__ import annotations

import zlib
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer import Argument, Option

from kbf_localization.cli.console import print_line
from kbf_localization.cli.options import ImageSize, Jobs, parse_image_size
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import ParameterError
from kbf_localization.parallel import make_workers

if TYPE_CHECKING:
    from kbf_localization.simulator.optics import SimulatedCamera

app = typer.Typer(add_completion=False)


MAX_RUNS = 1000


class Condition(str, Enum):
    cloudy = "cloudy"
    night = "night"
    sunny = "sunny"


_RUNS = Option(
    min=1,
    max=MAX_RUNS,
    help="Number of drives (default: 3); with --trajectory, further drives follow a "
    "perturbed version of the longest.",
)
_TRAJECTORY = Option(
    metavar="places.lst",
    help="Render at this real drive's poses; repeat for several drives of one office.",
)
_OFFICE_FROM = Option(
    metavar="places.lst", help="Build the office round this drive too; may be repeated."
)
_FRAMES = Option(
    min=2, max=1_000_000, help="Images a drive (default: 1000, or all of a trajectory's)."
)


_OFFSET = Option(
    metavar="X,Y,Z[,YAW[,PITCH]]",
    help="Move the camera from its place 1.1 m above the base (metres), turn it left and tilt it "
    "down (radians).",
)
_DISTORTION = Option(metavar="K1[,K2]", help="Radial distortion of the lens, as OpenCV has it.")
_TIME_OFFSET = Option(help="Seconds by which the images' stamps are late.")
_CAMERA_INFO = Option(
    "--camera-info", help="Write the true lens and mount into each drive's camera.yaml."
)
_SAME_PATHS = Option(
    "--same-paths",
    help="Drive the same paths at the same times in every call: only light and camera differ.",
)


@app.command()
def simulate(
    folder: Annotated[Path, Argument(metavar="DIR", help="Where the sequences' folders go.")],
    runs: Annotated[Optional[int], _RUNS] = None,
    condition: Annotated[Condition, Option(help="The light.")] = Condition.cloudy,
    trajectory: Annotated[Optional[list[Path]], _TRAJECTORY] = None,
    office_from: Annotated[Optional[list[Path]], _OFFICE_FROM] = None,
    seed: Annotated[int, Option(min=0, help="The same seed gives the same office.")] = 0,
    frames: Annotated[Optional[int], _FRAMES] = None,
    size: ImageSize = "640x480",
    camera_offset: Annotated[Optional[str], _OFFSET] = None,
    distortion: Annotated[Optional[str], _DISTORTION] = None,
    time_offset: Annotated[float, _TIME_OFFSET] = 0.0,
    camera_info: Annotated[bool, _CAMERA_INFO] = False,
    same_paths: Annotated[bool, _SAME_PATHS] = False,
    jobs: Jobs = -1,
) -> None:
    from kbf_localization.simulator import simulated_drives

    if office_from and not trajectory:
        raise ParameterError("--office-from needs --trajectory: without one the office is invented")
    how: dict[str, Any] = {"condition": condition.value, "seed": seed}
    how["camera"] = _camera(camera_offset, distortion, time_offset, camera_info)
    how["first_drive"] = 0 if same_paths else first_drive(folder, condition)
    how |= {"size": parse_image_size(size), "workers": make_workers(jobs)}
    with show_progress() as progress:
        if trajectory:
            written = simulated_drives.simulate_along(
                folder,
                trajectory,
                office_from=office_from or (),
                extra_drives=max((runs or 0) - len(trajectory), 0),
                frames=frames,
                progress=progress,
                **how,
            )
        else:
            written = simulated_drives.simulate(
                folder, runs=runs or 3, frames=frames or 1000, progress=progress, **how
            )
    for path in written:
        print_line(str(path))


def first_drive(folder: Path, condition: Condition) -> int:
    """Return the number of a call's first drive, by the names of folder and lighting.

    Each of 1000 blocks of numbers belongs to the names of one checksum; 0 to 999 to --same-paths.
    """
    name = f"{folder.resolve().name}/{condition.value}"
    return MAX_RUNS * (1 + zlib.crc32(name.encode("utf-8", "surrogateescape")) % 1000)


def _camera(
    offset: str | None, distortion: str | None, time_offset: float, write_info: bool
) -> SimulatedCamera:
    from kbf_localization.simulator.optics import SimulatedCamera

    x, y, z, yaw, pitch = _numbers("--camera-offset", offset, (3, 4, 5), 5)
    return SimulatedCamera(
        (x, y, z),
        yaw,
        pitch,
        tuple(_numbers("--distortion", distortion, (1, 2), 1)),
        time_offset,
        write_info,
    )


def _numbers(option: str, text: str | None, counts: tuple[int, ...], pad: int) -> list[float]:
    """Return the numbers between commas, with zeros up to `pad`; zeros alone for no text."""
    fields = [] if text is None else text.split(",")
    try:
        numbers = [float(field) for field in fields]
    except ValueError:
        numbers = []
    if text is not None and len(numbers) not in counts:
        raise ParameterError(
            f"{option} {text}: give {' or '.join(map(str, counts))} numbers with commas between"
        )
    return [*numbers, *[0.0] * (pad - len(numbers))]
