"""Where the node starts from: the saved pose, the parameters' pose, or anywhere on the map."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.filters.base import GaussianPrior
from kbf_localization.ros.saved_pose import SavedPoseError, usable_pose


def first_pose(values: Mapping[str, Any], map_identity: str) -> tuple[GaussianPrior | None, str]:
    """The pose to start from (None: anywhere), and what to tell the user about it."""
    said = []
    if values["saved_pose_file"] and not values["always_reset_initial_pose"]:
        path = Path(values["saved_pose_file"]).expanduser()
        try:
            saved = usable_pose(path, map_identity, values["saved_pose_max_age"])
        except SavedPoseError as error:
            said.append(str(error))
        else:
            return saved, f"starting from the pose saved in {path}"
    if not values["set_initial_pose"]:
        return None, "; ".join([*said, "starting from anywhere on the map"])
    pose = np.array([values[f"initial_pose.{name}"] for name in ("x", "y", "yaw")])
    sigma_xy, sigma_yaw = values["initial_pose.sigma_xy"], values["initial_pose.sigma_yaw"]
    covariance = np.diag(np.square([sigma_xy, sigma_xy, sigma_yaw]))
    return GaussianPrior(pose, covariance), "; ".join([*said, "starting from initial_pose"])
