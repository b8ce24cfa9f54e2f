"""Cameras as plain numbers, as maps store them, and back; what they hold may be hostile."""

from __future__ import annotations

from collections.abc import Mapping

from kbf_localization.errors import ParameterError
from kbf_localization.limits import shortened
from kbf_localization.vision.camera.base import Camera, number_of
from kbf_localization.vision.camera.fisheye import FisheyeCamera
from kbf_localization.vision.camera.panorama import PanoramaCamera
from kbf_localization.vision.camera.pinhole import PinholeCamera


def camera_from_dict(values: object) -> Camera:
    """Return the camera that `Camera.to_dict` described; ParameterError for what is none."""
    if not isinstance(values, Mapping):
        raise ParameterError(f"the stored camera is {shortened(values)}, not a table")
    model = number_of(values, "model")
    if model == PinholeCamera.model:
        return PinholeCamera.from_dict(values)
    if model == FisheyeCamera.model:
        return FisheyeCamera.from_dict(values)
    if model == PanoramaCamera.model:
        return PanoramaCamera.from_dict(values)
    raise ParameterError(f"the stored camera is of the unknown model {shortened(model)}")
