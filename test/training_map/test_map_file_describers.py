"""Maps of other describers than the pyramid: learned, stored, refused, and brought by others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.errors import DescriberError, KbfError, MapError
from kbf_localization.mapping import build_map, load_map
from kbf_localization.mapping.editing import merge_maps
from kbf_localization.ros.startup import load_localizer
from kbf_localization.training_map import TrainingMap, save_map
from kbf_localization.vision.combination import Product
from kbf_localization.vision.onnx_describer import OnnxDescriber
from kbf_localization.vision.recipe import Recipe
from kbf_localization.vision.registry import describer_names
from test.conftest import learning_quickly
from test.training_map.forging import redescribe
from test.vision.networks import random_convolutions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "describers.md"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_convolutions(tmp_path_factory.mktemp("networks") / "net.onnx")


@pytest.fixture(scope="module")
def learned_map(wall_drive: ColdDrive, network: Path) -> TrainingMap:
    with learning_quickly():
        return build_map([wall_drive], poses=15, describer=OnnxDescriber(network))


def test_a_stored_map_compares_and_describes_as_before(
    learned_map: TrainingMap, network: Path, map_path: Path, wall_drive: ColdDrive
) -> None:
    save_map(learned_map, map_path)
    loaded = load_map(map_path, network)
    assert loaded.identity == learned_map.identity and loaded.word_grids is None
    assert loaded.described_by.settings == learned_map.described_by.settings
    assert loaded.described_by.scales == learned_map.described_by.scales
    assert not loaded.calibration.relative_pose.fitted
    rows = np.arange(len(loaded))
    np.testing.assert_array_equal(loaded.image_gram(rows), learned_map.image_gram(rows))
    (_, image), *_ = wall_drive.images([3])
    np.testing.assert_array_equal(
        loaded.described_by.describe(image).features,
        learned_map.described_by.describe(image).features,
    )


def test_another_network_is_refused_and_none_is_asked_for(
    learned_map: TrainingMap, network: Path, map_path: Path, number_map: TrainingMap
) -> None:
    save_map(learned_map, map_path)
    other = random_convolutions(network.with_name("other.onnx"), seed=1)
    with pytest.raises(DescriberError, match="another network .* 'net.onnx'") as caught:
        load_map(map_path, other)
    assert "\n" not in str(caught.value)
    blank = np.zeros((48, 64), dtype=np.uint8)
    with pytest.raises(DescriberError, match="'net.onnx'.*--model"):
        load_map(map_path).described_by.describe(blank)
    save_map(number_map, map_path)
    with pytest.raises(DescriberError, match="made without a network"):
        load_map(map_path, network)


def test_the_node_starts_with_no_other_network(
    learned_map: TrainingMap, network: Path, map_path: Path
) -> None:
    save_map(learned_map, map_path)
    other = random_convolutions(network.with_name("other.onnx"), seed=1)
    values = {"map": str(map_path), "method": "kbf", "descriptor_model": str(other)}
    with pytest.raises(DescriberError, match="another network"):
        load_localizer(values, lambda: True)
    with pytest.raises(DescriberError, match="descriptor_model"):
        load_localizer({**values, "descriptor_model": ""}, lambda: True)


@pytest.mark.usefixtures("quick_learning")
def test_a_product_with_the_pyramid_keeps_the_read_out(
    wall_drive: ColdDrive, network: Path, map_path: Path
) -> None:
    recipe = Recipe("sift*onnx", {"onnx": OnnxDescriber(network)})
    built = build_map([wall_drive], poses=15, words=30, describer=recipe)
    assert isinstance(built.described_by, Product) and built.word_grids is not None
    save_map(built, map_path)
    loaded = load_map(map_path)
    rows = np.arange(len(loaded))
    np.testing.assert_array_equal(loaded.image_gram(rows), built.image_gram(rows))
    observation = loaded.observe(loaded.description(4))
    assert observation.similarities(np.array([4]))[0] == pytest.approx(1.0, abs=1e-12)
    assert observation.alignments(rows) is not None


def test_maps_of_different_describers_do_not_merge(
    learned_map: TrainingMap, wall_map: TrainingMap
) -> None:
    other = replace(wall_map, sources=(replace(wall_map.sources[0], name="other"),))
    with pytest.raises(MapError, match="another describer"):
        merge_maps([learned_map, other])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda item: item.update(name="sorcery"), "no describer is called 'sorcery'"),
        (lambda item: item.update(version=2), "version 2 of the describer 'onnx'"),
        (lambda item: item.update(scales=[-1.0]), "scale"),
        (lambda item: item.update(scales=[]), "scales"),
        (lambda item: item["settings"].update(length=10**9), "length"),
        (lambda item: item["settings"].update(length=7), "shape"),
        (lambda item: item["settings"].update(std=[0.0]), "std"),
        (lambda item: item["settings"].update(sha256="../x"), "SHA-256"),
        (lambda item: item.update(name="product"), "names no parts"),
        (lambda item: item.update(name="sift"), "no words"),
        (lambda item: item.update(settings=[]), "no settings"),
    ],
)
def test_a_forged_describer_is_refused(
    learned_map: TrainingMap, map_path: Path, change, expected: str
) -> None:
    save_map(learned_map, map_path)
    redescribe(map_path, lambda content: change(content["describer"]))
    with pytest.raises(MapError, match=expected) as caught:
        load_map(map_path)
    assert str(caught.value).startswith(str(map_path)) and "\n" not in str(caught.value)


@pytest.mark.usefixtures("quick_learning")
def test_the_page_s_describer_works_once_it_is_installed(
    wall_drive: ColdDrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, map_path: Path
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(# my_describers\.py.*?)```", page, re.S)
    (entry,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    name, module = re.search(r'(\w+) = "(\w+):', entry)[1], "my_describers"
    assert '[project.entry-points."kbf_localization.describers"]' in entry
    (tmp_path / f"{module}.py").write_text(example)
    installed = tmp_path / "mine-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    target = re.search(r'"(\w+:\w+)"', entry.partition("describers")[2])[1]
    (installed / "entry_points.txt").write_text(
        f"[kbf_localization.describers]\n{name} = {target}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert name in describer_names()
    built = build_map([wall_drive], poses=10, words=30, describer=f"sift*{name}")
    save_map(built, map_path)
    loaded = load_map(map_path)
    (_, image), *_ = wall_drive.images([3])
    np.testing.assert_array_equal(
        loaded.described_by.describe(image).features, built.described_by.describe(image).features
    )


def test_what_cannot_be_built_is_said(wall_drive: ColdDrive) -> None:
    with pytest.raises(KbfError, match="no describer is called 'surf'"):
        build_map([wall_drive], poses=5, describer="surf")
