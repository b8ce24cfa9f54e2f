import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.input_checks import (
    check_grey,
    check_heading,
    check_headings,
    check_stamp,
    check_stamps,
)


@pytest.mark.parametrize("stamp", [1.5, 1e9, np.float64(3.0), "12", None])
def test_stamp_that_is_no_whole_number_is_refused_by_name(stamp: object) -> None:
    with pytest.raises(ParameterError, match="stamp_ns is .* give whole nanoseconds"):
        check_stamp(stamp)  # type: ignore[arg-type]


@pytest.mark.parametrize("stamp", [0, -5, np.int64(7), np.uint32(7), 2**62])
def test_whole_stamp_is_kept(stamp: int) -> None:
    assert check_stamp(stamp) == stamp and type(check_stamp(stamp)) is int


@pytest.mark.parametrize("stamps", [[0.5, 1.5], [[1, 2]], 3, ["12"]])
def test_stamps_of_another_kind_are_refused(stamps: object) -> None:
    with pytest.raises(ParameterError, match="stamps_ns is .* give whole nanoseconds"):
        check_stamps(np.asarray(stamps))


def test_whole_stamps_and_poses_in_radians_pass() -> None:
    check_stamps(np.arange(3))
    check_headings([[0.0, 0.0, -6.2], [np.nan, np.nan, np.nan]])


def test_one_heading_in_degrees_among_others_is_named() -> None:
    with pytest.raises(ParameterError, match="heading is -90, beyond 2 pi: give radians"):
        check_headings([[0.0, 0.0, 1.0], [0.0, 0.0, -90.0]])


def test_poses_without_a_heading_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"shape \(4, 2\): give \(t, 3\)"):
        check_headings(np.zeros((4, 2)))


@pytest.mark.parametrize("heading", [90.0, -180.0, 6.3])
def test_heading_in_degrees_is_refused(heading: float) -> None:
    with pytest.raises(ParameterError, match="heading is .* give radians"):
        check_heading((0.0, 0.0, heading))


@pytest.mark.parametrize("heading", [0.0, np.pi, -np.pi, 2.0 * np.pi, np.nan])
def test_heading_in_radians_passes(heading: float) -> None:
    check_heading((100.0, -100.0, heading))


def test_colour_image_is_refused_with_what_to_do() -> None:
    with pytest.raises(ParameterError, match=r"\(48, 64, 3\), a colour image.*cvtColor"):
        check_grey(np.zeros((48, 64, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    "image",
    [np.zeros((48, 64)), np.zeros(48, dtype=np.uint8), np.zeros((0, 64), dtype=np.uint8)],
)
def test_image_of_another_kind_is_refused(image: np.ndarray) -> None:
    with pytest.raises(ParameterError, match=r"give uint8 of \(height, width\)"):
        check_grey(image)


def test_grey_image_passes() -> None:
    check_grey(np.zeros((48, 64), dtype=np.uint8))
