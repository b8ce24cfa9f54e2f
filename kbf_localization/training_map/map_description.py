"""The description in a map file: all but its arrays, as JSON with the format's own keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from kbf_localization.landmarks.landmark_map import LandmarkDescription
from kbf_localization.limits import (
    CALIBRATION,
    COUNTS,
    LAST_STAMP_NS,
    MAX_COORDINATE_M,
    MAX_MAP_SOURCES,
    OTHER_CALIBRATION,
    PLAN_RESOLUTIONS,
    ParameterValue,
    Range,
    check_count,
    check_number,
    check_parameter,
    shortened,
)
from kbf_localization.motion.noise import MotionNoise
from kbf_localization.training_map.calibration import (
    Calibration,
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
)
from kbf_localization.training_map.sources import Source
from kbf_localization.vision.dense_sift import DescriberSettings

LIMITS: dict[str, Range] = {
    **CALIBRATION,
    "resolution": PLAN_RESOLUTIONS,
    "origin": (-MAX_COORDINATE_M, MAX_COORDINATE_M),
    "stamps_ns": (0, LAST_STAMP_NS - 1),
}
"""Ranges of the numbers with these names; other whole numbers are counts."""

T = TypeVar("T")


@dataclass(frozen=True)
class PlanPlace:
    """The place of a map's floor plan, as in `FloorPlanImage`."""

    resolution: float
    origin: tuple[float, float, float]


@dataclass(frozen=True)
class Description:
    """The content of a map file besides its arrays.

    `layout` is the pyramid's, None without a pyramid; `describer` is what
    `describer.specification` returns, with the scales of its kernel, None for the pyramid;
    `calibration` is None in a map of version 1.
    """

    layout: DescriberSettings | None
    describer: Mapping[str, Any] | None
    sources: tuple[Source, ...]
    parameters: Mapping[str, ParameterValue]
    calibration: Calibration | None
    warnings: tuple[str, ...]
    plan: PlanPlace | None
    landmarks: LandmarkDescription | None
    own_frame: bool = False


KEYS: dict[type[Any], dict[str, str]] = {
    Calibration: {
        "similarity": "similarity",
        "likelihood_ratio": "place_evidence",
        "continuity": "continuity_evidence",
        "relative_pose": "relative_pose",
        "motion_noise": "motion_noise",
        "drives": "drives",
        "probes": "probes",
        "revisits": "revisits",
    },
    SimilarityModel: {
        "amplitude": "amplitude",
        "distance_m": "distance_m",
        "angle_rad": "angle_rad",
        "exponent": "exponent",
    },
    LikelihoodRatioModel: {
        "contrast_coefficient": "contrast_coefficient",
        "prominence_coefficient": "prominence_coefficient",
        "coverage_coefficient": "coverage_coefficient",
        "intercept": "intercept",
        "limit": "limit",
        "correlation_length": "correlation_length",
        "median": "median",
        "q005": "q005",
        "bias_fraction": "bias_fraction",
    },
    RelativePoseModel: {
        "coefficients": "coefficients",
        "log_variance": "log_variance",
        "prominence_range": "prominence_range",
        "separation_range": "separation_range",
        "variance_floor": "variance_floor",
        "correlation_length": "correlation_length",
        "bias_fraction": "bias_fraction",
    },
    MotionNoise: {
        "per_metre": "variance_per_m",
        "per_radian": "variance_per_rad",
        "set_aside": "outliers",
    },
    Source: {
        "name": "name",
        "kind": "kind",
        "condition": "condition",
        "frames": "images",
        "chosen": "chosen",
        "stamps_ns": "stamps_ns",
    },
    PlanPlace: {"resolution": "resolution", "origin": "origin"},
    DescriberSettings: {
        "image_width": "image_width",
        "image_height": "image_height",
        "patch_size": "patch_size",
        "grid_step": "grid_step",
        "levels": "levels",
        "words": "vocabulary_size",
        "flat_gradient": "flat_gradient",
    },
}
"""The format's key of each field: a renamed field keeps its key."""

OLD_KEYS: dict[type[Any], dict[str, str]] = {
    Calibration: {
        "resemblance": "similarity",
        "evidence": "place_evidence",
        "film": "continuity_evidence",
        "readout": "relative_pose",
    },
    LikelihoodRatioModel: {
        "contrast": "contrast_coefficient",
        "prominence": "prominence_coefficient",
        "expected": "coverage_coefficient",
        "bias": "intercept",
        "correlation": "correlation_length",
        "usual": "median",
        "low": "q005",
        "lasting": "bias_fraction",
    },
    RelativePoseModel: {
        "prominence": "prominence_range",
        "apparent": "separation_range",
        "least_variance": "variance_floor",
        "correlation": "correlation_length",
        "lasting": "bias_fraction",
    },
    MotionNoise: {
        "per_metre": "variance_per_m",
        "per_radian": "variance_per_rad",
        "set_aside": "outliers",
    },
    Source: {"frames": "images"},
    DescriberSettings: {"words": "vocabulary_size"},
}
"""Keys of versions 2 and 3, and the keys that have replaced them."""

