"""Hypotheses about the pose: Gaussians on SE(2) with a log weight, and the null hypothesis.

The errors of measured poses are correlated along the path, since images taken near each other err
alike. So the Gaussian is over the pose and the measurement's Gauss–Markov bias together: repeated
images of one view add no information, whatever the frame rate.

The null hypothesis is "elsewhere, or off the map". A monitor tells how probably an image does not
continue the previous, as odometry predicts. What leaves a component goes into a reservoir, of
which a part comes back evenly over the map, where the image gives births; the rest is the null
hypothesis's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit, logit

from kbf_localization.arrays import Array
from kbf_localization.geometry import (
    compose,
    difference,
    motion_jacobian,
    process_noise,
    rotation,
    wrap_angle,
)
from kbf_localization.landmarks.calibration import MIN_INLIERS
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.training_map.calibration import Calibration
from kbf_localization.training_map.training_map import MapObservation

STUDENT_DOF = 4.0
"""Degrees of freedom of a measured pose's error: matches have heavy tails."""

MIN_WHITE_FRACTION = 0.01
"""White noise, of a measurement's variance, that keeps the innovation covariance regular."""


@dataclass(frozen=True)
class MeasuredPose:
    """A `pose` (3,) with `variances` (3,) of its errors forward, left and in heading.

    A fraction `bias_fraction` of the variances is the Gauss–Markov bias; of the white rest, a
    fraction `information_fraction` is independent of the last measurement.
    """

    pose: Array
    variances: Array
    bias_fraction: float
    information_fraction: float


