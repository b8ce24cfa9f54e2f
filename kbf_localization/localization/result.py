"""What the localizer is set to, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.errors import ParameterError
from kbf_localization.filters.base import Estimate
from kbf_localization.geometry import position_sigma, sound_covariance

LOST_SIGMA = np.array([2.0, 2.0, 1.0])
"""Standard deviation (m, m, rad) added to a pose that is not to be relied on."""


class State(Enum):
    """Whether the pose can be relied on.

    uninitialized → localizing ⇄ tracking ⇄ degraded; tracking or degraded → lost → tracking.
    Degraded is a tracked pose that odometry alone carries: no image comes, or none fits.
    """

    UNINITIALIZED = "uninitialized"
    LOCALIZING = "localizing"
    TRACKING = "tracking"
    DEGRADED = "degraded"
    LOST = "lost"


@dataclass(frozen=True)
class LocalizerSettings:
    """How the localizer uses what it is given.

    An image is used when the robot has moved by `update_min_d` (m) or turned by `update_min_a`
    (rad) since the last used image. While it stands still, all images show the same, and at most
    one is used each `standing_update_s` seconds: at once where it tracks, else after an image that
    left the state as it was. An image that shows another view is used meanwhile too. `estimate`
    chooses the published pose.
    Odometry that would need more than `max_speed` (m/s) or `max_turn_rate` (rad/s) between two
    used images is a jump, not a motion. A pose with a larger standard deviation than
    `max_tracking_sigma_m` is never tracked, whatever the map's scale; a tracked pose is degraded
    after `degraded_after_s` seconds, or a travel of `degraded_after_travel` in the map's scales
    (d/d₀ + φ/φ₀), since the last image that confirmed it: beyond 2 d₀ images have nothing in
    common.
    """

    update_min_d: float = 0.0
    update_min_a: float = 0.0
    standing_update_s: float = 1.0
    estimate: Literal["mode_mean", "highest_weight", "preimage"] = "mode_mean"
    max_speed: float = 5.0
    max_turn_rate: float = 10.0
    odometry_history_s: float = 60.0
    max_odometry_age_s: float = 1.0
    max_tracking_sigma_m: float = 0.5
    degraded_after_s: float = 2.0
    degraded_after_travel: float = 2.0

    def __post_init__(self) -> None:
        for name in ("update_min_d", "update_min_a", "standing_update_s"):
            if not getattr(self, name) >= 0.0:
                raise ParameterError(f"{name} is {getattr(self, name)}, must be 0 or more")
        for name in (
            *("max_speed", "max_turn_rate", "odometry_history_s", "max_odometry_age_s"),
            *("max_tracking_sigma_m", "degraded_after_s", "degraded_after_travel"),
        ):
            if not getattr(self, name) > 0.0:
                raise ParameterError(f"{name} is {getattr(self, name)}, must be above 0")
        if self.estimate not in ("mode_mean", "highest_weight", "preimage"):
            raise ParameterError(
                f"estimate is '{self.estimate}': choose mode_mean, highest_weight or preimage"
            )


@dataclass(frozen=True, repr=False)
class Localization:
    """One processed image: the pose (3,) and covariance (3, 3) of (x, y, heading) at its stamp.

    `used` is False where the robot had not moved enough: the pose is then dead-reckoned, and
    `estimate` is that of the last used image. `odometry_pose` is the odometry at the stamp.
    """

    stamp_ns: int
    pose: Array
    covariance: Array
    state: State
    evidence: float
    estimate: Estimate
    odometry_pose: Array
    used: bool

    def __repr__(self) -> str:
        x, y, heading = self.pose
        return (
            f"Localization({x:.2f} m, {y:.2f} m, {np.degrees(heading):.0f}°, "
            f"± {position_sigma(self.covariance):.2f} m, {self.state.value}, stamp {self.stamp_ns})"
        )

    @property
    def published_covariance(self) -> Array:
        """Return the covariance (3, 3) to publish: of the whole belief unless tracked.

        While lost it says that the pose is a guess.
        """
        tracked = self.state in (State.TRACKING, State.DEGRADED)
        if tracked or self.estimate.whole_covariance is None:
            return self.covariance
        # What odometry has added since the estimate belongs to the whole belief too.
        whole = self.estimate.whole_covariance + self.covariance - self.estimate.covariance
        lost = np.diag(LOST_SIGMA**2) if self.state is State.LOST else 0.0
        return sound_covariance(whole + lost)
