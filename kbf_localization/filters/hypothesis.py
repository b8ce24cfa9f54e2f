"""One place where the robot may be: a Gaussian on SE(2) with a log weight.

The errors of measured poses last along the way, since pictures taken near each other err alike.
So the Gaussian is over the pose and the measurement's lasting error together: repeated pictures of
one view then add nothing, whatever the frame rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose, wrap_angle

STUDENT = 4.0
"""Degrees of freedom of a measured pose's error: matches have heavy tails."""


@dataclass(frozen=True)
class MeasuredPose:
    """A `pose` (3,) with `variances` (3,) of its errors forward, left and in heading.

    A share `lasting` of them is the lasting error; of the rest, a share `fresh` is new.
    """

    pose: Array
    variances: Array
    lasting: float
    fresh: float


@dataclass(frozen=True)
class FitErrors:
    """What the fits of a hypothesis's pictures err by, and so what a further one tells.

    A fit is the mean for a right place, or minus that for a wrong one, with an error of variance
    one, of which a share lasts (AR(1)) and the rest is white. A Kalman filter of the lasting error
    gives the likelihood of the fits; their log ratio is linear in them. `expected` is the lasting
    error if the mean were zero, `explained` how much of a mean of one it would take for an error,
    `variance` its own.
    """

    expected: float = 0.0
    explained: float = 0.0
    variance: float = 1.0

    def after(
        self, fit: float, informs: float, lasts: float, lasting: float
    ) -> tuple[FitErrors, float]:
        """After a further fit, and what it adds to the log weight.

        A part `informs` of it counts. A share `lasting` of the errors lasts, with the correlation
        `lasts` since the last picture.
        """
        expected, explained = lasts * self.expected, lasts * self.explained
        variance = lasts**2 * self.variance + 1.0 - lasts**2
        total = lasting * variance + 1.0 / max(informs, 1e-9) - lasting
        surprise, new = fit - expected, 1.0 - explained
        gain = lasting * variance / total
        after = FitErrors(
            expected + gain * surprise, explained + gain * new, (1.0 - gain) * variance
        )
        return after, surprise * new / total


@dataclass(frozen=True)
class Hypothesis:
    """`pose` (3,); `joint` (6, 6), the covariance of the pose and of the lasting error.

    The lasting error `error` (3,) is forward, left and in heading, in units of its standard
    deviation. `number` stays with the hypothesis while it lives. `fits` remembers how the
    pictures fitted there.
    """

    pose: Array
    joint: Array
    number: int
    log_weight: float = 0.0
    error: Array = field(default_factory=lambda: np.zeros(3))
    fits: FitErrors = FitErrors()

    @property
    def covariance(self) -> Array:
        """(3, 3) of (x, y, heading)."""
        return self.joint[:3, :3]

    @property
    def probability(self) -> float:
        return float(np.exp(min(self.log_weight, 0.0)))

    @property
    def lasting_error(self) -> float:
        """The mean square of the lasting error's three parts; one is expected."""
        return float(np.mean(self.error**2 + np.diag(self.joint[3:, 3:])))

    def distance(self, other: Hypothesis) -> float:
        """The squared distance of two hypotheses in units of their common covariance."""
        offset = other.pose - self.pose
        offset[2] = wrap_angle(offset[2])
        return float(offset @ np.linalg.solve(self.covariance + other.covariance, offset))

    def weighed(self, log_weight: float) -> Hypothesis:
        return replace(self, log_weight=float(log_weight))

    def told(self, fit: float, informs: float, lasts: float, lasting: float) -> Hypothesis:
        """After a picture that fits so well; see `FitErrors.after`."""
        fits, gained = self.fits.after(fit, informs, lasts, lasting)
        return replace(self, log_weight=self.log_weight + gained, fits=fits)

    def moved(self, motion: Array, variances: Array, lasts: float) -> Hypothesis:
        """After `motion` (3,) with `variances` (3,); `lasts` is the lasting error's correlation."""
        pose = compose(self.pose, motion)
        change = transition(self.pose, pose, lasts)
        joint = change @ self.joint @ change.T
        joint[:3, :3] += drift(self.pose, pose, variances)
        joint[3:, 3:] += (1.0 - lasts**2) * np.eye(3)
        return replace(self, pose=pose, joint=joint, error=lasts * self.error)

    def widened(self, variances: Array) -> Hypothesis:
        """With an unknown motion of these variances (3,) of (x, y, heading)."""
        joint = self.joint.copy()
        joint[:3, :3] += np.diag(variances)
        return replace(self, joint=joint)

    def forgetting(self, share: float) -> Hypothesis:
        """With so much of the lasting error replaced by a new one."""
        return self.moved(np.zeros(3), np.zeros(3), 1.0 - share)

    def innovation(self, measured: MeasuredPose) -> tuple[Array, Array, Array, Array]:
        """Residual (3,) of a measured pose, design (3, 6), its noise and covariance (3, 3)."""
        turn = rotation(measured.pose[2])
        design = np.hstack(
            (np.eye(3), turn @ np.diag(np.sqrt(measured.lasting * measured.variances)))
        )
        # A hundredth of white noise keeps the innovation's covariance regular.
        share = (1.0 - measured.lasting) / max(measured.fresh, 1e-6) + 0.01
        noise = turn @ np.diag(share * measured.variances) @ turn.T
        offset = measured.pose - self.pose
        offset[2] = wrap_angle(offset[2])
        residual = offset - design[:, 3:] @ self.error
        return residual, design, noise, design @ self.joint @ design.T + noise

    def corrected(self, measured: MeasuredPose) -> tuple[Hypothesis, float]:
        """After a Kalman step with Student's noise; and the innovation's squared length over 3."""
        residual, design, noise, covariance = self.innovation(measured)
        squared = float(residual @ np.linalg.solve(covariance, residual))
        if not np.isfinite(squared):
            return self, 0.0
        doubt = max(1.0, (STUDENT + squared) / (STUDENT + 3.0))
        noise = noise + (doubt - 1.0) * covariance
        covariance = covariance + (doubt - 1.0) * covariance
        gain = np.linalg.solve(covariance, design @ self.joint).T
        change = gain @ residual
        kept = np.eye(6) - gain @ design
        joint = kept @ self.joint @ kept.T + gain @ noise @ gain.T
        pose = self.pose + change[:3]
        pose[2] = wrap_angle(pose[2])
        corrected = replace(
            self, pose=pose, joint=0.5 * (joint + joint.T), error=self.error + change[3:]
        )
        return corrected, squared / 3.0


