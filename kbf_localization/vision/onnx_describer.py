"""A learned descriptor: any network in an ONNX file that makes a vector, or features, of an image.

The map keeps the network's SHA-256 and what happens to images before it, not the network.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Floats, Image
from kbf_localization.child_process import python_command
from kbf_localization.errors import DescriberError, KbfError, ParameterError, missing_package
from kbf_localization.limits import (
    MAX_MAP_PIXELS,
    MAX_NETWORK_BYTES,
    MAX_NETWORK_VECTOR,
    check_count,
    check_number,
    shortened,
)
from kbf_localization.threads import THREAD_VARIABLES
from kbf_localization.vision.describer import prepare_image
from kbf_localization.vision.network_child import POOLS, receive, send
from kbf_localization.vision.vectors import KERNELS, VectorDescriber

MAX_THREADS = 4


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
            "threads": min(MAX_THREADS, len(os.sched_getaffinity(0))),
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


Normalization = tuple[tuple[float, ...], tuple[float, ...]]

NORMALIZATIONS: dict[str, Normalization] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "none": ((0.0,), (1.0,)),
}
"""Mean and standard deviation of red, green and blue, in [0, 1]; "none" leaves [0, 1]."""

_KEPT = ("width", "height", "mean", "std", "output_name", "pool", "length")


class OnnxDescriber(VectorDescriber):
    """The vectors of a network; `path` is None where only its rows are at hand.

    Images are grey, as everywhere in this package; a network that takes three channels gets the
    same one three times. `input_size` (width, height) may be left away where the network fixes it,
    `output_name` where its first output is meant. `pool` makes a vector of feature maps: "gem"
    (default for them), "mean" (default for tokens) or "none".
    """

    name = "onnx"
    version = 1

    def __init__(
        self,
        path: Path | str,
        *,
        input_size: tuple[int, int] | None = None,
        normalize: str = "imagenet",
        output_name: str | None = None,
        pool: str | None = None,
        kernel: str = "gaussian",
        limits: NetworkLimits = NetworkLimits(),  # noqa: B008 (frozen)
    ) -> None:
        if pool is not None and pool not in POOLS:
            raise ParameterError(f"--pool must be one of {', '.join(POOLS)}, not '{pool}'")
        if kernel not in KERNELS:
            raise ParameterError(f"--kernel must be one of {', '.join(KERNELS)}, not '{kernel}'")
        mean, std = read_normalization(normalize)
        self.path: Path | None = Path(path)
        self.file = self.path.name
        self.image_kernel = kernel
        self._limits = limits
        data, self.digest = read_network(self.path)
        options = {
            "input_size": input_size,
            "mean": mean,
            "std": std,
            "output_name": output_name,
            "pool": pool,
        }
        process = NetworkProcess(str(self.path), data, options, limits)
        self._take(process.found)
        with _lock:
            _keep(self._key, process)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> OnnxDescriber:
        """Make a describer that compares; it describes once it is given its network."""
        made = cls.__new__(cls)
        made.path = None
        made._limits = NetworkLimits()
        made._take(_checked(settings))
        made.file, made.digest = settings["file"], settings["sha256"]
        made.image_kernel = settings["kernel"]
        return made

    def open(self, path: Path) -> None:
        """Describe images by this network file from now on."""
        self.path = path

    def _take(self, found: Mapping[str, Any]) -> None:
        self._found = {name: found[name] for name in _KEPT}
        self.length = int(found["length"])

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "file": self.file,
            "sha256": self.digest,
            "kernel": self.image_kernel,
            **self._found,
        }

    @property
    def image_size(self) -> tuple[int, int]:
        return int(self._found["width"]), int(self._found["height"])

    def vectors(self, images: Sequence[Image]) -> Floats:
        if self.path is None:
            raise DescriberError(
                f"the map was made with the network '{self.file}' (SHA-256 {self.digest[:12]}…): "
                "name its file with --model, or with the node's parameter descriptor_model"
            )
        prepared = [prepare_image(image, self.image_size) for image in images]
        process = self._process()
        try:
            return process.vectors(prepared)
        finally:
            if process.ended:  # the next image may be one that the network survives
                with _lock:
                    _processes.pop(self._key, None)

    @property
    def _key(self) -> str:
        return json.dumps([self.digest, self._found])

    def _process(self) -> NetworkProcess:
        """Return the network's process, started where it does not run in this one yet."""
        assert self.path is not None
        with _lock:
            if self._key in _processes:
                return _processes[self._key]
            data, digest = read_network(self.path)
            if digest != self.digest:
                raise DescriberError(f"{self.path}: has changed since it was opened")
            options = _options(self._found)
            return _keep(self._key, NetworkProcess(str(self.path), data, options, self._limits))


