"""Map files: the same map back, or one clear error."""

import hashlib
import io
import json
import pickle
import struct
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from kbf_localization.errors import MapError
from kbf_localization.landmarks.table import FileRows, HeldFile
from kbf_localization.mapping import load_map
from kbf_localization.training_map import TrainingMap, save_map
from kbf_localization.training_map.map_file import ARRAYS, VERSION, read_map
from kbf_localization.training_map.training_map import subset
from test.training_map.conftest import some_landmarks
from test.training_map.forging import resealed

WITHOUT_LANDMARKS = {name for name in ARRAYS if not name.startswith("landmark_")}

STORED = Path(__file__).parent / "data"


def test_a_stored_map_comes_back_the_same(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    loaded = load_map(map_path)
    assert loaded.identity == number_map.identity
    for name in ("poses", "features", "next_poses", "motions", "motion_variances", "source_of",
                 "word_grids"):  # fmt: skip
        np.testing.assert_array_equal(getattr(loaded, name), getattr(number_map, name))
    np.testing.assert_array_equal(
        loaded.described_by.vocabulary.words, number_map.described_by.vocabulary.words
    )
    assert loaded.described_by.layout == number_map.described_by.layout
    for name in ("sources", "parameters", "fitted", "warnings"):
        assert getattr(loaded, name) == getattr(number_map, name)
    assert list(loaded.thumbnails) == list(number_map.thumbnails)
    assert loaded.floor_plan is not None and number_map.floor_plan is not None
    np.testing.assert_array_equal(loaded.floor_plan.image, number_map.floor_plan.image)
    assert loaded.own_frame
    np.testing.assert_array_equal(loaded.reference_poses, number_map.reference_poses)
    for expected, trajectory in zip(number_map.trajectories, loaded.trajectories, strict=True):
        np.testing.assert_array_equal(trajectory, expected)
    assert loaded.floor_plan.resolution == 0.25
    assert loaded.floor_plan.origin == (-1.5, 0.5, 0.125)


def test_a_map_without_a_floor_plan_or_trajectories_has_none(
    number_map: TrainingMap, map_path: Path
) -> None:
    save_map(replace(number_map, floor_plan=None, trajectories=()), map_path)
    loaded = load_map(map_path)
    assert loaded.floor_plan is None
    np.testing.assert_array_equal(loaded.trajectory(1), number_map.poses[4:])


def test_a_loaded_map_can_replace_its_own_file(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    save_map(replace(load_map(map_path), parameters={"power": 16.0, "kbf.rule": "plain"}), map_path)
    again = load_map(map_path)
    assert again.parameters == {"power": 16.0, "kbf.rule": "plain"}
    assert list(again.thumbnails) == list(number_map.thumbnails)
    assert list(map_path.parent.iterdir()) == [map_path]


def test_the_file_is_the_same_whenever_it_is_written(
    number_map: TrainingMap, map_path: Path
) -> None:
    save_map(number_map, map_path)
    first = map_path.read_bytes()
    save_map(number_map, map_path)
    assert map_path.read_bytes() == first


def test_any_hdf5_tool_opens_it(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    with h5py.File(map_path, "r") as file:
        assert set(file) == {*WITHOUT_LANDMARKS, "description"}
        assert b'"power": 8.0' in file["description"][()]


def test_a_failed_write_leaves_the_old_map_and_nothing_else(
    number_map: TrainingMap, map_path: Path
) -> None:
    save_map(number_map, map_path)
    before = map_path.read_bytes()

    class Failing(list):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            raise OSError(28, "No space left on device")

    with pytest.raises(MapError, match="No space left"):
        save_map(replace(number_map, thumbnails=Failing()), map_path)
    assert map_path.read_bytes() == before
    assert list(map_path.parent.iterdir()) == [map_path]


def test_a_missing_folder_is_one_error(number_map: TrainingMap, tmp_path: Path) -> None:
    with pytest.raises(MapError, match="cannot be written"):
        save_map(number_map, tmp_path / "nowhere" / "office.kbfmap")


def test_thumbnails_stay_when_the_file_is_replaced_and_are_empty_when_it_is_truncated(
    number_map: TrainingMap, map_path: Path
) -> None:
    save_map(number_map, map_path)
    loaded = load_map(map_path)
    assert loaded.thumbnails[-2] == b"sixth"
    assert loaded.thumbnails[2:4] == [b"three", b"4"]
    held = map_path.with_suffix(".held")
    held.hardlink_to(map_path)
    save_map(replace(number_map, thumbnails=[b"x"] * 7), map_path)
    assert loaded.thumbnails[2] == b"three"
    assert pickle.loads(pickle.dumps(loaded)).thumbnails[2] == b""
    map_path.unlink()
    assert loaded.thumbnails[2] == b"three"
    held.write_bytes(b"not a map")
    assert loaded.thumbnails[2] == b""
    with pytest.raises(IndexError):
        loaded.thumbnails[7]


def test_every_truncation_is_refused(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    whole = map_path.read_bytes()
    for length in [*range(1, 600, 37), *range(600, len(whole), 997), len(whole) - 1]:
        map_path.write_bytes(whole[:length])
        with pytest.raises(MapError, match="truncated") as error:
            load_map(map_path)
        assert str(map_path) in str(error.value)


def test_every_flipped_bit_is_noticed(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    whole = map_path.read_bytes()
    rng = np.random.default_rng(0)
    for position in [*range(0, 600, 3), *rng.integers(600, len(whole), 300)]:
        flipped = bytearray(whole)
        flipped[position] ^= 1 << int(rng.integers(8))
        map_path.write_bytes(flipped)
        with pytest.raises(MapError):
            load_map(map_path)


def test_appended_bytes_are_noticed(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    with map_path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(MapError, match="damaged"):
        load_map(map_path)


def test_a_newer_version_is_refused(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    with map_path.open("r+b") as file:
        file.seek(10)
        file.write(struct.pack("<I", VERSION + 1))
    with pytest.raises(MapError, match=f"format version {VERSION + 1}.*update kbf_localization"):
        load_map(map_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n\x1a\n" + bytes(600)])
def test_what_is_no_map_is_refused(map_path: Path, content: bytes) -> None:
    map_path.write_bytes(content)
    with pytest.raises(MapError, match="not a training map"):
        load_map(map_path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MapError, match="No such file"):
        load_map(tmp_path / "nowhere.kbfmap")
    with pytest.raises(MapError, match="is a folder; a map is a file"):
        load_map(tmp_path)


Tamper = Callable[[h5py.File], None]


def put(name: str, **dataset: object) -> Tamper:
    def tamper(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **dataset)

    return tamper


def assign(name: str, key: object, value: object) -> Tamper:
    def tamper(file: h5py.File) -> None:
        file[name][key] = value

    return tamper


def drop(name: str) -> Tamper:
    return lambda file: file.pop(name)


def link(name: str, target: object) -> Tamper:
    return lambda file: (file.pop(name), file.update({name: target}))


def describe(old: bytes, new: bytes) -> Tamper:
    def tamper(file: h5py.File) -> None:
        text = bytes(file["description"][()])
        assert old in text
        put("description", data=np.bytes_(text.replace(old, new)))(file)

    return tamper


def nest(depth: int) -> Tamper:
    """Poses of arrays of arrays of numbers: from 60 kB of types h5py makes a gigabyte."""

    def tamper(file: h5py.File) -> None:
        del file["poses"]
        kind = h5py.h5t.IEEE_F64LE
        for _ in range(depth):
            kind = h5py.h5t.array_create(kind, (1,))
        h5py.h5d.create(file.id, b"poses", kind, h5py.h5s.create_simple((7, 3)))

    return tamper


HOSTILE: dict[str, tuple[Tamper, str]] = {
    "no poses": (drop("poses"), "'poses' is missing"),
    "a group": (lambda file: (drop("poses")(file), file.create_group("poses"))[0], "not an array"),
    "pose as text": (put("poses", data=np.array([[b"a"] * 3] * 7)), "type"),
    "poses of objects": (put("poses", data="text", dtype=h5py.string_dtype()), "type"),
    "types within types": (nest(1500), "'poses' is of no plain type"),
    "references": (put("poses", shape=(7, 3), dtype=h5py.ref_dtype), "'poses' is of no plain type"),
    "absurd shape": (
        put("histograms", shape=(10**12, 105), dtype="u1", chunks=(1, 105)),
        "not stored in one piece",
    ),
    "absurd contiguous shape": (put("histograms", shape=(10**12, 105), dtype="u1"), "more than"),
    "compressed": (put("poses", data=np.zeros((7, 3)), compression="gzip"), "in one piece"),
    "another length": (put("motions", data=np.zeros((6, 3))), "shape"),
    "another width": (put("poses", data=np.zeros((7, 4))), "shape"),
    "another rank": (put("poses", data=np.zeros(7)), "shape"),
    "other bins": (put("histograms", data=np.ones((7, 90), np.uint8)), "shape"),
    "another type": (put("poses", data=np.zeros((7, 3), np.float32)), "type"),
    "swapped bytes": (put("poses", data=np.zeros((7, 3), ">f8")), "type"),
    "nan pose": (assign("poses", (2, 1), np.nan), "'poses' are not finite"),
    "far pose": (assign("poses", (2, 1), 1e9), "absurdly large"),
    "one pose for all": (assign("poses", slice(None), (1.0, 2.0, 3.0)), "all its poses are equal"),
    "half a motion": (assign("motions", (2, 1), np.nan), "'motions'"),
    "motion alone": (assign("motions", 2, np.nan), "missing at different poses"),
    "zero noise": (assign("motion_variances", 0, 0.0), "'motion_variances'"),
    "nan noise": (assign("motion_variances", 0, np.nan), "'motion_variances'"),
    "infinite word": (assign("vocabulary", (0, 0), np.inf), "'vocabulary'"),
    "empty histogram": (assign("histograms", 3, 0), "histogram is empty"),
    "unknown source": (assign("source_of", 0, 2), "'source_of'"),
    "negative source": (assign("source_of", 0, -1), "'source_of'"),
    "thumbnails beyond": (assign("thumbnail_ends", 6, 99), "thumbnail_ends"),
    "thumbnails whose lengths overflow": (
        assign("thumbnail_ends", slice(1, 5), [2**63 - 1, -(2**63), -1, 9]),
        "thumbnail_ends",
    ),
    "thumbnails backward": (assign("thumbnail_ends", 3, 0), "thumbnail_ends"),
    "external link": (link("poses", h5py.ExternalLink("/etc/passwd", "/x")), "missing"),
    "soft link": (link("poses", h5py.SoftLink("/motions")), "missing"),
    "no description": (drop("description"), "'description' is missing"),
    "not JSON": (describe(b"{", b"["), "not JSON"),
    "deep JSON": (put("description", data=np.bytes_(b"[" * 100000)), "not JSON"),
    "JSON list": (put("description", data=np.bytes_(b"[]")), "not a table"),
    "description as numbers": (put("description", data=np.zeros(3)), "not a text"),
    "words as text": (describe(b'"vocabulary_size": 5', b'"vocabulary_size": "5"'), "words"),
    "huge words": (describe(b'"vocabulary_size": 5', b'"vocabulary_size": 60000'), "shape"),
    "boolean width": (describe(b'"image_width": 96', b'"image_width": true'), "image_width"),
    "nan setting": (describe(b'"flat_gradient": 3.0', b'"flat_gradient": NaN'), "flat_gradient"),
    "zero step": (describe(b'"grid_step": 8', b'"grid_step": 0'), "grid_step"),
    "missing setting": (describe(b'"grid_step": 8,', b""), "lacks"),
    "infinite parameter": (describe(b'"power": 8.0', b'"power": Infinity'), "power"),
    "parameter as text": (describe(b'"power": 8.0', b'"power": "8"'), "power"),
    "source as number": (describe(b'"name": "b"', b'"name": 3'), "name"),
    "calibration as a list": (describe(b'"similarity": {', b'"similarity": [{'), "not JSON"),
    "no amplitude": (describe(b'"amplitude": 0.8,', b""), "SimilarityModel lacks"),
    "similarity without scale": (
        describe(b'"distance_m": 1.5', b'"distance_m": 0.0'),
        "distance_m",
    ),
    "infinite noise": (
        describe(b'"bias_fraction": 0.75', b'"bias_fraction": Infinity'),
        "bias_fraction",
    ),
    "nan evidence": (describe(b'"q005": -0.25', b'"q005": NaN'), "q005"),
    "evidence as text": (describe(b'"q005": -0.25', b'"q005": "-0.25"'), "q005"),
    "fractions beyond one": (
        describe(b'"bias_fraction": 0.75', b'"bias_fraction": 1.5'),
        "bias_fraction",
    ),
    "doubtful revisits": (describe(b'"revisits": true', b'"revisits": 1'), "revisits"),
    "negative probes": (describe(b'"probes": 77', b'"probes": -1'), "probes"),
    "other grids": (put("word_grids", data=np.zeros((7, 3), np.uint8)), "'word_grids' has shape"),
    "grids of other numbers": (put("word_grids", data=np.zeros((7, 99), np.uint16)), "word_grids"),
    "a word beyond": (assign("word_grids", (3, 3), 5), "not in the vocabulary"),
    "grid link": (link("word_grids", h5py.SoftLink("/poses")), "missing"),
    "a plan of another rank": (put("floor_plan", data=np.zeros(9, np.uint8)), "floor_plan"),
    "a plan of other numbers": (put("floor_plan", data=np.zeros((6, 9))), "floor_plan"),
    "a plan without pixels": (put("floor_plan", data=np.zeros((0, 9), np.uint8)), "floor_plan"),
    "an absurd plan": (put("floor_plan", shape=(10**6, 10**6), dtype="u1"), "more than"),
    "a compressed plan": (
        put("floor_plan", data=np.zeros((8000, 8000), np.uint8), compression="gzip"),
        "in one piece",
    ),
    "trajectories that are not finite": (
        put("trajectories", data=np.full((17, 3), np.nan)),
        "trajectories",
    ),
    "reference poses that are absurd": (
        put("reference_poses", data=np.full((7, 3), 1e12)),
        "reference_poses",
    ),
    "an own frame that is a number": (
        describe(b'"own_frame": true', b'"own_frame": 1   '),
        "own_frame",
    ),
    "trajectories of another width": (put("trajectories", data=np.zeros((17, 2))), "trajectories"),
    "trajectories of no source": (put("trajectory_ends", data=np.array([17])), "trajectory_ends"),
    "trajectories without an end": (drop("trajectory_ends"), "'trajectory_ends' is missing"),
    "trajectories that end too late": (
        put("trajectory_ends", data=np.array([12, 18])),
        "do not divide",
    ),
    "a source without a trajectory": (
        put("trajectory_ends", data=np.array([0, 17])),
        "do not divide",
    ),
    "no plan at its place": (drop("floor_plan"), "'floor_plan' is missing"),
    "a plan without scale": (describe(b'"resolution": 0.25', b'"resolution": 0.0'), "resolution"),
    "a plan in nowhere": (describe(b"-1.5,", b"NaN,"), "origin"),
    "a plan far away": (describe(b"-1.5,", b"1e9,"), "origin"),
    "stamps as text": (describe(b"1152921504606846976", b'"late"'), "stamps"),
    "stamps beyond": (describe(b"1152921504606846976", b"1" + b"0" * 400), "stamps"),
    "stamps backward": (describe(b"1152921504606846976", b"6"), "stamps"),
    "other warnings": (describe(b'"a line"', b"5"), "warnings"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_with_a_right_checksum_is_refused(
    number_map: TrainingMap, map_path: Path, name: str
) -> None:
    tamper, says = HOSTILE[name]
    save_map(number_map, map_path)
    with resealed(map_path) as file:
        tamper(file)
    with pytest.raises(MapError, match=says) as error:
        load_map(map_path)
    assert str(error.value).startswith(str(map_path))
    assert "\n" not in str(error.value)


def test_a_map_without_the_bias_fraction_of_the_evidence_loads(
    number_map: TrainingMap, map_path: Path
) -> None:
    """All of its errors are then correlated."""
    calibration = number_map.calibration
    fitted = replace(
        calibration, likelihood_ratio=replace(calibration.likelihood_ratio, bias_fraction=0.123456)
    )
    save_map(replace(number_map, fitted=fitted), map_path)
    with resealed(map_path) as file:
        describe(b',\n   "bias_fraction": 0.123456', b"")(file)
    assert load_map(map_path).calibration.likelihood_ratio == replace(
        calibration.likelihood_ratio, bias_fraction=1.0
    )


def test_checksums_of_thumbnails_are_crc32(number_map: TrainingMap, map_path: Path) -> None:
    save_map(number_map, map_path)
    with h5py.File(map_path, "r") as file:
        assert file["thumbnail_checksums"][2] == zlib.crc32(b"three")


def version_1(training_map: TrainingMap) -> bytes:
    """A file of version 1, by its own rules: seal, version and checksum, then HDF5."""
    memory = io.BytesIO()
    with h5py.File(memory, "w", userblock_size=512) as file:
        for name, kind in (("poses", "<f8"), ("next_poses", "<f8"), ("motions", "<f8"),
                           ("motion_variances", "<f8"),
                           ("source_of", "<i4")):  # fmt: skip
            file.create_dataset(name, data=np.asarray(getattr(training_map, name), kind))
        file.create_dataset("histograms", data=training_map.features)
        file.create_dataset(
            "vocabulary", data=training_map.described_by.vocabulary.words.astype("<f4")
        )
        sizes = [len(thumbnail) for thumbnail in training_map.thumbnails]
        checksums = [zlib.crc32(thumbnail) for thumbnail in training_map.thumbnails]
        file.create_dataset("thumbnail_ends", data=np.cumsum(sizes).astype("<i8"))
        file.create_dataset("thumbnail_checksums", data=np.array(checksums, dtype="<u4"))
        joined = np.frombuffer(b"".join(training_map.thumbnails), dtype=np.uint8)
        file.create_dataset("thumbnails", data=joined)
        description = {
            "settings": asdict(training_map.described_by.layout),
            "sources": [asdict(source) for source in training_map.sources],
            "parameters": {"power": 8.0, "kbf.mixing": 0.02},
            "thresholds": {"lost": 0.25, "usual_evidence": 0.5},
            "warnings": ["a line"],
        }
        file.create_dataset("description", data=np.bytes_(json.dumps(description).encode()))
    content = memory.getvalue()[512:]
    digest = hashlib.blake2b(struct.pack("<I", 1) + content, digest_size=32).digest()
    head = struct.pack("<10sIQ32s", b"KBFMAP\r\n\x1a\n", 1, 512 + len(content), digest)
    return head.ljust(512, b"\0") + content


def test_a_map_of_version_1_is_read_and_calibrated(world_map: TrainingMap, map_path: Path) -> None:
    map_path.write_bytes(version_1(world_map))
    loaded = load_map(map_path)
    assert loaded.identity == world_map.identity
    assert loaded.parameters == {"power": 8.0, "kbf.mixing": 0.02}
    assert loaded.word_grids is None and read_map(map_path).fitted is None
    calibration = loaded.calibration
    assert calibration.drives == 2 and not calibration.relative_pose.fitted
    # The scales are those fitted to the mapping drives, to a half.
    expected = world_map.calibration.similarity
    assert calibration.similarity.distance_m == pytest.approx(expected.distance_m, rel=0.5)
    assert calibration.similarity.angle_rad == pytest.approx(expected.angle_rad, rel=0.5)
    save_map(loaded, map_path)
    assert load_map(map_path).calibration == calibration


@pytest.mark.parametrize("version", [2, 3])
def test_a_map_written_by_an_older_version_has_the_same_values(
    number_map: TrainingMap, version: int
) -> None:
    """The files are those that older programs wrote of `number_map`, as far as they could."""
    loaded = read_map(STORED / f"version_{version}.kbfmap")
    assert loaded.identity == number_map.identity
    assert loaded.calibration == number_map.calibration
    for name in ("poses", "features", "next_poses", "motions", "motion_variances", "source_of",
                 "word_grids"):  # fmt: skip
        np.testing.assert_array_equal(getattr(loaded, name), getattr(number_map, name))
    assert loaded.described_by.layout == number_map.described_by.layout
    assert loaded.parameters == number_map.parameters and loaded.warnings == number_map.warnings
    assert list(loaded.thumbnails) == list(number_map.thumbnails)
    assert loaded.floor_plan is not None and number_map.floor_plan is not None
    np.testing.assert_array_equal(loaded.floor_plan.image, number_map.floor_plan.image)
    if version == 2:
        assert loaded.sources == tuple(
            replace(source, stamps_ns=None) for source in number_map.sources
        )
        np.testing.assert_array_equal(loaded.trajectory(1), number_map.poses[4:])
        return
    assert loaded.sources == number_map.sources
    for trajectory, expected in zip(loaded.trajectories, number_map.trajectories, strict=True):
        np.testing.assert_array_equal(trajectory, expected)


def test_an_older_map_is_saved_in_the_present_version(map_path: Path) -> None:
    older = read_map(STORED / "version_3.kbfmap")
    save_map(older, map_path)
    assert struct.unpack_from("<I", map_path.read_bytes(), 10) == (VERSION,)
    with h5py.File(map_path, "r") as file:
        assert set(file) == {*WITHOUT_LANDMARKS, "description"} - {"reference_poses"}
        text = bytes(file["description"][()])
    assert b'"calibration"' in text and b'"learned"' not in text and b'"film"' not in text
    assert read_map(map_path).calibration == older.calibration


def test_landmarks_come_back_the_same(number_map: TrainingMap, map_path: Path) -> None:
    landmarks = some_landmarks(number_map.poses)
    save_map(replace(number_map, landmarks=landmarks), map_path)
    with h5py.File(map_path, "r") as file:
        assert set(file) == {*ARRAYS, "description"}
    loaded = load_map(map_path).landmarks
    assert loaded is not None and loaded.description == landmarks.description
    assert (loaded.table.counts() == landmarks.table.counts()).all()
    # A file that takes its name changes nothing.
    for _ in range(2):
        for row in range(len(number_map)):
            stored, read = landmarks.table.image(row), loaded.table.image(row)
            np.testing.assert_array_equal(read.descriptors, stored.descriptors)
            np.testing.assert_array_equal(read.offsets, stored.offsets)
            np.testing.assert_array_equal(read.covariances, stored.covariances)
        map_path.with_name("other").write_bytes(b"\xff" * map_path.stat().st_size)
        map_path.with_name("other").replace(map_path)


def test_landmarks_of_a_map_that_is_truncated_in_place_are_none_and_nothing_breaks(
    number_map: TrainingMap, map_path: Path
) -> None:
    save_map(replace(number_map, landmarks=some_landmarks(number_map.poses)), map_path)
    loaded = load_map(map_path).landmarks
    assert loaded is not None and loaded.table.image(0).descriptors.any()
    map_path.write_bytes(b"not a map")
    assert not loaded.table.image(0).descriptors.any()


def test_of_a_maps_landmarks_only_those_of_the_images_that_are_matched_are_read(
    number_map: TrainingMap, map_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_map(replace(number_map, landmarks=some_landmarks(number_map.poses)), map_path)
    counts, whole = [], HeldFile.read

    def read(self: HeldFile, start: int, count: int) -> bytes:
        counts.append(count)
        return whole(self, start, count)

    monkeypatch.setattr(HeldFile, "read", read)
    landmarks = load_map(map_path).landmarks
    assert landmarks is not None
    assert all(isinstance(column, FileRows) for column in landmarks.table.columns.values())
    assert not counts
    rows = np.array([0, 2])
    landmarks.table.place(rows, number_map.poses[rows])
    # 128 bytes of descriptor, three of 2 bytes of place and six of 2 of covariance.
    assert sum(counts) == (128 + 6 + 12) * landmarks.table.counts()[rows].sum() > 0


@pytest.mark.parametrize(("turned", "refused"), [(0.0, True), (0.01, True), (0.5, False)])
def test_a_map_of_one_pose_again_and_again_is_not_written(
    number_map: TrainingMap, map_path: Path, turned: float, refused: bool
) -> None:
    """Of a robot that stood, though it may have turned about: across the cut of angles too."""
    poses = np.tile([1.0, 2.0, np.pi], (7, 1))
    poses[3, 2] = -np.pi + turned
    standing = replace(number_map, poses=poses)
    if refused:
        with pytest.raises(MapError, match="all its poses are equal"):
            save_map(standing, map_path)
        assert not map_path.exists()
    else:
        save_map(standing, map_path)
        np.testing.assert_array_equal(load_map(map_path).poses, poses)


def test_a_map_of_a_single_image_is_written(number_map: TrainingMap, map_path: Path) -> None:
    save_map(subset(number_map, np.array([2])), map_path)
    np.testing.assert_array_equal(load_map(map_path).poses, number_map.poses[[2]])