@dataclass(frozen=True)
class Hypothesis:
    """A Gaussian over the pose and the measurement's bias, with a log weight.

    `pose` (3,); `state_covariance` (6, 6) of the pose and the bias. The `bias` (3,) is forward,
    left and in heading, in units of its standard deviation. `number` identifies the hypothesis
    while it lives. `since_landmarks_m` was driven since landmarks last measured it, infinite where
    they never did; `since_given_m` since the pose was given, infinite where none was.
    `odometry_covariance` (3, 3) is what the odometry's errors have added to the covariance since
    the last measurement.
    """

    pose: Array
    state_covariance: Array
    number: int
    log_weight: float = 0.0
    bias: Array = field(default_factory=lambda: np.zeros(3))
    since_landmarks_m: float = np.inf
    since_given_m: float = np.inf
    odometry_covariance: Array = field(default_factory=lambda: np.zeros((3, 3)))

    @classmethod
    def from_measurement(cls, measured: MeasuredPose, number: int) -> Hypothesis:
        """Start from a measured pose alone, whose error is the opposite of the bias."""
        turn = rotation(measured.pose[2])
        bias = turn @ np.diag(np.sqrt(measured.bias_fraction * measured.variances))
        covariance = np.eye(6)
        covariance[:3, :3] = turn @ np.diag(measured.variances) @ turn.T
        covariance[:3, 3:] = -bias
        covariance[3:, :3] = -bias.T
        return cls(measured.pose.copy(), covariance, number)

    @classmethod
    def from_prior(cls, pose: Array, pose_covariance: Array, number: int) -> Hypothesis:
        """Start from a given pose (3,) with a covariance (3, 3)."""
        covariance = np.eye(6)
        covariance[:3, :3] = pose_covariance
        return cls(np.array(pose, dtype=np.float64), covariance, number, since_given_m=0.0)

    @property
    def covariance(self) -> Array:
        """Return the covariance (3, 3) of (x, y, heading)."""
        return self.state_covariance[:3, :3]

    @property
    def probability(self) -> float:
        return float(np.exp(min(self.log_weight, 0.0)))

    def mahalanobis(self, other: Hypothesis) -> float:
        """Return the squared distance of two hypotheses in units of their summed covariance."""
        offset = difference(other.pose, self.pose)
        return float(offset @ np.linalg.solve(self.covariance + other.covariance, offset))

    def with_log_weight(self, log_weight: float) -> Hypothesis:
        return replace(self, log_weight=float(log_weight))

    def predict(self, motion: Array, variances: Array, bias_correlation: float) -> Hypothesis:
        """Move by `motion` (3,) with `variances` (3,)."""
        pose = compose(self.pose, motion)
        transition = transition_matrix(self.pose, pose, bias_correlation)
        jacobian, noise = transition[:3, :3], process_noise(self.pose, pose, variances)
        covariance = transition @ self.state_covariance @ transition.T
        covariance[:3, :3] += noise
        covariance[3:, 3:] += (1.0 - bias_correlation**2) * np.eye(3)
        bias = bias_correlation * self.bias
        driven = float(np.hypot(motion[0], motion[1]))
        return replace(
            self,
            pose=pose,
            state_covariance=covariance,
            bias=bias,
            since_landmarks_m=self.since_landmarks_m + driven,
            since_given_m=self.since_given_m + driven,
            odometry_covariance=jacobian @ self.odometry_covariance @ jacobian.T + noise,
        )

    def inflate(self, variances: Array) -> Hypothesis:
        """Add an unknown motion with these variances (3,) of (x, y, heading)."""
        covariance = self.state_covariance.copy()
        covariance[:3, :3] += np.diag(variances)
        return replace(
            self, state_covariance=covariance, since_landmarks_m=np.inf, since_given_m=np.inf
        )

    def decorrelate(self, fraction: float) -> Hypothesis:
        """Replace a fraction of the bias by a new bias."""
        return self.predict(np.zeros(3), np.zeros(3), 1.0 - fraction)

    def innovation(self, measured: MeasuredPose) -> tuple[Array, Array, Array, Array]:
        """Return residual (3,), design matrix (3, 6), noise and innovation covariance (3, 3)."""
        turn = rotation(measured.pose[2])
        design = np.hstack(
            (np.eye(3), turn @ np.diag(np.sqrt(measured.bias_fraction * measured.variances)))
        )
        white = (1.0 - measured.bias_fraction) / max(measured.information_fraction, 1e-6)
        noise = turn @ np.diag((white + MIN_WHITE_FRACTION) * measured.variances) @ turn.T
        residual = difference(measured.pose, self.pose) - design[:, 3:] @ self.bias
        return residual, design, noise, design @ self.state_covariance @ design.T + noise

    def update(self, measured: MeasuredPose) -> tuple[Hypothesis, float]:
        """Return the Kalman update with Student's noise, and how much the measurement surprises.

        That is a mean square with expectation one, of the innovation and of what is known of the
        bias: wheels with a constant error do not show in the innovation, but the bias absorbs it.
        """
        residual, design, noise, covariance = self.innovation(measured)
        squared = float(residual @ np.linalg.solve(covariance, residual))
        if not np.isfinite(squared):
            return self, 0.0
        inflation = max(1.0, (STUDENT_DOF + squared) / (STUDENT_DOF + 3.0))
        noise = noise + (inflation - 1.0) * covariance
        covariance = covariance + (inflation - 1.0) * covariance
        gain = np.linalg.solve(covariance, design @ self.state_covariance).T
        kept = np.eye(6) - gain @ design
        updated = self.kalman_step(gain, kept, residual, noise)
        known = np.clip(1.0 - np.diag(updated.state_covariance)[3:], 0.0, 1.0)
        surprise = (squared + float(updated.bias @ updated.bias)) / (3.0 + float(known.sum()))
        return updated, surprise

    def kalman_step(self, gain: Array, kept: Array, residual: Array, noise: Array) -> Hypothesis:
        """Return the state after a Kalman correction, its covariance in Joseph's form.

        `gain` (6, 3), `residual` (3,) and its `noise` (3, 3); `kept` (6, 6) is I less gain times
        design matrix.
        """
        change = gain @ residual
        posterior = kept @ self.state_covariance @ kept.T + gain @ noise @ gain.T
        pose = self.pose + change[:3]
        pose[2] = wrap_angle(pose[2])
        return replace(
            self,
            pose=pose,
            state_covariance=0.5 * (posterior + posterior.T),
            bias=self.bias + change[3:],
            odometry_covariance=np.zeros((3, 3)),
        )


def transition_matrix(start: Array, end: Array, bias_correlation: float) -> Array:
    """Return the Jacobian (6, 6) of pose and bias over a motion from `start` to `end` (3,)."""
    transition = bias_correlation * np.eye(6)
    transition[:3, :3] = motion_jacobian(start, end)
    return transition


GATE_MAHALANOBIS = 16.3
"""Squared, of a fix's innovation: the 99.9 % quantile of χ² with three degrees of freedom."""

