"""Places where the robot may be, each with what a picture tells round it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.film import NOTICED, Continuity
from kbf_localization.filters.hypothesis import Hypothesis, MeasuredPose, born
from kbf_localization.geometry import relative
from kbf_localization.training_map.learned import weighed
from kbf_localization.training_map.observation import MapObservation
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.training_map.view import MapViews, View, ViewParameters

MOST = 8
"""Hypotheses that are kept, and that a first picture may give."""

MOST_BIRTHS = 3
"""Hypotheses that a further picture may give."""

BEST_ROWS = 40
"""Best matches over the map among which places for new hypotheses are sought."""

CLAIMED = 0.5
"""Separation, in the map's scales, within which a hypothesis claims a match."""

CONFIRMED = 0.9
"""Probability from which on a pose is confirmed, and the rest of the map seldom searched."""

SEARCH_TRAVEL = 0.25
"""While all is well, new places are sought after so much of the evidence's correlation length."""


@dataclass(frozen=True)
class Candidate:
    """A hypothesis with what the picture tells round it: how well it fits there."""

    hypothesis: Hypothesis
    view: View
    fit: float

    @property
    def informs(self) -> float:
        """What the fit counts: nothing where the map has nothing to compare with."""
        return float(weighed(1.0, self.view.share))

    def ratio(self, floor: float = 0.0) -> float:
        """The log-likelihood ratio against elsewhere of a picture that fits nowhere above `floor`.

        Such a picture tells nothing where it fits best, nor where the map has nothing to compare.
        """
        return self.informs * (self.fit - floor)


class Candidates:
    """Looks at a map's pictures round hypotheses, and seeks new ones over the whole map."""

    def __init__(self, training_map: TrainingMap, parameters: ViewParameters, many: bool) -> None:
        """`many` says whether there may be more than one hypothesis."""
        self._learned = training_map.learned
        self._resemblance = self._learned.resemblance
        self._scales = self._resemblance.scales
        self._poses = training_map.poses
        self._views = MapViews(training_map, self._resemblance, parameters)
        self._many = many
        # A large map is searched more rarely, so that a step costs no more.
        large = max(1.0, len(self._poses) / 5000.0)
        self._search_travel = SEARCH_TRAVEL * large * self._learned.evidence.correlation
        self.reset()

    def prepare(self) -> None:
        """Compute now what the first images would else wait for."""
        self._views.prepare()

    def reset(self) -> None:
        self._numbers = 0
        self._unsought = np.inf

    def look(self, one: Hypothesis, picture: MapObservation) -> Candidate:
        view = self._views.look(picture, one.pose, one.covariance, self._learned.readout)
        return Candidate(one, view, view.fit(self._learned.evidence))

    def sought(
        self,
        picture: MapObservation,
        seen: Sequence[Candidate],
        film: Continuity,
        fresh: float,
        travel: float,
    ) -> list[Candidate]:
        """The picture's best matches over the map: new hypotheses, or old ones that claim them."""
        self._unsought += travel
        surest = max((one.hypothesis.probability for one in seen), default=0.0)
        due = self._unsought > self._search_travel
        unfit = max((one.fit for one in seen), default=0.0) < 0.0
        doubt = film.first or film.cut > NOTICED or surest < CONFIRMED or unfit
        if fresh == 0.0 or not (doubt or due):
            return []
        self._unsought = 0.0
        most = MOST if film.first or film.cut > NOTICED else MOST_BIRTHS
        if not self._many:
            most = 0 if seen else 1
        wide = np.diag((0.25 * self._scales) ** 2)
        found: list[Candidate] = []
        tried: list[Array] = []
        for row in picture.best_rows(BEST_ROWS) if most else ():
            pose = self._poses[row]
            if len(found) == most:
                break
            if any(self._resemblance.between(pose, other) < CLAIMED for other in tried):
                continue
            tried.append(pose)
            claimant = next((one for one in seen if self._claims(one.hypothesis, pose)), None)
            if claimant is not None:
                found.append(claimant)
                continue
            view = self._views.look(picture, pose, wide, self._learned.readout)
            # A hypothesis is that the match is right: its pose errs as right matches do.
            measured = self.measured(view, fresh=1.0, trust=1.0)
            if measured is not None:
                self._numbers += 1
                one = born(measured, self._numbers)
                found.append(Candidate(one, view, view.fit(self._learned.evidence)))
        return found

    def measured(self, view: View, fresh: float, trust: float) -> MeasuredPose | None:
        """The pose that a view measures; the less it is trusted, the larger its variances."""
        if view.pose is None or not np.isfinite(view.pose).all():
            return None
        readout = self._learned.readout
        variances = readout.variances(view.prominence, self._resemblance.apparent(view.contrast))
        return MeasuredPose(
            pose=view.pose,
            variances=variances / max(trust, 1e-6),
            lasting=readout.lasting,
            fresh=fresh,
        )

    def _claims(self, one: Hypothesis, pose: Array) -> bool:
        offset = relative(one.pose, pose)
        reach = CLAIMED * self._scales + 2.0 * np.sqrt(np.diag(one.covariance))
        return bool(np.hypot(offset[0], offset[1]) < reach[:2].max() and abs(offset[2]) < reach[2])
