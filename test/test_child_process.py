import subprocess
import sys
from pathlib import Path

SETTINGS = """
import sys
sys.path[:] = [path for path in sys.path if path]
from kbf_localization.child_process import ignore_drawing_settings_here
ignore_drawing_settings_here()
import matplotlib
sys.stdout.write(f"{matplotlib.rcParams['text.usetex']} {matplotlib.rcParams['font.size']}")
"""


def test_drawing_settings_in_the_current_folder_are_not_heeded(tmp_path: Path) -> None:
    """They could have names from files run through TeX."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 90\n")
    done = subprocess.run(
        [sys.executable, "-c", SETTINGS], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False 10.0"
