"""Parts of all commands on maps: their options and files, and how they show a map."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

from rich.markup import escape
from typer import Option

from kbf_localization.atomic_write import check_replaceable, check_writable
from kbf_localization.cli.console import command_line, print_line, print_table
from kbf_localization.errors import DatasetError, MapError, ParameterError
from kbf_localization.limits import (
    MAX_COORDINATE_M,
    MAX_PARAMETER_FILE_BYTES,
    ParameterValue,
    check_parameter,
    shortened,
)

if TYPE_CHECKING:
    from kbf_localization.arrays import Array
    from kbf_localization.datasets.drive import Drive
    from kbf_localization.mapping.poses import PosedDrives
    from kbf_localization.parallel import Workers
    from kbf_localization.pose_graph.anchors import Anchor
    from kbf_localization.progress import Progress
    from kbf_localization.training_map import TrainingMap

Output = Annotated[Path, Option(metavar="MAP", help="The map file to write.")]
Force = Annotated[bool, Option("--force", help="Replace a map that is there already.")]
NoThumbnails = Annotated[
    bool, Option("--no-thumbnails", help="Keep no small camera images in the map.")
]
KeptPlan = Annotated[
    Optional[Path],
    Option(metavar="YAML", help="Keep this plan in the map: map_server's map.yaml."),
]
_ANCHOR = re.compile(r"([^,@]+),([^,@]+),([^,@]+)@(.+):([^:]+?)s?")


def on_floor_plan(training_map: TrainingMap, path: Path | None) -> TrainingMap:
    """Return the map with this YAML file's floor plan instead of its own; None: its own."""
    from kbf_localization.datasets.floor_plan_image import read_floor_plan

    if path is None:
        return training_map
    return replace(training_map, floor_plan=read_floor_plan(path, training_map.poses))


def on_known_plan(training_map: TrainingMap, path: Path) -> TrainingMap:
    """Return a map in its own frame on the plan of the frame of its known poses, moved under it."""
    import numpy as np

    from kbf_localization.datasets.floor_plan_image import read_floor_plan
    from kbf_localization.geometry import compose, fit_rigid

    known = training_map.reference_poses
    if known is None:
        return training_map
    rows = np.isfinite(known).all(axis=1)
    plan = read_floor_plan(path, known[rows])
    frame = fit_rigid(known[rows, :2], training_map.poses[rows, :2])
    x, y, heading = (float(value) for value in compose(frame, np.array(plan.origin)))
    return replace(training_map, floor_plan=replace(plan, origin=(x, y, heading)))


def check_output(path: Path, force: bool) -> None:
    """Refuse before minutes of work what could not be written after them."""
    if path.is_dir() or not path.parent.is_dir():
        raise MapError(f"{path}: cannot be written; name a file in a folder that exists")
    check_replaceable(path)
    if path.exists() and not force:
        raise MapError(f"{path}: is there already; name another file, or replace it with --force")
    check_writable(path.parent)