REANCHOR_INLIERS = 25
"""Of a fix beyond the gate that is used none the less, with the component inflated to meet it."""

MIN_REANCHOR_REACH_M = 0.5
"""However little the wheels report: what a robot drives between images while they are frozen."""

LANDMARK_ROWS = 4
"""The heaviest map images whose landmarks are matched with the camera's image."""

MAX_MEASURED, MIN_MEASURED_PROBABILITY = 4, 1e-3
"""Components that landmarks measure at an image: the heaviest, above a probability; at a kernel
step all above it."""


def is_sound(fix: LandmarkFix) -> bool:
    """Return whether a fix has enough inliers and finite numbers."""
    finite = np.isfinite(fix.pose).all() and np.isfinite(fix.covariance).all()
    return bool(finite) and fix.inliers >= MIN_INLIERS


def innovation(component: Hypothesis, fix: LandmarkFix) -> tuple[Array, Array, float]:
    """Return a fix's residual (3,), its covariance (3, 3) and squared Mahalanobis length."""
    residual = difference(fix.pose, component.pose)
    covariance = component.covariance + fix.covariance
    return residual, covariance, float(residual @ np.linalg.solve(covariance, residual))


def odometry_surprise(component: Hypothesis, fix: LandmarkFix) -> tuple[float, float]:
    """Return how much a fix surprises as an error of the odometry, and its information on that.

    The innovation r has the covariance S, of which N is the odometry's. Surprise is the mean square
    rᵀS⁻¹NS⁻¹r / tr(S⁻¹N), whose expectation is one, information tr(S⁻¹N)/3: one where odometry
    alone errs. Information times (surprise − 1) is the derivative of the log likelihood by log λ
    for N ∝ λ, in units of its Fisher information at N = S.
    """
    residual, covariance, _ = innovation(component, fix)
    noise = component.odometry_covariance
    trace = float(np.trace(np.linalg.solve(covariance, noise)))
    if not trace > 0.0:
        return 1.0, 0.0
    whitened = np.linalg.solve(covariance, residual)
    return float(whitened @ noise @ whitened) / trace, trace / 3.0


def contradicts(component: Hypothesis, fix: LandmarkFix) -> bool:
    """Tell whether a fix is beyond the component's gate and may not re-anchor it either.

    Many inliers re-anchor a component no farther than the robot has driven since landmarks last
    agreed, or the pose was given: wheels that slip err by no more, but scenery repeats. A fix
    farther from a given pose says that this is wrong, not where the robot is.
    """
    residual, _, squared = innovation(component, fix)
    if squared <= GATE_MAHALANOBIS:
        return False
    reach = max(min(component.since_landmarks_m, component.since_given_m), MIN_REANCHOR_REACH_M)
    return fix.inliers < REANCHOR_INLIERS or not float(np.hypot(*residual[:2])) <= reach


def landmark_update(
    component: Hypothesis, fix: LandmarkFix, reanchor: bool = True
) -> tuple[Hypothesis, float] | None:
    """Return the component after a Kalman step by a fix, with the innovation's mean square.

    None where the fix is not used. One beyond the gate that does not contradict may `reanchor` the
    component: its covariance is inflated until the fix is within reach.
    """
    if not is_sound(fix):
        return None
    residual, total, squared = innovation(component, fix)
    if not np.isfinite(squared):
        return None
    covariance = component.state_covariance
    if squared > GATE_MAHALANOBIS:
        if contradicts(component, fix) or not reanchor:
            return None
        covariance = covariance.copy()
        covariance[:3, :3] += (squared / 4.0) * component.covariance
        total = covariance[:3, :3] + fix.covariance
    gain = np.linalg.solve(total, covariance[:3]).T
    kept = np.eye(6)
    kept[:, :3] -= gain
    inflated = replace(component, state_covariance=covariance, since_landmarks_m=0.0)
    return inflated.kalman_step(gain, kept, residual, fix.covariance), squared / 3.0


def from_fix(fix: LandmarkFix, number: int) -> Hypothesis:
    """Return the component of a fix alone."""
    covariance = np.eye(6)
    covariance[:3, :3] = fix.covariance
    pose = np.array(fix.pose, dtype=np.float64)
    return Hypothesis(pose, covariance, number, since_landmarks_m=0.0)


