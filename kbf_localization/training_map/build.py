"""Builds a training map from drives with known poses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Rows
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.floor_plan_image import read_floor_plan
from kbf_localization.errors import MapError
from kbf_localization.geometry import embed
from kbf_localization.motion.noise import errors_over_windows, noise_growth
from kbf_localization.motion.odometry_model import noise_between
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.describing import (
    Described,
    describe_frames,
    image_size,
    sample_descriptors,
)
from kbf_localization.training_map.frames import Frames, gather_frames
from kbf_localization.training_map.kernel_scales import learn_scales
from kbf_localization.training_map.learned import MotionNoise, Resemblance, triple
from kbf_localization.training_map.learning import learn
from kbf_localization.training_map.probes import Probes, runs_along
from kbf_localization.training_map.selection import SELECTIONS, select_frames
from kbf_localization.training_map.training_map import Source, TrainingMap
from kbf_localization.training_map.view import map_spacing, view_parameters
from kbf_localization.vision.describer import Describer
from kbf_localization.vision.pyramid_describer import PyramidDescriber
from kbf_localization.vision.recipe import Recipe
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary, learn_vocabulary

NOISE_WINDOW = 2.0
"""In d₀ and φ₀: wheels err the same way for metres, so that short windows would flatter them."""

VOCABULARY_IMAGES = 250
VOCABULARY_DESCRIPTORS = 100_000


def build_map(
    drives: Drive | Sequence[Drive],
    *,
    poses: int = 1000,
    select: str = "coverage",
    seed: int = 0,
    words: int = 200,
    settings: DescriberSettings | None = None,
    describer: str | Recipe | Describer = "sift",
    like: TrainingMap | None = None,
    parameters: Mapping[str, float] | None = None,
    floor_plan: Path | str | None = None,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> TrainingMap:
    """A map of at most `poses` poses, chosen from the drives' frames; the same for the same seed.

    `select` is "coverage", which spreads the poses over the drives' way, or "random". Images are
    brought to the size of the first one unless `settings` say otherwise. `words` is the size of
    the visual vocabulary; a map built `like` another one shares its vocabulary, so that the two
    can be merged. `describer` is what images are described by: "sift", the spatial pyramid, one
    that was made (`OnnxDescriber("net.onnx")`), or a `Recipe` such as Recipe("sift*onnx", …). A
    map built `like` another one has its describer. A chosen image that cannot be decoded is left
    out, with a warning in the map's `warnings`. `floor_plan` is a YAML file of map_server's, kept
    in the map to draw on. All that the map knows about itself is learned here, with the
    hyper-parameters that it will be used with.
    """
    if poses < 1:
        raise MapError(f"a map needs at least one pose, not {poses}")
    if select not in SELECTIONS:
        raise MapError(f"select must be one of {', '.join(SELECTIONS)}, not '{select}'")
    workers = workers or Serial()
    frames = gather_frames(drives if isinstance(drives, Sequence) else [drives])
    plan = None if floor_plan is None else read_floor_plan(Path(floor_plan), frames.poses)

    def pyramid() -> PyramidDescriber:
        layout = settings or _settings_for(frames, words)
        vocabulary = _learn_words(frames, layout, seed, workers, progress)
        return PyramidDescriber(vocabulary, layout)

    if like is not None:
        describer = like.described_by
    elif isinstance(describer, str):
        describer = Recipe(describer)
    if isinstance(describer, Recipe):
        describer = describer.make(pyramid)
    rows = select_frames(frames.poses, poses, select, seed)
    asked = np.unique(np.concatenate((rows, *probe_runs(frames, rows))))
    described = describe_frames(frames, asked, describer, workers, progress)
    progress(0, 1, "learning from the map's own drives")
    built = map_of_frames(frames, described, rows, describer, parameters, seed)
    return replace(built, floor_plan=plan)


def map_of_frames(
    frames: Frames,
    described: Mapping[int, Described],
    rows: Rows,
    describer: Describer,
    parameters: Mapping[str, float] | None = None,
    seed: int = 0,
) -> TrainingMap:
    """The map of the frames `rows`, which learns about itself from those of `probe_runs`.

    `described` has the frames' descriptions by their row, without those that cannot be decoded.
    """
    kept = np.array([row for row in rows if int(row) in described], dtype=np.intp)
    if len(kept) == 0:
        raise MapError(f"{frames.drives[0].path}: none of {len(rows)} chosen images can be decoded")
    items = [described[int(row)] for row in kept]
    grids = [item.image.words for item in items if item.image.words is not None]
    training_map = TrainingMap(
        poses=frames.poses[kept],
        features=np.stack([item.image.features for item in items]),
        next_poses=frames.next_poses[kept],
        motions=frames.motions[kept],
        described_by=describer,
        motion_variances=noise_between(frames.poses, frames.motions, frames.next_poses),
        sources=tuple(
            Source(
                name=drive.name,
                kind=drive.kind,
                condition=drive.condition,
                frames=int((frames.drive_of == number).sum()),
                chosen=int((frames.drive_of[kept] == number).sum()),
                stamps_ns=(int(drive.stamps_ns[0]), int(drive.stamps_ns[-1])),
            )
            for number, drive in enumerate(frames.drives)
        ),
        source_of=frames.drive_of[kept],
        thumbnails=[item.thumbnail for item in items],
        parameters=dict(parameters or {}),
        warnings=tuple(_warnings(frames, items, len(rows), describer)),
        word_grids=np.stack(grids) if len(grids) == len(items) else None,
        ways=tuple(frames.way(number) for number in range(len(frames.drives))),
    )
    runs = [[row for row in run if int(row) in described] for run in probe_runs(frames, rows)]
    probes = Probes.of(
        runs,
        frames.poses,
        frames.drive_of,
        frames.odometry,
        frames.ways,
        lambda row: training_map.observe(described[row].image),
    )
    used = view_parameters(training_map.parameters)
    ways = frames.ways[kept]
    training_map, probes = learn_scales(training_map, ways, probes, used, seed)
    known = learn(training_map, ways, probes, partial(_motion_noise, frames), used, seed)
    return replace(training_map, known=known)


def probe_runs(frames: Frames, rows: Rows) -> list[Rows]:
    """Runs of frames, spread over the drives, from which a map of the frames `rows` learns."""
    return runs_along(frames.ways, frames.drive_of, map_spacing(embed(frames.poses[rows])))


def _motion_noise(frames: Frames, resemblance: Resemblance) -> MotionNoise:
    """Q over windows of the map's own scales, in which the errors of wheels add up."""
    window_m = NOISE_WINDOW * resemblance.distance_m
    stretches = ((frames.poses[own], frames.odometry[own]) for own in frames.unbroken())
    errors, ways = errors_over_windows(stretches, window_m, NOISE_WINDOW * resemblance.angle_rad)
    per_metre, per_radian, aside = noise_growth(errors, ways, window_m)
    return MotionNoise(triple(per_metre), triple(per_radian), aside)


