"""What came out of a check of a map: figures, a verdict, and what to drive again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags
from kbf_localization.evaluation.map_check.first_fix import FirstFix
from kbf_localization.evaluation.map_check.look_alikes import LookAlike
from kbf_localization.evaluation.map_check.stretches import Stretch, scale_m, sees_nothing
from kbf_localization.evaluation.metrics import GROSS_ERROR_M
from kbf_localization.training_map.recorded import light, part_of_day, recorded
from kbf_localization.training_map.training_map import TrainingMap

GOOD_MEDIAN_M, GOOD_BEYOND = 0.3, 0.02


class CheckedWay(NamedTuple):
    """The replayed poses `path` (t, 3), and how the localizer did at each.

    `errors` (t,) is how far off it was, in metres, and `expected` (t,) their running median;
    `in_sigmas` (t,) are the errors in published standard deviations, `covered` (t,) is whether
    the part of the map without that drive covers the pose.
    """

    path: Array
    errors: Array
    expected: Array
    in_sigmas: Array
    covered: Flags


@dataclass(frozen=True, repr=False)
class MapCheck:
    """What came out of a check.

    `stretches` come in the order of what driving them again would gain. `flatters`: drives were
    held against their own poses.
    """

    training_map: TrainingMap
    way: CheckedWay
    stretches: tuple[Stretch, ...]
    dishonest: tuple[Array, ...]
    look_alikes: tuple[LookAlike, ...]
    first_fixes: tuple[FirstFix, ...]
    flatters: bool

    def __repr__(self) -> str:
        return f"MapCheck({self.verdict})"

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Under the stable keys of `metrics.json`."""
        fixed = [one for one in self.first_fixes if one.images is not None]
        right = [one for one in fixed if one.right]
        return {
            "expected_median_m": self.median_m,
            "expected_p10_m": _percentile(self._errors, 10),
            "expected_p90_m": _percentile(self._errors, 90),
            "expected_beyond_1m": self._beyond,
            "within_three_sigma_share": _mean(self.way.in_sigmas[self.way.covered] <= 3.0),
            "checked_share": _mean(self.way.covered),
            "frames": len(self.way.path),
            "flatters": self.flatters,
            "first_fix": {
                "starts": len(self.first_fixes),
                "fixed_share": _mean([one.images is not None for one in self.first_fixes]),
                "right_share": len(right) / len(fixed) if fixed else None,
                "median_images": _percentile([one.images for one in right], 50),
                "median_metres": _percentile([one.metres for one in right], 50),
                "median_seconds": _percentile([one.seconds for one in right], 50),
            },
            "drives": [
                {
                    "name": source.name,
                    "condition": source.condition,
                    "recorded": None
                    if (times := recorded(source)) is None
                    else [time.isoformat() for time in times],
                    "part_of_day": part_of_day(source),
                    "poses": source.chosen,
                }
                for source in self.training_map.sources
            ],
            "lights": self.lights,
            "stretches": [
                {
                    "from": one.poses[0, :2],
                    "to": one.poses[-1, :2],
                    "metres": one.metres,
                    "why": one.why,
                    "drives": one.drives,
                    "expected_error_m": one.expected_error_m,
                }
                for one in self.stretches
            ],
            "covariance_dishonest": [
                {"from": poses[0, :2], "to": poses[-1, :2]} for poses in self.dishonest
            ],
            "look_alikes": [
                {"a": one.a, "b": one.b, "images_to_tell_apart": one.images_to_tell_apart}
                for one in self.look_alikes
            ],
            "verdict": self.verdict,
            "advice": self.advice,
        }

    @cached_property
    def lights(self) -> list[str]:
        """The lightings and parts of the day in which the map's drives were recorded."""
        found = {light(source) for source in self.training_map.sources}
        return sorted(one for one in found if one is not None)

    @property
    def median_m(self) -> float | None:
        """The expected error in metres; None where nothing could be checked."""
        return _percentile(self._errors, 50)

    @property
    def _errors(self) -> Array:
        """Errors in metres where the rest of the map covers the way."""
        return self.way.errors[self.way.covered]

    @property
    def _beyond(self) -> float | None:
        """The share of images with a gross error."""
        return _mean(self._errors > GROSS_ERROR_M)

    @cached_property
    def spread_m(self) -> Array:
        """How far the errors (t,) near each place of the path range, from 10th to 90th percentile.

        Near are images of any drive within half of d₀; NaN where the path is not covered.
        """
        spread = np.full(len(self.way.path), np.nan)
        covered = np.flatnonzero(self.way.covered)
        if len(covered):
            tree = cKDTree(self.way.path[covered, :2])
            near = tree.query_ball_point(tree.data, 0.5 * scale_m(self.training_map))
            errors = self.way.errors[covered]
            spread[covered] = [np.ptp(np.percentile(errors[rows], (10, 90))) for rows in near]
        return spread

    def sees_nothing(self, poses: Array) -> Flags:
        """Which poses (t, 3) are on a stretch that it names, looking where there is no image."""
        return sees_nothing(self.training_map, self.stretches, poses)

    @cached_property
    def verdict(self) -> str:
        """Whether it will work here, in words."""
        median, beyond = self.median_m, self._beyond
        if median is None or beyond is None:
            return "No verdict: the localizer gave no pose where other drives came by."
        open_m = sum(one.metres for one in self.stretches if one.drives == 0)
        if median <= GOOD_MEDIAN_M and beyond <= GOOD_BEYOND and open_m == 0.0:
            word = "It will work here"
        elif median <= 1.0 and beyond <= 0.2:
            word = "It will work, except where the list below says"
        else:
            word = "It will not work reliably"
        sentence = (
            f"{word}: expect an error of {median:.2f} m (median), beyond 1 m in "
            f"{100 * beyond:.0f} % of the images"
        )
        if open_m > 0.0:
            sentence += f"; {open_m:.0f} m of the way have no picture in the map"
        once = 100.0 * (1.0 - float(np.mean(self.way.covered)))
        if once >= 1.0:
            sentence += f"; {once:.0f} % of the way was seen by one drive only and is not checked"
        if self.flatters:
            sentence += (
                "; this flatters, for no place was seen by two drives: the images were held "
                "against neighbours of the same drive"
            )
        return sentence + "."

    @cached_property
    def advice(self) -> list[str]:
        """What to drive again, the most useful first."""
        ways = {
            "uncovered": "drive it again",
            "one_way": "drive it in the other direction, if robots will",
            "light": "drive it in another light",
            "look_alike": "add a landmark or start elsewhere: it looks like another place",
        }
        found = [
            f"({one.poses[0, 0]:.1f}, {one.poses[0, 1]:.1f}) to ({one.poses[-1, 0]:.1f}, "
            f"{one.poses[-1, 1]:.1f}), {one.metres:.1f} m: {_reason(one)}; {ways[one.why]}"
            for one in self.stretches
        ]
        if len(self.lights) == 1:
            found.append(
                f"all drives are of one light ({self.lights[0]}): if robots work in another, "
                "drive in that one too"
            )
        if self.flatters:
            found.insert(0, "drive the whole way a second time, so that the map can be checked")
        return found


def _reason(stretch: Stretch) -> str:
    if stretch.drives == 0:
        all_round = stretch.blind.mean() > 0.5
        return "no picture in the map" if all_round else "no picture in the direction of driving"
    return {
        "uncovered": "seen by one drive only",
        "one_way": "seen in one direction only",
        "light": "seen in one light only",
        "look_alike": "confused with a place far away",
    }[stretch.why]


def _percentile(values: object, share: float) -> float | None:
    found = np.asarray(values, dtype=np.float64)
    return float(np.percentile(found, share)) if found.size else None


def _mean(values: object) -> float | None:
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()) if found.size else None
