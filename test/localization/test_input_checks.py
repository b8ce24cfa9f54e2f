import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.localization.input_checks import check_grey, check_heading, check_stamp


@pytest.mark.parametrize("stamp", [1.5, 1e9, np.float64(3.0), "12", None])
def test_stamp_that_is_no_whole_number_is_refused_by_name(stamp: object) -> None:
    with pytest.raises(ParameterError, match="stamp_ns is .* give whole nanoseconds"):
        check_stamp(stamp)  # type: ignore[arg-type]


@pytest.mark.parametrize("stamp", [0, -5, np.int64(7), np.uint32(7), 2**62])
def test_whole_stamp_is_kept(stamp: int) -> None:
    assert check_stamp(stamp) == stamp and type(check_stamp(stamp)) is int


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
