"""An invented office: a corridor with a bend, rooms on both sides, some of them look-alikes."""

from __future__ import annotations

import numpy as np

from kbf_localization.simulator.floor_plan import FloorPlan
from kbf_localization.simulator.furniture import furnish

_CELL_M = 0.4
_LABELS = ("2PO", "1PO", "2PO", "PA", "2PO", "KT", "2PO", "CNR", "TL", "LAB")


def plan_office(seed: int) -> FloorPlan:
    """The office of this seed, some 28 by 18 m; its routes are round trips into each open room."""
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
        way = door + 1.5
        inner = y1 - 2.0 if below else y0 + 2.0
        far = y0 + 3.5 if below else y1 - 3.5
        left, right = x0 + 3.2, x1 - 3.2
        inside = [(way, inner), (right, (inner + far) / 2), ((left + right) / 2, far)]
        inside += [(left, (inner + far) / 2), (way, inner)]
        routes.append(np.array([(way, middle), *inside, (way, middle)]) * at)

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