def print_map(training_map: TrainingMap, path: Path) -> None:
    """Print what is in a map, its calibration, and the drives that it was built from."""
    from kbf_localization.training_map.sources import when
    from kbf_localization.vision.registry import formula, networks_of

    for warning in training_map.warnings:
        print_line(f"Note: {warning}")
    described_by, pyramid = training_map.described_by, training_map.described_by.pyramid
    low, high = training_map.poses[:, :2].min(axis=0), training_map.poses[:, :2].max(axis=0)
    width, height = described_by.image_size
    plan = training_map.floor_plan
    rows: list[tuple[object, ...]] = [
        ("Poses", len(training_map), "places with an image"),
        ("Extent", f"{high[0] - low[0]:.1f} x {high[1] - low[1]:.1f} m", "from pose to pose"),
        ("Images", f"{width} x {height} pixels", "camera images are resized to this"),
        ("Descriptor", escape(formula(described_by)), "by which images are compared"),
        ("Description", f"{described_by.width} bytes/pose", "stored for each image"),
        *(
            (
                "Network",
                escape(
                    f"{network.file}, SHA-256 {network.digest[:16]}…, "
                    f"{network.settings['pool']} pooling"
                ),
                f"{network.image_kernel} kernel, fitted scale {network.scales[0]:.3g}",
            )
            for network in networks_of(described_by)
        ),
    ]
    if pyramid is not None:
        rows.append(("Visual words", pyramid.layout.words, "size of the vocabulary"))
    rows += [
        (
            "Grid of words",
            _grid_of_words(training_map),
            "measures the offset from a map pose",
        ),
        *_landmarks(training_map),
        (
            "Frame",
            "its own" if training_map.own_frame else "given",
            "'kbf map align' moves it into another"
            if training_map.own_frame
            else "that of known poses or points",
        ),
        (
            "Floor plan",
            "none" if plan is None else "{:.1f} x {:.1f} m".format(*plan.size_m),
            "give one with --floor-plan" if plan is None else "plots are drawn on it",
        ),
        ("Size", f"{path.stat().st_size / 1e6:.1f} MB", "of the file"),
        ("Identity", training_map.identity, "of poses and images; saved poses name it"),
    ]
    rows += [
        (escape(name), value, "hyper-parameter of 'kbf tune'")
        for name, value in training_map.parameters.items()
    ]
    print_table(escape(str(path)), ("Property", "Value", "What it means"), rows)
    print_table("Calibration", ("Quantity", "Value", "What it means"), _calibration(training_map))
    print_table(
        "Sources: the drives, of whose images (frames) some became poses of the map",
        ("Source", "Kind", "Lighting", "Recorded (local time)", "Frames", "Poses"),
        [
            (
                escape(source.name),
                escape(source.kind),
                None if source.condition is None else escape(source.condition),
                when(source),
                source.frames,
                source.chosen,
            )
            for source in training_map.sources
        ],
    )


def _grid_of_words(training_map: TrainingMap) -> str:
    if training_map.described_by.pyramid is None:
        return "none: poses are means of map poses"
    if training_map.word_grids is None:
        return "none: offsets are not measured; rebuild the map"
    return f"{training_map.word_grids.itemsize * training_map.word_grids.shape[1]} bytes/pose"


def _landmarks(training_map: TrainingMap) -> list[tuple[object, ...]]:
    """Return rows on the landmarks and the camera."""
    import numpy as np

    from kbf_localization.landmarks.calibration import MIN_INLIERS

    landmarks = training_map.landmarks
    if landmarks is None:
        return [("Landmarks", "none", "'kbf map add-landmarks' makes them")]
    counts = landmarks.table.counts()
    camera = landmarks.camera
    centre = np.array([[camera.width / 2, camera.height / 2]])
    per_radian = float(camera.pixels_per_radian(centre)[0])
    yaw, pitch, _ = np.degrees(landmarks.mount.angles)
    rise, *tilts = landmarks.description.attitude_sigma
    tilt = float(np.degrees(max(tilts)))
    return [
        (
            "Landmarks",
            f"{np.median(counts):.0f} per image",
            f"measure poses to centimetres at {int(100.0 * np.mean(counts >= MIN_INLIERS))} % of "
            f"the images; the others have fewer than {MIN_INLIERS}",
        ),
        (
            "Camera",
            f"{camera.width} x {camera.height}, f {per_radian:.0f} px",
            f"looks {round(yaw)} deg left, {round(pitch)} deg down",
        ),
        (
            "Camera's motion",
            f"{100.0 * rise:.0f} cm, {tilt:.1f} deg",
            "standard deviation of height and tilt over the images",
        ),
    ]


