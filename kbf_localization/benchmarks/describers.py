"""Describers side by side: time and room an image takes, and how well they localize, day and night.

The network has fixed random convolutions: it needs no training and no download. Your own is
measured by building a map with it (docs/describers.md).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.benchmarks._random_network import random_convolutions
from kbf_localization.datasets.open import open_drive
from kbf_localization.evaluation.described_drive import describe_drive
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.run import replay
from kbf_localization.localization.localizer import Localizer
from kbf_localization.progress import Progress, no_progress
from kbf_localization.simulator import simulate
from kbf_localization.training_map import build_map
from kbf_localization.vision.onnx_describer import OnnxDescriber
from kbf_localization.vision.recipe import Recipe
from kbf_localization.vision.vectors import VectorGallery, to_rows

DESCRIBERS = ("sift", "onnx", "sift*onnx", "sift+onnx")
CONDITIONS = ("cloudy", "cloudy", "cloudy", "night")
"""Two drives to map, one to test by day, one by night."""

FRAMES, POSES, SIZE, SEED = 200, 200, (320, 240), 5
NETWORK_SIZE, FILTERS = (120, 160), (16, 32, 64)
FIGURES = ("position_median_m", "share_beyond_1m", "share_tracking", "share_confident_wrong")
MANY, LENGTH, SEARCHES = 100_000, 512, 20


def run(progress: Progress = no_progress) -> dict[str, Any]:
    """Plain numbers for each describer, and the case search_100k."""
    with tempfile.TemporaryDirectory() as folder:
        figures = _localization(Path(folder), progress)
    return {**figures, f"search_{MANY // 1000}k": _search()}


def _localization(folder: Path, progress: Progress) -> dict[str, float]:
    paths = simulate(
        folder,
        runs=len(CONDITIONS),
        condition=CONDITIONS,
        frames=FRAMES,
        size=SIZE,
        seed=SEED,
        progress=progress,
    )
    drives = [open_drive(path) for path in paths]
    network = OnnxDescriber(
        random_convolutions(folder / "net.onnx", size=NETWORK_SIZE, filters=FILTERS)
    )
    found: dict[str, float] = {}
    for text in DESCRIBERS:
        recipe = Recipe(text, {"onnx": network})
        known = build_map(drives[:2], poses=POSES, describer=recipe, seed=SEED, progress=progress)
        found[f"{text} bytes a pose"] = float(
            known.features.shape[1] + (0 if known.word_grids is None else known.word_grids.shape[1])
        )
        for drive, light in zip(drives[2:], ("day", "night"), strict=True):
            described = describe_drive(drive, known.describer(), progress)
            metrics = trajectory_metrics(replay(described, Localizer(known)))
            found[f"{text} ms an image"] = float(np.median(described.describe_ms))
            found |= {f"{text} {light} {key}": float(metrics[key]) for key in FIGURES}
    return found


def _search() -> dict[str, float | str]:
    """One query against many rows, in eight bits and in single precision."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(MANY, LENGTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = to_rows(vectors)
    gallery = VectorGallery(rows)
    gallery.compare(rows[0])
    ours, theirs = [], []
    for turn in range(SEARCHES):
        start = time.perf_counter()
        found = int(gallery.compare(rows[turn])[0].argmax())
        middle = time.perf_counter()
        expected = int((vectors @ vectors[turn]).argmax())
        theirs.append(time.perf_counter() - middle)
        ours.append(middle - start)
        assert found == expected == turn
    mine, other = 1e3 * float(np.median(ours)), 1e3 * float(np.median(theirs))
    return {
        "ours_ms": mine,
        "reference_ms": other,
        "ratio": other / mine,
        "reference": f"the same product of {LENGTH} single-precision numbers a row",
    }
