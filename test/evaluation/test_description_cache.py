"""Descriptions from the cache equal those that are computed, and harm nobody."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.evaluation import description_cache
from kbf_localization.evaluation.description_cache import (
    FILE_NAME,
    CachedDescriber,
    DescriptionCache,
    opened_cache,
)
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import ImageDescriber, ImageDescription
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary

LAYOUT = DescriberSettings(image_width=96, image_height=64, words=10)
RNG = np.random.default_rng(3)
IMAGES = [RNG.integers(0, 256, (64, 96), dtype=np.uint8) for _ in range(3)]


def pyramid(seed: int = 0) -> PyramidDescriber:
    words = np.random.default_rng(seed).random((10, 128)).astype(np.float32)
    return PyramidDescriber(Vocabulary(words), LAYOUT)


def assert_equal(a: ImageDescription, b: ImageDescription) -> None:
    np.testing.assert_array_equal(a.features, b.features)
    assert a.words is not None and b.words is not None
    np.testing.assert_array_equal(a.words, b.words)
    assert (a.words.dtype, a.image_size) == (b.words.dtype, b.image_size)
    assert a.keypoints is not None and b.keypoints is not None
    np.testing.assert_array_equal(a.keypoints.pixels, b.keypoints.pixels)
    np.testing.assert_array_equal(a.keypoints.descriptors, b.keypoints.descriptors)


def described(folder: Path, describer: ImageDescriber) -> list[tuple[ImageDescription, float]]:
    cache = DescriptionCache(folder)
    try:
        return [CachedDescriber(describer, cache).describe(image) for image in IMAGES]
    finally:
        cache.close()


def test_what_comes_from_the_cache_is_what_is_computed(tmp_path: Path) -> None:
    describer = ImageDescriber(pyramid())
    first = described(tmp_path / "cache", describer)
    with mock.patch.object(PyramidDescriber, "describe_all", side_effect=AssertionError):
        second = described(tmp_path / "cache", describer)
    for image, (new, new_ms), (kept, kept_ms) in zip(IMAGES, first, second, strict=True):
        assert_equal(new, describer.describe(image))
        assert_equal(kept, new)
        assert kept_ms == new_ms > 0.0


def test_another_vocabulary_has_other_words_and_the_same_keypoints(tmp_path: Path) -> None:
    described(tmp_path / "cache", ImageDescriber(pyramid(0)))
    other = ImageDescriber(pyramid(1))
    expected = [other.describe(image) for image in IMAGES]
    with mock.patch.object(description_cache, "detect_keypoints", side_effect=AssertionError):
        found = described(tmp_path / "cache", other)
    for (description, _), truth in zip(found, expected, strict=True):
        assert_equal(description, truth)


def test_a_describer_without_keypoints_gives_none(tmp_path: Path) -> None:
    (description, _), *_ = described(tmp_path / "cache", ImageDescriber(pyramid(), detect=False))
    assert description.keypoints is None and description.image_size == (0, 0)


def test_the_least_recently_used_leave_first(tmp_path: Path) -> None:
    value = {"a": np.zeros(1000, dtype=np.uint8)}
    cache = DescriptionCache(tmp_path / "cache", max_bytes=4000)
    for key in (b"1", b"2", b"3"):
        cache.put(key, value)
        cache._flush()
    assert cache.get(b"1") is not None
    cache.put(b"4", value)
    cache._flush()
    assert cache.bytes <= 4000
    assert [cache.get(key) is not None for key in (b"1", b"2", b"3", b"4")] == [
        *(True, False, True, True)
    ]
    cache.clear()
    assert len(cache) == 0
    cache.close()


def test_damaged_entries_and_files_are_computed_again(tmp_path: Path) -> None:
    describer = ImageDescriber(pyramid())
    first = described(tmp_path / "cache", describer)
    with sqlite3.connect(tmp_path / "cache" / FILE_NAME) as connection:
        connection.execute("UPDATE entries SET value = substr(value, 1, 200)")
    connection.close()
    for (new, _), (kept, _) in zip(first, described(tmp_path / "cache", describer), strict=True):
        assert_equal(new, kept)
    # Entries with the right checksum, whose arrays have a dimension too many.
    with sqlite3.connect(tmp_path / "cache" / FILE_NAME) as connection:
        for key, value in connection.execute("SELECT key, value FROM entries").fetchall():
            head, _, body = value[4:].partition(b"\n")
            (name, kind, shape), *others = json.loads(head)
            changed = json.dumps([(name, kind, [1, *shape]), *others]).encode() + b"\n" + body
            sealed = zlib.crc32(changed).to_bytes(4, "little") + changed
            connection.execute("UPDATE entries SET value = ? WHERE key = ?", (sealed, key))
    connection.close()
    for (new, _), (kept, _) in zip(first, described(tmp_path / "cache", describer), strict=True):
        assert_equal(new, kept)
    (tmp_path / "cache" / FILE_NAME).write_bytes(b"no database at all" * 100)
    for (new, _), (kept, _) in zip(first, described(tmp_path / "cache", describer), strict=True):
        assert_equal(new, kept)


def damage_pages(path: Path) -> None:
    """What a power cut may leave: the file's first page alone is right."""
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def put_view(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIEW entries AS SELECT x'00' AS key, 1 AS value, 1 AS size")
    connection.close()


def put_computed_column(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE entries (key BLOB PRIMARY KEY, size INTEGER, used INTEGER, "
        "value BLOB AS (zeroblob(1000)) VIRTUAL)"
    )
    connection.close()


@pytest.mark.parametrize("damage", [damage_pages, put_view, put_computed_column])
@pytest.mark.parametrize("cleared", [False, True])
def test_a_damaged_file_is_replaced(tmp_path: Path, damage, cleared: bool) -> None:
    describer = ImageDescriber(pyramid())
    first = described(tmp_path / "cache", describer)
    damage(tmp_path / "cache" / FILE_NAME)
    with closing(DescriptionCache(tmp_path / "cache")) as cache:
        assert "entries" in cache.described()
        if cleared:
            cache.clear()
            assert cache.described() == "0 entries, 0.0 MB"
    # Damaged pages are found when something is written; then the file is another.
    for _ in range(2):
        again = described(tmp_path / "cache", describer)
        for (new, _), (kept, _) in zip(first, again, strict=True):
            assert_equal(new, kept)
    with closing(DescriptionCache(tmp_path / "cache")) as cache:
        assert len(cache) > 0


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "cache"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(ParameterError, match="others may write"):
        DescriptionCache(shared)


def test_the_folder_is_the_users_alone(tmp_path: Path) -> None:
    with mock.patch.dict(os.environ, {"KBF_CACHE_DIR": str(tmp_path / "new" / "cache")}):
        with opened_cache() as cache:
            assert cache is not None
            assert cache.folder.stat().st_mode & 0o077 == 0
        with opened_cache(wanted=False) as cache:
            assert cache is None


def test_without_a_place_to_write_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = {"KBF_CACHE_DIR": str(tmp_path / "file" / "cache")}
    with mock.patch.dict(os.environ, place), opened_cache() as cache:
        assert cache is None