def _calibration(training_map: TrainingMap) -> list[tuple[object, ...]]:
    """Return the calibrated quantities, each with what it means."""
    import numpy as np

    known = training_map.calibration
    similarity, relative_pose, noise = known.similarity, known.relative_pose, known.motion_noise
    (low, high), (near, far) = relative_pose.prominence_range, relative_pose.separation_range
    best = np.sqrt(relative_pose.variances(high, near))
    worst = np.sqrt(relative_pose.variances(low, far))
    metre = np.sqrt(noise.per_metre)
    return [
        (
            "fitted to",
            f"{known.probes} images, {known.drives} drive{'s' if known.drives != 1 else ''}",
            "each compared with images of other times"
            if known.revisits
            else "no place was seen twice: optimistic; map a second drive",
        ),
        (
            "scales d0, phi0",
            f"{similarity.distance_m:.2f} m, {np.degrees(similarity.angle_rad):.0f} deg",
            "beyond it two images no longer look alike",
        ),
        ("contrast", f"{similarity.amplitude:.2f}", "of images of one place: 0 none, 1 strong"),
        (
            "evidence",
            f"{known.likelihood_ratio.median:.1f} (rarely below {known.likelihood_ratio.q005:.1f})",
            "log odds that an image at its right pose gives against elsewhere",
        ),
        (
            "pose from one image",
            f"{best[0]:.2f} to {worst[0]:.2f} m, {np.degrees(best[2]):.0f} to "
            f"{np.degrees(worst[2]):.0f} deg",
            "standard deviation forward and in heading, best and worst match",
        ),
        (
            "odometry, after 1 m",
            f"{metre[0]:.3f} m, {np.degrees(metre[2]):.1f} deg",
            f"standard deviation; {noise.set_aside} stretches excluded as outliers; "
            "replaced by the odometry's own covariance where that is plausible",
        ),
    ]


def check_floor_plan(path: Path) -> None:
    """Refuse before minutes of work a floor plan that cannot be read."""
    from kbf_localization.datasets.floor_plan_image import load_floor_plan

    try:
        load_floor_plan(path)
    except DatasetError as error:
        raise ParameterError(str(error)) from error


def read_parameters(path: Path) -> Mapping[str, ParameterValue]:
    """Read hyper-parameters from a file of 'kbf tune'."""
    from kbf_localization.datasets.files import read_yaml

    try:
        content = read_yaml(path, MAX_PARAMETER_FILE_BYTES)
    except DatasetError as error:  # no drive's
        raise ParameterError(str(error)) from error
    table = content.get("parameters") if isinstance(content, dict) else None
    if table is None:
        raise ParameterError(f"{path}: has no 'parameters'; make it with 'kbf tune'")
    if not isinstance(table, dict):
        raise ParameterError(f"{path}: 'parameters' must be a table of names and values")
    try:
        return {str(name): check_parameter(str(name), value) for name, value in table.items()}
    except ValueError as error:
        raise ParameterError(f"{path}: {error}") from error


@dataclass(frozen=True)
class MappingOptions:
    """Options of where the poses come from."""

    poses_from: str
    anchors: Sequence[str]
    odometry_scale: float
    require_joined: bool
    refine: bool
    seed: int

    def with_poses(
        self, drives: Sequence[Drive], workers: Workers, progress: Progress
    ) -> PosedDrives:
        from kbf_localization.mapping.poses import with_poses

        return with_poses(
            drives,
            self.poses_from,
            anchors=[parse_anchor(text, drives) for text in self.anchors],
            odometry_scale=self.odometry_scale,
            unjoined="refuse" if self.require_joined else "leave_out",
            refine=self.refine,
            seed=self.seed,
            workers=workers,
            progress=progress,
        )


