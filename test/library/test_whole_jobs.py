"""The library's functions do what the commands do."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization import build_map, evaluate, localize, open_drive
from kbf_localization.errors import ParameterError
from kbf_localization.training_map import TrainingMap
from test.conftest import learning_quickly

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def office(office_drives: tuple[Path, Path]) -> TrainingMap:
    with learning_quickly():
        return build_map(open_drive(office_drives[0]), poses=80, words=50)


@pytest.mark.usefixtures("quick_learning")
def test_map_knows_itself_and_lends_its_words(
    office: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    assert len(office) == 80 and office.known is not None and office.known.drives == 1
    alike = build_map([open_drive(office_drives[0])], poses=20, like=office)
    np.testing.assert_array_equal(
        alike.described_by.vocabulary.words, office.described_by.vocabulary.words
    )


def test_fixes_are_those_of_the_evaluation(
    office: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    drive = open_drive(office_drives[1])
    told: list[tuple[int, int]] = []
    fixes = list(
        localize(office, drive, progress=lambda done, total, _: told.append((done, total)))
    )
    evaluation = evaluate(office, drive, "kbf,nai")
    run = evaluation.results[0].runs["kbf"]
    np.testing.assert_array_equal([fix.pose for fix in fixes], run.estimates)
    np.testing.assert_array_equal([fix.stamp_ns for fix in fixes], run.stamps_ns)
    assert told[-1] == (len(drive), len(drive))
    assert set(evaluation.metrics) == {"kbf", "nai"}
    assert drive.name in repr(evaluation) and "nai" in repr(evaluation)


def test_unknown_method_is_refused_by_name(
    office: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    drive = open_drive(office_drives[1])
    with pytest.raises(ParameterError, match="no method is called 'amcl'"):
        next(localize(office, drive, "amcl"))
    with pytest.raises(ParameterError, match="no method is called 'amcl'"):
        evaluate(office, drive, ["kbf", "amcl"])
