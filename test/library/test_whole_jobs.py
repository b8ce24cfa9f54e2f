"""The library's functions do what the commands do."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization import build_map, evaluate, localize, open_drive
from kbf_localization.datasets.parts import DrivePart, parse_part
from kbf_localization.errors import ParameterError
from kbf_localization.training_map import TrainingMap

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("quick_learning")
def test_map_knows_itself_and_lends_its_words(
    office_map: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    assert (
        len(office_map) == 100 and office_map.fitted is not None and office_map.fitted.drives == 1
    )
    alike = build_map([open_drive(office_drives[0])], poses=20, like=office_map)
    np.testing.assert_array_equal(
        alike.described_by.vocabulary.words, office_map.described_by.vocabulary.words
    )


def test_fixes_are_those_of_the_evaluation(
    office_map: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    drive = DrivePart(open_drive(office_drives[1]), parse_part("0:0.25"))
    reported: list[tuple[int, int]] = []
    fixes = list(
        localize(office_map, drive, progress=lambda done, total, _: reported.append((done, total)))
    )
    evaluation = evaluate(office_map, drive, "kbf,nai")
    run = evaluation.results[0].runs["kbf"]
    np.testing.assert_array_equal([fix.pose for fix in fixes], run.estimates)
    np.testing.assert_array_equal([fix.stamp_ns for fix in fixes], run.stamps_ns)
    assert reported[-1] == (len(drive), len(drive))
    assert set(evaluation.metrics) == {"kbf", "nai"}
    assert drive.name in repr(evaluation) and "nai" in repr(evaluation)


def test_unknown_method_is_refused_by_name(
    office_map: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    drive = open_drive(office_drives[1])
    with pytest.raises(ParameterError, match="no method is called 'amcl'"):
        next(localize(office_map, drive, "amcl"))
    with pytest.raises(ParameterError, match="no method is called 'amcl'"):
        evaluate(office_map, drive, ["kbf", "amcl"])