def parse_anchor(text: str, drives: Sequence[Drive]) -> Anchor:
    """Return the anchor of a text such as 1.5,2,90@cloudy1:12.5s (metres, degrees, seconds)."""
    from kbf_localization.pose_graph.anchors import Anchor

    found = _ANCHOR.fullmatch(text)
    option = f"--anchor {shortened(text)}"
    wanted = f"{option}: give x,y,degrees@DRIVE:SECONDS, such as 1.5,2,90@cloudy1:12.5"
    if found is None:
        raise ParameterError(wanted)
    try:
        x, y, degrees, seconds = (float(found[group]) for group in (1, 2, 3, 5))
    except ValueError as error:
        raise ParameterError(wanted) from error
    if not max(abs(x), abs(y)) <= MAX_COORDINATE_M or not all(
        map(math.isfinite, (degrees, seconds))
    ):
        raise ParameterError(wanted)
    names = [drive.name for drive in drives]
    if found[4] not in names:
        raise ParameterError(
            f"{option}: no drive {shortened(found[4])}; there are {', '.join(names)}"
        )
    number = names.index(found[4])
    stamps = drives[number].stamps_ns
    length = float(stamps[-1] - stamps[0]) * 1e-9
    if not 0.0 <= seconds <= length:
        raise ParameterError(f"{option}: the drive has 0 to {length:.1f} s")
    stamp = int(stamps[0]) + round(seconds * 1e9)
    return Anchor(number, stamp, (x, y, math.radians(degrees)))


def report_mapping(
    drives: Sequence[Drive],
    source: PosedDrives,
    options: MappingOptions,
    map_path: Path,
    results: Path | None,
) -> None:
    """Write `mapping.json` and `mapping.html`, and print the table; nothing for given poses."""
    from kbf_localization.evaluation.mapping_metrics import (
        mapping_metrics,
        metric_rows,
        write_mapping,
    )
    from kbf_localization.evaluation.results import ResultsFolder

    estimates = source.estimates
    if estimates is None:
        return
    folder = ResultsFolder.create("map-build", results)
    metrics = mapping_metrics(drives, estimates, source.mended)
    config = {
        "command": command_line(),
        "map": map_path,
        "drives": [drive.path for drive in drives],
        **asdict(options),
    }
    folder.write_config(config)
    align = shlex.join(["kbf", "map", "align", str(map_path.resolve())])
    page = write_mapping(folder, drives, estimates, metrics, config, align)
    print_table("Poses from wheels and images", ("Metric", "Value", "Note"), metric_rows(metrics))
    # Without closures nothing shows the wheels' errors.
    for wheels in estimates.wheels if estimates.closures else ():
        print_line(wheels.described)
    for stretch in source.mended:
        print_line(stretch.described)
    print_line(str(metrics["verdict"]))
    print_line(f"Mapping: {page}")


def parse_pair(text: str) -> list[float]:
    """Return the numbers of a pair of points, such as 1.5,2,10,-3.5."""
    try:
        values = [float(field) for field in text.split(",")]
    except ValueError:
        values = []
    # A comparison with NaN is false.
    if len(values) != 4 or not all(abs(value) <= MAX_COORDINATE_M for value in values):
        raise ParameterError(
            f"--pair {shortened(text)}: give x_map,y_map,x_to,y_to, such as 1.5,2,10,-3.5"
        )
    return values


def read_pairs(path: Path) -> Array:
    """Return the pairs of points (n, 4) of a CSV file; comments and a header are passed over."""
    import numpy as np

    from kbf_localization.datasets.files import read_lines

    rows: list[list[float]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            values = [float(field.strip(' "')) for field in line.split(",")]
        except ValueError as error:
            if not rows and number == 1:
                continue
            raise ParameterError(f"{path}: line {number}: not four numbers") from error
        # A comparison with NaN is false.
        if len(values) != 4 or not all(abs(value) <= MAX_COORDINATE_M for value in values):
            raise ParameterError(f"{path}: line {number}: give x_map,y_map,x_to,y_to")
        rows.append(values)
    return np.array(rows).reshape(-1, 4)


def write_alignment(map_path: Path, floor_plan: Path, results: Path | None) -> None:
    """Write the page on which a map is aligned by mouse."""
    from kbf_localization.evaluation.alignment_page import write_alignment_page
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.mapping import load_map

    folder = ResultsFolder.create("map-align", results)
    page = write_alignment_page(folder, load_map(map_path), map_path, floor_plan, command_line())
    print_line(f"Open {page}, click three pairs of places, and run the command that it shows.")
