"""Starts on a map file in a process of its own, to see what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time

from kbf_localization.arrays import Array
from kbf_localization.filters.registry import make_filter
from kbf_localization.training_map import load_map
from kbf_localization.vision.describer import ImageDescription


def start_on_map(journey: tuple[Path, Array, Sequence[ImageDescription]]) -> dict[str, float]:
    """Load the map at a path, localize globally with the first view, track with motions (t, 3).

    The t + 1 views are described images. Gives the time to the first estimate, and the memory after
    tracking and at its highest.
    """
    path, motions, views = journey
    clock, cpu = perf_counter(), process_time()
    training_map = load_map(path)
    pose_filter = make_filter("kbf", training_map)
    pose_filter.step(None, training_map.observe(views[0]))
    start_s, start_cpu_s = perf_counter() - clock, process_time() - cpu
    for motion, view in zip(motions, views[1:], strict=True):
        pose_filter.step(motion, training_map.observe(view))
    return {
        "resident_mb": _memory_mb("VmRSS"),
        "peak_mb": _memory_mb("VmHWM"),
        "start_s": start_s,
        "start_cpu_s": start_cpu_s,
    }


def _memory_mb(name: str) -> float:
    """A figure of this process's memory that Linux keeps, in 10⁶ bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")
