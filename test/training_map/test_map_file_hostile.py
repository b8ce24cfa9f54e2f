"""Map files of right checksum with anything changed: a map that makes sense, or one line."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import strategies as st

from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.errors import KbfError
from kbf_localization.filters.methods import METHODS
from kbf_localization.filters.registry import make_filter
from kbf_localization.mapping import load_map
from kbf_localization.training_map import TrainingMap, map_file, save_map
from kbf_localization.training_map.map_file import SEAL_LENGTH
from test.fuzzing import changed_trees, edited, edits, fuzzed
from test.training_map.conftest import some_landmarks


@pytest.fixture(scope="module")
def whole(tiny_map: TrainingMap, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("maps") / "office.kbfmap"
    plan = FloorPlanImage(np.zeros((5, 4), dtype=np.uint8), 0.5, (0.0, 0.0, 0.0))
    landmarks = some_landmarks(tiny_map.poses)
    save_map(replace(tiny_map, floor_plan=plan, landmarks=landmarks), path)
    return path.read_bytes()


def check(content: bytes, path: Path) -> None:
    """The file is sealed again, and read."""
    image = io.BytesIO(content.ljust(SEAL_LENGTH, b"\0"))
    map_file.seal(image)
    path.write_bytes(image.getvalue())
    try:
        known = load_map(path)
        # What is drawn before the first image, for every method.
        for method in METHODS:
            make_filter(method, known)
    except KbfError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 500
    else:
        assert_makes_sense(known)


def assert_makes_sense(known: TrainingMap) -> None:
    assert len(known) > 0
    assert np.isfinite(known.poses).all()
    assert all(np.isfinite(value) for value in known.parameters.values())
    assert all(len(path) and np.isfinite(path).all() for path in known.trajectories)
    assert known.floor_plan is None or min(known.floor_plan.size_m) > 0.0
    assert (np.asarray(known.calibration.motion_noise.variances(1.0, 1.0)) >= 0.0).all()
    if known.landmarks is not None:
        assert_measures(known)


TEXTURE = np.random.default_rng(3).integers(0, 256, (80, 96), dtype=np.uint8)


def assert_measures(known: TrainingMap) -> None:
    """Landmarks are read when they are needed: an image asks for those of all map images."""
    rows = np.arange(len(known))
    placed = known.landmarks.table.place(rows, known.poses)
    assert np.isfinite(placed.points).all() and np.isfinite(placed.covariances).all()
    observation = known.observe(known.image_describer.describe(TEXTURE))
    fix = observation.landmark_fix(rows, known.poses[0], np.eye(3))
    assert fix is None or (np.isfinite(fix.pose).all() and np.isfinite(fix.covariance).all())


@fuzzed("map description", data=st.data())
def test_maps_with_any_description(whole: bytes, tmp_path: Path, data: st.DataObject) -> None:
    image = io.BytesIO(whole)
    with h5py.File(image, "r+") as file:
        tree: Any = json.loads(file["description"][()])
        del file["description"]
        changed = json.dumps(data.draw(changed_trees(tree))).encode()
        file.create_dataset("description", data=np.bytes_(changed))
    check(image.getvalue(), tmp_path / "hostile.kbfmap")


@fuzzed("map arrays", data=st.data())
def test_maps_with_anything_in_their_arrays(
    whole: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    image = io.BytesIO(whole)
    with h5py.File(image, "r+") as file:
        name = data.draw(st.sampled_from(sorted(map_file.ARRAYS.keys() & file.keys())))
        array = file[name][()]
        kept = edited(array.tobytes(), data.draw(edits))[: array.nbytes].ljust(array.nbytes, b"\0")
        if array.size:
            file[name][...] = np.frombuffer(kept, dtype=array.dtype).reshape(array.shape)
    check(image.getvalue(), tmp_path / "hostile.kbfmap")


@fuzzed("map bytes", changes=edits)
def test_maps_with_bytes_changed_or_cut(
    whole: bytes, tmp_path: Path, changes: list[tuple[float, int, bytes]]
) -> None:
    check(whole[:SEAL_LENGTH] + edited(whole[SEAL_LENGTH:], changes), tmp_path / "hostile.kbfmap")
