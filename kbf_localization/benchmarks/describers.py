"""Describers side by side: time and room an image takes, and how well they localize, day and night.

Two networks need no download: one of fixed random convolutions, and the same with a projection that
is trained here, in seconds, on other simulated offices. Your own network is measured by `kbf
evaluate --build-from … --describer …` (docs/describers.md).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from kbf_localization.benchmarks._random_network import random_convolutions
from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.benchmarks._trained_network import trained_network
from kbf_localization.evaluation.describers import Variant, evaluate_describers
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.experiments.localization_drives import simulated_drives
from kbf_localization.parallel import Workers, make_workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.vision.onnx_describer import OnnxDescriber
from kbf_localization.vision.recipe import Recipe
from kbf_localization.vision.vectors import VectorGallery, to_rows

DESCRIBERS = ("sift", "random", "trained", "sift*random", "sift*trained", "sift+trained")
METHODS = ("kbf", "nai")
CONDITIONS = ("cloudy", "cloudy", "cloudy", "night", "sunny")
MAPPED = 2
"""So many of these drives are mapped, by a cloudy day; the others are the tests."""

FRAMES, POSES, SIZE, SEED = 400, 400, (320, 240), 5
NETWORK_SIZE, FILTERS = (120, 160), (16, 32, 64)
FIGURES = {
    "rmse_m": "position_rmse_m",
    "median_m": "position_median_m",
    "tracking_share": "share_tracking",
    "confident_wrong_share": "share_confident_wrong",
}
"""Of kbf, under the keys of `metrics.json`."""
TIMED = 20
MANY, LENGTH, SEARCHES = 100_000, 512, 20


def run(progress: Progress = no_progress) -> dict[str, Any]:
    """Plain numbers for each describer, and the case search_100k."""
    cores = make_workers(-1)
    with tempfile.TemporaryDirectory() as folder:
        figures = _localization(Path(folder), cores, progress)
    # In a worker, which has one thread of BLAS as the node has.
    (search,) = cores.map(_search, [MANY])
    return {**figures, f"search_{MANY // 1000}k": search}


def _localization(folder: Path, cores: Workers, progress: Progress) -> dict[str, float]:
    drives = simulated_drives(
        folder, CONDITIONS, frames=FRAMES, size=SIZE, seed=SEED, workers=cores, progress=progress
    )
    random = random_convolutions(folder / "random.onnx", size=NETWORK_SIZE, filters=FILTERS)
    trained = trained_network(
        folder / "trained.onnx", size=NETWORK_SIZE, filters=FILTERS, progress=progress
    )
    networks = {"random": OnnxDescriber(random), "trained": OnnxDescriber(trained)}
    variants = evaluate_describers(
        [Recipe(text, networks) for text in DESCRIBERS],
        drives[:MAPPED],
        drives[MAPPED:],
        METHODS,
        poses=POSES,
        seed=SEED,
        workers=cores,
        progress=progress,
    )
    found: dict[str, float] = {}
    for variant in variants:
        name = variant.describer
        found[f"{name}_bytes_per_pose"] = float(variant.bytes_per_pose)
        found[f"{name}_ms_per_image"] = _describing_ms(variant)
        for result in variant.results:
            kbf, nearest = (trajectory_metrics(result.runs[method]) for method in METHODS)
            part = f"{name}_{result.drive.condition}"
            found |= {f"{part}_kbf_{figure}": float(kbf[key]) for figure, key in FIGURES.items()}
            found[f"{part}_nearest_beyond_1m_share"] = float(nearest["share_beyond_1m"])
    return found


def _describing_ms(variant: Variant) -> float:
    """Median milliseconds for one image, one after the other."""
    describer, spent = variant.training_map.described_by, []
    for _, image in variant.results[0].drive.images(range(TIMED)):
        assert image is not None
        spent.append(milliseconds(describer.describe, image))
    return float(np.median(spent))


def _search(many: int) -> dict[str, float | str]:
    """One query against `many` rows, in eight bits and in single precision; processor time."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(many, LENGTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = to_rows(vectors)
    gallery = VectorGallery(rows)
    gallery.compare(rows[0])

    def nearest(turn: int) -> None:
        assert int(gallery.compare(rows[turn])[0].argmax()) == turn

    def nearest_in_floats(turn: int) -> None:
        assert int((vectors @ vectors[turn]).argmax()) == turn

    ours, theirs = [], []
    for turn in range(SEARCHES):
        ours.append(milliseconds(nearest, turn, clock=process_time))
        theirs.append(milliseconds(nearest_in_floats, turn, clock=process_time))
    return case(ours, theirs, f"the same product of {LENGTH} single-precision numbers a row")
