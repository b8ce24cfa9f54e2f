"""What a level camera sees of a scene."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbf_localization.arrays import Array, Image
from kbf_localization.simulator.floor_plan import CEILING_M
from kbf_localization.simulator.lookup import Camera, LookUp
from kbf_localization.simulator.people import HEIGHT_M, WIDTH_M, Walker
from kbf_localization.simulator.ray_casting import WallRays
from kbf_localization.simulator.scene import Scene

_NEAR_M = 0.05


class Renderer:
    """Casts one ray in the plane for each column, which suffices: walls are upright.

    Walls, floor and ceiling come first; lintels, furniture and people are painted over them, the
    far surfaces before the near.
    """

    def __init__(self, scene: Scene, camera: Camera) -> None:
        self.scene, self.camera = scene, camera
        columns = np.arange(camera.width, dtype=np.float64)
        self._slopes: Array = ((camera.width - 1) / 2 - columns) / camera.focal
        self._walls = WallRays(scene.faces)
        self._lintels = [k for k, face in enumerate(scene.faces) if face.kind == "lintel"]
        lintels = [scene.faces[k] for k in self._lintels]
        middles = [face.along(face.length / 2) for face in lintels]
        middles += [(sum(box.x) / 2, sum(box.y) / 2) for box in scene.plan.boxes]
        self._middles = np.array(middles).reshape(-1, 2)
        sizes = [face.length for face in lintels]
        sizes += [np.hypot(box.x[1] - box.x[0], box.y[1] - box.y[0]) for box in scene.plan.boxes]
        self._radii = np.array(sizes) / 2

    def render(
        self, pose: Array, walkers: Sequence[Walker] = (), horizon_shift: float = 0.0
    ) -> Image:
        """Render the image (height, width, 3) from `pose`, its horizon shifted by some pixels."""
        scene, camera = self.scene, self.camera
        self._eye = (float(pose[0]), float(pose[1]))
        self._ahead = (float(np.cos(pose[2])), float(np.sin(pose[2])))
        cos, sin = self._ahead
        self._ray = (np.asarray(cos - self._slopes * sin), np.asarray(sin + self._slopes * cos))
        horizon = (camera.height - 1) / 2 + horizon_shift
        self._lookup = LookUp(camera, scene.atlas, self._eye, self._ray, horizon)
        hits = self._walls.cast((np.array([self._eye[0]]), np.array([self._eye[1]])), self._ray)
        self._depth = np.maximum(hits.distance, _NEAR_M)
        self._lookup.paint_walls(self._depth, hits.along, hits.face, CEILING_M, scene.wall_pixels)
        for height, number, pixels in (
            (0.0, scene.floor_texture, scene.floor_pixels),
            (CEILING_M, scene.ceiling_texture, scene.ceiling_pixels),
        ):
            self._lookup.paint_plane(height, number, pixels, scene.plan.origin, self._depth)
        self._paint_things(walkers)
        return self._lookup.image()

    def _paint_things(self, walkers: Sequence[Walker]) -> None:
        away = self._middles - np.array(self._eye)
        depth = away @ np.array(self._ahead)
        aside = np.abs(away @ np.array([-self._ahead[1], self._ahead[0]]))
        reach = 1.6 * self._radii
        wide = self._slopes[0] * np.maximum(depth, 0) + reach
        visible = (
            (depth > -self._radii) & (aside < wide) & (depth < self._depth.max() + self._radii)
        )
        things = [(float(np.hypot(*away[k])), int(k)) for k in np.flatnonzero(visible)]
        for k, walker in enumerate(walkers):
            far = float(np.hypot(walker.place[0] - self._eye[0], walker.place[1] - self._eye[1]))
            things.append((far, len(self._middles) + k))
        for _, k in sorted(things, reverse=True):
            if k < len(self._lintels):
                self._paint_lintel(self._lintels[k])
            elif k < len(self._middles):
                self._paint_box(k - len(self._lintels))
            else:
                self._paint_walker(walkers[k - len(self._middles)])

    def _paint_lintel(self, number: int) -> None:
        face = self.scene.faces[number]
        axis = face.axis
        if face.side * (self._eye[axis] - face.at) <= 0:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (face.at - self._eye[axis]) / self._ray[axis]
            hit = self._eye[1 - axis] + t * self._ray[1 - axis]
        shown = (t > _NEAR_M) & (t < self._depth) & (hit >= face.low) & (hit <= face.high)
        along = hit - face.low if face.rightward > 0 else face.high - hit
        pixels = self.scene.wall_pixels
        self._lookup.paint_upright(t, along, number, face.bottom, face.top, pixels, shown)

    def _paint_box(self, number: int) -> None:
        box = self.scene.plan.boxes[number]
        sides = (box.x, box.y)
        enter, leave = np.empty((2, self.camera.width)), np.empty((2, self.camera.width))
        with np.errstate(divide="ignore", invalid="ignore"):
            for axis in (0, 1):
                near = (sides[axis][0] - self._eye[axis]) / self._ray[axis]
                other = (sides[axis][1] - self._eye[axis]) / self._ray[axis]
                enter[axis], leave[axis] = np.minimum(near, other), np.maximum(near, other)
        near, far = enter.max(axis=0), leave.min(axis=0)
        shown = (near < far) & (near > _NEAR_M) & (near < self._depth)
        if not shown.any():
            return
        depth = np.where(shown, near, 1.0)
        along, texture = np.zeros(len(depth)), np.zeros(len(depth), dtype=np.int64)
        for axis in (0, 1):
            on = (enter[1] > enter[0]) == bool(axis)
            hit = self._eye[1 - axis] + depth * self._ray[1 - axis]
            greater = self._eye[axis] > sum(sides[axis]) / 2
            low, high = sides[1 - axis]
            along[on] = (hit - low if greater == (axis == 0) else high - hit)[on]
            texture[on] = self.scene.box_texture(number, 2 * axis + int(greater))
        pixels = self.scene.wall_pixels
        self._lookup.paint_upright(depth, along, texture, 0.0, box.top, pixels, shown)
        if box.top < self.camera.above_m - 0.02:
            top, corner = self.scene.box_texture(number, 4), (box.x[0], box.y[0])
            beyond = np.where(shown, far, 0.5)
            self._lookup.paint_plane(box.top, top, pixels, corner, depth, beyond)

    def _paint_walker(self, walker: Walker) -> None:
        east, north = walker.place[0] - self._eye[0], walker.place[1] - self._eye[1]
        cos, sin = self._ahead
        depth, left = cos * east + sin * north, cos * north - sin * east
        if depth < 0.3:
            return
        across = left - depth * self._slopes + WIDTH_M / 2
        shown = (across >= 0) & (across < WIDTH_M) & (depth < self._depth)
        self._lookup.paint_upright(
            np.full(len(across), depth),
            across,
            self.scene.look_texture(walker.look),
            0.0,
            HEIGHT_M,
            self.scene.wall_pixels,
            shown,
            self.scene.looks[walker.look].opaque,
        )
