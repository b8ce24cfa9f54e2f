import subprocess
import sys

import pytest

import kbf_localization


@pytest.mark.parametrize("name", kbf_localization.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(kbf_localization, name) is not None
    assert name in dir(kbf_localization)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        _ = kbf_localization.no_such_thing


def printed(code: str) -> str:
    """What a new Python prints that runs this code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    heavy = ("numpy", "scipy", "cv2", "h5py", "matplotlib", "typer", "yaml")
    code = f"import sys, kbf_localization; print([m for m in {heavy} if m in sys.modules])"
    assert printed(code) == "[]"


def test_opening_a_drive_imports_no_filter_and_no_plots() -> None:
    code = (
        "import sys, kbf_localization; kbf_localization.open_drive;"
        "print(any(m.startswith(('matplotlib', 'kbf_localization.filters')) for m in sys.modules))"
    )
    assert printed(code) == "False"


def test_a_map_is_loaded_without_the_optimizer_that_calibrates_one() -> None:
    """It takes half of the time of all imports of the node."""
    code = (
        "import sys, kbf_localization.filters.registry; kbf_localization.load_map;"
        "print('scipy.optimize' in sys.modules)"
    )
    assert printed(code) == "False"
