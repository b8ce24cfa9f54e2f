"""A camera that was learned from wheels and images, and is adjusted with the poses.

Its values are the log of the focal length, k1, pitch and yaw (rad), and the place ahead of the base
(m), of which those that nobody knows are free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.landmarks.bearings import bearings_of
from kbf_localization.vision.camera import Camera, Mount, PinholeCamera
from kbf_localization.vision.camera.mount import rotation_of
from kbf_localization.vision.epipolar import DISTORTION, FOCAL, FORWARD, PITCH, VALUES, YAW
from kbf_localization.vision.self_calibration import POOR_FOCAL, POOR_TURN_RAD

_DIFFERENCE = 1e-4
"""Step of the numeric derivatives: of log f, k1, radians and metres."""


@dataclass(frozen=True)
class LearnedCamera:
    """A camera on its mount, whose `free` values (k,) were learned with deviations `sigmas` (k,).

    Since then an adjustment `moved` them (k,); `covariance` (k, k) is what it leaves open.
    `warnings` say what was poorly determined as it was learned.
    """

    camera: Camera
    mount: Mount
    free: Rows
    sigmas: Array
    moved: Array
    covariance: Array
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, camera: Camera, mount: Mount, free: Rows, sigmas: Array, warnings: tuple[str, ...] = ()
    ) -> LearnedCamera:
        """Return a camera as it was learned."""
        none = np.zeros(len(free))
        return cls(camera, mount, free, sigmas, none, np.diag(sigmas**2), warnings)

    @property
    def lines(self) -> list[str]:
        """What the adjustment made of it, and what is still poorly determined, for people."""
        sigma = np.zeros(VALUES)
        sigma[self.free] = np.sqrt(np.diag(self.covariance))
        poor = sigma[FOCAL] > POOR_FOCAL or max(sigma[PITCH], sigma[YAW]) > POOR_TURN_RAD
        lines = list(self.warnings) if poor else []
        if not self.moved.any():
            return lines
        yaw, pitch, _ = np.degrees(self.mount.angles)
        parts = []
        if FOCAL in self.free and isinstance(self.camera, PinholeCamera):
            k1 = self.camera.distortion[0] if self.camera.distortion else 0.0
            parts += [
                f"focal length {self.camera.fx:.1f} px ± {100 * sigma[FOCAL]:.1f} %",
                f"k1 {k1:.3f} ± {sigma[DISTORTION]:.3f}",
            ]
        if YAW in self.free:
            parts += [
                f"looks {yaw:.1f}° ± {np.degrees(sigma[YAW]):.1f}° left and {pitch:.1f}° ± "
                f"{np.degrees(sigma[PITCH]):.1f}° down",
                f"{self.mount.translation[0]:.2f} m ± {sigma[FORWARD]:.2f} m ahead of the base",
            ]
        return [f"the camera, adjusted with the poses: {', '.join(parts)}", *lines]

    def with_covariance(self, covariance: Array) -> LearnedCamera:
        return replace(self, covariance=covariance)

    def changed(self, change: Array) -> LearnedCamera:
        """Return the camera whose free values are changed by `change` (k,)."""
        values = np.zeros(VALUES)
        values[self.free] = change
        camera, mount = self.camera, self.mount
        if values[FOCAL] or values[DISTORTION]:
            assert isinstance(camera, PinholeCamera)
            growth = float(np.exp(values[FOCAL]))
            k1, *others = camera.distortion or (0.0, 0.0, 0.0, 0.0)
            camera = replace(
                camera,
                fx=camera.fx * growth,
                fy=camera.fy * growth,
                distortion=(k1 + float(values[DISTORTION]), *others),
            )
        if values[[PITCH, YAW, FORWARD]].any():
            yaw, pitch, roll = mount.angles
            turn = rotation_of(yaw + float(values[YAW]), pitch + float(values[PITCH]), roll)
            mount = Mount(turn, mount.translation + np.array([values[FORWARD], 0.0, 0.0]))
        return replace(self, camera=camera, mount=mount, moved=self.moved + change)

    def slopes(self, pixels: Array | Floats) -> Floats:
        """Return derivatives (p, 3, k) at pixels (p, 2).

        The first two are the residuals', since rays turn; the third is that of the log of the
        pixels per radian.
        """
        here = bearings_of(pixels, self.camera, self.mount)
        seen = here.axes[:, 0] @ self.mount.rotation
        found = np.zeros((len(here), 3, len(self.free)), dtype=np.float32)
        for column, value in enumerate(self.free):
            if value == FORWARD:
                continue
            step = _DIFFERENCE * (self.free == value)
            ahead, back = (self.changed(sign * step) for sign in (1.0, -1.0))
            if value in (FOCAL, DISTORTION):
                ends = [bearings_of(pixels, end.camera, end.mount) for end in (ahead, back)]
                sound = (ends[0].scale > 0.0) & (ends[1].scale > 0.0) & (here.scale > 0.0)
                turned = ends[0].axes[sound, 0] - ends[1].axes[sound, 0]
                growth = np.log(ends[0].scale[sound] / ends[1].scale[sound])
                found[sound, 2, column] = growth / (2.0 * _DIFFERENCE)
            else:
                sound = here.scale > 0.0
                turned = seen[sound] @ (ahead.mount.rotation - back.mount.rotation).T
            across = np.einsum("ptc,pc->pt", here.axes[sound, 1:], turned / (2.0 * _DIFFERENCE))
            found[sound, :2, column] = -here.scale[sound, None] * across
        return found

    @property
    def by_centre(self) -> Array:
        """Return the derivatives (3, k) of the camera's centre in the base frame."""
        return np.outer((1.0, 0.0, 0.0), self.free == FORWARD)