PRIOR_DISCONTINUITY = 1e-3
"""Probability that an image does not continue the previous: robots are rarely carried away."""

MIN_DISCONTINUITY = 0.03
"""Probability from which on the filter reacts, thirty times the prior one: a few hundred examples
never give certainty, and images that continue stay below three times the prior one."""

MIN_MATCHED, CONTINUING_MATCHED = 0.12, 0.25
"""Fractions of an image's keypoints that match those of the image before: fewer do in unrelated
images (95 % of pairs in two rendered offices), more in images of one view (99 %)."""

MAX_COMPARED_SEPARATION = 0.6
"""In d₀ and φ₀, of images whose keypoints are compared: farther apart they show different views."""

KEYPOINT_DISCONTINUITY = 0.2
"""Probability of a discontinuity where keypoints cease to match: it may also be somebody's hand."""

STANDING_SEPARATION = 0.02
"""In d₀ and φ₀: a robot that has moved no farther still sees the view of the reference image."""

REFERENCE_DISTANCE = 0.3
"""In d₀ and φ₀: a new reference image is taken before the old is out of sight."""


@dataclass(frozen=True)
class Continuity:
    """`discontinuity` is the probability that the image does not continue the sequence.

    `first` says that there was no image before, `frozen` that the camera repeats one image.
    """

    discontinuity: float
    first: bool = False
    frozen: bool = False

    @property
    def jumps(self) -> bool:
        """Tell whether the image does not follow from the previous image."""
        return self.first or self.discontinuity > MIN_DISCONTINUITY


class ContinuityMonitor:
    """Compares each image with the last one and with a reference image, given the odometry since.

    The last image shows a sudden change best, the older reference a gradual one.
    """

    def __init__(self, calibration: Calibration) -> None:
        self._similarity = calibration.similarity
        self._model = calibration.continuity
        self.reset()

    def reset(self) -> None:
        self._reference: MapObservation | None = None
        self._last: MapObservation | None = None
        self._since_reference = np.zeros(3)
        self._matched: float | None = None

    def update(self, motion: Array | None, observation: MapObservation) -> Continuity:
        """Return the continuity after `motion` (3,), None for an unknown one."""
        last, self._last = self._last, observation
        if self._reference is None or last is None:
            self._take_reference(observation)
            return Continuity(0.0, first=True)
        if motion is not None:
            self._since_reference = compose(self._since_reference, motion)
        separation = float(self._similarity.separation(self._since_reference))
        if observation.same_as(last) or observation.same_as(self._reference):
            # The reference stays: a camera that recovers is compared with it.
            return Continuity(0.0, frozen=True)
        by_keypoints = self._by_keypoints(observation, last, motion)
        if by_keypoints == 0.0 and separation < STANDING_SEPARATION:
            by_keypoints = self._by_standing(observation)
        discontinuity = 0.0
        if by_keypoints != 0.0:
            discontinuity = self._probability(observation, self._reference, separation)
            if motion is not None and last is not self._reference:
                from_last = self._probability(
                    observation, last, float(self._similarity.separation(motion))
                )
                discontinuity = max(discontinuity, from_last)
            discontinuity = max(discontinuity, by_keypoints or 0.0)
        if separation > REFERENCE_DISTANCE or discontinuity > MIN_DISCONTINUITY:
            self._take_reference(observation)
        return Continuity(discontinuity)

    def _by_keypoints(
        self, observation: MapObservation, last: MapObservation, motion: Array | None
    ) -> float | None:
        """Return the probability of a discontinuity by the keypoints of two images of one view.

        None where they do not tell, 0 where they match: then the words need not be compared. Only
        images that could be compared so far can cease to match.
        """
        if motion is None:
            return None
        matched = None
        if float(self._similarity.separation(motion)) < MAX_COMPARED_SEPARATION:
            matched = observation.matched_fraction(last)
        before, self._matched = self._matched, matched
        if matched is None or before is None:
            return None
        if matched > CONTINUING_MATCHED:
            return 0.0
        ceased = matched < MIN_MATCHED and before > CONTINUING_MATCHED
        return KEYPOINT_DISCONTINUITY if ceased else None

    def _by_standing(self, observation: MapObservation) -> float:
        """Return the probability of a discontinuity where the odometry has stood still.

        Images that each match the one before may have left the reference's view step by step, as
        those of a robot do whose odometry is frozen.
        """
        assert self._reference is not None
        matched = observation.matched_fraction(self._reference)
        return KEYPOINT_DISCONTINUITY if matched is not None and matched < MIN_MATCHED else 0.0

    def _probability(
        self, observation: MapObservation, earlier: MapObservation, separation: float
    ) -> float:
        """Return the probability that the image was not taken so far from the earlier image."""
        coverage = float(self._similarity.relative_similarity(separation))
        log_ratio = float(self._model.log_ratio(*observation.compared_with(earlier), coverage))
        return float(expit(logit(PRIOR_DISCONTINUITY) - log_ratio))

    def _take_reference(self, observation: MapObservation) -> None:
        self._reference, self._since_reference = observation, np.zeros(3)


