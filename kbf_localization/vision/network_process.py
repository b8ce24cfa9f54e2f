"""A network in a process of its own (`network_child`), which this one starts and asks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbf_localization.arrays import Floats, Image
from kbf_localization.child_process import python_command
from kbf_localization.errors import DescriberError, KbfError, missing_package
from kbf_localization.limits import MAX_NETWORK_VECTOR
from kbf_localization.threads import THREAD_VARIABLES
from kbf_localization.vision.network_child import receive, send

MOST_THREADS = 4


@dataclass(frozen=True)
class NetworkLimits:
    """Bytes beyond three times the file, and seconds of processor time for loading or an image."""

    memory: int = 2_000_000_000
    cpu_s: int = 120


class NetworkProcess:
    """Runs a network; `found` says what it is. Several threads may ask, one is answered."""

    def __init__(
        self, name: str, data: bytes, options: Mapping[str, Any], limits: NetworkLimits
    ) -> None:
        self.name = name
        self._limits = limits
        self._memory = limits.memory + 3 * len(data)
        self._lock = threading.Lock()
        # Out of reach of Ctrl-C, which would print this child's own traceback: it ends with stdin.
        self._process = subprocess.Popen(
            python_command("from kbf_localization.vision.network_child import serve; serve()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1"), "MALLOC_ARENA_MAX": "2"},
        )
        self._end = weakref.finalize(self, _end, self._process)
        header = {
            **options,
            "threads": min(MOST_THREADS, len(os.sched_getaffinity(0))),
            "memory": self._memory,
            "cpu_s": limits.cpu_s,
            "longest": MAX_NETWORK_VECTOR,
        }
        self.found, _ = self._ask(header, data)

    @property
    def ended(self) -> bool:
        return not self._end.alive

    def close(self) -> None:
        """End the process; it is safe to call this twice."""
        self._end()

    def vectors(self, images: list[Image]) -> Floats:
        """Return vectors (m, length) of grey images of the network's size."""
        stack = np.stack(images)
        header, data = self._ask({"shape": stack.shape}, stack.tobytes())
        return np.asarray(np.frombuffer(data, dtype="<f4").reshape(header["shape"]))

    def _ask(self, header: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with self._lock:
            try:
                send(stdin, header, data)
                answer = receive(stdout, 64 * 4 * MAX_NETWORK_VECTOR)
            except (OSError, ValueError):  # the pipe broke, or what came is no message
                answer = None
            if answer is None:
                raise DescriberError(f"{self.name}: {self._why_it_ended()}")
        reply, vectors = answer
        if "error" in reply:
            raise self._error(str(reply["error"]))
        return reply, vectors

    def _error(self, text: str) -> KbfError:
        if text.startswith("missing: onnxruntime"):
            return missing_package("onnxruntime")
        memory = ("out of memory", "bad_alloc", "bad allocation", "Failed to allocate")
        if any(sign in text for sign in memory):
            return DescriberError(f"{self.name}: {self._too_large()}")
        return DescriberError(f"{self.name}: the network cannot be used: {text}")

    def _too_large(self) -> str:
        return f"the network needs more than {self._memory / 1e9:.1f} GB of memory"

    def _why_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10.0)
        self.close()
        code = self._process.returncode
        if code == -signal.SIGXCPU:
            return (
                f"the network takes more than {self._limits.cpu_s} s of processor time for one "
                "image"
            )
        if code in (-signal.SIGABRT, -signal.SIGSEGV):
            return f"{self._too_large()}, or crashes onnxruntime"
        return f"the network's process ended (exit code {code})"


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
