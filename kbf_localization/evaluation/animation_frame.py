"""One picture of an animation: camera, best match, walls, belief and hypotheses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np
from PIL import Image as PillowImage
from PIL import ImageDraw

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.floor_plan_image import FREE, UNKNOWN, FloorPlanImage
from kbf_localization.datasets.image_messages import decode
from kbf_localization.evaluation.canvas import (
    BLUE,
    CAMERA,
    FAINT,
    FLOOR,
    INK,
    LEFT,
    ORANGE,
    PAGE,
    SIZE,
    STAGE,
    STATES,
    STRIP,
    TOPS,
    WALL,
    Colour,
    disc,
    draw_legend,
    fill,
    font,
    mixed,
    polyline,
    view,
)
from kbf_localization.evaluation.metrics import Kidnapping, position_errors
from kbf_localization.evaluation.run import Run

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

TRAIL = 60
"""Images over which a hypothesis's way is drawn."""


class FramePainter:
    """Draws the rows of a run; all that does not change is drawn once."""

    def __init__(
        self, run: Run, training_map: TrainingMap, carried: Kidnapping | None = None
    ) -> None:
        self._run, self._map, self._carried = run, training_map, carried
        self._errors = position_errors(run)
        self._scale, self._middle = view(training_map.poses, training_map.floor_plan)
        left, top, right, bottom = STAGE
        self._offset = np.array([(left + right) / 2, (top + bottom) / 2])
        self._base = self._static()

    def draw(self, row: int, camera: bytes, carried: float | None = None) -> Image:
        """The picture (h, w, 3) in RGB; `carried` is the share of the way to the next row's place.

        Then the robot is in somebody's hands, and its camera rests.
        """
        page = self._base.copy()
        self._strip(page, row)
        self._pictures(page, row, camera, carried is not None)
        if carried is None:
            self._spread(page, row)
            self._weights(page, row)
            self._hypotheses(page, row)
        self._truth(page, row, carried)
        return self._texts(page, row, carried)

    def _colour(self, row: int) -> Colour:
        return STATES.get(self._run.states[row], FAINT)

    # The map

    def _pixels(self, points: Array) -> Array:
        """Metres (n, 2 or 3) to pixels (n, 2)."""
        return np.asarray(
            self._offset + (np.asarray(points)[:, :2] - self._middle) * self._scale * (1, -1)
        )

    def _static(self) -> Image:
        page = np.empty((SIZE[1], SIZE[0], 3), dtype=np.uint8)
        page[:] = PAGE
        if self._map.floor_plan is not None:
            self._walls(page, self._map.floor_plan)
        for point in self._pixels(self._map.poses):
            disc(page, point, 1.6, (74, 88, 108))
        picture = PillowImage.fromarray(page)
        draw = ImageDraw.Draw(picture)
        draw_legend(draw, run_has_truth=self._run.truth is not None)
        return np.array(picture)

    def _walls(self, page: Image, plan: FloorPlanImage) -> None:
        """The plan in the stage's pixels: what is free, and what is in the way."""
        height = plan.image.shape[0]
        x, y, heading = plan.origin
        cos, sin = np.cos(heading) * plan.resolution, np.sin(heading) * plan.resolution
        # From a plan's pixel (column, row counted from the top) to metres, and on to the stage.
        corners = np.array([[0.0, height], [1.0, height], [0.0, height - 1.0]])
        metres = np.array([[x, y], [x + cos, y + sin], [x - sin, y + cos]])
        change = cv2.getAffineTransform(
            corners.astype(np.float32), self._pixels(metres).astype(np.float32)
        )
        paint = np.empty((*plan.image.shape, 3), dtype=np.uint8)
        paint[:] = WALL
        paint[plan.image >= (FREE + UNKNOWN) // 2] = FLOOR
        paint[(plan.image > UNKNOWN - 5) & (plan.image < UNKNOWN + 5)] = PAGE
        left, top, right, bottom = STAGE
        whole = cv2.warpAffine(
            paint,
            change,
            SIZE,
            flags=cv2.INTER_AREA,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=PAGE,
        )
        page[top:bottom, left:right] = whole[top:bottom, left:right]

    def _spread(self, page: Image, row: int) -> None:
        """The published covariance: wide while the robot is lost."""
        centre, covariance = self._run.estimates[row], self._run.covariances[row]
        self._ellipse(page, centre, covariance, self._colour(row), 0.12)

    def _weights(self, page: Image, row: int) -> None:
        beliefs = self._run.beliefs or ()
        weights = beliefs[row] if row < len(beliefs) else None
        if weights is None or not len(weights.rows):
            return
        largest = float(np.abs(weights.values).max()) or 1.0
        places = self._pixels(self._map.poses[weights.rows])
        for point, value in zip(places, weights.values / largest, strict=True):
            if abs(value) >= 0.02:
                disc(page, point, 6.5 * np.sqrt(abs(value)), BLUE if value > 0 else ORANGE)

    def _hypotheses(self, page: Image, row: int) -> None:
        """Each with its way, ellipse and heading; the improbable ones are pale."""
        hypotheses = self._run.hypotheses
        if hypotheses is None:
            self._robot(page, self._run.estimates[row], self._colour(row))
            return
        set_down = 0 if self._carried is None else self._carried.set_down_at
        first = max(row - TRAIL, set_down if row >= set_down else 0)
        for one in sorted(hypotheses[row], key=lambda one: one.probability):
            strength = 0.25 + 0.75 * min(one.probability, 1.0)
            colour = mixed(self._colour(row), strength)
            way = [
                earlier.pose
                for past in hypotheses[first : row + 1]
                for earlier in past
                if earlier.number == one.number
            ]
            if len(way) > 1:
                polyline(page, self._pixels(np.array(way)), colour, 2)
            self._ellipse(page, one.pose, one.covariance, colour, 0.35 * strength)
            self._robot(page, one.pose, colour)

    def _robot(self, page: Image, pose: Array, colour: Colour) -> None:
        """An arrow head seen from above; pixels count downward."""
        cos, sin = np.cos(pose[2]), -np.sin(pose[2])
        shape = 11.0 * np.array([(1.3, 0.0), (-0.9, 0.8), (-0.5, 0.0), (-0.9, -0.8)])
        turned = shape @ np.array([[cos, sin], [-sin, cos]])
        corners = self._pixels(pose[None])[0] + turned
        fill(page, corners, colour, 1.0)
        polyline(page, corners, PAGE, 1, closed=True)

    def _truth(self, page: Image, row: int, carried: float | None) -> None:
        truth = self._run.truth
        if truth is None or not np.isfinite(truth[row]).all():
            return
        place = self._pixels(truth[row : row + 1])[0]
        if carried is not None:
            there = self._pixels(truth[row + 1 : row + 2])[0]
            for share in np.arange(0.0, carried, 0.025):
                disc(page, place + share * (there - place), 1.6, INK)
            place = place + carried * (there - place)
        disc(page, place, 15.0, INK, 2)

    def _ellipse(
        self, page: Image, pose: Array, covariance: Array, colour: Colour, opacity: float
    ) -> None:
        """Two standard deviations of the position."""
        variances, axes = np.linalg.eigh(covariance[:2, :2])
        angles = np.linspace(0.0, 2.0 * np.pi, 64, endpoint=False)
        circle = np.stack((np.cos(angles), np.sin(angles)))
        around = 2.0 * (axes * np.sqrt(np.maximum(variances, 0.0))) @ circle
        outline = self._pixels(pose[:2] + around.T)
        fill(page, outline, colour, opacity)
        polyline(page, outline, colour, 1, closed=True)

    # Beside and beneath it

    def _pictures(self, page: Image, row: int, camera: bytes, rests: bool) -> None:
        best = -1 if self._run.best_rows is None else int(self._run.best_rows[row])
        match = bytes(self._map.thumbnails[best]) if best >= 0 else b""
        for data, top in zip((camera, match), TOPS, strict=True):
            picture = decode(data, cv2.IMREAD_COLOR) if data else None
            place = page[top : top + CAMERA[1], LEFT : LEFT + CAMERA[0]]
            if picture is None:
                place[:] = FLOOR
                continue
            shown = cv2.resize(picture, CAMERA, interpolation=cv2.INTER_CUBIC)[:, :, ::-1]
            place[:] = shown // 4 if rests else shown

    def _strip(self, page: Image, row: int) -> None:
        """The states so far, as colours along the time."""
        left, top, right, bottom = STRIP
        stamps = self._run.stamps_ns
        along = left + (right - left) * (stamps - stamps[0]) / max(stamps[-1] - stamps[0], 1)
        page[top:bottom, left:right] = FLOOR
        for earlier in range(row):
            at = slice(round(along[earlier]), round(along[earlier + 1]))
            page[top:bottom, at] = self._colour(earlier)
        now = min(round(along[row]), right - 3)
        page[top - 5 : bottom + 5, now : now + 3] = INK

    def _texts(self, page: Image, row: int, carried: float | None) -> Image:
        picture = PillowImage.fromarray(page)
        draw = ImageDraw.Draw(picture)
        colour = self._colour(row) if carried is None else FAINT
        label = self._run.states[row].upper() if carried is None else "CARRIED"
        width = draw.textlength(label, font=font(24))
        draw.rounded_rectangle((LEFT, 20, LEFT + width + 40, 58), 19, fill=colour)
        draw.text((LEFT + 20, 39), label, fill=PAGE, font=font(24), anchor="lm")
        draw.text(
            (LEFT + width + 62, 39), self._story(row, carried), fill=INK, font=font(24), anchor="lm"
        )
        if carried is None:
            self._percentages(draw, row)
        for caption, top in zip(("camera", "best match in the map"), TOPS, strict=True):
            length = draw.textlength(caption, font=font(17))
            draw.rectangle((LEFT, top, LEFT + length + 16, top + 27), fill=PAGE)
            draw.text((LEFT + 8, top + 13), caption, fill=INK, font=font(17), anchor="lm")
        return np.array(picture)

    def _percentages(self, draw: ImageDraw.ImageDraw, row: int) -> None:
        """What each hypothesis is worth, while there is a doubt."""
        hypotheses = () if self._run.hypotheses is None else self._run.hypotheses[row]
        for one in hypotheses:
            if 0.005 <= one.probability < 0.995:
                x, y = self._pixels(one.pose[None])[0]
                text = f"{100 * one.probability:.0f} %"
                draw.text((x + 18, y - 18), text, fill=INK, font=font(19), anchor="lm")

    def _story(self, row: int, carried: float | None) -> str:
        if carried is not None:
            return "to another place, wheels and camera at rest"
        state = self._run.states[row]
        if state == "lost":
            return "the picture does not fit the map here"
        if state != "tracking":
            return "it starts without a hint"
        error = float(self._errors[row])
        size = f"{100 * error:.0f} cm" if error < 1.0 else f"{error:.1f} m"
        about = "" if np.isnan(error) else f"{size} from the truth"
        kidnapped = self._carried
        found_at = None if kidnapped is None else kidnapped.tracking_again_at
        if kidnapped is None or found_at is None or row < found_at:
            return about
        return f"{about}   ·   found itself after {kidnapped.seconds_to_recover:.1f} s"
