"""Tracking, degraded or lost: decided from calibrated quantities alone."""

from __future__ import annotations

from dataclasses import dataclass

from kbf_localization.filters.base import Confidence
from kbf_localization.localization.result import LocalizerSettings, State
from kbf_localization.motion.odometry_buffer import OdometryReading
from kbf_localization.training_map.calibration import SimilarityModel

FIRST_PROOF, PROOF_AFTER_LOSS, DOUBT = 0.9, 0.98, 0.5
"""Probabilities: to say "tracking" at first, to say it again after "lost", and to say "lost"."""


@dataclass(frozen=True)
class DeadReckoned:
    """How far odometry alone has carried a pose; `travel` is d/d₀ + φ/φ₀ in the map's scales."""

    seconds: float
    metres: float
    travel: float


class StateMonitor:
    """Derives the state from the confidence of the estimates and from how old the last fit is.

    A tracked pose is degraded once odometry alone has carried it beyond the settings' bounds since
    the last image that confirmed it, whether no image came or none of them fits; at once where an
    image also does not continue the previous image. `similarity` has the map's scales.
    """

    def __init__(self, similarity: SimilarityModel) -> None:
        self._similarity = similarity
        self.degraded_s = 0.0
        """Seconds of odometry, up to the last image, during which the state was degraded."""
        self.reset()

    def reset(self) -> None:
        """Return to "uninitialized"."""
        self._state = State.UNINITIALIZED
        self._fits = False
        self._interrupted = False
        self._confirmed_at: OdometryReading | None = None
        self._image_at: OdometryReading | None = None

    @property
    def state(self) -> State:
        """Return the state by the last estimate alone."""
        return self._state

    @property
    def tracks(self) -> bool:
        """Tell whether the last estimate was trusted, however far odometry has carried it since."""
        return self._state is State.TRACKING

    def state_at(self, now: OdometryReading | None, settings: LocalizerSettings) -> State:
        """Return the state at an odometry reading."""
        # Read once: another thread may confirm the pose meanwhile.
        state, confirmed_at = self._state, self._confirmed_at
        if state is not State.TRACKING or confirmed_at is None or now is None:
            return state
        degraded = self._degraded_fraction(confirmed_at, confirmed_at, now, settings) > 0.0
        return State.DEGRADED if degraded else state

    def unconfirmed(self, now: OdometryReading | None) -> DeadReckoned | None:
        """Return how far odometry has carried a tracked pose since the last confirming image."""
        confirmed_at = self._confirmed_at
        return None if confirmed_at is None or now is None else self._gap(confirmed_at, now)

    def update(
        self,
        confidence: Confidence | None,
        sigma_m: float,
        now: OdometryReading,
        settings: LocalizerSettings,
    ) -> State:
        """Return the state after one more estimate, made where odometry was `now`.

        `sigma_m` is the standard deviation of the position in its worst direction. Beyond the
        map's own bound a tracked pose is lost; beyond the settings' alone it is only not precise
        enough: "localizing". A filter without a confidence never says more than "localizing".
        """
        self._count_degraded(now, settings)
        before, self._state = self._state, self._next(confidence, sigma_m, settings)
        if not self.tracks:
            self._fits, self._interrupted, self._confirmed_at = False, False, None
        else:
            begins = before is not State.TRACKING
            self._fits = begins or (confidence is not None and confidence.confirmed)
            self._interrupted = not self._fits and (
                self._interrupted or (confidence is not None and confidence.interrupted)
            )
            self._confirm(now)
        return self.state_at(now, settings)

    def repeat(self, now: OdometryReading, settings: LocalizerSettings) -> State:
        """Return the state at an image that is not needed: it shows what the last used did."""
        self._count_degraded(now, settings)
        self._confirm(now)
        return self.state_at(now, settings)

    def _next(
        self, confidence: Confidence | None, sigma_m: float, settings: LocalizerSettings
    ) -> State:
        if confidence is None:
            return State.LOCALIZING
        certain = sigma_m <= confidence.max_sigma_m
        precise = sigma_m <= settings.max_tracking_sigma_m
        fits = confidence.evidence >= confidence.min_evidence
        if self.tracks:
            if not (certain and fits and confidence.probability >= DOUBT):
                return State.LOST
            return State.TRACKING if precise else State.LOCALIZING
        proof = PROOF_AFTER_LOSS if self._state is State.LOST else FIRST_PROOF
        proven = confidence.evidence > 0.0 and confidence.probability >= proof
        if certain and precise and proven and confidence.verified:
            return State.TRACKING
        return State.LOST if self._state is State.LOST else State.LOCALIZING

    def _confirm(self, now: OdometryReading) -> None:
        if self._fits:
            self._confirmed_at = now

    def _gap(self, then: OdometryReading, now: OdometryReading) -> DeadReckoned:
        metres = abs(now.distance_m - then.distance_m)
        turned = abs(now.turned_rad - then.turned_rad)
        travel = self._similarity.scaled_distance(metres, turned)
        return DeadReckoned((now.stamp_ns - then.stamp_ns) * 1e-9, metres, travel)

    def _degraded_fraction(
        self,
        confirmed_at: OdometryReading,
        since: OdometryReading,
        now: OdometryReading,
        settings: LocalizerSettings,
    ) -> float:
        """Return which fraction of the drive from `since` to `now` is beyond the bounds."""
        if self._interrupted:
            return 1.0
        start, end = self._gap(confirmed_at, since), self._gap(confirmed_at, now)
        bounds = (
            (settings.degraded_after_s, start.seconds, end.seconds),
            (settings.degraded_after_travel, start.travel, end.travel),
        )
        beyond = [
            (after - bound) / (after - before) if bound > before else 1.0
            for bound, before, after in bounds
            if after > bound
        ]
        return max(beyond, default=0.0)

    def _count_degraded(self, now: OdometryReading, settings: LocalizerSettings) -> None:
        """Add the degraded part of the time since the image before."""
        since, self._image_at = self._image_at, now
        if since is None or self._confirmed_at is None:
            return
        elapsed_s = max((now.stamp_ns - since.stamp_ns) * 1e-9, 0.0)
        self.degraded_s += elapsed_s * self._degraded_fraction(
            self._confirmed_at, since, now, settings
        )
