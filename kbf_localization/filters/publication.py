"""What the filter says of its belief: the published pose, how sure it is, and what was noticed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.events import Event
from kbf_localization.filters.association import Association
from kbf_localization.filters.base import Confidence, Estimate, HypothesisEstimate, Weights
from kbf_localization.filters.hypothesis import MIN_DISCONTINUITY, Continuity, Hypothesis
from kbf_localization.filters.kernel_belief import EstimateSelector, KernelBelief
from kbf_localization.filters.smoothing import Step
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.training_map.calibration import VIEW_CORRELATION_LENGTH, Calibration

MAX_SIGMA = 0.3
"""Of the size of a place: a pose less certain than that does not say where the robot is."""


@dataclass(frozen=True)
class ImageAssociations:
    """What an image shows round the components and at the births, and how well it fits at best."""

    components: tuple[Association, ...]
    births: tuple[Association, ...]
    best_fit: float
    continuity: Continuity

    @property
    def everywhere(self) -> tuple[Association, ...]:
        """Return the components and the births."""
        return (*self.components, *self.births)

    def fix_of(self, number: int | None) -> LandmarkFix | None:
        """Return the landmark fix of the component of this number."""
        return next(
            (item.fix for item in self.components if item.hypothesis.number == number), None
        )

    def unmeasured(self, number: int) -> bool:
        """Tell whether landmarks were looked for at the component of this number, in vain."""
        return any(item.unmeasured for item in self.components if item.hypothesis.number == number)


class Publisher:
    """Chooses the component that is published, and says how far it is to be trusted.

    `poses` (n, 3) are the map's.
    """

    def __init__(self, calibration: Calibration, poses: Array) -> None:
        self._min_evidence = calibration.likelihood_ratio.q005
        self._distance_m = calibration.similarity.distance_m
        self._place_m = calibration.similarity.place_m
        self._poses = poses
        self._centre, self._variance = poses[:, :2].mean(axis=0), poses[:, :2].var(axis=0)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._selector = EstimateSelector()
        self._mount = MountMonitor()
        self._published: Hypothesis | None = None
        self._confirmed, self._contradicted, self._repeated_travel = False, False, 0.0

    @property
    def number(self) -> int | None:
        """Return that of the published component."""
        return self._selector.number

    @property
    def switched(self) -> bool:
        """Tell whether a confirmed component has just been replaced by another."""
        return self._selector.switched

    def update(
        self,
        belief: KernelBelief,
        seen: ImageAssociations,
        motion: Array | None,
        travel: float,
        renewal: float,
    ) -> None:
        """Choose the component after a motion and an image, `renewal` of whose evidence is new."""
        floor = min(seen.best_fit, 0.0)
        self._selector.update_evidence(seen.components, renewal, floor)
        self._mount.update(motion, seen.fix_of(self._selector.number))
        coverage = {item.hypothesis.number: item.posterior.coverage for item in seen.components}
        evidence = {item.hypothesis.number: item.evidence(floor) for item in seen.everywhere}
        self._published = self._selector.select(belief.components, coverage, evidence)
        if self.switched:
            self._mount.reset()
        self._confirm(seen, travel)

    def _confirm(self, seen: ImageAssociations, travel: float) -> None:
        """Note whether the image confirms the published pose; a repeated one does as before.

        Unless the robot moves: a camera that repeats one image then says nothing.
        """
        if seen.continuity.frozen:
            self._repeated_travel += travel
            self._confirmed &= self._repeated_travel < VIEW_CORRELATION_LENGTH
            return
        self._repeated_travel = 0.0
        published = [
            item
            for item in seen.everywhere
            if self._published is not None and item.hypothesis.number == self._published.number
        ]
        self._confirmed = any(item.confirms for item in published)
        self._contradicted = any(item.contradicted for item in published)

    def estimate(
        self, belief: KernelBelief, seen: ImageAssociations, odometry_broken: bool, record: Step
    ) -> Estimate:
        """Return the published component with all that is known about it."""
        published = self._published
        if published is None:
            middle = self._poses[len(self._poses) // 2]
            published = Hypothesis.from_prior(
                middle, self._null_covariance(middle), -1
            ).with_log_weight(-np.inf)
        weights = _weights_on_map(belief, seen.everywhere)
        heaviest = weights.rows[np.argmax(weights.values)] if len(weights.rows) else None
        measured = any(item.fix is not None for item in seen.everywhere)
        return Estimate(
            pose=published.pose.copy(),
            covariance=published.covariance.copy(),
            highest_weight_pose=published.pose if heaviest is None else self._poses[heaviest],
            weights=weights,
            evidence=self._selector.evidence,
            events=self._events(seen, recognized=measured or seen.best_fit >= 0.0),
            whole_covariance=belief.covariance(
                published.pose, self._null_covariance(published.pose)
            ),
            confidence=Confidence(
                probability=self._probability(belief, published, odometry_broken),
                # A single image proves nothing.
                evidence=0.0 if self._selector.changed else self._selector.evidence,
                min_evidence=self._min_evidence,
                max_sigma_m=MAX_SIGMA * self._place_m,
                confirmed=self._confirmed,
                interrupted=self._contradicted
                or (seen.continuity.discontinuity > MIN_DISCONTINUITY and not self._confirmed),
                verified=bool(np.isfinite(published.since_landmarks_m))
                or not seen.unmeasured(published.number),
            ),
            hypotheses=tuple(
                HypothesisEstimate(
                    component.pose, component.covariance, component.probability, component.number
                )
                for component in belief.components
            ),
            step=record,
            landmark_fix=seen.fix_of(published.number),
            camera_yaw=self._mount.yaw,
        )

    def _probability(
        self, belief: KernelBelief, published: Hypothesis, odometry_broken: bool
    ) -> float:
        """Return the probability of the published pose.

        Broken odometry carries no pose from where landmarks measured it, a turned camera measures
        no heading; and where a confirmed pose has just been given up, one image is not enough for
        the next.
        """
        measured_here = self._confirmed and published.since_landmarks_m == 0.0
        if self.switched or self._mount.turned or (odometry_broken and not measured_here):
            return 0.0
        return belief.agreement(published)

    def _events(self, seen: ImageAssociations, recognized: bool) -> tuple[Event, ...]:
        """Return what is wrong with the image."""
        departures = {
            Event.CAMERA_TURNED: self._mount.turned,
            Event.FROZEN_IMAGE: seen.continuity.frozen,
            Event.UNRECOGNIZED_IMAGE: not (seen.continuity.frozen or recognized),
            Event.IMAGE_DISCONTINUITY: seen.continuity.discontinuity > MIN_DISCONTINUITY,
            Event.LANDMARKS_CONTRADICT: self._contradicted,
        }
        return tuple(event for event, departs in departures.items() if departs)

    def _null_covariance(self, pose: Array) -> Array:
        """Return the second moment (3, 3) of the map's poses round `pose`, axis by axis."""
        spread = self._variance + (self._centre - pose[:2]) ** 2
        return np.diag((*np.maximum(spread, self._distance_m**2), np.pi**2 / 3.0))


