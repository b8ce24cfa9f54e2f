"""Animations of a run: camera, best match, walls, and the belief that converges to the pose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
import numpy as np
from PIL import Image as PillowImage
from PIL import ImageDraw, ImageFont

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.floor_plan_image import FREE, UNKNOWN, FloorPlanImage
from kbf_localization.datasets.image_decoding import decode
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.metrics import Kidnapping, position_errors
from kbf_localization.evaluation.run import Run
from kbf_localization.geometry import compose
from kbf_localization.progress import Progress, no_progress, tracked

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap


Colour = tuple[int, int, int]

SIZE = (1280, 720)
PAGE, FLOOR, WALL, INK, FAINT = (
    (14, 19, 28),
    (31, 40, 54),
    (112, 127, 148),
    (236, 240, 245),
    (138, 150, 168),
)
BLUE, ORANGE = (86, 180, 233), (230, 159, 0)
STATES: dict[str, Colour] = {
    "uninitialized": (138, 150, 168),
    "localizing": BLUE,
    "tracking": (60, 200, 140),
    "degraded": ORANGE,
    "lost": (240, 90, 80),
}
CAMERA, LEFT = (372, 279), 24
TOPS = (76, 371)
"""Where the camera's image and the best match begin."""
STAGE = (420, 76, 1256, 650)
"""The map's left, top, right and bottom."""
STRIP = (24, 672, 1256, 682)
SUBPIXELS = 4
"""Bits after the point of the coordinates that OpenCV is given."""

TRAIL_IMAGES = 60
"""Images over which a hypothesis's path is drawn."""

VIDEO_S, VIDEO_HZ = 15.0, 20
FRAMES_WHILE_LOCALIZING = 2
"""Frames of each image while the robot does not know where it is, at the start."""

FRAMES_WHILE_LOST, IMAGES_AFTER_RECOVERY = 10, 4
"""Frames of each image from being set down until so many images after being found again."""

FRAMES_WHILE_CARRIED = 30
"""Frames while the robot is carried."""


@lru_cache(maxsize=8)
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def mixed(colour: Colour, strength: float) -> Colour:
    """Return the colour, on the floor's."""
    red, green, blue = (
        round(strength * level + (1.0 - strength) * floor)
        for level, floor in zip(colour, FLOOR, strict=True)
    )
    return red, green, blue


def _fixed(points: Array) -> Sequence[Array]:
    bounded = np.clip(points, -1e4, 1e4)
    return [np.round(bounded * 2**SUBPIXELS).astype(np.int32)]


def polyline(page: Image, points: Array, colour: Colour, width: int, closed: bool = False) -> None:
    """Draw a line, clipped to the stage."""
    left, top, right, bottom = STAGE
    stage, within = page[top:bottom, left:right], _fixed(points - (left, top))
    cv2.polylines(stage, within, closed, colour, width, cv2.LINE_AA, SUBPIXELS)


def fill(page: Image, outline: Array, colour: Colour, opacity: float) -> None:
    """Fill an outline, clipped to the stage."""
    left, top = np.maximum(np.floor(outline.min(axis=0)), STAGE[:2]).astype(int)
    right, bottom = np.minimum(np.ceil(outline.max(axis=0)) + 1, STAGE[2:]).astype(int)
    if left >= right or top >= bottom:
        return
    box = page[top:bottom, left:right]
    covered = np.zeros(box.shape[:2], dtype=np.uint8)
    cv2.fillPoly(covered, _fixed(outline - (left, top)), 255, cv2.LINE_AA, SUBPIXELS)
    alpha = (opacity / 255.0) * covered[:, :, None].astype(np.float32)
    box[:] = np.round(box + alpha * (np.array(colour) - box)).astype(np.uint8)


def disc(page: Image, centre: Array, radius: float, colour: Colour, width: int = -1) -> None:
    """Draw a filled disc, or a ring of this width."""
    x, y = _fixed(centre)[0].tolist()
    cv2.circle(page, (x, y), round(radius * 2**SUBPIXELS), colour, width, cv2.LINE_AA, SUBPIXELS)


def view(poses: Array, plan: FloorPlanImage | None) -> tuple[float, Array]:
    """Return pixels per metre at which the poses fill the stage, and the metres (2,) at its middle.

    Where the stage has room beside the poses, it shows the plan rather than what is beyond it.
    """
    left, top, right, bottom = STAGE
    room = np.array([right - left, bottom - top])
    low, high = poses[:, :2].min(axis=0) - 0.8, poses[:, :2].max(axis=0) + 0.8
    scale = float((room / (high - low)).min())
    middle, half = (low + high) / 2, room / (2.0 * scale)
    if plan is not None:
        width, height = plan.size_m
        corners = [(0.0, 0.0, 0.0), (width, 0.0, 0.0), (0.0, height, 0.0), (width, height, 0.0)]
        around = compose(np.tile(plan.origin, (4, 1)), corners)[:, :2]
        least, most = around.min(axis=0) + half, around.max(axis=0) - half
        seen = np.clip(middle, np.minimum(least, most), np.maximum(least, most))
        # No pose leaves the stage for that.
        middle = np.clip(seen, high - half, low + half)
    return scale, middle


