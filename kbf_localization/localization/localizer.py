"""The localizer, the same object in the node and offline."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array, Image
from kbf_localization.errors import KbfError
from kbf_localization.events import Event
from kbf_localization.filters.base import Estimate, GaussianPrior, PoseFilter
from kbf_localization.filters.hypothesis import LANDMARK_ROWS
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import difference, position_sigma, sound_covariance
from kbf_localization.input_checks import check_grey, check_heading, check_prior, check_stamp
from kbf_localization.limits import MAX_COORDINATE_M
from kbf_localization.localization.image_gate import ImageGate
from kbf_localization.localization.result import Localization, LocalizerSettings, State
from kbf_localization.localization.state_monitor import DeadReckoned, StateMonitor
from kbf_localization.motion.odometry_buffer import (
    DeadReckoning,
    Fix,
    OdometryBuffer,
    OdometryReading,
)
from kbf_localization.training_map.training_map import MapObservation, TrainingMap
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.describer import tiny_image

STILL_MAHALANOBIS = 16.3
"""Squared distance up to which an image leaves the pose where it was: the 99.9 % quantile of χ²
with three degrees of freedom. Beyond it the robot moves, whatever the odometry says."""

HASTY_LANDMARKS_M, HASTY_LANDMARKS_RAD = 0.15, 0.15
"""Travel and turn between images whose landmarks are used while there is no time for all of them.
In a rendered office the median error is 0.8 cm with landmarks in every image (0.06 m), 1.1 cm every
0.11 m, 1.3 cm every 0.17 m, 1.6 cm every 0.28 m, 2.2 cm every 0.45 m, and 5.6 cm without any."""


MAX_FAILURES = 3
"""Consecutive failed steps after which the filter is reset."""


class FilterReset(KbfError):  # noqa: N818 (it is done already)
    """The filter failed repeatedly and was reset to anywhere on the map."""


class Localizer:
    """Turns odometry and images into poses; has no clock.

    The caller waits until `covers(stamp)` before it hands an image in, so that its odometry is
    interpolated between two readings and the result does not depend on the order of arrival.
    `add_odometry` may be called from another thread than the rest.
    """

    def __init__(
        self,
        training_map: TrainingMap,
        pose_filter: PoseFilter | str = "kbf",
        settings: LocalizerSettings = LocalizerSettings(),  # noqa: B008 (frozen)
    ) -> None:
        """Use `pose_filter`, a filter or the name of a method."""
        self.counts: Counter[str] = Counter()
        self.last: Localization | None = None
        self._observation: MapObservation | None = None
        self.noise_is_reported = False
        """Whether the last step's motion noise was the odometry's own."""
        self._map = self.training_map = training_map
        self._describer = training_map.image_describer
        self._filter = (
            make_filter(pose_filter, training_map) if isinstance(pose_filter, str) else pose_filter
        )
        self._odometry = OdometryBuffer(settings.odometry_history_s)
        self._gate = ImageGate(self._odometry, settings)
        self._reckoning = DeadReckoning(training_map.calibration.motion_noise)
        self._monitor = StateMonitor(training_map.calibration.similarity)
        self._lock = threading.RLock()
        self._fix: Fix | None = None
        self._was_given = False
        """Whether the pose was given and no image has confirmed or refuted it."""
        self._failures = 0
        self._landmarks_at: OdometryReading | None = None
        self._filter.reset()

    def __repr__(self) -> str:
        return f"Localizer({self.training_map!r}, {self.state.value})"

    @property
    def settings(self) -> LocalizerSettings:
        """How images are used; `configure` changes it."""
        return self._gate.settings

    def configure(self, settings: LocalizerSettings) -> None:
        """Apply other settings from now on; the belief stays."""
        self._gate.configure(settings)

    @property
    def state(self) -> State:
        """The state now; `DEGRADED` where odometry alone has carried a tracked pose too far."""
        return self._monitor.state_at(self._odometry.newest, self.settings)

    @property
    def unconfirmed(self) -> DeadReckoned | None:
        """How far odometry has carried a tracked pose since the last image that confirmed it."""
        return self._monitor.unconfirmed(self._odometry.newest)

    @property
    def degraded_s(self) -> float:
        """Seconds of odometry, up to the last image, during which the state was degraded."""
        return self._monitor.degraded_s

    @property
    def rests_on_given_pose(self) -> bool:
        """Tell whether the pose was given (`set_pose`) and no image has confirmed or refuted it."""
        return self._was_given

    @property
    def newest_odometry_ns(self) -> int | None:
        """Return the stamp of the last odometry reading."""
        return self._odometry.newest_ns

    @property
    def stands(self) -> bool:
        """Tell whether the robot stands still and further images of its view are not needed."""
        newest = self._odometry.newest
        return newest is not None and self._gate.rests(newest)

    def count(self, event: Event, times: int = 1) -> None:
        """Count what went wrong before it came here, such as an image that was dropped."""
        self.counts[event] += times

    def add_odometry(
        self, stamp_ns: int, pose: ArrayLike, covariance: ArrayLike | None = None
    ) -> bool:
        """Take an odometry reading (3,); False where it cannot be used, which is counted.

        Its covariance (3, 3) since the odometry began, where the robot gives one, takes the place
        of the map's motion noise as far as it is sane (`motion.noise`).
        """
        check_heading(pose)
        refused = self._odometry.append(check_stamp(stamp_ns), pose, covariance)
        if refused is not None:
            self.counts[refused] += 1
        return refused is None

    def set_camera(self, camera: Camera | None, mount: Mount | None) -> None:
        """Take the calibration of the camera and its mount; None keeps the map's own."""
        with self._lock:
            self.training_map = self._map.with_camera(camera, mount)

    def covers(self, stamp_ns: int) -> bool:
        """Tell whether odometry at or after this stamp is here."""
        newest = self._odometry.newest_ns
        return newest is not None and newest >= stamp_ns

    @property
    def dead_reckoned_s(self) -> float | None:
        """Return seconds of odometry since the last image or given pose; None before a pose."""
        fix, newest_ns = self._fix, self._odometry.newest_ns
        if fix is None or newest_ns is None:
            return None
        return (newest_ns - fix.odometry.stamp_ns) * 1e-9

    @property
    def dead_reckoned_m(self) -> float | None:
        """Metres driven since the last image, or the given pose; None before a pose."""
        fix, newest = self._fix, self._odometry.newest
        if fix is None or newest is None:
            return None
        return abs(newest.distance_m - fix.odometry.distance_m)

    def camera_tilt(self) -> Array:
        """Return pitch and roll (2,) of the camera against the map's images, by the last image.

        NaN where landmarks do not show them. They are measured apart from the pose, which expects
        a camera as level as the map's: a tilt that it cannot allow for has a name all the same.
        """
        last, observation = self.last, self._observation
        weights = None if last is None else last.estimate.weights
        if last is None or weights is None or observation is None:
            return np.full(2, np.nan)
        rows = weights.heaviest(LANDMARK_ROWS).rows
        tilt = observation.camera_tilt(rows, last.estimate.pose)
        return np.full(2, np.nan) if tilt is None else tilt

    def add_image(
        self, stamp_ns: int, image: Image | Callable[[], Image], in_haste: bool = False
    ) -> Localization | None:
        """Describe a grey image (h, w) and use it; None where it cannot be used, which is counted.

        `counts` has the reason, such as "image_without_odometry". `image` may be a function that
        gives it, which is called only if the image is looked at. `in_haste`, a tracked pose is
        measured by landmarks at some of the images only.
        """
        if not callable(image):
            check_grey(image)
        grey = cache(image if callable(image) else lambda: image)
        reason = self._gate.refusal(check_stamp(stamp_ns))
        if reason is not None:
            self.counts[reason] += 1
            return None
        now = self._odometry.at(stamp_ns)
        if now is not None and not self._gate.needs(now, lambda: tiny_image(grey())):
            return self._carry_on(stamp_ns, now)
        detect = not (in_haste and self._has_recent_landmarks(now))
        if detect:
            self._landmarks_at = now
        description = self._describer.describe_in_parallel(grey(), detect)
        return self.add_described(stamp_ns, self.training_map.observe(description))

    def _has_recent_landmarks(self, now: OdometryReading | None) -> bool:
        """Tell whether a tracked robot has hardly moved since an image with landmarks."""
        then = self._landmarks_at
        if then is None or now is None or not self._monitor.tracks:
            return False
        moved = abs(now.distance_m - then.distance_m) < HASTY_LANDMARKS_M
        return moved and abs(now.turned_rad - then.turned_rad) < HASTY_LANDMARKS_RAD

    def add_described(self, stamp_ns: int, observation: MapObservation) -> Localization | None:
        """Use an image that is already described; see `add_image`."""
        with self._lock:
            reason = self._gate.refusal(stamp_ns)
            now = self._odometry.at(stamp_ns)
            if reason is not None or now is None:
                self.counts[reason or Event.IMAGE_BEFORE_ODOMETRY] += 1
                return None
            view = observation.description.tiny
            if not self._gate.needs(now, lambda: view):
                return self._carry_on(stamp_ns, now)
            self._gate.seen(stamp_ns)
            motion, jumped = self._gate.motion(now)
            if jumped:
                self.counts[Event.ODOMETRY_JUMP] += 1
            reported = self._reckoning.reported(self._gate.last_used, now)
            self._observation = observation
            estimate = self._step(motion, observation, reported)
            self.noise_is_reported = reported is not None
            self.counts.update(estimate.events)
            stood, before, predicted = self._gate.stood(now), self._monitor.state, self._fix
            localization = self._localized(estimate, now, stamp_ns)
            unchanged = stood and self._monitor.state is before
            settled = (self._monitor.tracks or unchanged) and _continues(estimate)
            if stood and predicted is not None:
                predicted = self._reckoning.propagate(predicted, now)
                settled = settled and _pose_stays(predicted, localization.pose)
            self._gate.used(now, settled, view)
            return localization

    def set_pose(self, prior: GaussianPrior, stamp_ns: int | None = None) -> None:
        """Start from a given pose, valid at `stamp_ns` (None: at the newest odometry)."""
        check_prior(prior.pose, prior.covariance)
        prior = GaussianPrior(prior.pose, sound_covariance(prior.covariance))
        with self._lock:
            self._start_again(prior)
            at_ns = self._odometry.newest_ns if stamp_ns is None else stamp_ns
            start = None if at_ns is None else self._odometry.at(at_ns)
            self._gate.restart(start)
            self._fix = None if start is None else Fix(prior.pose, prior.covariance, start)

    def reinitialize(self) -> None:
        """Forget the pose: start from anywhere on the map."""
        with self._lock:
            self._start_again(None)

    def force_next_update(self) -> None:
        """Use the next image even if the robot stands still."""
        self._gate.force()

    def reset(self) -> None:
        """Forget the pose and all odometry: time has jumped back."""
        with self._lock:
            self._start_again(None)
            self._odometry.clear()
            self._gate.forget_stamps()
            self.counts[Event.RESETS] += 1

    def pose_at(self, stamp_ns: int | None = None) -> tuple[Array, Array] | None:
        """Return pose and covariance at a time (None: at the newest odometry), dead-reckoned."""
        # Without the lock: a transform must not wait for a step of the filter.
        fix = self._fix
        at_ns = self._odometry.newest_ns if stamp_ns is None else stamp_ns
        now = None if at_ns is None else self._odometry.at(at_ns)
        if fix is None or now is None:
            return None
        reckoned = self._reckoning.propagate(fix, now)
        return reckoned.pose, reckoned.covariance

    def map_to_odom(self) -> Array | None:
        """Return the pose (3,) of the odometry's frame on the map; None before a pose is known."""
        fix = self._fix
        return None if fix is None else fix.map_to_odom

    def _start_again(self, prior: GaussianPrior | None) -> None:
        self._filter.reset(prior)
        self._monitor.reset()
        self._gate.restart()
        self._fix = self.last = self._observation = None
        self._was_given = prior is not None
        self._failures = 0

    def _step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None
    ) -> Estimate:
        """Make a step of the filter; after several failed steps, reset it."""
        try:
            estimate = _sound(self._filter.step(motion, observation, variances))
        except Exception as error:
            self._failures += 1
            # Whether the filter has made this motion is not known.
            self._gate.restart()
            if self._failures < MAX_FAILURES:
                raise
            self._start_again(None)
            self.counts[Event.FILTER_RESET] += 1
            raise FilterReset(
                f"the filter failed {MAX_FAILURES} times in a row ({type(error).__name__}: "
                f"{error}): it is reset to anywhere on the map"
            ) from error
        self._failures = 0
        return estimate

    def _localized(self, estimate: Estimate, now: OdometryReading, stamp_ns: int) -> Localization:
        """Return what an estimate says about the pose, with the state after it."""
        tracked, sigma_m = self._monitor.tracks, position_sigma(estimate.covariance)
        state = self._monitor.update(estimate.confidence, sigma_m, now, self.settings)
        if state is State.LOST and tracked:
            self.counts[Event.LOST] += 1
        self._was_given = self._was_given and state is State.LOCALIZING
        self._fix = Fix(self._chosen_pose(estimate), estimate.covariance, now)
        self.last = Localization(
            stamp_ns=stamp_ns,
            pose=self._fix.pose,
            covariance=self._fix.covariance,
            state=state,
            evidence=estimate.evidence,
            estimate=estimate,
            odometry_pose=now.pose,
            used=True,
        )
        return self.last

    def _chosen_pose(self, estimate: Estimate) -> Array:
        if self.settings.estimate == "highest_weight":
            return estimate.highest_weight_pose
        if self.settings.estimate == "preimage" and estimate.preimage_pose is not None:
            return estimate.preimage_pose
        return estimate.pose

    def _carry_on(self, stamp_ns: int, now: OdometryReading) -> Localization | None:
        """Return the dead-reckoned pose at the stamp of an image that is not needed."""
        with self._lock:
            if self.last is None or self._fix is None:
                return None
            self._gate.seen(stamp_ns)
            state = self._monitor.repeat(now, self.settings)
            self._fix = self._reckoning.propagate(self._fix, now)
            self.last = replace(
                self.last,
                stamp_ns=stamp_ns,
                pose=self._fix.pose,
                covariance=self._fix.covariance,
                state=state,
                odometry_pose=now.pose,
                used=False,
            )
            return self.last


def _continues(estimate: Estimate) -> bool:
    """Tell whether the last image was compared with the previous image, and continues it."""
    return estimate.confidence is not None and Event.IMAGE_DISCONTINUITY not in estimate.events


def _pose_stays(predicted: Fix, pose: Array) -> bool:
    """Tell whether an image leaves the pose where odometry predicted it."""
    offset = difference(pose, predicted.pose)
    return float(offset @ np.linalg.solve(predicted.covariance, offset)) < STILL_MAHALANOBIS


def _sound(estimate: Estimate) -> Estimate:
    """Return the estimate with positive definite covariances.

    ArithmeticError where a pose is not finite, or far beyond any map.
    """
    poses = [estimate.pose, estimate.highest_weight_pose]
    if estimate.preimage_pose is not None:
        poses.append(estimate.preimage_pose)
    # A comparison with NaN is false. Motions lead off the map, but not without end.
    if not all((np.abs(pose) <= 10.0 * MAX_COORDINATE_M).all() for pose in poses):
        raise ArithmeticError("the filter's pose is not finite, or far beyond any map")
    whole = estimate.whole_covariance
    return replace(
        estimate,
        covariance=sound_covariance(estimate.covariance),
        whole_covariance=None if whole is None else sound_covariance(whole),
    )
