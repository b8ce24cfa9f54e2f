"""Draws what a level camera sees of a scene: one texture look-up for every pixel, then one remap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.datasets.simulated_office.atlas import LEVELS
from kbf_localization.datasets.simulated_office.floor_plan import CEILING_M, Face
from kbf_localization.datasets.simulated_office.people import HEIGHT_M, WIDTH_M, Walker
from kbf_localization.datasets.simulated_office.scene import Scene

Floats = NDArray[np.float32]
_NEAR_M = 0.05


@dataclass(frozen=True)
class Camera:
    """A pinhole camera: image size in pixels, horizontal field of view, height above the floor."""

    width: int = 640
    height: int = 480
    view_deg: float = 68.9
    above_m: float = 1.1

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return float(self.width / 2 / np.tan(np.radians(self.view_deg / 2)))


class Renderer:
    """Rays are cast in the plane, one for each column: walls are upright and the camera is level."""

    def __init__(self, scene: Scene, camera: Camera) -> None:
        self.scene = scene
        self.camera = camera
        self._slopes = ((camera.width - 1) / 2 - np.arange(camera.width)) / camera.focal
        self._rows = np.arange(camera.height, dtype=np.float32)[:, None]
        full = [k for k, face in enumerate(scene.faces) if face.kind != "lintel"]
        self._lintels = [k for k, face in enumerate(scene.faces) if face.kind == "lintel"]
        self._walls = [
            np.array([k for k in full if scene.faces[k].axis == axis], dtype=np.int64)
            for axis in (0, 1)
        ]
        self._at = np.array([face.at for face in scene.faces])
        self._low = np.array([face.low for face in scene.faces])
        self._high = np.array([face.high for face in scene.faces])
        self._side = np.array([face.side for face in scene.faces])
        right = np.array([face.rightward for face in scene.faces])
        self._left_edge = np.where(right > 0, self._low, -self._high)
        self._right = right

    def render(
        self, pose: NDArray[np.float64], walkers: Sequence[Walker] = (), horizon_shift: float = 0.0
    ) -> NDArray[np.uint8]:
        """The picture (height, width, 3) from `pose`; the horizon is shifted by so many pixels."""
        self._horizon = np.float32((self.camera.height - 1) / 2 + horizon_shift)
        self._eye = (float(pose[0]), float(pose[1]))
        cos, sin = np.cos(pose[2]), np.sin(pose[2])
        # A ray runs one metre of depth along the optical axis for each unit of its parameter.
        self._ray = (cos - self._slopes * sin, sin + self._slopes * cos)
        depth, face, along = self._nearest_walls()
        self._wall_depth = depth
        self._draw_background(depth, face, along)
        jobs = []
        for k in self._lintels:
            jobs.append((self._distance(*_middle(self.scene.faces[k])), self._draw_lintel, k))
        for k, box in enumerate(self.scene.boxes):
            jobs.append((self._distance(sum(box.x) / 2, sum(box.y) / 2), self._draw_box, k))
        for k, walker in enumerate(walkers):
            jobs.append((self._distance(*walker.place), self._draw_walker, k))
        self._walkers, self._direction = walkers, (float(cos), float(sin))
        for _, draw, k in sorted(jobs, key=lambda job: -job[0]):
            draw(k)
        return np.asarray(
            cv2.remap(
                self.scene.atlas.pixels,
                self._map_x,
                self._map_y,
                cv2.INTER_LINEAR,
                borderMode=cv2.BORDER_REPLICATE,
            )
        )

    def _distance(self, x: float, y: float) -> float:
        return float(np.hypot(x - self._eye[0], y - self._eye[1]))

    def _nearest_walls(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """For each column the depth, the number and the place along it of the first wall face."""
        depth = np.full(self.camera.width, 60.0)
        face = np.zeros(self.camera.width, dtype=np.int64)
        place = np.zeros(self.camera.width)
        for axis in (0, 1):
            seen = self._walls[axis]
            seen = seen[self._side[seen] * (self._eye[axis] - self._at[seen]) > 0]
            if len(seen) == 0:
                continue
            across, run = self._ray[axis], self._ray[1 - axis]
            with np.errstate(divide="ignore", invalid="ignore"):
                t = (self._at[seen, None] - self._eye[axis]) / across
                hit = self._eye[1 - axis] + t * run
            hits = (t > 0) & (hit >= self._low[seen, None]) & (hit <= self._high[seen, None])
            t = np.where(hits, t, np.inf)
            best = t.argmin(axis=0)
            columns = np.arange(self.camera.width)
            nearer = t[best, columns] < depth
            depth[nearer] = t[best, columns][nearer]
            face[nearer] = seen[best][nearer]
            place[nearer] = hit[best, columns][nearer]
        return np.maximum(depth, _NEAR_M), face, place

    def _level(self, depth: NDArray[np.float64], pixels: float) -> NDArray[np.int64]:
        """The halving of the atlas whose pixels are about as large as the image's."""
        ratio = np.log2(np.maximum(pixels * depth / self.camera.focal, 1e-3))
        return np.clip(np.floor(ratio + 0.3), 0, LEVELS - 1).astype(np.int64)

    def _draw_background(
        self, depth: NDArray[np.float64], face: NDArray[np.int64], along: NDArray[np.float64]
    ) -> None:
        """Walls, floor and ceiling: the look-up maps (height, width) of the whole image."""
        scene, above = self.scene, self.camera.above_m
        u = self._right[face] * along - self._left_edge[face]
        map_x, slope, offset = self._upright(depth, u, scene.face_texture[face], CEILING_M)
        fall = (self._rows - self._horizon) * np.float32(1 / self.camera.focal)
        self._map_y = fall * slope + offset
        self._map_x = np.empty_like(self._map_y)
        self._map_x[:] = map_x
        z = np.float32(above) - fall * depth.astype(np.float32)
        for number, pixels, height, beyond in (
            (scene.floor_texture, scene.floor_pixels, 0.0, z < 0),
            (scene.ceiling_texture, scene.ceiling_pixels, CEILING_M, z > CEILING_M),
        ):
            rows = np.flatnonzero(beyond.any(axis=1))
            if len(rows) == 0:
                continue
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            reach = (above - height) / fall[part, 0].astype(np.float64)
            level = self._level(reach, pixels)
            x, y = self._on_plane(reach, level, number, pixels, scene.plan.origin)
            np.copyto(self._map_x[part], x, where=beyond[part])
            np.copyto(self._map_y[part], y, where=beyond[part])

    def _on_plane(
        self,
        reach: NDArray[np.float64],
        level: NDArray[np.int64],
        number: int,
        pixels: float,
        origin: tuple[float, float],
        columns: slice = slice(None),
    ) -> tuple[Floats, Floats]:
        """Atlas coordinates (rows, columns) of a horizontal plane at depth `reach` (rows,)."""
        corner, shift = self.scene.atlas.corners[number], self.scene.atlas.shift[level]
        shrink = pixels / 2.0**level
        found = []
        for axis in (0, 1):
            start = (self._eye[axis] - origin[axis]) * shrink + corner[axis] / 2.0**level
            start += shift[:, axis] - 0.5
            gain = (reach * shrink).astype(np.float32)[:, None]
            ray = self._ray[axis][columns].astype(np.float32)
            found.append(start.astype(np.float32)[:, None] + gain * ray)
        return found[0], found[1]

    def _upright(
        self,
        depth: NDArray[np.float64],
        u: NDArray[np.float64],
        number: NDArray[np.int64],
        top: float,
    ) -> tuple[Floats, Floats, Floats]:
        """Atlas x of each column, and slope and offset of atlas y over (row - horizon) / focal."""
        pixels = self.scene.wall_pixels
        level = self._level(depth, pixels)
        shrink = 1.0 / 2.0**level
        corner, shift = self.scene.atlas.corners[number], self.scene.atlas.shift[level]
        map_x = (corner[:, 0] + u * pixels) * shrink + shift[:, 0] - 0.5
        slope = depth * pixels * shrink
        offset = (corner[:, 1] + (top - self.camera.above_m) * pixels) * shrink + shift[:, 1] - 0.5
        return map_x.astype(np.float32), slope.astype(np.float32), offset.astype(np.float32)

    def _paint_upright(
        self,
        first: int,
        depth: NDArray[np.float64],
        u: NDArray[np.float64],
        number: NDArray[np.int64],
        bottom: float,
        top: float,
        shown: NDArray[np.bool_],
        opaque: NDArray[np.bool_] | None = None,
    ) -> None:
        """Overwrite the maps where an upright surface covers columns from `first` on."""
        last = first + len(depth)
        focal, above = self.camera.focal, self.camera.above_m
        upper = self._horizon + (above - top) * focal / depth[shown]
        lower = self._horizon + (above - bottom) * focal / depth[shown]
        row0 = max(int(np.floor(upper.min())), 0)
        row1 = min(int(np.ceil(lower.max())) + 1, self.camera.height)
        if row0 >= row1:
            return
        map_x, slope, offset = self._upright(depth, u, number, top)
        fall = (self._rows[row0:row1] - self._horizon) * np.float32(1 / focal)
        z = np.float32(above) - fall * depth.astype(np.float32)
        inside = (z <= top) & (z > bottom) & shown
        if opaque is not None:
            rows = np.clip((top - z) * self.scene.wall_pixels, 0, opaque.shape[0] - 1).astype(
                np.int32
            )
            columns = np.clip(u * self.scene.wall_pixels, 0, opaque.shape[1] - 1).astype(np.int32)
            inside &= opaque[rows, columns]
        np.copyto(self._map_x[row0:row1, first:last], map_x, where=inside)
        np.copyto(self._map_y[row0:row1, first:last], fall * slope + offset, where=inside)

    def _draw_lintel(self, k: int) -> None:
        face = self.scene.faces[k]
        axis = face.axis
        if face.side * (self._eye[axis] - face.at) <= 0:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (face.at - self._eye[axis]) / self._ray[axis]
            hit = self._eye[1 - axis] + t * self._ray[1 - axis]
        shown = (t > _NEAR_M) & (t < self._wall_depth) & (hit >= face.low) & (hit <= face.high)
        columns = np.flatnonzero(shown)
        if len(columns) == 0:
            return
        part = slice(int(columns[0]), int(columns[-1]) + 1)
        depth = np.where(shown, t, 1.0)[part]
        u = np.where(shown, self._right[k] * hit - self._left_edge[k], 0.0)[part]
        number = np.full(len(depth), self.scene.face_texture[k])
        self._paint_upright(part.start, depth, u, number, face.bottom, face.top, shown[part])

    def _draw_box(self, k: int) -> None:
        box = self.scene.boxes[k]
        sides = (box.x, box.y)
        enter = np.full((2, self.camera.width), -np.inf)
        leave = np.full((2, self.camera.width), np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            for axis in (0, 1):
                one = (sides[axis][0] - self._eye[axis]) / self._ray[axis]
                other = (sides[axis][1] - self._eye[axis]) / self._ray[axis]
                enter[axis], leave[axis] = np.minimum(one, other), np.maximum(one, other)
        near, far = enter.max(axis=0), leave.min(axis=0)
        shown = (near < far) & (near > _NEAR_M) & (near < self._wall_depth)
        columns = np.flatnonzero(shown)
        if len(columns) == 0:
            return
        part = slice(int(columns[0]), int(columns[-1]) + 1)
        shown, depth = shown[part], np.where(shown, near, 1.0)[part]
        axis = (enter[1] > enter[0])[part].astype(np.int64)
        u, number = np.zeros(len(depth)), np.zeros(len(depth), dtype=np.int64)
        for a in (0, 1):
            hit = self._eye[1 - a] + depth * self._ray[1 - a][part]
            greater = self._eye[a] > sum(sides[a]) / 2
            rightward = (1 if greater else -1) * (1 if a == 0 else -1)
            low, high = sides[1 - a]
            on = axis == a
            u[on] = (hit - low if rightward > 0 else high - hit)[on]
            number[on] = self.scene.box_texture[k, 2 * a + int(greater)]
        self._paint_upright(part.start, depth, u, number, 0.0, box.top, shown)
        if box.top < self.camera.above_m:
            self._draw_box_top(k, part, shown, depth, far[part])

    def _draw_box_top(
        self,
        k: int,
        part: slice,
        shown: NDArray[np.bool_],
        near: NDArray[np.float64],
        far: NDArray[np.float64],
    ) -> None:
        box, drop = self.scene.boxes[k], self.camera.above_m - self.scene.boxes[k].top
        first = self._horizon + drop * self.camera.focal / far[shown].max()
        last = self._horizon + drop * self.camera.focal / near[shown].min()
        row0, row1 = max(int(np.floor(first)), 0), min(int(np.ceil(last)) + 1, self.camera.height)
        if row0 >= row1:
            return
        fall = (self._rows[row0:row1, 0] - self._horizon).astype(np.float64)
        reach = drop * self.camera.focal / np.maximum(fall, 1e-3)
        inside = shown & (reach[:, None] >= near) & (reach[:, None] <= far)
        number = int(self.scene.box_texture[k, 4])
        pixels = self.scene.wall_pixels
        x, y = self._on_plane(
            reach, self._level(reach, pixels), number, pixels, (box.x[0], box.y[0]), part
        )
        np.copyto(self._map_x[row0:row1, part], x, where=inside)
        np.copyto(self._map_y[row0:row1, part], y, where=inside)

    def _draw_walker(self, k: int) -> None:
        walker = self._walkers[k]
        east, north = walker.place[0] - self._eye[0], walker.place[1] - self._eye[1]
        cos, sin = self._direction
        depth, left = cos * east + sin * north, cos * north - sin * east
        if depth < 0.3:
            return
        across = left - depth * self._slopes + WIDTH_M / 2
        shown = (across >= 0) & (across < WIDTH_M) & (depth < self._wall_depth)
        columns = np.flatnonzero(shown)
        if len(columns) == 0:
            return
        part = slice(int(columns[0]), int(columns[-1]) + 1)
        size = part.stop - part.start
        self._paint_upright(
            part.start,
            np.full(size, depth),
            across[part],
            np.full(size, self.scene.person_texture[walker.look]),
            0.0,
            HEIGHT_M,
            shown[part],
            self.scene.looks[walker.look].opaque,
        )


def _middle(face: Face) -> tuple[float, float]:
    return face.along(face.length / 2)
