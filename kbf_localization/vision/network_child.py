"""The process in which a network runs: it reads images and writes vectors, and can do no harm.

A network file may come from anywhere. So it is run here, apart: with a bound on memory and on
processor time, and, since it may open no file, without access to others' data. What kills this
process leaves its parent unharmed.

A message is a line of JSON, whose "bytes" says how many bytes follow it.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from kbf_localization.arrays import Floats, Image

GEM_POWER = 3.0
"""Of generalized-mean pooling (Radenović, Tolias and Chum 2019)."""

POOLS = ("gem", "mean", "none")

_MIN_FEATURE = 1e-6
_PAGE = resource.getpagesize()


def send(stream: IO[bytes], header: Mapping[str, Any], data: bytes | memoryview = b"") -> None:
    """Write one message."""
    stream.write(json.dumps({**header, "bytes": len(data)}).encode() + b"\n")
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes], most: int) -> tuple[dict[str, Any], bytes] | None:
    """Read one message with at most `most` bytes; None where the stream has ended."""
    line = stream.readline(1_000_000)
    if not line.endswith(b"\n"):
        return None
    header = json.loads(line)
    count = header.pop("bytes")
    if not 0 <= count <= most:
        raise ValueError(f"a message of {count} bytes")
    data = stream.read(count)
    return None if len(data) < count else (header, data)


def serve() -> None:
    """Load the network of the first message, answer what it is, then images with vectors."""
    # Libraries that print must not do so between the messages.
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    first = receive(source, sys.maxsize)
    if first is None:
        return
    try:
        network = _Network(*first)
    except Exception as error:
        send(target, {"error": _line(error)})
        return
    send(target, network.found)
    while (message := receive(source, sys.maxsize)) is not None:
        header, data = message
        try:
            images = np.frombuffer(data, dtype=np.uint8).reshape(header["shape"])
            vectors = np.stack([network.vector(image) for image in images])
        except Exception as error:
            send(target, {"error": _line(error)})
            continue
        send(target, {"shape": vectors.shape}, vectors.astype("<f4").tobytes())


class _Network:
    """A session of onnxruntime with what goes before it and after it."""

    def __init__(self, options: Mapping[str, Any], data: bytes) -> None:
        import onnxruntime

        self._cpu_s = int(options["cpu_s"])
        onnxruntime.disable_telemetry_events()
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options["threads"]
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 4
        settings.use_deterministic_compute = True
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._restrict(options["memory"])
        self._session = onnxruntime.InferenceSession(
            data, settings, providers=["CPUExecutionProvider"]
        )
        self._input = self._only_input(options["input_size"])
        names = [output.name for output in self._session.get_outputs()]
        wanted = options["output_name"]
        if wanted is not None and wanted not in names:
            raise ValueError(f"it has no output '{wanted}', but {', '.join(names)[:200]}")
        self._output = names[0] if wanted is None else wanted
        self._mean, self._std = self._normalization(options["mean"], options["std"])
        self._pool: str | None = options["pool"]
        probe = np.arange(self._height * self._width, dtype=np.uint64) * np.uint64(2654435761)
        noise = (probe >> np.uint64(13)).astype(np.uint8).reshape(self._height, self._width)
        length = len(self.vector(noise))
        if length > options["longest"]:
            raise ValueError(
                f"it gives {length} numbers an image, more than {options['longest']}; pool them "
                "with --pool"
            )
        self.found = {
            "width": self._width,
            "height": self._height,
            "mean": [float(item) for item in self._mean],
            "std": [float(item) for item in self._std],
            "output_name": self._output,
            "pool": self._pool,
            "length": length,
        }

    def _restrict(self, memory: int) -> None:
        """From here on: no file, no more than `memory` bytes beyond what is taken already."""
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 (its last one)
            taken = int(file.read().split()[0]) * _PAGE
        _lower(resource.RLIMIT_AS, taken + memory)
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_NOFILE, 0)
        self._allow_time()

    def _allow_time(self) -> None:
        """So many more seconds of processor time until SIGXCPU ends this process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        soft = math.ceil(usage.ru_utime + usage.ru_stime) + self._cpu_s
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))

    def _only_input(self, size: tuple[int, int] | None) -> str:
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4:
            shapes = ", ".join(str(item.shape) for item in inputs)[:100]
            raise ValueError(f"its input must be N x 3 x H x W or N x 1 x H x W, not {shapes}")
        types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
        if inputs[0].type not in types:
            raise ValueError(f"its input must be of floats, not {inputs[0].type}")
        self._type = types[inputs[0].type]
        batch, channels, height, width = inputs[0].shape
        self._channels = channels if isinstance(channels, int) else 3
        if self._channels not in (1, 3):
            raise ValueError(f"its input must have 1 or 3 channels, not {self._channels}")
        self._batch = batch if isinstance(batch, int) else 1
        if not 1 <= self._batch <= 64:
            raise ValueError(f"it takes {self._batch} images at a time")
        own = [length for length in (width, height) if isinstance(length, int)]
        if size is None:
            if len(own) < 2:
                raise ValueError("its input size is free: give one with --input-size WxH")
            size = own[0], own[1]
        self._width, self._height = size
        for length, fixed in ((self._width, width), (self._height, height)):
            if isinstance(fixed, int) and fixed != length:
                raise ValueError(f"its input is {width}x{height}, not {self._width}x{self._height}")
        if not 1 <= self._width * self._height <= 10_000_000 or min(size) < 1:
            raise ValueError(f"its input of {self._width}x{self._height} is absurdly large")
        return str(inputs[0].name)

    def _normalization(self, mean: list[float], std: list[float]) -> tuple[Any, Any]:
        """Return mean and deviation (channels,) of pixels in [0, 1]; for grey their averages."""
        pair = []
        for values in (mean, std):
            if len(values) not in (1, 3):
                raise ValueError(f"normalizing needs 1 or 3 numbers, not {len(values)}")
            if self._channels == 1:
                values = [sum(values) / len(values)]
            elif len(values) == 1:
                values = values * 3
            pair.append(np.array(values, dtype=np.float32))
        return pair[0], pair[1]

    def vector(self, image: Image) -> Floats:
        """Return the vector of one grey image (height, width).

        One by one, so that a vector does not depend on the images that are described beside it.
        """
        self._allow_time()
        pixels = image.astype(np.float32) / np.float32(255.0)
        planes = (pixels[None] - self._mean[:, None, None]) / self._std[:, None, None]
        batch = np.repeat(planes[None], self._batch, axis=0).astype(self._type)
        (output,) = self._session.run([self._output], {self._input: batch})
        if not isinstance(output, np.ndarray) or output.dtype.kind != "f":
            raise ValueError(f"its output '{self._output}' is not an array of floats")
        if output.ndim not in (2, 3, 4) or len(output) != self._batch or output[0].size == 0:
            raise ValueError(
                f"its output must be N x D, N x tokens x D or N x C x H x W, not {output.shape}"
            )
        vector = self._pooled(output[0].astype(np.float32))
        if not np.isfinite(vector).all():
            raise ValueError("it gives numbers that are not finite")
        return vector

    def _pooled(self, features: Floats) -> Floats:
        """Return features (D,), (tokens, D) or (C, H, W) as one vector."""
        if features.ndim == 1:
            if self._pool not in (None, "none"):
                raise ValueError("it gives one vector an image already: leave --pool away")
            self._pool = "none"
            return features
        if self._pool is None:
            self._pool = "gem" if features.ndim == 3 else "mean"
        if self._pool == "none":
            return features.reshape(-1)
        axes = (1, 2) if features.ndim == 3 else (0,)
        if self._pool == "mean":
            return np.asarray(features.mean(axis=axes))
        powers = np.maximum(features, _MIN_FEATURE) ** GEM_POWER
        return np.asarray(powers.mean(axis=axes) ** (1.0 / GEM_POWER))


def _lower(kind: int, limit: int) -> None:
    """Lower a limit for good; a lower limit that the process already has stays."""
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _line(error: Exception) -> str:
    """Return an error as one line of bounded length."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, ModuleNotFoundError):
        return f"missing: {error.name}"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."
