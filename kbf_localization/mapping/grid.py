"""A Nav2 grid from a map alone: free where the robot drove, unknown elsewhere."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.floor_plan_image import FREE, OCCUPIED, UNKNOWN, FloorPlanImage
from kbf_localization.errors import MapError
from kbf_localization.limits import MAX_PLAN_PIXELS
from kbf_localization.training_map.training_map import TrainingMap

MARGIN_M = 1.0
"""Of unknown cells round the path."""
MAX_GAP_M = 1.0
"""Poses of a trajectory farther apart are not joined: nobody knows what lies between."""
OBSTACLE_M = (0.15, 1.5)
"""Heights of landmarks that a robot can run into."""
MIN_LANDMARKS = 3
"""Landmarks in a cell that make it occupied: single points may be wrong."""
MAX_OBSTACLE_SIGMA_M = 0.1
"""Landmarks whose position is less certain mark no cell."""


def drivable_grid(
    training_map: TrainingMap,
    robot_radius: float,
    resolution: float = 0.05,
    obstacles: bool = False,
) -> FloorPlanImage:
    """Return a grid: cells within `robot_radius` (m) of the drives' paths are free.

    With `obstacles` cells with several landmarks at a robot's height are occupied, unless it drove
    there. `resolution` is in metres a cell.
    """
    if not 0.0 < robot_radius <= 10.0:
        raise MapError(f"the robot's radius is {robot_radius} m; give more than 0, at most 10")
    if not 0.005 <= resolution <= 1.0:
        raise MapError(f"the grid's resolution is {resolution} m; give 0.005 to 1")
    paths = [training_map.trajectory(number) for number in range(len(training_map.sources))]
    points = np.concatenate([training_map.poses[:, :2], *(path[:, :2] for path in paths)])
    low = points.min(axis=0) - robot_radius - MARGIN_M
    high = points.max(axis=0) + robot_radius + MARGIN_M
    width, height = (int(np.ceil(side)) for side in (high - low) / resolution)
    if width * height > MAX_PLAN_PIXELS:
        raise MapError(f"a grid of {width} x {height} cells is too large; raise --resolution")
    grid = np.full((height, width), UNKNOWN, dtype=np.uint8)

    if obstacles:
        counts = _obstacle_counts(training_map, low, resolution, (height, width))
        grid[counts >= MIN_LANDMARKS] = OCCUPIED
    shift = 4
    scaled = float(1 << shift)
    # OpenCV fills the cells on the edge too: half a cell beyond it.
    radius = max(round((robot_radius / resolution - 0.5) * scaled), 0)
    for path in (training_map.poses, *paths):
        at = np.rint(_cells(path, low, resolution) * scaled).astype(np.int32)
        for centre in at:
            cv2.circle(grid, tuple(map(int, centre)), radius, FREE, -1, cv2.LINE_8, shift)
    for path in paths:
        at = np.rint(_cells(path, low, resolution) * scaled).astype(np.int32)
        steps = np.hypot(*np.diff(path[:, :2], axis=0).T)
        for first, other, step in zip(at[:-1], at[1:], steps):
            if 0.0 < step <= MAX_GAP_M:
                _fill_between(grid, first, other, radius, shift)
    # map_server's first row is the top one.
    return FloorPlanImage(grid[::-1].copy(), resolution, (float(low[0]), float(low[1]), 0.0))


def _cells(places: Array, low: Array, resolution: float) -> Array:
    """Return columns and rows (n, 2) of places (n, 2 or more), in fractions of a cell."""
    return np.asarray((places[:, :2] - low) / resolution - 0.5)


def _fill_between(grid: Image, first: Array, second: Array, radius: int, shift: int) -> None:
    """Fill the rectangle between two circles; `grid` is the caller's own."""
    along = (second - first).astype(np.float64)
    across = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9) * radius
    corners = np.stack((first + across, second + across, second - across, first - across))
    cv2.fillConvexPoly(grid, np.rint(corners).astype(np.int32), FREE, cv2.LINE_8, shift)


def _obstacle_counts(
    training_map: TrainingMap, low: Array, resolution: float, shape: tuple[int, int]
) -> NDArray[np.intp]:
    """Return how many landmarks at a robot's height each cell has, (height, width)."""
    counts = np.zeros(shape, dtype=np.intp)
    landmarks = training_map.landmarks
    if landmarks is None:
        raise MapError("the map has no landmarks, so it shows no obstacles; leave them away")
    rows = np.arange(len(training_map))
    placed = landmarks.table.place(rows, training_map.poses)
    sigma = np.sqrt(np.linalg.eigvalsh(placed.covariances)[:, -1])
    high = (placed.points[:, 2] > OBSTACLE_M[0]) & (placed.points[:, 2] < OBSTACLE_M[1])
    points = placed.points[high & (sigma < MAX_OBSTACLE_SIGMA_M)]
    at = np.rint(_cells(points, low, resolution)).astype(np.intp)
    inside = ((at >= 0) & (at < np.array(shape[::-1]))).all(axis=1)
    np.add.at(counts, (at[inside, 1], at[inside, 0]), 1)
    return counts
