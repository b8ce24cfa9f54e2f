"""How long a simulated frame takes, against OpenCV's JPEG encoder on the same picture."""

from __future__ import annotations

import time
from typing import Any

import cv2
import numpy as np

from kbf_localization.benchmarks import case
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.invented_drive import drive_through
from kbf_localization.simulator.lighting import lighting_for
from kbf_localization.simulator.lookup import Camera
from kbf_localization.simulator.plan_invented import plan_office
from kbf_localization.simulator.renderer import Renderer
from kbf_localization.simulator.scene import scene
from kbf_localization.simulator.sensor import Sensor

FRAMES, EVERY = 400, 8


def run(progress: Progress = no_progress) -> dict[str, Any]:
    """Rendering and exposing frames of 640x480 pixels; medians of processor time, one thread."""
    plan, camera, lighting = plan_office(1), Camera(), lighting_for("cloudy", 1, 0)
    poses = drive_through(plan, np.random.default_rng(0), 10**18, FRAMES).poses[::EVERY]
    renderer = Renderer(scene(plan, lighting, camera.width), camera)
    sensor, rng = Sensor(camera, lighting), np.random.default_rng(0)
    rendering, encoding = [], []
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        for pose in tracked(poses, "rendering", progress):
            start = time.process_time()
            image = sensor.expose(renderer.render(pose), 0.2, rng)
            between = time.process_time()
            cv2.imencode(".jpeg", image)
            rendering.append(between - start)
            encoding.append(time.process_time() - between)
    finally:
        cv2.setNumThreads(threads)
    ours, reference = (1e3 * float(np.median(times)) for times in (rendering, encoding))
    name = f"frame_{camera.width}x{camera.height}"
    return {name: case(ours, reference, "OpenCV's JPEG encoder on the same frame")}