def read_network(path: Path) -> tuple[bytes, str]:
    """Read a network file; return it and its SHA-256."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DescriberError(f"{path}: cannot be read: it is not a regular file")
        if not 0 < status.st_size <= MAX_NETWORK_BYTES:
            raise DescriberError(
                f"{path}: {status.st_size / 1e9:.1f} GB is no size of a network that can be used: "
                f"at most {MAX_NETWORK_BYTES / 1e9:.0f} GB"
            )
        with path.open("rb") as file:
            data = file.read(MAX_NETWORK_BYTES + 1)
    except OSError as error:
        raise DescriberError(f"{path}: cannot be read: {error.strerror or error}") from error
    return data, hashlib.sha256(data).hexdigest()


def read_normalization(text: str) -> Normalization:
    """Parse "imagenet", "none" or "mean,std", each a number or three joined by ":"."""
    if text in NORMALIZATIONS:
        return NORMALIZATIONS[text]
    try:
        mean, std = (tuple(float(item) for item in part.split(":")) for part in text.split(","))
    except ValueError:
        mean, std = (), ()
    usable = len(mean) in (1, 3) and len(std) in (1, 3)
    if (
        not usable
        or not all(abs(item) < 1e6 for item in mean)
        or not all(1e-6 < x < 1e6 for x in std)
    ):
        raise ParameterError(
            f"--normalize must be imagenet, none, or mean,std such as 0.45,0.23 or "
            f"0.48:0.46:0.41,0.23:0.22:0.22, not '{shortened(text)}'"
        )
    return mean, std


def _options(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes the network give the same vectors again."""
    return {
        "input_size": (found["width"], found["height"]),
        **{name: found[name] for name in ("mean", "std", "output_name", "pool")},
    }


_processes: dict[str, NetworkProcess] = {}
"""Networks that run, a process each, by their settings; equal describers use the same."""

_MAX_PROCESSES = 3
_lock = threading.Lock()


def _keep(key: str, process: NetworkProcess) -> NetworkProcess:
    """Keep a process, instead of the oldest one; a thread that still asks that one ends it."""
    while len(_processes) >= _MAX_PROCESSES:
        _processes.pop(next(iter(_processes)))
    _processes[key] = process
    return process


def _checked(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check settings from a map, which anybody may have written."""
    if settings.keys() != {"file", "sha256", "kernel", *_KEPT}:
        raise ValueError("its network's settings lack something")
    sizes = {"width": MAX_MAP_PIXELS, "height": MAX_MAP_PIXELS, "length": MAX_NETWORK_VECTOR}
    for name, most in sizes.items():
        check_count(f"its network's {name}", settings[name], (1, most))
    if settings["width"] * settings["height"] > MAX_MAP_PIXELS:
        raise ValueError("its network's images are absurdly large")
    for name in ("mean", "std"):
        values = settings[name]
        if not isinstance(values, list) or len(values) not in (1, 3):
            raise ValueError(f"its network's {name} is {shortened(values)}")
        for value in values:
            check_number(f"its network's {name}", value, (1e-7 if name == "std" else -1e6, 1e6))
    for name in ("file", "output_name", "sha256"):
        if not isinstance(settings[name], str) or len(settings[name]) > 1000:
            raise ValueError(f"its network's {name} is {shortened(settings[name])}")
    if not re.fullmatch("[0-9a-f]{64}", settings["sha256"]):
        raise ValueError(f"its network's SHA-256 is {shortened(settings['sha256'])}")
    if settings["pool"] not in POOLS or settings["kernel"] not in KERNELS:
        raise ValueError("its network's pool or kernel is unknown")
    return settings
