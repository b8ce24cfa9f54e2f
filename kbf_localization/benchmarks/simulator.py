"""How long a simulated frame takes, against OpenCV's JPEG encoder on the same image."""

from __future__ import annotations

from time import process_time
from typing import Any

import cv2
import numpy as np

from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.lighting import lighting_for
from kbf_localization.simulator.lookup import Camera
from kbf_localization.simulator.plans import plan_office
from kbf_localization.simulator.renderer import Renderer
from kbf_localization.simulator.scene import scene
from kbf_localization.simulator.sensor import Sensor
from kbf_localization.simulator.trajectory import drive_through
from kbf_localization.threads import one_thread_of_opencv

FRAMES, EVERY = 400, 8


def run(progress: Progress = no_progress) -> dict[str, Any]:
    """Time rendering and exposing 640x480 frames: median processor time, one thread."""
    plan, camera, lighting = plan_office(1), Camera(), lighting_for("cloudy", 1, 0)
    poses = drive_through(plan, np.random.default_rng(0), 10**18, FRAMES).poses[::EVERY]
    renderer = Renderer(scene(plan, lighting, camera.width), camera)
    sensor, rng = Sensor(camera, lighting), np.random.default_rng(0)
    rendering, encoding = [], []
    with one_thread_of_opencv():
        for pose in tracked(poses, "rendering", progress):
            start = process_time()
            image = sensor.expose(renderer.render(pose), 0.2, rng)
            rendering.append(1e3 * (process_time() - start))
            encoding.append(milliseconds(cv2.imencode, ".jpeg", image, clock=process_time))
    name = f"frame_{camera.width}x{camera.height}"
    return {name: case(rendering, encoding, "OpenCV's JPEG encoder on the same frame")}
