"""A network that needs no training: fixed random convolutions, a known strong baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Floats
from kbf_localization.errors import naming_missing_extras

GRID = (3, 4)
"""Rows and columns of the grid to which features are pooled, so that places in the image count."""


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
