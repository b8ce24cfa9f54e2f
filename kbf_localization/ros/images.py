"""Grey images from image messages.

The project's own decoder comes first, so that an image gives the same bits on every machine and
in the offline replay; cv_bridge, where it is installed, adds the encodings that are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import CompressedImage, Image

from kbf_localization.datasets.image_messages import (
    ENCODINGS,
    MAX_PIXELS,
    grey_from_compressed,
    grey_from_raw,
)

try:
    from cv_bridge import CvBridge, CvBridgeError
except ImportError:
    CvBridge = None

Grey = NDArray[np.uint8]


def decode(message: Image | CompressedImage) -> Grey:
    """The grey image (h, w) of a message; ValueError, saying why, where it has none."""
    if isinstance(message, CompressedImage):
        image = grey_from_compressed(message.data)
        if image is None:
            raise ValueError(f"{len(message.data)} bytes of '{message.format}' cannot be decoded")
        return image
    if message.encoding in ENCODINGS or CvBridge is None:
        return grey_from_raw(
            message.data,
            encoding=message.encoding,
            width=message.width,
            height=message.height,
            step=message.step,
            is_bigendian=bool(message.is_bigendian),
        )
    return decode_by_cv_bridge(message)


def decode_by_cv_bridge(message: Image) -> Grey:
    """The same by cv_bridge."""
    if not 0 < message.width * message.height <= MAX_PIXELS:
        raise ValueError(f"image of {message.width}x{message.height} pixels")
    bridge: Any = CvBridge()
    try:
        return np.asarray(bridge.imgmsg_to_cv2(message, desired_encoding="mono8"), dtype=np.uint8)
    except (CvBridgeError, TypeError) as error:
        raise ValueError(f"encoding '{message.encoding}': {error}") from error
