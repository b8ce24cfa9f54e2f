"""From the light that falls in to the image that is stored: shutter, exposure, lens and noise."""

from __future__ import annotations

import cv2
import numpy as np

from kbf_localization.arrays import Image
from kbf_localization.simulator.lighting import Lighting
from kbf_localization.simulator.lookup import Camera

_TARGET_GREY = 112.0
_MARGIN = 64


class Sensor:
    """A camera's sensor with automatic exposure in one drive's light."""

    def __init__(self, camera: Camera, lighting: Lighting) -> None:
        self._camera, self._lighting = camera, lighting
        rng = np.random.default_rng(11)
        size = (camera.height + _MARGIN, camera.width + _MARGIN, 3)
        # One field of noise, shifted from frame to frame: drawing new noise takes longer than the
        # image. Demosaicing leaves noise slightly soft, as the blur does.
        field = cv2.GaussianBlur(rng.standard_normal(size).astype(np.float32), (0, 0), 0.6)
        self._noise = np.round(field / field.std() * lighting.grain).astype(np.int8)
        x = np.linspace(-1, 1, camera.width)[None, :]
        y = np.linspace(-0.75, 0.75, camera.height)[:, None]
        vignette = (255 * (1 - 0.16 * (x**2 + y**2))).astype(np.uint8)
        self._vignette = cv2.merge([vignette] * 3)

    def expose(self, light: Image, turning: float, rng: np.random.Generator) -> Image:
        """Expose the stored image; `turning` (rad/s) blurs it during the shutter time."""
        smear = abs(turning) * self._lighting.exposure_s * self._camera.focal
        width = 2 * round(smear / 2) + 1
        image = cv2.blur(light, (width, 1)) if width > 1 else light
        image = cv2.multiply(image, self._vignette, scale=1 / 255)
        image = cv2.LUT(image, self._curve(float(image[::8, ::8].mean()), rng))
        left, top = (int(k) for k in rng.integers(0, _MARGIN, 2))
        noise = self._noise[top : top + image.shape[0], left : left + image.shape[1]]
        return np.asarray(cv2.add(image, noise, dtype=cv2.CV_8U))

    def _curve(self, mean: float, rng: np.random.Generator) -> Image:
        """Apply gain towards a middling grey, as far as the exposure goes, with soft highlights."""
        gain = (_TARGET_GREY / max(mean, 4.0)) ** 0.85 * float(np.exp(rng.normal(0, 0.03)))
        values = np.arange(256) / 255 * float(np.clip(gain, 0.5, 3.2))
        soft = np.where(values < 0.75, values, 0.75 + 0.25 * np.tanh((values - 0.75) / 0.25))
        return np.asarray(np.round(255 * np.clip(soft, 0, 1)), dtype=np.uint8)
