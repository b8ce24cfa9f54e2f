"""Offices to drive through, invented or built round real trajectories, with their furniture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.errors import DatasetError
from kbf_localization.simulator.floor_plan import Box, Face, FloorPlan
from kbf_localization.simulator.trajectory import Trajectory

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

_CELL_M = 0.4
_FINE_M = 0.05
_MARGIN_M = 3.2
_MAX_EXTENT_M = 120.0
_CORRIDOR_REACH_M = 1.05
_ROOM_REACH_M = 1.9
_LABELS = ("2PO", "1PO", "2PO", "PA", "2PO", "KT", "2PO", "CNR", "TL", "LAB")


def furnish(plan: FloorPlan, aisles: Sequence[Array] = ()) -> FloorPlan:
    """Return the plan with furniture beside its routes and `aisles`, lines (k, 2) to keep clear."""
    rng = np.random.default_rng([plan.seed, 2])
    routes = cKDTree(np.concatenate([_dense(route) for route in (*plan.routes, *aisles)]))
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
                if _fits(box, plan, boxes, routes):
                    boxes.append(box)
            position += width + float(rng.choice([0.02, 0.3, 1.2]))
    return replace(plan, boxes=tuple(boxes))


def _dense(route: Array) -> Array:
    """Return the route with points at least every 0.1 m."""
    steps = np.hypot(*np.diff(route, axis=0).T)
    pieces = [route]
    for start, end, step in zip(route[:-1], route[1:], steps):
        fraction = np.linspace(0, 1, int(step / 0.1) + 1)[:, None]
        pieces.append(start + fraction * (end - start))
    return np.concatenate(pieces)


def _against(
    face: Face, position: float, width: float, depth: float, top: float, look: str, style: int
) -> Box:
    start, other = face.along(position), face.along(position + width)
    run = sorted((start[1 - face.axis], other[1 - face.axis]))
    across = sorted((face.at + 0.02 * face.side, face.at + depth * face.side))
    x, y = (across, run) if face.axis == 0 else (run, across)
    return Box((x[0], x[1]), (y[0], y[1]), top, face.room, look, style)


def _fits(box: Box, plan: FloorPlan, others: list[Box], routes: cKDTree) -> bool:
    edge = np.linspace(0, 1, 5)
    grid = np.stack(
        np.meshgrid(
            box.x[0] + edge * (box.x[1] - box.x[0]), box.y[0] + edge * (box.y[1] - box.y[0])
        ),
        axis=-1,
    ).reshape(-1, 2)
    if np.any(plan.room_at(grid) != box.room) or np.min(routes.query(grid)[0]) < CLEARANCE_M:
        return False
    return not any(
        box.x[0] < other.x[1]
        and other.x[0] < box.x[1]
        and box.y[0] < other.y[1]
        and other.y[0] < box.y[1]
        for other in others
    )


def plan_office(seed: int) -> FloorPlan:
    """Return the office of this seed, some 26 by 17 m, with round trips into each open room."""
    rng = np.random.default_rng([seed, 1])
    nx, ny = 74, 48
    rooms = np.zeros((ny, nx), dtype=np.int16)
    open_x = np.zeros((ny, nx + 1), dtype=bool)
    open_y = np.zeros((ny + 1, nx), dtype=bool)
    labels = ["CR-A"]
    low, high = 19, 24
    bend = 64
    rooms[low:high, 3:bend] = 1
    rooms[low:45, bend - 1 : bend + 5] = 1
    at = _CELL_M * np.array([1.0, 1.0])
    middle = (low + high) / 2
    routes = []

    def add_room(x0: int, x1: int, y0: int, y1: int, below: bool) -> None:
        labels.append(f"{_LABELS[int(rng.integers(len(_LABELS)))]}{len(labels)}-A")
        rooms[y0:y1, x0:x1] = len(labels)
        door = int(rng.integers(x0 + 1, x1 - 3))
        open_y[y1 if below else y0, door : door + 3] = True
        entry = door + 1.5
        inner = y1 - 2.0 if below else y0 + 2.0
        far = y0 + 3.5 if below else y1 - 3.5
        left, right = x0 + 3.2, x1 - 3.2
        inside = [(entry, inner), (right, (inner + far) / 2), ((left + right) / 2, far)]
        inside += [(left, (inner + far) / 2), (entry, inner)]
        routes.append(np.array([(entry, middle), *inside, (entry, middle)]) * at)

    for below in (True, False):
        x = 3
        end = bend + 4 if below else bend - 2
        while x + 9 <= end:
            # Rooms of one width in a row look alike from the corridor.
            width = int(rng.choice([9, 11, 11, 14]))
            width = width if x + width <= end else end - x
            depth = int(rng.choice([12, 13, 16]))
            if rng.random() < 0.85:
                y0, y1 = (low - depth, low) if below else (high, min(high + depth, 46))
                add_room(x, x + width, max(y0, 2), y1, below)
            x += width
    routes.append(np.array([(bend + 2.0, middle), (bend + 2.0, 42.0), (bend + 2.0, middle)]) * at)
    aisle = np.array([(5.0, middle), (bend + 2.0, middle)]) * at
    bare = FloorPlan(
        (0.0, 0.0), _CELL_M, rooms, tuple(labels), open_x, open_y, (), tuple(routes), seed
    )
    return furnish(bare, [aisle])


PANEL_M, DOOR_M = 2.0, 21.2
"""Period of the corridor of `plan_corridor`, and the x at which its room begins."""


def plan_corridor(seed: int) -> FloorPlan:
    """Return a corridor of 20 m that looks the same every 2 m, and a furnished room at its end."""
    nx, ny = 74, 22
    low, high, door = 8, 13, round(DOOR_M / _CELL_M)
    rooms = np.zeros((ny, nx), dtype=np.int16)
    rooms[low:high, 3:door] = 1
    rooms[3 : ny - 3, door : nx - 3] = 2
    open_x, open_y = np.zeros((ny, nx + 1), dtype=bool), np.zeros((ny + 1, nx), dtype=bool)
    open_x[low:high, door] = True
    middle, near, far = (low + high) / 2, door + 3.0, nx - 6.0
    corridor = [(near, middle), (6.0, middle), (near, middle)]
    room = [(near, middle), (far, 6.0), (far, ny - 6.0), (near + 3.0, ny - 6.0), (near, middle)]
    routes = tuple(_CELL_M * np.array(route) for route in (corridor, room))
    labels = ("CR-A", "2PO1-A")
    bare = FloorPlan((0.0, 0.0), _CELL_M, rooms, labels, open_x, open_y, (), routes, seed, PANEL_M)
    furnished = furnish(bare)
    # Furniture would tell the panels apart.
    return replace(furnished, boxes=tuple(box for box in furnished.boxes if box.room != 1))


def plan_round(trajectories: Sequence[Trajectory], seed: int) -> FloorPlan:
    """Return the office in which all `trajectories` (one common frame) are drives."""
    points = np.concatenate([trajectory.poses[:, :2] for trajectory in trajectories])
    if np.ptp(points, axis=0).max() > _MAX_EXTENT_M:
        raise DatasetError(
            f"the trajectories spread over {np.ptp(points, axis=0).max():.0f} m; the simulator "
            f"builds offices of up to {_MAX_EXTENT_M:.0f} m; give poses in metres and in one frame"
        )
    origin = np.floor((points.min(axis=0) - _MARGIN_M) / _CELL_M) * _CELL_M
    cells = np.ceil((points.max(axis=0) + _MARGIN_M - origin) / _CELL_M).astype(int)
    labels = tuple(sorted({label for trajectory in trajectories for label in trajectory.labels}))
    away = np.stack([_distance_to(label, trajectories, origin, cells) for label in labels])
    rooms = _rooms(away, labels)
    nearest = away.min(axis=0)
    open_x = np.zeros((cells[1], cells[0] + 1), dtype=bool)
    open_y = np.zeros((cells[1] + 1, cells[0]), dtype=bool)
    # A door stands where the path itself leads from one room into the other.
    free = rooms > 0
    for passages, far, inside in ((open_x, nearest, free), (open_y.T, nearest.T, free.T)):
        near = (far[:, 1:] + far[:, :-1]) / 2 < 0.6
        passages[:, 1:-1] = near & inside[:, 1:] & inside[:, :-1]
    routes = tuple(trajectory.poses[::4, :2] for trajectory in trajectories)
    bare = FloorPlan(
        (float(origin[0]), float(origin[1])),
        _CELL_M,
        rooms,
        labels,
        open_x,
        open_y,
        (),
        routes,
        seed,
    )
    return furnish(bare)


def _distance_to(
    label: str, trajectories: Sequence[Trajectory], origin: Array, cells: NDArray[np.int64]
) -> Array:
    """Return the distance in metres from each cell's middle to the path inside the room `label`."""
    per_cell = round(_CELL_M / _FINE_M)
    canvas = np.full((cells[1] * per_cell, cells[0] * per_cell), 255, dtype=np.uint8)
    for trajectory in trajectories:
        inside = np.array([name == label for name in trajectory.labels])
        pixels = np.round((trajectory.poses[:, :2] - origin) / _FINE_M - 0.5).astype(int)
        for start, end, both in zip(pixels[:-1], pixels[1:], inside[:-1] & inside[1:]):
            if both and np.abs(end - start).max() < 1.0 / _FINE_M:
                cv2.line(canvas, tuple(start.tolist()), tuple(end.tolist()), 0, 1)
        for pixel in pixels[inside]:
            canvas[pixel[1], pixel[0]] = 0
    # The larger of the distances along the axes: what is near by it has straight walls.
    far = cv2.distanceTransform(canvas, cv2.DIST_C, 3).astype(np.float64) * _FINE_M
    middle = per_cell // 2
    return np.asarray(far[middle::per_cell, middle::per_cell])


def _rooms(away: Array, labels: Sequence[str]) -> NDArray[np.int16]:
    owner = away.argmin(axis=0)
    rooms = np.zeros(owner.shape, dtype=np.int16)
    for k, label in enumerate(labels):
        reach = _CORRIDOR_REACH_M if label.startswith("CR") else _ROOM_REACH_M
        mask = ((away[k] < reach) & (owner == k)).astype(np.uint8)
        # Straight walls: fill niches and cut off spurs narrower than the squares.
        mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((7, 7), np.uint8))
        mask = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
        rooms[(mask > 0) & (owner == k)] = k + 1
    near = away.min(axis=0) < CLEARANCE_M
    rooms[near] = owner[near] + 1
    rooms[:2], rooms[-2:], rooms[:, :2], rooms[:, -2:] = 0, 0, 0, 0
    return rooms
