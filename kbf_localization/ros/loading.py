"""Makes the localizer that the parameters ask for, off the executor's threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.errors import KbfError
from kbf_localization.filters.kernel_bayes_filter import KernelBayesFilter
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localizer, LocalizerSettings
from kbf_localization.training_map import load_map


def load_localizer(values: Mapping[str, Any], wanted: Callable[[], bool]) -> Localizer | None:
    """The localizer; None when it is no longer `wanted`, so that a shutdown need not wait."""
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


def _make(values: Mapping[str, Any]) -> Localizer:
    training_map = load_map(Path(values["map"]).expanduser())
    settings = LocalizerSettings(
        update_min_d=values["update_min_d"],
        update_min_a=values["update_min_a"],
        estimate=values["estimate"],
    )
    pose_filter = make_filter(values["method"], training_map)
    # The first images must not wait for tables that can be made beforehand.
    size = training_map.describer_settings
    blank = np.zeros((size.image_height, size.image_width), dtype=np.uint8)
    training_map.describer().describe(blank)
    if isinstance(pose_filter, KernelBayesFilter):
        pose_filter.prepare()
    return Localizer(training_map, pose_filter, settings)
