"""Evaluations on a map's own drives are found out, and no others."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from kbf_localization.arrays import Stamps
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.described_drive import describe_drive
from kbf_localization.evaluation.training_data import training_warning
from kbf_localization.training_map import TrainingMap
from kbf_localization.vision.describer import ImageDescription


@dataclass(frozen=True)
class _Recorded:
    """What the warning looks at, of a drive."""

    name: str
    stamps_ns: Stamps


def _warning(
    training_map: TrainingMap,
    name: str,
    stamps_ns: Stamps,
    descriptions: list[ImageDescription | None],
) -> str | None:
    drive = cast(Drive, _Recorded(name, stamps_ns))
    return training_warning(training_map, drive, descriptions)


STAMPS = np.arange(1, 101) * 10**9 + 10**18


def _other_images(training_map: TrainingMap, count: int) -> list[ImageDescription | None]:
    width = training_map.features.shape[1]
    rows = np.random.default_rng(0).integers(0, 256, (count, width))
    return [ImageDescription(row.astype(training_map.features.dtype)) for row in rows]


def test_images_of_the_map_are_known_by_their_content(
    office_map: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    own, other = (ColdDrive(path) for path in office_drives)
    described = describe_drive(own, office_map.image_describer, indices=np.arange(12))
    warning = _warning(office_map, "a copy", STAMPS, list(described.descriptions))
    assert warning is not None and warning.startswith("EVALUATED ON TRAINING DATA")
    assert "of 12 different images of a copy are in the map (compared by content)" in warning
    described = describe_drive(other, office_map.image_describer, indices=np.arange(12))
    assert _warning(office_map, other.name, other.stamps_ns, list(described.descriptions)) is None


def test_a_standing_robot_or_a_covered_lens_gives_one_image_however_often(
    world_map: TrainingMap,
) -> None:
    standing: list[ImageDescription | None] = [world_map.description(0)] * 50
    descriptions = [*standing, None, *_other_images(world_map, 60)]
    assert _warning(world_map, "another", STAMPS, descriptions) is None
    several = [*(world_map.description(row) for row in range(3)), *descriptions]
    assert _warning(world_map, "another", STAMPS, several) is not None


def test_the_same_path_in_another_light_is_another_drive(world_map: TrainingMap) -> None:
    """Rendered or driven again, with poses and stamps of the map's drive and its own images."""
    (first, last), images = (STAMPS[[0, -1]], _other_images(world_map, 100))
    sources = [replace(source, stamps_ns=(int(first), int(last))) for source in world_map.sources]
    recorded = replace(world_map, sources=tuple(sources))
    assert _warning(recorded, "night", STAMPS, images) is None
    images[0] = world_map.description(0)
    assert _warning(recorded, "night", STAMPS, images) is not None


@pytest.mark.parametrize(
    ("name", "stamps_ns", "compared"),
    [
        ("own", STAMPS, "by name and stamps"),
        ("own", STAMPS[30:] + 1, "by name and stamps"),
        ("renamed", STAMPS, "by stamps"),
        ("own", STAMPS + 10**12, None),
        ("of the same minute", STAMPS[1:], None),
        ("unstamped", STAMPS[1:], None),
    ],
)
def test_without_images_to_compare_name_and_stamps_tell(
    world_map: TrainingMap, name: str, stamps_ns: Stamps, compared: str | None
) -> None:
    first, second = world_map.sources
    ends = (int(STAMPS[0]), int(STAMPS[-1]))
    sources = (
        replace(first, name="own", stamps_ns=ends),
        replace(second, name="unstamped", stamps_ns=None),
    )
    warning = _warning(replace(world_map, sources=sources), name, stamps_ns, [])
    assert (warning is None) == (compared is None)
    assert compared is None or f"(compared {compared})" in str(warning)
