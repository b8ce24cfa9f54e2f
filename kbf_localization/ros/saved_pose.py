"""The pose kept in a file over a restart of the robot."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kbf_localization.errors import KbfError
from kbf_localization.filters.base import GaussianPrior

_LARGEST = 1e12
"""No metre, square metre or second since 1970 is larger; NaN is not smaller either."""


class SavedPoseError(KbfError):
    """The saved pose cannot be used or written."""


@dataclass(frozen=True)
class SavedPose:
    """A pose on the map `map_identity` at `saved_at` (seconds since 1970, the computer's clock)."""

    prior: GaussianPrior
    map_identity: str
    saved_at: float


def save_pose(path: Path, prior: GaussianPrior, map_identity: str) -> None:
    """Write the file whole or not at all, so that a power cut leaves the old one or the new one."""
    text = json.dumps(
        {
            "pose": [float(value) for value in prior.pose],
            "covariance": [float(value) for value in np.ravel(prior.covariance)],
            "map": map_identity,
            "saved_at": time.time(),
        }
    )
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            temporary = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or error
        raise SavedPoseError(f"the pose cannot be saved in {path}: {reason}") from error


def load_pose(path: Path) -> SavedPose:
    """Read the file; SavedPoseError where it is missing or nonsense."""
    try:
        with path.open(encoding="utf-8") as file:
            content = json.loads(file.read(100_000))
        pose = np.array(content["pose"], dtype=np.float64).reshape(3)
        covariance = np.array(content["covariance"], dtype=np.float64).reshape(3, 3)
        identity, saved_at = str(content["map"]), float(content["saved_at"])
    except OSError as error:
        raise SavedPoseError(f"no saved pose in {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SavedPoseError(f"{path} holds no saved pose; it will be replaced") from error
    numbers = np.concatenate((pose, covariance.ravel(), [saved_at]))
    if not (np.abs(numbers) <= _LARGEST).all():
        raise SavedPoseError(f"{path} holds a pose that cannot be; it will be replaced")
    symmetric = np.allclose(covariance, covariance.T, rtol=1e-6, atol=1e-12)
    if not symmetric or np.linalg.eigvalsh(covariance)[0] < 0.0:
        raise SavedPoseError(f"{path} holds an impossible covariance; it will be replaced")
    return SavedPose(GaussianPrior(pose, covariance), identity, saved_at)


def usable_pose(path: Path, map_identity: str, max_age: float) -> GaussianPrior:
    """The saved pose if it is of this map and at most `max_age` seconds old."""
    saved = load_pose(path)
    age = time.time() - saved.saved_at
    if saved.map_identity != map_identity:
        raise SavedPoseError(f"the pose in {path} is of another map")
    if not 0.0 <= age <= max_age:
        raise SavedPoseError(f"the pose in {path} is {age:.0f} s old, more than saved_pose_max_age")
    return saved.prior