def draw_legend(draw: ImageDraw.ImageDraw, run_has_truth: bool) -> None:
    """Draw what the shapes mean, beneath the strip."""
    x, y = LEFT, 703.0
    entries = [("arrow", "hypotheses"), ("disc", "weights of the map's images")]
    if run_has_truth:
        entries.append(("ring", "truth"))
    for kind, words in entries:
        if kind == "arrow":
            draw.polygon([(x, y - 6), (x + 15, y), (x, y + 6), (x + 4, y)], fill=STATES["tracking"])
        elif kind == "disc":
            draw.ellipse((x + 2, y - 5, x + 12, y + 5), fill=BLUE)
        else:
            draw.ellipse((x, y - 7, x + 14, y + 7), outline=INK, width=2)
        draw.text((x + 22, y), words, fill=FAINT, font=font(16), anchor="lm")
        x += 22 + int(draw.textlength(words, font=font(16))) + 26
    about = "kbf_localization: wheel odometry and one camera"
    draw.text((STRIP[2], y), about, fill=FAINT, font=font(16), anchor="rm")


class FramePainter:
    """Draws the rows of a run; all that does not change is drawn once."""

    def __init__(
        self, run: Run, training_map: TrainingMap, kidnapping: Kidnapping | None = None
    ) -> None:
        self._run, self._map, self._kidnapping = run, training_map, kidnapping
        self._errors = position_errors(run)
        self._scale, self._middle = view(training_map.poses, training_map.floor_plan)
        left, top, right, bottom = STAGE
        self._offset = np.array([(left + right) / 2, (top + bottom) / 2])
        self._base = self._static()

    def draw(self, row: int, camera: bytes, carried: float | None = None) -> Image:
        """Draw a frame (h, w, 3) in RGB.

        `carried` is the fraction of the path to the next row's place that the robot has been
        carried; meanwhile its camera rests.
        """
        page = self._base.copy()
        self._strip(page, row)
        self._images(page, row, camera, carried is not None)
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
        """Return metres (n, 2 or 3) to pixels (n, 2)."""
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
        canvas = PillowImage.fromarray(page)
        draw = ImageDraw.Draw(canvas)
        draw_legend(draw, run_has_truth=self._run.truth is not None)
        return np.array(canvas)

    def _walls(self, page: Image, plan: FloorPlanImage) -> None:
        """Draw the plan in the stage's pixels: free space and obstacles."""
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
        """Draw the published covariance, which is wide while the robot is lost."""
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
        """Draw each hypothesis with its path, ellipse and heading, the improbable pale."""
        hypotheses = self._run.hypotheses
        if hypotheses is None:
            self._robot(page, self._run.estimates[row], self._colour(row))
            return
        set_down = 0 if self._kidnapping is None else self._kidnapping.set_down_at
        first = max(row - TRAIL_IMAGES, set_down if row >= set_down else 0)
        for hypothesis in sorted(hypotheses[row], key=lambda hypothesis: hypothesis.probability):
            strength = 0.25 + 0.75 * min(hypothesis.probability, 1.0)
            colour = mixed(self._colour(row), strength)
            path = [
                earlier.pose
                for past in hypotheses[first : row + 1]
                for earlier in past
                if earlier.number == hypothesis.number
            ]
            if len(path) > 1:
                polyline(page, self._pixels(np.array(path)), colour, 2)
            self._ellipse(page, hypothesis.pose, hypothesis.covariance, colour, 0.35 * strength)
            self._robot(page, hypothesis.pose, colour)

    def _robot(self, page: Image, pose: Array, colour: Colour) -> None:
        """Draw an arrow head seen from above; pixels count downward."""
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
            for fraction in np.arange(0.0, carried, 0.025):
                disc(page, place + fraction * (there - place), 1.6, INK)
            place = place + carried * (there - place)
        disc(page, place, 15.0, INK, 2)

    def _ellipse(
        self, page: Image, pose: Array, covariance: Array, colour: Colour, opacity: float
    ) -> None:
        """Draw two standard deviations of the position."""
        variances, axes = np.linalg.eigh(covariance[:2, :2])
        angles = np.linspace(0.0, 2.0 * np.pi, 64, endpoint=False)
        circle = np.stack((np.cos(angles), np.sin(angles)))
        around = 2.0 * (axes * np.sqrt(np.maximum(variances, 0.0))) @ circle
        outline = self._pixels(pose[:2] + around.T)
        fill(page, outline, colour, opacity)
        polyline(page, outline, colour, 1, closed=True)

    # Beside and beneath it

    def _images(self, page: Image, row: int, camera: bytes, rests: bool) -> None:
        best = -1 if self._run.best_rows is None else int(self._run.best_rows[row])
        match = bytes(self._map.thumbnails[best]) if best >= 0 else b""
        for data, top in zip((camera, match), TOPS, strict=True):
            image = decode(data, cv2.IMREAD_COLOR) if data else None
            place = page[top : top + CAMERA[1], LEFT : LEFT + CAMERA[0]]
            if image is None:
                place[:] = FLOOR
                continue
            shown = cv2.resize(image, CAMERA, interpolation=cv2.INTER_CUBIC)[:, :, ::-1]
            place[:] = shown // 4 if rests else shown

    def _strip(self, page: Image, row: int) -> None:
        """Draw the states so far, as colours along the time."""
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
        canvas = PillowImage.fromarray(page)
        draw = ImageDraw.Draw(canvas)
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
        return np.array(canvas)

    def _percentages(self, draw: ImageDraw.ImageDraw, row: int) -> None:
        """Write each hypothesis's probability while several are probable."""
        hypotheses = () if self._run.hypotheses is None else self._run.hypotheses[row]
        for hypothesis in hypotheses:
            if 0.005 <= hypothesis.probability < 0.995:
                x, y = self._pixels(hypothesis.pose[None])[0]
                text = f"{100 * hypothesis.probability:.0f} %"
                draw.text((x + 18, y - 18), text, fill=INK, font=font(19), anchor="lm")

    def _story(self, row: int, carried: float | None) -> str:
        if carried is not None:
            return "to another place, wheels and camera at rest"
        state = self._run.states[row]
        if state == "lost":
            return "the image does not fit the map here"
        if state == "degraded":
            return "no image confirms the pose: odometry alone carries it"
        if state != "tracking":
            return "it starts without a hint"
        error = float(self._errors[row])
        size = f"{100 * error:.0f} cm" if error < 1.0 else f"{error:.1f} m"
        about = "" if np.isnan(error) else f"{size} from the truth"
        kidnapping = self._kidnapping
        found_at = None if kidnapping is None else kidnapping.tracking_again_at
        if kidnapping is None or found_at is None or row < found_at:
            return about
        return f"{about}   ·   found itself after {kidnapping.seconds_to_recover:.1f} s"


