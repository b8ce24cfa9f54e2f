"""docs/node.md says what the node has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.ros
def test_the_nodes_reference_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "node.md"
    subprocess.run(
        [sys.executable, str(PROJECT / "tools" / "make_node_reference.py"), str(made)],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        check=True,
        timeout=100,
    )
    assert made.read_text() == (PROJECT / "docs" / "node.md").read_text(), (
        "run: python tools/make_node_reference.py"
    )
