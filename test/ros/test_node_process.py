"""The node's process takes no module from the directory that it is started in."""

from pathlib import Path

import pytest

from kbf_localization.ros.node_process import NodeProcess


def test_no_module_is_taken_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("numpy", "rclpy", "threading", "kbf_localization", "yaml"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    # A value that the node refuses: it has imported everything by then, and ends by itself.
    with NodeProcess({"image_transport": "pigeon"}) as node:
        assert node.wait(60) == 2, node.log()
    assert not (tmp_path / "imported").exists()