def born(measured: MeasuredPose, number: int) -> Hypothesis:
    """The hypothesis of a measured pose alone, whose error is the lasting one's opposite."""
    turn = rotation(measured.pose[2])
    lasting = turn @ np.diag(np.sqrt(measured.lasting * measured.variances))
    joint = np.eye(6)
    joint[:3, :3] = turn @ np.diag(measured.variances) @ turn.T
    joint[:3, 3:] = -lasting
    joint[3:, :3] = -lasting.T
    return Hypothesis(measured.pose.copy(), joint, number)


def given(pose: Array, covariance: Array, number: int) -> Hypothesis:
    """The hypothesis of a pose that somebody told."""
    joint = np.eye(6)
    joint[:3, :3] = covariance
    return Hypothesis(np.array(pose, dtype=np.float64), joint, number)


def pose_jacobian(start: Array, end: Array) -> Array:
    """(3, 3): how an error of the pose at `start` (3,) shows at `end` (3,)."""
    change = np.eye(3)
    change[0, 2], change[1, 2] = start[1] - end[1], end[0] - start[0]
    return change


def transition(start: Array, end: Array, lasts: float) -> Array:
    """(6, 6): the same of the pose and of the lasting error, whose correlation is `lasts`."""
    change = lasts * np.eye(6)
    change[:3, :3] = pose_jacobian(start, end)
    return change


def drift(start: Array, end: Array, variances: Array) -> Array:
    """The covariance (3, 3) that a motion from `start` to `end` (3,) adds to (x, y, heading).

    `variances` (3,) are the motion's own, forward, left and in heading. The heading's error grows
    along the way and turns what is left of it: straight on, as much as many short steps give.
    """
    turn = rotation(start[2] + 0.5 * wrap_angle(end[2] - start[2]))
    covariance = turn @ np.diag(variances) @ turn.T
    lever = np.array([start[1] - end[1], end[0] - start[0]])
    covariance[:2, :2] += variances[2] / 3.0 * np.outer(lever, lever)
    covariance[:2, 2] += variances[2] / 2.0 * lever
    covariance[2, :2] = covariance[:2, 2]
    return np.asarray(covariance)


def rotation(heading: float) -> Array:
    """From the robot's axes to the map's, for (x, y, heading)."""
    cos, sin = np.cos(heading), np.sin(heading)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
