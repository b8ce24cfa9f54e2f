"""Networks made by the onnx package and run by onnxruntime, in a separate process."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from kbf_localization.errors import DescriberError, KbfError, ParameterError
from kbf_localization.vision.onnx_describer import NetworkLimits, OnnxDescriber, read_normalization
from test.vision import networks


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return networks.random_convolutions(tmp_path_factory.mktemp("networks") / "net.onnx")


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    return [generator.integers(0, 256, (48, 64), dtype=np.uint8) for _ in range(5)]


def by_onnxruntime(path: Path, planes: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": planes.astype(np.float32)})[0]


def cosine(row: np.ndarray, vector: np.ndarray) -> float:
    own = row.view(np.int8).astype(float)
    return float(own @ vector / np.linalg.norm(own) / np.linalg.norm(vector))


def test_rows_point_where_onnxruntime_says(network: Path, images: list[np.ndarray]) -> None:
    described = OnnxDescriber(network).describe_all(images)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    planes = (np.stack(images)[:, None] / 255.0 - mean[:, None, None]) / std[:, None, None]
    for item, vector in zip(described, by_onnxruntime(network, planes), strict=True):
        assert cosine(item.features, vector) > 1.0 - 1e-4  # eight bits a component


def test_together_and_one_by_one_are_the_same(network: Path, images: list[np.ndarray]) -> None:
    describer = OnnxDescriber(network)
    together = describer.describe_all(images)
    for image, item in zip(images, together, strict=True):
        np.testing.assert_array_equal(describer.describe(image).features, item.features)


@pytest.mark.parametrize("pool", ["gem", "mean", "none"])
def test_feature_maps_are_pooled(pool: str, images: list[np.ndarray], tmp_path: Path) -> None:
    path = networks.random_convolutions(
        tmp_path / "maps.onnx", channels=1, size=("h", "w"), filters=(6,), pooled=False
    )
    describer = OnnxDescriber(path, input_size=(64, 48), normalize="0.5,0.25", pool=pool)
    maps = by_onnxruntime(path, (images[0][None, None] / 255.0 - 0.5) / 0.25)[0]
    expected = {
        "gem": np.cbrt((np.maximum(maps, 1e-6) ** 3).mean(axis=(1, 2))),
        "mean": maps.mean(axis=(1, 2)),
        "none": maps.reshape(-1),
    }[pool]
    assert describer.length == len(expected)
    assert cosine(describer.describe(images[0]).features, expected) > 1.0 - 1e-3


def test_what_the_map_keeps_makes_it_again(network: Path, images: list[np.ndarray]) -> None:
    describer = OnnxDescriber(network, kernel="cosine").with_scales([7.0])
    assert describer.settings["sha256"] == hashlib.sha256(network.read_bytes()).hexdigest()
    again = OnnxDescriber.from_settings(describer.settings)
    assert again.settings == describer.settings
    with pytest.raises(DescriberError, match="--model"):
        again.describe(images[0])
    there = pickle.loads(pickle.dumps(describer))
    assert there.scales == (7.0,)
    np.testing.assert_array_equal(
        there.describe(images[0]).features, describer.describe(images[0]).features
    )


def test_a_network_for_a_fixed_number_of_images(images: list[np.ndarray], tmp_path: Path) -> None:
    single = OnnxDescriber(networks.random_convolutions(tmp_path / "1.onnx", batch=1))
    four = OnnxDescriber(networks.random_convolutions(tmp_path / "4.onnx", batch=4))
    a, b = single.describe(images[0]).features, four.describe(images[0]).features
    np.testing.assert_allclose(a.view(np.int8), b.view(np.int8), atol=1)


HOSTILE = {
    "absolute path outside": (lambda path: networks.external(path, "/etc/passwd"), "xternal"),
    "relative path outside": (lambda path: networks.external(path, "../../etc/passwd"), "xternal"),
    "custom operator": (networks.custom_operator, "Conquer"),
    "absurd input": (networks.absurd_input, "absurdly large"),
    "3 GB constant": (networks.large_constant, "GB of memory"),
    "endless loop": (networks.endless, "processor time"),
    "not a number": (networks.not_a_number, "not finite"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_network_ends_in_one_line(kind: str, tmp_path: Path) -> None:
    make, expected = HOSTILE[kind]
    path = make(tmp_path / "hostile.onnx")
    with pytest.raises(DescriberError, match=expected) as caught:
        OnnxDescriber(path, limits=NetworkLimits(memory=1_000_000_000, cpu_s=1))
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_external_data_beside_the_network_is_refused_too(tmp_path: Path) -> None:
    """The map's SHA-256 would not cover it."""
    (tmp_path / "weights.bin").write_bytes(bytes(16 * 3 * 9 * 4))
    path = networks.external(tmp_path / "net.onnx", "weights.bin")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        with pytest.raises(DescriberError, match="cannot be used"):
            OnnxDescriber(path)
    finally:
        os.chdir(before)


def test_an_image_that_kills_the_network_costs_that_image_alone(tmp_path: Path) -> None:
    describer = OnnxDescriber(
        networks.grows_with_the_image(tmp_path / "trap.onnx"), normalize="none"
    )
    dark, bright = np.full((8, 8), 100, np.uint8), np.full((8, 8), 255, np.uint8)
    before = describer.describe(dark).features
    with pytest.raises(DescriberError, match="memory"):
        describer.describe(bright)
    np.testing.assert_array_equal(describer.describe(dark).features, before)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3_000_000_000)


@pytest.mark.parametrize(
    "write", [lambda path: path.write_bytes(b"no network"), sparse, os.mkfifo, Path.mkdir]
)
def test_what_is_no_network_file_is_refused(write, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    write(path)
    with pytest.raises(DescriberError) as caught:
        OnnxDescriber(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_wrong_options_are_named(network: Path, tmp_path: Path) -> None:
    free = networks.random_convolutions(
        tmp_path / "free.onnx", size=("h", "w"), filters=(4,), pooled=False
    )
    for options, expected in (
        ({"pool": "most"}, "--pool"),
        ({"kernel": "round"}, "--kernel"),
        ({"normalize": "1,2,3"}, "--normalize"),
        ({"output_name": "feelings"}, "no output 'feelings'"),
        ({"input_size": (32, 32)}, "64x48, not 32x32"),
        ({"pool": "gem"}, "one vector"),
    ):
        with pytest.raises(KbfError, match=expected):
            OnnxDescriber(network, **options)
    with pytest.raises(DescriberError, match="--input-size"):
        OnnxDescriber(free)


def test_normalizations() -> None:
    assert read_normalization("none") == ((0.0,), (1.0,))
    assert read_normalization("0.1:0.2:0.3,0.5") == ((0.1, 0.2, 0.3), (0.5,))
    for text in ("nan,1", "0,0", "0.5", "a,b", "1:2,3"):
        with pytest.raises(ParameterError):
            read_normalization(text)