@dataclass(frozen=True)
class Shot:
    """One frame of a video: a row of the run, and how far its robot has been carried on."""

    row: int
    carried: float | None = None


def first_shots(run: Run, count: int = 48, every: int = 4) -> list[Shot]:
    """Return every so many images from the start."""
    return [Shot(row) for row in range(0, len(run), every)[:count]]


def kidnap_shots(run: Run, kidnapping: Kidnapping) -> list[Shot]:
    """Return VIDEO_S seconds of a run whose robot is carried elsewhere.

    The moments at which it does not know where it is are slow; the rest takes what time remains.
    """
    counts = np.zeros(len(run), dtype=int)
    set_down = kidnapping.set_down_at
    counts[: (*run.states, "tracking").index("tracking")] = FRAMES_WHILE_LOCALIZING
    counts[set_down : (kidnapping.tracking_again_at or set_down) + IMAGES_AFTER_RECOVERY] = (
        FRAMES_WHILE_LOST
    )
    other_rows = np.flatnonzero(counts == 0)
    remaining = round(VIDEO_S * VIDEO_HZ) - FRAMES_WHILE_CARRIED - int(counts.sum())
    chosen = np.linspace(0, len(other_rows), max(remaining, 1), endpoint=False).astype(int)
    np.add.at(counts, other_rows[chosen], 1)
    shots: list[Shot] = []
    for row, count in enumerate(counts):
        if row == set_down:
            shots += [
                Shot(row - 1, float(fraction))
                for fraction in np.linspace(0.0, 1.0, FRAMES_WHILE_CARRIED)
            ]
        shots += [Shot(row)] * int(count)
    return shots


def draw_shots(
    shots: Iterable[Shot],
    run: Run,
    training_map: TrainingMap,
    drive: Drive,
    *,
    kidnapping: Kidnapping | None = None,
    progress: Progress = no_progress,
) -> Iterator[Image]:
    """Draw the shots (720, 1280, 3) in RGB."""
    if run.beliefs is None or run.best_rows is None:
        raise KbfError("the animation needs a run that kept its beliefs")
    shots = list(shots)
    index_of = {int(stamp): index for index, stamp in enumerate(drive.stamps_ns)}
    painter = FramePainter(run, training_map, kidnapping)
    last: Shot | None = None
    for shot in tracked(shots, "drawing the animation", progress):
        if shot != last:
            index = index_of[int(run.stamps_ns[shot.row])]
            ((_, camera),) = drive.encoded_images([index])
            frame, last = painter.draw(shot.row, camera, shot.carried), shot
        yield frame
