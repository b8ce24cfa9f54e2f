"""The node's localizer and its first pose: saved, given, or anywhere on the map."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.atomic_write import atomic_write
from kbf_localization.datasets.files import read_regular
from kbf_localization.errors import KbfError
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import sound_covariance
from kbf_localization.input_checks import check_prior
from kbf_localization.limits import MAX_SAVED_POSE_BYTES
from kbf_localization.localization import Localizer, LocalizerSettings
from kbf_localization.mapping import load_map


class SavedPoseError(KbfError):
    """The saved pose cannot be used or written."""


@dataclass(frozen=True)
class SavedPose:
    """A pose on the map `map_identity`, saved at `saved_at` (Unix time in seconds)."""

    prior: GaussianPrior
    map_identity: str
    saved_at: float


def save_pose(path: Path, prior: GaussianPrior, map_identity: str) -> None:
    """Write the file atomically, so that a power cut leaves the old or the new file."""
    text = json.dumps(
        {
            "pose": [float(value) for value in prior.pose],
            "covariance": [float(value) for value in np.ravel(prior.covariance)],
            "map": map_identity,
            "saved_at": time.time(),
        }
    )
    try:
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise SavedPoseError(f"the pose cannot be saved in {path}: {reason}") from error


def load_pose(path: Path) -> SavedPose:
    """Read the file; SavedPoseError where it is missing or nonsense."""
    try:
        content = json.loads(read_regular(path, MAX_SAVED_POSE_BYTES))
        pose = np.array(content["pose"], dtype=np.float64).reshape(3)
        covariance = np.array(content["covariance"], dtype=np.float64).reshape(3, 3)
        identity, saved_at = str(content["map"]), float(content["saved_at"])
        check_prior(pose, covariance)
        prior = GaussianPrior(pose, sound_covariance(covariance))
    except KbfError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise SavedPoseError(f"no pose can be read from {path}: {reason}") from error
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise SavedPoseError(f"{path} holds no saved pose; it will be replaced") from error
    return SavedPose(prior, identity, saved_at)


def usable_pose(path: Path, map_identity: str, max_age: float) -> GaussianPrior:
    """Return the saved pose if it is of this map and at most `max_age` seconds old."""
    saved = load_pose(path)
    age = time.time() - saved.saved_at
    if saved.map_identity != map_identity:
        raise SavedPoseError(f"the pose in {path} is of another map")
    if not 0.0 <= age <= max_age:
        raise SavedPoseError(f"the pose in {path} is {age:.0f} s old, more than saved_pose_max_age")
    return saved.prior


def first_pose(values: Mapping[str, Any], map_identity: str) -> tuple[GaussianPrior | None, str]:
    """Return the pose to start from (None: anywhere) and a line for the log."""
    notes = []
    if values["saved_pose_file"] and not values["always_reset_initial_pose"]:
        try:
            path = user_path(values["saved_pose_file"])
            saved = usable_pose(path, map_identity, values["saved_pose_max_age"])
        except KbfError as error:
            notes.append(str(error))
        else:
            return saved, f"starting from the pose saved in {path}"
    if not values["set_initial_pose"]:
        return None, "; ".join([*notes, "starting from anywhere on the map"])
    pose = np.array([values[f"initial_pose.{name}"] for name in ("x", "y", "yaw")])
    sigma_xy, sigma_yaw = values["initial_pose.sigma_xy"], values["initial_pose.sigma_yaw"]
    covariance = np.diag(np.square([sigma_xy, sigma_xy, sigma_yaw]))
    return GaussianPrior(pose, covariance), "; ".join([*notes, "starting from initial_pose"])


def load_localizer(values: Mapping[str, Any], wanted: Callable[[], bool]) -> Localizer | None:
    """Make the localizer that the parameters ask for, off the executor's threads.

    Return None when it is no longer `wanted`, so that a shutdown need not wait.
    """
    if not values["map"]:
        raise KbfError("the parameter 'map' is empty: give it the path of a map file")
    outcome: list[Localizer | BaseException] = []

    def load() -> None:
        try:
            outcome.append(_make(values))
        except BaseException as error:  # raised again by the thread that waits
            outcome.append(error)

    loading = threading.Thread(target=load, name="map loader", daemon=True)
    loading.start()
    while loading.is_alive() and wanted():
        loading.join(timeout=0.02)
    if not wanted():
        return None
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def user_path(text: str) -> Path:
    """Return the path with ~ expanded; KbfError for an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise KbfError(f"{text}: there is no such user's home directory") from error


def localizer_settings(values: Mapping[str, Any]) -> LocalizerSettings:
    """Return the localizer's settings by the node's parameters."""
    names = ("update_min_d", "update_min_a", "estimate")
    return LocalizerSettings(
        standing_update_s=values["standing_update_period"],
        max_tracking_sigma_m=values["max_tracking_sigma"],
        degraded_after_s=values["degraded_after_seconds"],
        degraded_after_travel=values["degraded_after_travel"],
        **{name: values[name] for name in names},
    )


def _make(values: Mapping[str, Any]) -> Localizer:
    network = values["descriptor_model"]
    training_map = load_map(user_path(values["map"]), user_path(network) if network else None)
    pose_filter = make_filter(values["method"], training_map)
    # The first images must not wait for tables that can be made beforehand.
    width, height = training_map.described_by.image_size
    blank = np.zeros((height, width), dtype=np.uint8)
    training_map.image_describer.describe_in_parallel(blank)
    pose_filter.prepare()
    return Localizer(training_map, pose_filter, localizer_settings(values))