def _warnings(
    frames: Frames, items: Sequence[Described], asked: int, describer: Describer
) -> Iterator[str]:
    for drive in frames.drives:
        yield from drive.warnings
    if len(items) < asked:
        yield f"{asked - len(items)} of {asked} chosen images cannot be decoded; left out"
    resized = sum(item.resized for item in items)
    if resized:
        width, height = describer.image_size
        yield f"{resized} of {asked} chosen images were resized to {width}x{height}"


def _settings_for(frames: Frames, words: int) -> DescriberSettings:
    size = image_size(frames)
    if size is None:
        raise MapError(f"{frames.drives[0].path}: no image can be decoded")
    try:
        return replace(DescriberSettings(), image_width=size[0], image_height=size[1], words=words)
    except ValueError as error:
        raise MapError(f"{frames.drives[0].path}: {error}") from error


def _learn_words(
    frames: Frames,
    settings: DescriberSettings,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Vocabulary:
    """The vocabulary of images spread over the drives."""
    rows = select_frames(frames.poses, VOCABULARY_IMAGES, "random", seed)
    per_image = min(settings.patches, -(-VOCABULARY_DESCRIPTORS // len(rows)))
    descriptors = sample_descriptors(frames, rows, per_image, seed, settings, workers, progress)
    if len(descriptors) == 0:
        raise MapError(
            f"{frames.drives[0].path}: none of {len(rows)} sampled images can be decoded"
        )
    return learn_vocabulary(descriptors, settings.words, seed, progress=progress)
