"""The one object that the node and the offline replay share."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array, Image
from kbf_localization.errors import KbfError
from kbf_localization.filters.base import Estimate, GaussianPrior, Observation, PoseFilter
from kbf_localization.filters.candidates import BankMap
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import (
    compose,
    invert,
    position_sigma,
    relative,
    sound_covariance,
)
from kbf_localization.input_checks import (
    check_grey,
    check_heading,
    check_prior,
    check_stamp,
)
from kbf_localization.limits import FARTHEST_M
from kbf_localization.localization.dead_reckoning import DeadReckoning
from kbf_localization.localization.odometry_buffer import OdometryBuffer, OdometryReading
from kbf_localization.localization.result import Localization, LocalizerSettings, State
from kbf_localization.localization.state_monitor import StateMonitor
from kbf_localization.vision.describer import ImageDescription

STANDING_M, STANDING_RAD = 0.005, 0.005
"""A robot that is no further and no more turned from the last used image stands still."""

MOST_FAILURES = 3
"""The filter starts anew after so many consecutive steps that ended in an error."""


class FilterReset(KbfError):  # noqa: N818 (it is done already)
    """The filter failed again and again and has been started anew, from anywhere on the map."""


class Describer(Protocol):
    """Turns an image into what the map compares."""

    def describe(self, image: Image) -> ImageDescription: ...


class LocalizerMap(BankMap, Protocol):
    """What the localizer needs of a training map."""

    def describer(self) -> Describer: ...

    def observe(self, description: ImageDescription) -> Observation: ...


class Localizer:
    """Odometry and images in, poses out; no clock of its own.

    The caller waits until `covers(stamp)` before it hands an image in, so that its odometry is
    interpolated between two readings and the result does not depend on the order of arrival.
    `add_odometry` may be called from another thread than the rest.
    """

    def __init__(
        self,
        training_map: LocalizerMap,
        pose_filter: PoseFilter | str = "kbf",
        settings: LocalizerSettings = LocalizerSettings(),  # noqa: B008 (frozen)
    ) -> None:
        """`pose_filter` is one that was made, or the name of a method."""
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self.last: Localization | None = None
        self.noise_is_reported = False
        """Whether the last step's motion noise was the odometry's own."""
        self.training_map = training_map
        self._describer = training_map.describer()
        self._filter = (
            make_filter(pose_filter, training_map) if isinstance(pose_filter, str) else pose_filter
        )
        self._odometry = OdometryBuffer(settings.odometry_history_s)
        self._reckoning = DeadReckoning(training_map.learned.motion_noise)
        self._monitor = StateMonitor()
        self._lock = threading.RLock()
        self._last_used: OdometryReading | None = None
        self._last_image_ns: int | None = None
        self._given: GaussianPrior | None = None
        self._force = False
        self._failures = 0
        self._filter.reset()

    def __repr__(self) -> str:
        return f"Localizer({self.training_map!r}, {self.state.value})"

    @property
    def state(self) -> State:
        return self._monitor.state

    @property
    def rests_on_given_pose(self) -> bool:
        """Whether the pose was given (`set_pose`) and no image has contradicted it yet."""
        return self._given is not None and self.state in (State.UNINITIALIZED, State.LOCALIZING)

    @property
    def newest_odometry_ns(self) -> int | None:
        """The stamp of the last odometry reading."""
        return self._odometry.newest_ns

    @property
    def stands(self) -> bool:
        """Whether the robot tracks and has stood still since the last used image."""
        then, newest = self._last_used, self._odometry.newest
        return then is not None and newest is not None and self._stood(then, newest)

    def add_odometry(
        self, stamp_ns: int, pose: ArrayLike, covariance: ArrayLike | None = None
    ) -> bool:
        """Take an odometry reading (3,); False where it cannot be used, which is counted.

        Its covariance (3, 3) since the odometry began, where the robot gives one, takes the place
        of the map's motion noise as far as it is sane (`motion.reported_noise`).
        """
        check_heading(pose)
        refused = self._odometry.append(check_stamp(stamp_ns), pose, covariance)
        if refused is not None:
            self.counts[refused] += 1
        return refused is None

    def covers(self, stamp_ns: int) -> bool:
        """Whether odometry at or after this stamp is here."""
        newest = self._odometry.newest_ns
        return newest is not None and newest >= stamp_ns

    @property
    def dead_reckoned_s(self) -> float | None:
        """Seconds of odometry since the last image, or the given pose; None before a pose."""
        last, started, newest = self.last, self._last_used, self._odometry.newest_ns
        since = last.stamp_ns if last is not None else started.stamp_ns if started else None
        return None if since is None or newest is None else (newest - since) * 1e-9

    def add_image(self, stamp_ns: int, image: Image | Callable[[], Image]) -> Localization | None:
        """Describe a grey image (h, w) and use it; None where it cannot be used, which is counted.

        `counts` has the reason, such as "image_without_odometry". `image` may be a function that
        gives it, which is called only if the image is needed.
        """
        if not callable(image):
            check_grey(image)
        reason = self._unusable(check_stamp(stamp_ns))
        if reason is not None:
            self.counts[reason] += 1
            return None
        now = self._odometry.at(stamp_ns)
        if now is not None and not self._needs_image(now):
            return self._carry_on(stamp_ns, now)
        description = self._describer.describe(image() if callable(image) else image)
        return self.add_described(stamp_ns, self.training_map.observe(description))

    def add_described(self, stamp_ns: int, observation: Observation) -> Localization | None:
        """The same with an image that is already described."""
        with self._lock:
            reason = self._unusable(stamp_ns)
            now = self._odometry.at(stamp_ns)
            if reason is not None or now is None:
                self.counts[reason or "image_before_odometry"] += 1
                return None
            if not self._needs_image(now):
                return self._carry_on(stamp_ns, now)
            self._last_image_ns = stamp_ns
            motion = self._motion(now, stamp_ns)
            reported = (
                None if self._last_used is None else self._reckoning.reported(self._last_used, now)
            )
            estimate = self._step(motion, observation, reported)
            self.noise_is_reported = reported is not None
            self.counts.update(estimate.events)
            self._force = False
            self._last_used = now
            self.last = self._localized(estimate, now, stamp_ns)
            return self.last

    def set_pose(self, prior: GaussianPrior, stamp_ns: int | None = None) -> None:
        """Start from a given pose, valid at `stamp_ns` (None: at the newest odometry)."""
        check_prior(prior.pose, prior.covariance)
        prior = GaussianPrior(prior.pose, sound_covariance(prior.covariance))
        with self._lock:
            self._start_again(prior)
            newest = self._odometry.newest_ns
            at = stamp_ns if stamp_ns is not None else newest
            self._last_used = None if at is None else self._odometry.at(at)

    def reinitialize(self) -> None:
        """Forget the pose: start from anywhere on the map."""
        with self._lock:
            self._start_again(None)

    def force_next_update(self) -> None:
        """Use the next image even if the robot stands still."""
        self._force = True

    def reset(self) -> None:
        """Forget the pose and all odometry: time has jumped back."""
        with self._lock:
            self._start_again(None)
            self._odometry.clear()
            self._last_image_ns = None
            self.counts["resets"] += 1

    def pose_at(self, stamp_ns: int | None = None) -> tuple[Array, Array] | None:
        """Pose and covariance at a time (None: at the newest odometry), dead-reckoned."""
        # Without the lock: a transform must not wait for a step of the filter.
        last, given, started = self.last, self._given, self._last_used
        at = stamp_ns if stamp_ns is not None else self._odometry.newest_ns
        now = None if at is None else self._odometry.at(at)
        if now is None:
            return None
        if last is not None:
            then = self._odometry.at(last.stamp_ns)
            return (
                None
                if then is None
                else self._reckoning.carried(last.pose, last.covariance, then, now)
            )
        if given is None or started is None:
            return None
        return self._reckoning.carried(given.pose, given.covariance, started, now)

    def map_to_odom(self) -> Array | None:
        """The pose (3,) of the odometry's frame on the map; None before a pose is known."""
        last, given, started = self.last, self._given, self._last_used
        if last is not None:
            return compose(last.pose, invert(last.odometry_pose))
        if given is None or started is None:
            return None
        return compose(given.pose, invert(started.pose))

    def _start_again(self, prior: GaussianPrior | None) -> None:
        self._filter.reset(prior)
        self._monitor.reset()
        self._given = prior
        self._last_used = None
        self.last = None
        self._force = False
        self._failures = 0

    def _step(
        self, motion: Array | None, observation: Observation, variances: Array | None
    ) -> Estimate:
        """A step of the filter; after several that failed, the filter is started anew."""
        try:
            estimate = _sound(self._filter.step(motion, observation, variances))
        except Exception as error:
            self._failures += 1
            # Whether the filter has made this motion is not known.
            self._last_used = None
            if self._failures < MOST_FAILURES:
                raise
            self._start_again(None)
            self.counts["filter_reset"] += 1
            raise FilterReset(
                f"the filter failed {MOST_FAILURES} times in a row ({type(error).__name__}: "
                f"{error}): it starts anew, from anywhere on the map"
            ) from error
        self._failures = 0
        return estimate

    def _unusable(self, stamp_ns: int) -> str | None:
        """Why an image of this stamp cannot be used."""
        if self._last_image_ns is not None and stamp_ns <= self._last_image_ns:
            return "image_late"
        oldest, newest = self._odometry.oldest_ns, self._odometry.newest_ns
        if oldest is None or newest is None:
            return "image_without_odometry"
        if stamp_ns < oldest:
            return "image_before_odometry"
        if stamp_ns - newest > self.settings.max_odometry_age_s * 1e9:
            return "image_without_odometry"
        return None

    def _needs_image(self, now: OdometryReading) -> bool:
        """Whether the robot has moved, or stood for long enough, since the last used image."""
        then, settings = self._last_used, self.settings
        if self.last is None or then is None or self._force:
            return True
        stood = self._stood(then, now)
        if stood and (now.stamp_ns - then.stamp_ns) * 1e-9 < settings.standing_update_s:
            return False
        step = relative(then.pose, now.pose)
        moved = np.hypot(step[0], step[1]) >= settings.update_min_d
        return bool(moved or abs(step[2]) >= settings.update_min_a)

    def _stood(self, then: OdometryReading, now: OdometryReading) -> bool:
        # Not the way gone: odometry that trembles in one place goes far, and sees the same.
        x, y, turn = now.pose - then.pose
        turned = abs(math.remainder(turn, math.tau))
        stood = math.hypot(x, y) < STANDING_M and turned < STANDING_RAD
        return stood and self.state is State.TRACKING

    def _motion(self, now: OdometryReading, stamp_ns: int) -> Array | None:
        """The motion since the last used image; None at the start and where odometry jumped."""
        then = self._last_used
        if then is None:
            return None
        motion = relative(then.pose, now.pose)
        seconds = max((stamp_ns - then.stamp_ns) * 1e-9, 0.1)
        too_far = np.hypot(motion[0], motion[1]) > self.settings.max_speed * seconds
        too_much = abs(motion[2]) > self.settings.max_turn_rate * seconds
        if too_far or too_much:
            self.counts["odometry_jump"] += 1
            return None
        return motion

    def _localized(self, estimate: Estimate, now: OdometryReading, stamp_ns: int) -> Localization:
        """What an estimate says about the pose, with the state after it."""
        was = self.state
        state = self._monitor.update(estimate.confidence, position_sigma(estimate.covariance))
        if state is State.LOST and was is State.TRACKING:
            self.counts["lost"] += 1
        return Localization(
            stamp_ns=stamp_ns,
            pose=self._chosen_pose(estimate),
            covariance=estimate.covariance,
            state=state,
            evidence=estimate.evidence,
            estimate=estimate,
            odometry_pose=now.pose,
            used=True,
        )

    def _chosen_pose(self, estimate: Estimate) -> Array:
        if self.settings.estimate == "highest_weight":
            return estimate.highest_weight_pose
        if self.settings.estimate == "preimage" and estimate.preimage_pose is not None:
            return estimate.preimage_pose
        return estimate.pose

    def _carry_on(self, stamp_ns: int, now: OdometryReading) -> Localization | None:
        """An image that is not needed: the pose at its stamp by odometry."""
        with self._lock:
            if self.last is None:
                return None
            self._last_image_ns = stamp_ns
            self.last = self._dead_reckoned(self.last, now, stamp_ns)
            return self.last

    def _dead_reckoned(
        self, last: Localization, now: OdometryReading, stamp_ns: int
    ) -> Localization:
        """The last localization carried on to this image by odometry."""
        then = self._odometry_of(last, now)
        pose, covariance = self._reckoning.carried(last.pose, last.covariance, then, now)
        return Localization(
            stamp_ns=stamp_ns,
            pose=pose,
            covariance=covariance,
            state=self.state,
            evidence=last.evidence,
            estimate=last.estimate,
            odometry_pose=now.pose,
            used=False,
        )

    def _odometry_of(self, last: Localization, now: OdometryReading) -> OdometryReading:
        """Odometry at `last`; where it is forgotten, without the way since."""
        return self._odometry.at(last.stamp_ns) or replace(now, pose=last.odometry_pose)


def _sound(estimate: Estimate) -> Estimate:
    """The estimate with positive definite covariances; ArithmeticError where nothing helps."""
    poses = [estimate.pose, estimate.highest_weight_pose]
    if estimate.preimage_pose is not None:
        poses.append(estimate.preimage_pose)
    # A comparison with NaN is false. Motions lead off the map, but not without end.
    if not all((np.abs(pose) <= 10.0 * FARTHEST_M).all() for pose in poses):
        raise ArithmeticError("the filter's pose is not finite")
    whole = estimate.whole_covariance
    return replace(
        estimate,
        covariance=sound_covariance(estimate.covariance),
        whole_covariance=None if whole is None else sound_covariance(whole),
    )
