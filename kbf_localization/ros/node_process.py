"""The node as a process of its own, for the replay, the benchmark and the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

Value = bool | int | float | str


class NodeProcess:
    """Starts the localizer with these parameters; ends it with the `with` block at the latest."""

    def __init__(
        self,
        parameters: Mapping[str, Value],
        *,
        namespace: str = "",
        remap: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kbf-node-")
        folder = Path(self._folder.name)
        # JSON is YAML, and quotes every string.
        content = {"/**": {"ros__parameters": dict(parameters)}}
        (folder / "parameters.yaml").write_text(json.dumps(content), encoding="utf-8")
        command = [sys.executable, "-m", "kbf_localization.ros.localizer_node", "--ros-args"]
        command += ["--params-file", str(folder / "parameters.yaml")]
        if namespace:
            command += ["-r", f"__ns:={namespace}"]
        for old, new in (remap or {}).items():
            command += ["-r", f"{old}:={new}"]
        self._log = folder / "log.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                # A Ctrl-C at the terminal is for whoever started the node, who then ends it.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout: float) -> int:
        """Wait until it ends by itself, and give its exit code."""
        return self._process.wait(timeout)

    def interrupt(self, timeout: float = 5.0) -> int:
        """Stop it as Ctrl-C does and give its exit code; kill it when it does not stop in time."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        self.interrupt()
        self._folder.cleanup()

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
