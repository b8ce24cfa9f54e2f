"""docs/node.md and config/localization.yaml say what the node has."""

import os
import re
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


@pytest.mark.parametrize(
    ("heading", "verb"),
    [
        ("Topics it subscribes to", "subscribe"),
        ("Topics it publishes", "publish"),
        ("Services", "reply to"),
    ],
)
def test_the_policy_for_sros_names_every_topic_and_service(heading: str, verb: str) -> None:
    """A node in an enclave cannot use what its policy leaves out."""
    section = (PROJECT / "docs" / "node.md").read_text().split(f"## {heading}\n")[1].split("\n#")[0]
    names = set(re.findall(r"^\| `([^`]+)`", section, re.MULTILINE))
    assert len(names) >= 3
    policy = (PROJECT / "SECURITY.md").read_text().split("`policy.xml` needs")[1]
    allowed = policy.split(f"{verb} ")[1].split(";")[0].split("\n\n")[0]
    # Services that every lifecycle node has follow the names of this node's own.
    assert names <= set(re.findall(r"`([^`]+)`", allowed))
