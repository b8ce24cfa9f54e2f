"""Frames of an animation as files: a GIF, or an MP4 with a small GIF beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
from PIL import Image as PillowImage

from kbf_localization.arrays import Image
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.animation import SIZE, STATES, VIDEO_HZ

GIF_WIDTH, GIF_COLOURS, GIF_EVERY = 640, 48, 2
CODECS = (("avc1", "H.264"), ("vp09", "VP9"))
"""What OpenCV may be able to put into an MP4 and browsers play, the most widely played first."""


def save_gif(path: Path, frames: Iterable[Image], milliseconds: int = 160) -> None:
    """Write an endless animation of frames (h, w, 3), scaled down."""
    small = [PillowImage.fromarray(_small(frame)) for frame in frames]
    # One palette for all frames: less flicker, and unchanged parts compress away.
    samples = small[:: max(1, len(small) // 6)]
    together = np.vstack([np.asarray(sample) for sample in samples])
    palette = PillowImage.fromarray(together).quantize(GIF_COLOURS)
    # The colours of the states cover too few pixels to be chosen by frequency.
    chosen = (palette.getpalette() or [])[: 3 * GIF_COLOURS]
    palette.putpalette([*chosen, *(part for colour in STATES.values() for part in colour)])
    indexed = [frame.quantize(palette=palette, dither=PillowImage.Dither.NONE) for frame in small]
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


def save_video(path: Path, small: Path, frames: Iterable[Image]) -> str:
    """Write an MP4 and, beside it, a GIF of every second frame; says how the MP4 is coded."""
    kept: list[Image] = []

    def noted() -> Iterator[Image]:
        for number, frame in enumerate(frames):
            if number % GIF_EVERY == 0:
                kept.append(_small(frame))
            yield frame

    codec = save_mp4(path, noted())
    save_gif(small, kept, 1000 * GIF_EVERY // VIDEO_HZ)
    return codec


def save_mp4(path: Path, frames: Iterable[Image]) -> str:
    """Write frames (720, 1280, 3) at VIDEO_HZ as an MP4; says how it is coded.

    As H.264, which plays everywhere, by PyAV where it is installed or else by OpenCV. OpenCV's
    wheels, unlike Ubuntu's OpenCV, have no H.264: then as VP9, which takes long and which browsers
    play, but not everything else.
    """
    try:
        import av
    except ImportError:
        return _save_by_opencv(path, frames)
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=VIDEO_HZ, options={"crf": "21"})
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return "H.264"


def _save_by_opencv(path: Path, frames: Iterable[Image]) -> str:
    for code, name in CODECS:
        with _silent_ffmpeg():
            writer = cv2.VideoWriter(
                str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*code), VIDEO_HZ, SIZE
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
    """Silence what FFmpeg writes, past Python, about an encoder that it does not have."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
