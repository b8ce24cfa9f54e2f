"""The wheels' errors: drift, distances that differ between drives, and slips.

Drift is an unknown of the graph. Distances and slips show in the final poses: where closures and
images hold these, what they differ by from the corrected odometry is the wheels' fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.pose_graph.edges import SCALE_STRETCH_M, OdometryEdges
from kbf_localization.pose_graph.keyframes import MAX_PATH_M, Keyframes

SLIP_EDGES = 6
"""A slip is looked for over so many edges, a metre or more: a second at an ordinary speed."""
SLIP_M, SLIP_RAD = 0.3, np.radians(10.0)
SLIP_MEDIANS = 6.0
"""A slip is larger than this, and than so many median errors of all windows."""
SCALE_DIFFERENCE, SCALE_SIGMAS = 0.02, 2.0
"""Distances of two drives differ where they do so by 2 %, and significantly (95 %): a tyre's
pressure and load change its radius by less."""
LARGE_DIFFERENCE = 0.03
"""Beyond it they differ whether the wheels err so always or on these drives only: the map knows
what they drove to a fraction of a per cent, and 3 % of a corridor are more than it may err by."""
MAX_SLIPS = 5
"""Slips of a drive that are named."""


@dataclass(frozen=True)
class WheelErrors:
    """A drive's systematic errors: wheels that report a turn `heading_bias_rad_s` too far left."""

    name: str
    heading_bias_rad_s: float
    turn_scale: float

    @property
    def described(self) -> str:
        """One sentence for people."""
        bias = float(np.degrees(self.heading_bias_rad_s))
        side = "left" if bias > 0.0 else "right"
        said = f"{self.name}: the wheels turn {abs(bias):.2f}°/s too far {side}"
        percent = f"{100 * abs(self.turn_scale):.1f}"
        if percent == "0.0":
            return said
        turns = "more" if self.turn_scale > 0.0 else "less"
        return f"{said} and report {percent} % {turns} turn than there is"


@dataclass(frozen=True)
class Slip:
    """Wheels that report `metres` and `radians` that the robot did not move, at a keyframe."""

    row: int
    metres: float
    radians: float


