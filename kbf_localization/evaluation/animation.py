"""Animations of a run: camera, best match, walls, and the belief closing in on the pose."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
from PIL import Image as PillowImage

from kbf_localization.arrays import Image
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.animation_frame import FramePainter
from kbf_localization.evaluation.canvas import SIZE, STATES
from kbf_localization.evaluation.metrics import Kidnapping
from kbf_localization.evaluation.run import Run
from kbf_localization.progress import Progress, no_progress, tracked

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

GIF_WIDTH, GIF_COLOURS, GIF_EVERY = 640, 48, 2
FILM_S, FILM_HZ = 15.0, 20
SLOW = 2
"""Pictures of each image while the robot does not know where it is, at the start."""
SLOWEST, AFTERWARDS = 10, 4
"""Pictures of each image from being set down until so many images after being found again."""
CARRYING = 30
"""Pictures while the robot is carried."""
CODECS = (("avc1", "H.264"), ("vp09", "VP9"))
"""What OpenCV may be able to put into an MP4 and browsers play, the most widely played first."""


@dataclass(frozen=True)
class Shot:
    """One picture of a film: a row of the run, and how far its robot has been carried on."""

    row: int
    carried: float | None = None


def first_shots(run: Run, count: int = 48, every: int = 4) -> list[Shot]:
    """Every so many images from the start."""
    return [Shot(row) for row in range(0, len(run), every)[:count]]


def kidnap_shots(run: Run, carried: Kidnapping) -> list[Shot]:
    """FILM_S seconds of a run whose robot is carried elsewhere.

    The moments at which it does not know where it is are slow; the rest takes what time remains.
    """
    counts = np.zeros(len(run), dtype=int)
    set_down = carried.set_down_at
    counts[: (*run.states, "tracking").index("tracking")] = SLOW
    counts[set_down : (carried.tracking_again_at or set_down) + AFTERWARDS] = SLOWEST
    usual = np.flatnonzero(counts == 0)
    remaining = round(FILM_S * FILM_HZ) - CARRYING - int(counts.sum())
    chosen = np.linspace(0, len(usual), max(remaining, 1), endpoint=False).astype(int)
    np.add.at(counts, usual[chosen], 1)
    shots: list[Shot] = []
    for row, count in enumerate(counts):
        if row == set_down:
            shots += [Shot(row - 1, float(share)) for share in np.linspace(0.0, 1.0, CARRYING)]
        shots += [Shot(row)] * int(count)
    return shots


def pictures(
    shots: Iterable[Shot],
    run: Run,
    training_map: TrainingMap,
    drive: Drive,
    *,
    carried: Kidnapping | None = None,
    progress: Progress = no_progress,
) -> Iterator[Image]:
    """Draw the shots (720, 1280, 3) in RGB."""
    if run.beliefs is None or run.best_rows is None:
        raise KbfError("the animation needs a run that kept its beliefs")
    shots = list(shots)
    index_of = {int(stamp): index for index, stamp in enumerate(drive.stamps_ns)}
    painter = FramePainter(run, training_map, carried)
    last: Shot | None = None
    for shot in tracked(shots, "drawing the animation", progress):
        if shot != last:
            index = index_of[int(run.stamps_ns[shot.row])]
            ((_, camera),) = drive.encoded_images([index])
            picture, last = painter.draw(shot.row, camera, shot.carried), shot
        yield picture


def save_gif(path: Path, frames: Iterable[Image], milliseconds: int = 160) -> None:
    """An endless animation of frames (h, w, 3), made small."""
    small = [PillowImage.fromarray(_small(frame)) for frame in frames]
    # One palette for all frames: less flicker, and unchanged parts compress away.
    samples = small[:: max(1, len(small) // 6)]
    together = np.vstack([np.asarray(sample) for sample in samples])
    palette = PillowImage.fromarray(together).quantize(GIF_COLOURS)
    # The colours of the states cover too little of the picture to be chosen by their share.
    chosen = (palette.getpalette() or [])[: 3 * GIF_COLOURS]
    palette.putpalette([*chosen, *(part for colour in STATES.values() for part in colour)])
    indexed = [one.quantize(palette=palette, dither=PillowImage.Dither.NONE) for one in small]
    indexed[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=indexed[1:],
        duration=milliseconds,
        loop=0,
        optimize=True,
    )


def _small(frame: Image) -> Image:
    height, width = frame.shape[:2]
    if width <= GIF_WIDTH:
        return frame
    size = GIF_WIDTH, round(GIF_WIDTH * height / width)
    return np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_AREA))


def save_film(path: Path, small: Path, frames: Iterable[Image]) -> str:
    """Write an MP4 and, beside it, a GIF of every second frame; says how the MP4 is coded."""
    kept: list[Image] = []

    def noted() -> Iterator[Image]:
        for number, frame in enumerate(frames):
            if number % GIF_EVERY == 0:
                kept.append(_small(frame))
            yield frame

    codec = save_mp4(path, noted())
    save_gif(small, kept, 1000 * GIF_EVERY // FILM_HZ)
    return codec


def save_mp4(path: Path, frames: Iterable[Image]) -> str:
    """Write frames (720, 1280, 3) at FILM_HZ as an MP4; says how it is coded.

    As H.264, which plays everywhere, by PyAV where it is installed or else by OpenCV. OpenCV's
    wheels, unlike Ubuntu's OpenCV, have no H.264: then as VP9, which takes long and which browsers
    play, but not everything else.
    """
    try:
        import av
    except ImportError:
        return _save_by_opencv(path, frames)
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=FILM_HZ, options={"crf": "21"})
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return "H.264"


def _save_by_opencv(path: Path, frames: Iterable[Image]) -> str:
    for code, name in CODECS:
        with _silent_ffmpeg():
            writer = cv2.VideoWriter(
                str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*code), FILM_HZ, SIZE
            )
        if writer.isOpened():
            for frame in frames:
                writer.write(np.ascontiguousarray(frame[:, :, ::-1]))
            writer.release()
            return name
    raise KbfError(
        "this OpenCV writes neither H.264 nor VP9: pip install 'kbf_localization[video]'"
    )


@contextmanager
def _silent_ffmpeg() -> Iterator[None]:
    """Without what FFmpeg says, past Python, about an encoder that it does not have."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
