"""Describers side by side: time and bytes of an image, and how well they localize, day and night.

Two networks need no download: one of fixed random convolutions, and the same with a projection that
is trained here, in seconds, on other simulated offices. Your own network is measured by `kbf
evaluate --build-from … --descriptor …` (docs/describers.md).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import cv2
import numpy as np
from scipy.linalg import eigh

from kbf_localization.arrays import Array, Floats, Image
from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.datasets.cold import CONDITIONS
from kbf_localization.errors import naming_missing_extras
from kbf_localization.evaluation.evaluate import Variant, evaluate_describers
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.experiments.localization import simulated_drives
from kbf_localization.parallel import Workers, make_workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.floor_plan import FloorPlan
from kbf_localization.simulator.lighting import lighting_for
from kbf_localization.simulator.lookup import Camera
from kbf_localization.simulator.plans import plan_office
from kbf_localization.simulator.renderer import Renderer
from kbf_localization.simulator.scene import scene
from kbf_localization.simulator.sensor import Sensor
from kbf_localization.simulator.trajectory import drive_through
from kbf_localization.vision.onnx_describer import OnnxDescriber
from kbf_localization.vision.recipe import Recipe
from kbf_localization.vision.vectors import VectorGallery, to_rows

GRID = (3, 4)
"""Rows and columns of the grid to which features are pooled, so that places in the image count."""

OFFICES = tuple(range(101, 109))
"""Seeds of the offices that it learns from; nothing is measured in them."""

PLACES = 250
"""In each of these offices."""

FRAMES_PER_PLACE = 3
SIDESTEP = (0.1, 0.1, 0.05)
"""Standard deviations, in metres and radians, between the views of one place."""

DIMENSIONS, SHRINKAGE = 128, 0.3
"""Chosen by how often a place of a further such office was found again at night and in the sun."""

DESCRIBERS = ("sift", "random", "trained", "sift*random", "sift*trained", "sift+trained")
METHODS = ("kbf", "nai")
DRIVE_CONDITIONS = ("cloudy", "cloudy", "cloudy", "night", "sunny")
MAPPED_DRIVES = 2
"""So many of these drives are mapped, by a cloudy day; the others are the tests."""

FRAMES, POSES, SIZE, SEED = 400, 400, (320, 240), 5
NETWORK_SIZE, FILTERS = (120, 160), (16, 32, 64)
METRICS = {
    "rmse_m": "position_rmse_m",
    "median_m": "position_median_m",
    "tracking_share": "share_tracking",
    "confident_wrong_share": "share_confident_wrong",
}
"""Of kbf, under the keys of `metrics.json`."""

TIMED_IMAGES = 20
ROWS, DIMENSIONS_SEARCHED, SEARCHES = 100_000, 512, 20


def random_convolutions(
    path: Path,
    *,
    seed: int = 0,
    channels: int = 3,
    size: tuple[int | str, int | str] = (48, 64),
    filters: tuple[int, ...] = (16, 48),
    pooled: bool = True,
    batch: int | str = "N",
    projection: tuple[Floats, Floats] | None = None,
) -> Path:
    """Write it as ONNX; `size` is the height and width of its input, names where they are free.

    The image is normalized in brightness and contrast. Each layer has zero-mean filters and a
    stride of 2. The features are pooled to `GRID` and flattened, or left as they are. A
    `projection` of weights (length, d) and bias (d,) comes last, after the flattened features x:
    xW + b.
    """
    with naming_missing_extras():
        from onnx import TensorProto, helper, numpy_helper
    generator = np.random.default_rng(seed)
    weights: dict[str, Any] = {
        "gain": np.ones(channels, np.float32),
        "shift": np.zeros(channels, np.float32),
    }
    nodes = [helper.make_node("InstanceNormalization", ["image", "gain", "shift"], ["even"])]
    name, depth = "even", channels
    for layer, count in enumerate(filters):
        kernels = generator.normal(size=(count, depth, 3, 3)) / np.sqrt(9 * depth)
        kernels -= kernels.mean(axis=(1, 2, 3), keepdims=True)
        weights[f"kernels{layer}"] = kernels.astype(np.float32)
        last = not pooled and layer == len(filters) - 1
        nodes += [
            helper.make_node(
                "Conv",
                [name, f"kernels{layer}"],
                [f"filtered{layer}"],
                strides=[2, 2],
                pads=[1, 1, 1, 1],
            ),
            helper.make_node("Relu", [f"filtered{layer}"], ["out" if last else f"kept{layer}"]),
        ]
        name, depth = f"kept{layer}", count
    if pooled:
        window = [int(side) // 2 ** len(filters) // cells for side, cells in zip(size, GRID)]
        nodes += [
            helper.make_node("AveragePool", [name], ["grid"], kernel_shape=window, strides=window),
            helper.make_node("Flatten", ["grid"], ["out" if projection is None else "flat"]),
        ]
    if projection is not None:
        weights |= {"projection": projection[0], "bias": projection[1]}
        nodes.append(helper.make_node("Gemm", ["flat", "projection", "bias"], ["out"]))
    output = ("N", "D") if pooled else ("N", depth, "rows", "columns")
    graph = helper.make_graph(
        nodes,
        "random convolutions",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, (batch, channels, *size))],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(value, key) for key, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def trained_network(
    path: Path,
    *,
    size: tuple[int, int],
    filters: tuple[int, ...],
    offices: tuple[int, ...] = OFFICES,
    places: int = PLACES,
    dimensions: int = DIMENSIONS,
    progress: Progress = no_progress,
) -> Path:
    """Train it and write it as ONNX; `size` is the height and width of its input."""
    random = OnnxDescriber(random_convolutions(path, size=size, filters=filters))
    views = []
    for office in tracked(offices, "rendering places to train a network", progress):
        by_light = places_in_lights(office, places, (size[1], size[0]))
        views.append(np.stack([random.vectors(images) for images in by_light], axis=1))
    projection = light_discriminants(np.concatenate(views), dimensions)
    return random_convolutions(path, size=size, filters=filters, projection=projection)


def light_discriminants(
    views: Floats, dimensions: int, shrinkage: float = SHRINKAGE
) -> tuple[Floats, Floats]:
    """Return linear discriminants, weights (m, dimensions) and bias, of views (places, lights, m).

    They are the generalized eigenvectors v of the covariance between places B and that within a
    place W, Bv = λWv with vᵀWv = 1, of the largest λ: what differs between places, in units of what
    light and a step aside change. W is shrunk towards a multiple of the identity.
    """
    middle = views.mean(axis=(0, 1))
    means = views.mean(axis=1)
    within = (views - means[:, None]).reshape(-1, views.shape[2]).astype(np.float64)
    inside = within.T @ within / (len(views) * (views.shape[1] - 1))
    between = np.cov(means.T.astype(np.float64))
    size = len(inside)
    inside = (1.0 - shrinkage) * inside + shrinkage * np.trace(inside) / size * np.eye(size)
    _, vectors = eigh(between, inside, subset_by_index=[size - dimensions, size - 1])
    weights = vectors[:, ::-1].astype(np.float32)
    return np.ascontiguousarray(weights), np.asarray(-(middle @ weights), dtype=np.float32)


def places_in_lights(seed: int, places: int, size: tuple[int, int]) -> list[list[Image]]:
    """Return for each lighting a grey image (height, width) of each place along a drive."""
    plan, generator = plan_office(seed), np.random.default_rng([seed, 30])
    track = drive_through(plan, generator, 0, FRAMES_PER_PLACE * places).poses
    poses = track[::FRAMES_PER_PLACE][:places]
    return [
        _grey_images(
            plan, poses + generator.normal(0.0, SIDESTEP, poses.shape), light, size, generator
        )
        for light in CONDITIONS
    ]


def _grey_images(
    plan: FloorPlan, poses: Array, light: str, size: tuple[int, int], generator: np.random.Generator
) -> list[Image]:
    camera, lighting = Camera(*size), lighting_for(light, plan.seed, 0)
    renderer = Renderer(scene(plan, lighting, camera.width), camera)
    sensor = Sensor(camera, lighting)
    images = (sensor.expose(renderer.render(pose), 0.0, generator) for pose in poses)
    return [np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8) for image in images]


def run(progress: Progress = no_progress) -> dict[str, Any]:
    """Return plain numbers for each descriptor, and the case search_100k."""
    cores = make_workers(-1)
    with tempfile.TemporaryDirectory() as folder:
        metrics = _localization(Path(folder), cores, progress)
    # In a worker, which has one thread of BLAS as the node has.
    (search,) = cores.map(_search, [ROWS])
    return {**metrics, f"search_{ROWS // 1000}k": search}


def _localization(folder: Path, cores: Workers, progress: Progress) -> dict[str, float]:
    drives = simulated_drives(
        folder,
        DRIVE_CONDITIONS,
        frames=FRAMES,
        size=SIZE,
        seed=SEED,
        workers=cores,
        progress=progress,
    )
    random = random_convolutions(folder / "random.onnx", size=NETWORK_SIZE, filters=FILTERS)
    trained = trained_network(
        folder / "trained.onnx", size=NETWORK_SIZE, filters=FILTERS, progress=progress
    )
    networks = {"random": OnnxDescriber(random), "trained": OnnxDescriber(trained)}
    variants = evaluate_describers(
        [Recipe(text, networks) for text in DESCRIBERS],
        drives[:MAPPED_DRIVES],
        drives[MAPPED_DRIVES:],
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
            found |= {f"{part}_kbf_{figure}": float(kbf[key]) for figure, key in METRICS.items()}
            found[f"{part}_nearest_beyond_1m_share"] = float(nearest["share_beyond_1m"])
    return found


def _describing_ms(variant: Variant) -> float:
    """Return the median milliseconds per image, one image after the other."""
    describer, spent = variant.training_map.described_by, []
    for _, image in variant.results[0].drive.images(range(TIMED_IMAGES)):
        assert image is not None
        spent.append(milliseconds(describer.describe, image))
    return float(np.median(spent))


def _search(many: int) -> dict[str, float | str]:
    """Time one query against `many` rows, in eight bits and in single precision."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(many, DIMENSIONS_SEARCHED)).astype(np.float32)
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
    return case(
        ours, theirs, f"the same product of {DIMENSIONS_SEARCHED} single-precision numbers a row"
    )