OLD_ARRAYS = {"trajectories": "ways", "trajectory_ends": "way_ends"}
"""Names of arrays in versions 2 and 3, by those that have replaced them."""


_FIELDS: dict[type[Any], tuple[dict[str, Any], frozenset[str]]] = {
    kind: (
        get_type_hints(kind),
        frozenset(item.name for item in fields(kind) if item.default is not MISSING),
    )
    for kind in KEYS
}
"""The types of each data class's fields, and the names of those with a default."""


def parse_description(text: bytes) -> Description:
    """Parse the description; ValueError for anything that is not as `save_map` writes it."""
    try:
        content = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError("its description is not JSON") from error
    if not isinstance(content, dict):
        raise ValueError("its description is not a table")
    sources, warnings = content.get("sources"), content.get("warnings")
    if not isinstance(sources, list) or not sources:
        raise ValueError("its description names no sources")
    if len(sources) > MAX_MAP_SOURCES:
        raise ValueError(f"it has {len(sources)} sources, more than {MAX_MAP_SOURCES}")
    if not isinstance(warnings, list) or not all(isinstance(line, str) for line in warnings):
        raise ValueError("the description's warnings are not lines")
    describer = content.get("describer")
    if not isinstance(describer, (dict, type(None))):
        raise ValueError("the description's describer is not a table")
    parameters = content.get("parameters")
    if not isinstance(parameters, dict):
        raise ValueError("the description's parameters are not a table")
    layout, plan = content.get("settings"), content.get("floor_plan")
    landmarks = content.get("landmarks")
    calibration = content.get("calibration", content.get("learned"))
    has_pyramid = layout is not None or describer is None
    own_frame = content.get("own_frame", False)
    if not isinstance(own_frame, bool):
        raise ValueError("the description's own_frame is neither true nor false")
    return Description(
        layout=_from_keys(layout, DescriberSettings, complete=True) if has_pyramid else None,
        describer=describer,
        sources=tuple(_source(source) for source in sources),
        parameters={key: check_parameter(key, value) for key, value in parameters.items()},
        calibration=None if calibration is None else _from_keys(calibration, Calibration),
        warnings=tuple(warnings),
        plan=None if plan is None else _from_keys(plan, PlanPlace),
        landmarks=None if landmarks is None else LandmarkDescription.from_dict(landmarks),
        own_frame=own_frame,
    )


def _source(content: Any) -> Source:
    source = _from_keys(content, Source)
    if source.stamps_ns is not None and source.stamps_ns[0] > source.stamps_ns[1]:
        raise ValueError(f"the stamps of a source are {source.stamps_ns}")
    return source


def _from_keys(content: Any, kind: type[T], *, complete: bool = False) -> T:
    """Return the data class `kind` of a table, each value of its type and within its limits.

    Unless it must be `complete`, values with a default may be missing, as in older maps.
    """
    types, optional = _FIELDS[kind]
    keys, optional = KEYS[kind], frozenset() if complete else optional
    if not isinstance(content, dict):
        raise ValueError(f"the description's {kind.__name__} is not a table")
    older = OLD_KEYS.get(kind, {})
    content = {older.get(key, key): value for key, value in content.items()}
    named = {field: content[key] for field, key in keys.items() if key in content}
    if not types.keys() - optional <= named.keys() or len(named) != len(content):
        raise ValueError(f"the description's {kind.__name__} lacks something")
    return kind(
        **{
            name: _checked(value, types[name], f"the description's {kind.__name__}.{name}", name)
            for name, value in named.items()
        }
    )


def to_keys(value: Any) -> Any:
    """Return a data class as a table with the format's keys."""
    if is_dataclass(value):
        keys = KEYS[type(value)]
        return {keys[item.name]: to_keys(getattr(value, item.name)) for item in fields(value)}
    return value


def _checked(value: Any, kind: Any, what: str, name: str) -> Any:
    """Return the value if it is of a type such as `tuple[float, float] | None`; else ValueError."""
    if is_dataclass(kind):
        return _from_keys(value, kind)  # type: ignore[arg-type]
    parts = get_args(kind)
    if type(None) in parts:
        return None if value is None else _checked(value, parts[0], what, name)
    if parts:
        if not isinstance(value, list) or len(value) != len(parts):
            raise ValueError(f"{what} has another shape")
        return tuple(
            _checked(item, part, what, name) for item, part in zip(value, parts, strict=True)
        )
    if kind is float:
        return check_number(what, value, LIMITS.get(name, OTHER_CALIBRATION))
    if kind is int:
        check_count(what, value, LIMITS.get(name, COUNTS))
    elif not isinstance(value, kind):
        raise ValueError(f"{what} is {shortened(value)}")
    return value