HAZARD_PER_TRAVEL, HAZARD_OF_DISCONTINUITY = 2e-3, 0.9
"""Probability that the robot is elsewhere unnoticed, for each travel d/d₀ + φ/φ₀, and where the
images jump."""

HAZARD_TO_MAP = 0.5
"""Fraction of the hazard that goes to the map prior; the rest goes to the null hypothesis."""

RETURN_PER_TRAVEL, FIRST_RETURN = 0.3, 0.5
"""Fraction of the null weight that comes back to the map prior, for each travel; and at the first
image, or where the images jump."""

OFF_MAP_PER_TRAVEL = 0.02
"""Fraction, for each travel, of what the map cannot represent of a component that leaves it."""

MAX_LOG_GAIN = 12.0
"""Bound of the log likelihood ratio between places by one image's kernel."""


@dataclass(frozen=True)
class Transfer:
    """Weights before the rule: `masses` (j,) of the components, of the map prior and the null's.

    `leaks` (j,) is the fraction that left each component, `reservoir` all that is in none.
    """

    masses: Array
    leaks: Array
    map_mass: float
    null_mass: float

    @property
    def reservoir(self) -> float:
        return self.map_mass + self.null_mass


def transfer(
    weights: Array, null: float, coverage: Array, travel: float, jump: float, first: bool = False
) -> Transfer:
    """Return the weights after `travel` since the last kernel step.

    `coverage` (j,) is κ: the rest leaves for the null hypothesis at a rate. `jump` is the
    probability of a discontinuity; `first` says that this is the first image.
    """
    hazard = min(HAZARD_PER_TRAVEL * travel + HAZARD_OF_DISCONTINUITY * jump, 0.9)
    off_map = min(OFF_MAP_PER_TRAVEL * travel, 1.0) * (1.0 - coverage)
    leaks = 1.0 - (1.0 - hazard) * (1.0 - off_map)
    returned = min(RETURN_PER_TRAVEL * travel + FIRST_RETURN * max(jump, float(first)), 0.5)
    to_map = HAZARD_TO_MAP * hazard * float(weights.sum())
    return Transfer(
        masses=weights * (1.0 - leaks),
        leaks=leaks,
        map_mass=returned * null + to_map,
        null_mass=(1.0 - returned) * null + float((weights * leaks).sum()) - to_map,
    )


def posterior_weights(
    before: Array, after: Array, masses: Array, log_ratios: Array, information: float
) -> Array:
    """Return the weights (p,) of places after an image, where the null hypothesis has likelihood 1.

    `before` and `after` (p,) are the places' parts of all weight on the map before and after the
    KBR: they divide the weight among places, as far as the image carries `information` in [0, 1].
    `masses` (p,) with the calibrated `log_ratios` (p,) give the evidence for the map as a whole.
    """
    evidence = float(masses @ np.exp(log_ratios))
    held = (before > 0.0) & (after > 0.0)
    gains = np.full(len(before), -MAX_LOG_GAIN)
    if held.any():
        logs = np.log(after[held] / before[held])
        gains[held] = np.maximum(logs - logs.max(), -MAX_LOG_GAIN)
    parts = before * np.exp(information * gains)
    total = float(parts.sum())
    if not (total > 0.0 and np.isfinite(total)):
        return np.asarray(masses * np.exp(log_ratios))
    return np.asarray(evidence * parts / total)
