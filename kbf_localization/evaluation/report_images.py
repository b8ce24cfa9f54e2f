"""Camera images made small enough that a whole drive fits into one page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image, UnidentifiedImageError

from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.image_headers import read_header
from kbf_localization.parallel import in_threads
from kbf_localization.progress import Progress, no_progress, tracked

BUDGET_BYTES = 15_000_000
"""For all images of a page, before base64 makes a third more of them."""

SIZES = ((320, 60), (256, 50), (200, 45), (160, 40))
"""(width in pixels, JPEG quality), tried in this order until a drive fits into the budget."""

SAMPLES = 12


def small_images(
    drive: Drive, budget_bytes: int = BUDGET_BYTES, progress: Progress = no_progress
) -> tuple[list[int], list[str]]:
    """The drive's frames that get an image, and the images (base64 JPEG, "" where unreadable).

    A drive too long for the budget at the smallest size keeps every second, third … image.
    """
    frames = len(drive)
    samples = sorted({frames * number // SAMPLES for number in range(SAMPLES)} if frames else [])
    sampled = [data for _, data in drive.encoded_images(samples)]
    width, quality, stride = _fitting(sampled, frames, budget_bytes)
    chosen = list(range(0, frames, stride))
    originals = (data for _, data in drive.encoded_images(chosen))
    # Pillow frees the interpreter while it decodes and encodes.
    shrunk = in_threads(lambda data: shrink(data, width, quality), originals)
    prepared = tracked(shrunk, "preparing the report's images", progress, len(chosen))
    return chosen, [base64.b64encode(image).decode("ascii") for image in prepared]


def shrink(data: bytes, width: int, quality: int) -> bytes:
    """A JPEG at most `width` pixels wide, or b"" where `data` is no image of a camera's size."""
    header = read_header(data)
    if header is None or not header.is_bounded:
        return b""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            size = (width, max(1, round(image.height * width / image.width)))
            image.draft("RGB", size)
            mode = "L" if image.mode in ("1", "L", "I", "I;16") else "RGB"
            small = image.convert(mode)
            small.thumbnail(size)
            out = io.BytesIO()
            small.save(out, "JPEG", quality=quality)
            return out.getvalue()
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        return b""


def _fitting(originals: Sequence[bytes], frames: int, budget_bytes: int) -> tuple[int, int, int]:
    """The first width and quality, and the smallest stride, with which a drive fits."""
    for width, quality in SIZES:
        total = sum(len(shrink(data, width, quality)) for data in originals)
        expected = total / max(len(originals), 1) * frames
        if expected <= budget_bytes:
            return width, quality, 1
    return width, quality, -int(-expected // budget_bytes)
