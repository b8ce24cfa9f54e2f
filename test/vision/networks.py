"""Networks made by the onnx package, such as a user could have, and such as nobody should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kbf_localization.benchmarks.describers import random_convolutions as random_convolutions

OPSET = [helper.make_opsetid("", 17)]


def save(path: Path, nodes, weights, shape, output=("N", "D"), opsets=OPSET, kind=None) -> Path:
    """A network of one input "image" of `shape` and one output "out"."""
    kind = TensorProto.FLOAT if kind is None else kind
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("image", kind, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def external(path: Path, where: str) -> Path:
    """Weights that lie in another file."""
    random_convolutions(path)
    model = onnx.load(path)
    tensor = model.graph.initializer[2]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=where)
    path.write_bytes(model.SerializeToString())
    return path


def custom_operator(path: Path) -> Path:
    nodes = [helper.make_node("Conquer", ["image"], ["out"], domain="evil.example")]
    return save(
        path, nodes, {}, ("N", 3, 8, 8), opsets=[*OPSET, helper.make_opsetid("evil.example", 1)]
    )


def absurd_input(path: Path) -> Path:
    nodes = [helper.make_node("Flatten", ["image"], ["out"])]
    return save(path, nodes, {}, ("N", 3, 1_000_000, 1_000_000))


def large_constant(path: Path, numbers: int = 750_000_000) -> Path:
    """A file of some hundred bytes that asks for 3 GB."""
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["many"]),
        helper.make_node("ReduceSum", ["many"], ["sum"], keepdims=1),
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Add", ["flat", "sum"], ["out"]),
    ]
    return save(path, nodes, {"shape": np.array([numbers], np.int64)}, ("N", 3, 8, 8))


def grows_with_the_image(path: Path) -> Path:
    """Harmless for most images, but a bright one makes it ask for a terabyte."""
    nodes = [
        helper.make_node("ReduceMax", ["image"], ["peak"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("ReduceMin", ["image"], ["low"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Floor", ["low"], ["step"]),
        helper.make_node("Mul", ["step", "huge"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["count"], to=TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["count"], ["many"]),
        helper.make_node("ReduceSum", ["many"], ["sum"], keepdims=1),
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Add", ["flat", "sum"], ["out"]),
    ]
    return save(path, nodes, {"huge": np.array([2.5e11], np.float32)}, (1, 3, 8, 8), (1, "D"))


def endless(path: Path) -> Path:
    """A loop of 2^60 turns."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Cos", ["x"], ["y"]),
        ],
        "turn",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Loop", ["turns", "go", "flat"], ["out"], body=body),
    ]
    weights = {"turns": np.array(2**60, np.int64), "go": np.array(True)}
    return save(path, nodes, weights, ("N", 3, 8, 8))


def not_a_number(path: Path) -> Path:
    """The root of negative numbers."""
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Sub", ["flat", "much"], ["below"]),
        helper.make_node("Sqrt", ["below"], ["out"]),
    ]
    return save(path, nodes, {"much": np.array(1e6, np.float32)}, ("N", 3, 8, 8))
