"""docs/node.md and config/localization.yaml say what the node has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.ros
def test_the_nodes_reference_is_up_to_date(tmp_path: Path) -> None:
    pages = ("docs/node.md", "config/localization.yaml")
    for page in pages:
        (tmp_path / page).parent.mkdir()
    subprocess.run(
        [sys.executable, str(PROJECT / "tools" / "make_node_reference.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        check=True,
    )
    for page in pages:
        assert (tmp_path / page).read_text() == (PROJECT / page).read_text(), (
            "run: python tools/make_node_reference.py"
        )
