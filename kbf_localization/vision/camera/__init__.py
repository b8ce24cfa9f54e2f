"""Camera models: pixels to rays and points to pixels, and where the camera sits on the robot."""

from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.camera_info import camera_from_dict
from kbf_localization.vision.camera.fisheye import FisheyeCamera
from kbf_localization.vision.camera.mount import Mount
from kbf_localization.vision.camera.panorama import PanoramaCamera
from kbf_localization.vision.camera.pinhole import PinholeCamera

__all__ = [
    "Camera",
    "FisheyeCamera",
    "Mount",
    "PanoramaCamera",
    "PinholeCamera",
    "camera_from_dict",
]