def slips(edges: OdometryEdges, wheels: Array, poses: Array, kept: Flags) -> list[Slip]:
    """Return where the wheels, without their drift `wheels` (d, 2), contradict poses (n, 3)."""
    chains = _chains(edges, poses, kept)
    moved = edges.corrected(wheels)
    found = [_window_errors(edges, moved, poses, chain) for chain in chains]
    if not found:
        return []
    metres, radians = (np.concatenate([errors[axis] for errors in found]) for axis in (0, 1))
    bounds = (
        max(SLIP_M, SLIP_MEDIANS * float(np.median(metres))),
        max(SLIP_RAD, SLIP_MEDIANS * float(np.median(radians))),
    )
    result = []
    for chain, (away_m, away_rad) in zip(chains, found):
        size = np.maximum(away_m / bounds[0], away_rad / bounds[1])
        while size.max() > 1.0:
            window = int(size.argmax())
            row = int(edges.first[chain[window + SLIP_EDGES // 2]])
            result.append(Slip(row, float(away_m[window]), float(away_rad[window])))
            size[max(0, window - SLIP_EDGES) : window + SLIP_EDGES + 1] = 0.0
    return sorted(result, key=lambda slip: slip.row)


def _chains(edges: OdometryEdges, poses: Array, kept: Flags) -> list[Rows]:
    """Return the rows of edges that follow each other, long enough for a window.

    Where the next image is far away, the wheels' ordinary error is as large as a slip.
    """
    apart = np.hypot(*(poses[edges.second] - poses[edges.first])[:, :2].T)
    rows = np.flatnonzero(kept[edges.first] & kept[edges.second] & (apart < MAX_PATH_M))
    if not len(rows):
        return []
    breaks = np.flatnonzero(edges.second[rows[:-1]] != edges.first[rows[1:]]) + 1
    return [chain for chain in np.split(rows, breaks) if len(chain) >= SLIP_EDGES]


def _window_errors(
    edges: OdometryEdges, moved: Array, poses: Array, chain: Rows
) -> tuple[Array, Array]:
    """Return how far and by what angle (w,) the wheels err over each window of a chain."""
    starts = np.arange(len(chain) - SLIP_EDGES + 1)
    reached = np.zeros((len(starts), 3))
    for step in range(SLIP_EDGES):
        reached = compose(reached, moved[chain[starts + step]])
    there = relative(
        poses[edges.first[chain[starts]]], poses[edges.second[chain[starts + SLIP_EDGES - 1]]]
    )
    away = reached - there
    return np.hypot(away[:, 0], away[:, 1]), np.abs(wrap_angle(away[:, 2]))


def distance_scales(
    edges: OdometryEdges, poses: Array, kept: Flags, path_m: Array, drives: int
) -> tuple[Array, Array]:
    """Return each drive's distances in the poses (n, 3) over those of its wheels, and σ (d,).

    NaN for a drive that is not kept or hardly moves.
    """
    scales, sigmas = np.full(drives, np.nan), np.full(drives, np.nan)
    moved = relative(poses[edges.first], poses[edges.second])[:, :2]
    products = np.einsum("mi,mi->m", moved, edges.motions[:, :2])
    squares = np.einsum("mi,mi->m", edges.motions[:, :2], edges.motions[:, :2])
    for drive in range(drives):
        own = np.flatnonzero((edges.drive == drive) & kept[edges.first] & kept[edges.second])
        stretch = np.floor(path_m[edges.first[own]] / SCALE_STRETCH_M).astype(np.intp)
        _, number = np.unique(stretch, return_inverse=True)
        total, count = float(squares[own].sum()), len(np.unique(number))
        if count < 2 or total == 0.0:
            continue
        scale = float(products[own].sum()) / total
        away = np.bincount(number.ravel(), products[own] - scale * squares[own])
        scales[drive] = scale
        sigmas[drive] = np.sqrt(count / (count - 1) * float((away**2).sum())) / total
    return scales, sigmas


def describe_scales(
    scales: Array, sigmas: Array, names: Sequence[str], scale_known: bool = False
) -> list[str]:
    """Name drives whose wheels report other distances than those of the first.

    The map's scale is known where anchors tell it.
    """
    judged = "lies between. Two anchors tell which is right"
    if scale_known:
        judged = "is that of the anchors"
    known = np.flatnonzero(np.isfinite(scales))
    lines = []
    for drive in known[1:]:
        first = int(known[0])
        ratio = float(scales[first] / scales[drive]) - 1.0
        sigma = float(np.hypot(sigmas[first], sigmas[drive]))
        if abs(ratio) > min(max(SCALE_DIFFERENCE, SCALE_SIGMAS * sigma), LARGE_DIFFERENCE):
            more = "more" if ratio > 0.0 else "less"
            lines.append(
                f"{names[drive]}: the wheels report {100 * abs(ratio):.1f} % (± {100 * sigma:.1f}) "
                f"{more} distance than those of {names[first]}; the map's scale {judged}"
            )
    return lines


def describe_slips(
    found: Sequence[Slip], keyframes: Keyframes, names: Sequence[str], first_ns: Sequence[int]
) -> list[str]:
    """Name slips, those of a drive by the seconds after its first image."""
    lines = []
    for drive, name in enumerate(names):
        own = [slip for slip in found if keyframes.drive_of[slip.row] == drive]
        for slip in own[:MAX_SLIPS]:
            seconds = (int(keyframes.stamps_ns[slip.row]) - first_ns[drive]) * 1e-9
            lines.append(
                f"{name}: the wheels slip near {seconds:.1f} s, by {slip.metres:.1f} m and "
                f"{np.degrees(slip.radians):.0f}°; there the map follows images and closures"
            )
        if len(own) > MAX_SLIPS:
            lines.append(f"{name}: {len(own) - MAX_SLIPS} more slips of the wheels")
    return lines
