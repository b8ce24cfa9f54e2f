"""Poses with stamps as they come out of a bag, and what they say about other moments."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.geometry import interpolate

if TYPE_CHECKING:
    from kbf_localization.datasets.bag_messages import PlanarPose

LONGEST_GAP_NS = 1_000_000_000
FARTHEST_GAP_M = 0.5
END_TOLERANCE_NS = 100_000_000


class PoseLog:
    """Poses in the order of their stamps, 32 bytes each; what comes late or twice is refused."""

    def __init__(self) -> None:
        self.refused = 0
        self._stamps = array("q")
        self._poses = array("d")

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp_ns: int, pose: PlanarPose | None) -> None:
        newest = self._stamps[-1] if self._stamps else 0
        if pose is None or stamp_ns <= newest:
            self.refused += 1
            return
        self._stamps.append(stamp_ns)
        self._poses.extend(pose)

    @property
    def stamps_ns(self) -> Stamps:
        """(m,) strictly increasing."""
        return np.array(self._stamps, dtype=np.int64)

    @property
    def poses(self) -> Array:
        """(m, 3)."""
        return np.array(self._poses, dtype=np.float64).reshape(-1, 3)


def known_poses(stamps_ns: Stamps, poses: Array, at_ns: Stamps) -> Array:
    """Poses (t, 3) at the times `at_ns`, NaN where they are not known.

    Known is what lies between two poses that are near each other in time or in space (a robot that
    stands still may publish nothing for minutes), or within 0.1 s of the first or last pose.
    """
    result = np.full((len(at_ns), 3), np.nan)
    if len(stamps_ns) == 0:
        return result
    right = np.searchsorted(stamps_ns, at_ns, side="left")
    before = np.clip(right - 1, 0, len(stamps_ns) - 1)
    after = np.clip(right, 0, len(stamps_ns) - 1)
    gap_ns = stamps_ns[after] - stamps_ns[before]
    gap_m = np.hypot(*(poses[after] - poses[before])[:, :2].T)
    known = (gap_ns <= LONGEST_GAP_NS) | (gap_m <= FARTHEST_GAP_M)
    known |= stamps_ns[after] == at_ns
    known &= at_ns >= stamps_ns[0] - END_TOLERANCE_NS
    known &= at_ns <= stamps_ns[-1] + END_TOLERANCE_NS
    result[known] = interpolate(stamps_ns, poses, at_ns[known])
    return result