def _weights_on_map(belief: KernelBelief, seen: Sequence[Association]) -> Weights:
    """Return the belief on the map's poses: each component's weights there times its own."""
    posteriors = {association.hypothesis.number: association.posterior for association in seen}
    parts = [
        (
            posteriors[component.number].rows,
            component.probability * posteriors[component.number].weights,
        )
        for component in belief.components
        if component.number in posteriors and len(posteriors[component.number].rows)
    ]
    if not parts:
        return Weights(np.zeros(0, dtype=np.intp), np.zeros(0))
    rows, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    values = np.bincount(places, np.concatenate([part[1] for part in parts]), len(rows))
    return Weights(rows, values.astype(np.float64))


MIN_STEP_M = 0.15
"""Displacements are compared over at least so much: shorter are errors of the fixes alone."""

MAX_STEP_M = 1.0
"""Over longer gaps the odometry's own heading errs."""

MAX_PAIRS, MIN_PAIRS = 20, 8
"""Displacements of which the median is taken, three metres, and from how many on something is said:
more than a metre."""

TURNED_RAD = float(np.radians(6.0))
"""Well beyond the error of a calibration, and of odometry over a metre."""

CERTAIN_SIGMAS, NORMAL_MAD = 3.0, 1.4826
"""Of the median; standard deviations of a normal distribution in its median absolute deviation."""


class MountMonitor:
    """Monitors whether the camera still looks where it did when the map was made.

    Landmarks measure the heading of the camera; the wheels drive along that of the base. A camera
    that is turned on its mount by ψ makes all measured headings wrong by ψ, so that the robot seems
    to move askew: its displacements in the measured frame are turned by −ψ against the odometry's.
    """

    yaw: float
    """ψ in radians, to the left; 0 as long as nothing is known."""
    turned: bool
    """Whether the camera is turned on its mount, beyond doubt."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._last: LandmarkFix | None = None
        self._moved = np.zeros(3)
        self._angles: deque[float] = deque(maxlen=MAX_PAIRS)
        self.yaw, self.turned = 0.0, False

    def update(self, motion: Array | None, fix: LandmarkFix | None) -> None:
        """Take the odometry's motion (3,) since the last image, and this image's fix if any."""
        if motion is None:
            self._last = None
            return
        self._moved = compose(self._moved, motion)
        distance = float(np.hypot(*self._moved[:2]))
        if distance > MAX_STEP_M:
            self._last = None
        if fix is None or (self._last is not None and distance < MIN_STEP_M):
            return
        if self._last is not None:
            seen = relative(self._last.pose, fix.pose)
            turn = np.arctan2(self._moved[1], self._moved[0]) - np.arctan2(seen[1], seen[0])
            self._angles.append(float(wrap_angle(turn)))
            self._measure()
        self._last, self._moved = fix, np.zeros(3)

    def _measure(self) -> None:
        """Compare the median angle with its deviation: it stands against single wrong fixes.

        Displacements against each other's direction are those of reversed wheels.
        """
        angles = np.array(self._angles)
        self.yaw = float(np.median(angles))
        deviation = NORMAL_MAD * float(np.median(np.abs(angles - self.yaw)))
        doubt = CERTAIN_SIGMAS * deviation / np.sqrt(len(angles))
        certain = TURNED_RAD + doubt < abs(self.yaw) < np.pi / 2.0
        self.turned = bool(len(angles) >= MIN_PAIRS and certain)
