"""Speed, as ratios against a named reference measured in the same run."""

from __future__ import annotations

from typing import Any


def case(ours_ms: float, reference_ms: float, reference: str) -> dict[str, Any]:
    """What `kbf bench` prints and writes of one case; a ratio above 1: we are faster."""
    return {
        "ours_ms": ours_ms,
        "reference_ms": reference_ms,
        "ratio": reference_ms / ours_ms,
        "reference": reference,
    }
