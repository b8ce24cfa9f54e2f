"""What stands along the walls, out of the robot's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.simulator.floor_plan import Box, Face, FloorPlan

# What it looks like: width and depth in metres, height, and where it is found.
_ROOM_FURNITURE = {
    "bookshelf": (1.0, 0.35, 1.95),
    "cabinet": (0.9, 0.45, 1.2),
    "desk": (1.6, 0.8, 0.74),
    "wardrobe": (1.0, 0.55, 2.0),
    "drawers": (0.45, 0.6, 0.6),
}
_CORRIDOR_FURNITURE = {
    "cabinet": (0.9, 0.4, 1.1),
    "copier": (0.7, 0.6, 1.05),
    "bin": (0.35, 0.35, 0.6),
}
CLEARANCE_M = 0.62


def furnish(plan: FloorPlan, aisles: Sequence[Array] = ()) -> FloorPlan:
    """The same plan with furniture beside its routes and `aisles`, lines (k, 2) to keep clear."""
    rng = np.random.default_rng([plan.seed, 2])
    ways = cKDTree(np.concatenate([_dense(route) for route in (*plan.routes, *aisles)]))
    boxes: list[Box] = []
    for face in plan.faces():
        if face.kind == "lintel" or face.length < 0.8:
            continue
        corridor = plan.labels[face.room - 1].startswith("CR")
        chosen = _CORRIDOR_FURNITURE if corridor else _ROOM_FURNITURE
        position = float(rng.uniform(0.05, 0.5))
        while position < face.length - 0.4:
            look = str(rng.choice(list(chosen)))
            width, depth, top = chosen[look]
            if face.kind == "exterior" and top > 1.3:
                look, (width, depth, top) = "desk", _ROOM_FURNITURE["desk"]
            wanted = rng.random() < (0.12 if corridor else 0.5)
            style = int(rng.integers(4))
            if wanted and position + width < face.length - 0.05:
                box = _against(face, position, width, depth, top, look, style)
                if _fits(box, plan, boxes, ways):
                    boxes.append(box)
            position += width + float(rng.choice([0.02, 0.3, 1.2]))
    return replace(plan, boxes=tuple(boxes))


def _dense(route: Array) -> Array:
    """The route with points at least every 0.1 m."""
    steps = np.hypot(*np.diff(route, axis=0).T)
    pieces = [route]
    for start, end, step in zip(route[:-1], route[1:], steps):
        share = np.linspace(0, 1, int(step / 0.1) + 1)[:, None]
        pieces.append(start + share * (end - start))
    return np.concatenate(pieces)


def _against(
    face: Face, position: float, width: float, depth: float, top: float, look: str, style: int
) -> Box:
    one, other = face.along(position), face.along(position + width)
    run = sorted((one[1 - face.axis], other[1 - face.axis]))
    across = sorted((face.at + 0.02 * face.side, face.at + depth * face.side))
    x, y = (across, run) if face.axis == 0 else (run, across)
    return Box((x[0], x[1]), (y[0], y[1]), top, face.room, look, style)


def _fits(box: Box, plan: FloorPlan, others: list[Box], ways: cKDTree) -> bool:
    edge = np.linspace(0, 1, 5)
    grid = np.stack(
        np.meshgrid(
            box.x[0] + edge * (box.x[1] - box.x[0]), box.y[0] + edge * (box.y[1] - box.y[0])
        ),
        axis=-1,
    ).reshape(-1, 2)
    if np.any(plan.room_at(grid) != box.room) or np.min(ways.query(grid)[0]) < CLEARANCE_M:
        return False
    return not any(
        box.x[0] < other.x[1]
        and other.x[0] < box.x[1]
        and box.y[0] < other.y[1]
        and other.y[0] < box.y[1]
        for other in others
    )
