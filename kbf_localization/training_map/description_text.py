"""The description inside a map file: JSON in, checked values out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from kbf_localization.limits import (
    COUNTS,
    FARTHEST_M,
    LAST_STAMP_NS,
    LEARNED,
    OTHER_LEARNED,
    PLAN_RESOLUTIONS,
    Range,
    check_count,
    check_number,
    check_parameter,
    shortened,
)
from kbf_localization.training_map.learned import (
    Evidence,
    Learned,
    MotionNoise,
    Readout,
    Resemblance,
)
from kbf_localization.training_map.training_map import Source
from kbf_localization.vision.settings import DescriberSettings


@dataclass(frozen=True)
class PlanPlace:
    """Where a map's floor plan lies, as in `FloorPlanImage`."""

    resolution: float
    origin: tuple[float, float, float]


@dataclass(frozen=True)
class Description:
    """What a map file says besides its arrays.

    `layout` is that of the pyramid, where the map has one; `describer` is as
    `registry.specification` gives it, with the scales of its kernel, None for the pyramid.
    """

    layout: DescriberSettings | None
    describer: Mapping[str, Any] | None
    sources: tuple[Source, ...]
    parameters: Mapping[str, float]
    learned: Learned | None
    warnings: tuple[str, ...]
    plan: PlanPlace | None


def parse_description(text: bytes) -> Description:
    """Raises ValueError for anything that is not as `save_map` writes it."""
    try:
        content = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError("its description is not JSON") from error
    if not isinstance(content, dict):
        raise ValueError("its description is not a table")
    sources = content.get("sources")
    warnings = content.get("warnings")
    if not isinstance(sources, list) or not sources:
        raise ValueError("its description names no sources")
    if not isinstance(warnings, list) or not all(isinstance(line, str) for line in warnings):
        raise ValueError("the description's warnings are not lines")
    describer = content.get("describer")
    if not isinstance(describer, (dict, type(None))):
        raise ValueError("the description's describer is not a table")
    layout = content.get("settings")
    return Description(
        layout=None
        if layout is None and describer is not None
        else DescriberSettings(**_typed(layout, DescriberSettings)),
        describer=describer,
        sources=tuple(_source(source) for source in sources),
        parameters=_parameters(content.get("parameters")),
        learned=_learned(content.get("learned")),
        warnings=tuple(warnings),
        plan=_plan_place(content.get("floor_plan")),
    )


def _source(values: Any) -> Source:
    """A source; in old maps without stamps."""
    stamps = None
    if isinstance(values, dict):
        values = dict(values)
        stamps = values.pop("stamps_ns", None)
    if stamps is not None and not (
        isinstance(stamps, list)
        and len(stamps) == 2
        and all(type(stamp) is int for stamp in stamps)
        and 0 <= stamps[0] <= stamps[1] < LAST_STAMP_NS
    ):
        raise ValueError(f"the stamps of a source are {shortened(stamps)}")
    known = _typed(values, Source, but=("stamps_ns",))
    return Source(**known, stamps_ns=None if stamps is None else (stamps[0], stamps[1]))


def _typed(values: Any, kind: type, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments of data class `kind`, `but` some, each there and of its type."""
    wanted = {item.name: str(item.type) for item in fields(kind) if item.name not in but}
    if not isinstance(values, dict) or values.keys() != wanted.keys():
        raise ValueError(f"the description's {kind.__name__} lacks something")
    for name, annotation in wanted.items():
        value, what = values[name], f"the description's {kind.__name__}.{name}"
        if annotation == "int":
            check_count(what, value, COUNTS)
        elif annotation == "float":
            check_number(what, value, COUNTS)
        elif not isinstance(value, (str, type(None)) if annotation == "str | None" else str):
            raise ValueError(f"{what} is {shortened(value)}")
    return values


def _parameters(values: Any) -> dict[str, float]:
    if not isinstance(values, dict):
        raise ValueError("the description's parameters are not a table")
    return {key: check_parameter(key, value) for key, value in values.items()}


MODELS: dict[str, type] = {
    "resemblance": Resemblance,
    "evidence": Evidence,
    "film": Evidence,
    "readout": Readout,
    "motion_noise": MotionNoise,
}


def _learned(content: Any) -> Learned | None:
    """What the map learned about itself; None in a map of version 1, which then learns it."""
    if content is None:
        return None
    if not isinstance(content, dict) or content.keys() != {item.name for item in fields(Learned)}:
        raise ValueError("what the map learned lacks something")
    models = {name: _model(content[name], kind) for name, kind in MODELS.items()}
    for name in ("drives", "probes"):
        models[name] = check_count(f"what the map learned counts: {name}", content[name], COUNTS)
    revisits = content["revisits"]
    if not isinstance(revisits, bool):
        raise ValueError(f"what the map learned says revisits = {shortened(revisits)}")
    return Learned(**models, revisits=revisits)


def _model(content: Any, kind: type) -> Any:
    """One of the learned models, every number of it in its range and its shape."""
    shapes = {
        "coefficients": (3, 3),
        "log_variance": (3, 3),
        "prominence": (2,) if kind is Readout else (),
        "apparent": (2,),
        "least_variance": (3,),
        "per_metre": (3,),
        "per_radian": (3,),
    }
    # What has a default is missing in maps that were made before it was learned.
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    known = {item.name for item in fields(kind)}
    if not isinstance(content, dict) or not needed <= content.keys() <= known:
        raise ValueError(f"the learned {kind.__name__} lacks something")
    values = {}
    for name in content:
        limits = LEARNED.get(name, OTHER_LEARNED)
        values[name] = _nested(content[name], shapes.get(name, ()), limits, f"the learned {name}")
    if "set_aside" in values:
        values["set_aside"] = int(values["set_aside"])
    return kind(**values)


def _plan_place(content: Any) -> PlanPlace | None:
    if content is None:
        return None
    if not isinstance(content, dict) or content.keys() != {"resolution", "origin"}:
        raise ValueError("the floor plan's place lacks something")
    within = (-FARTHEST_M, FARTHEST_M)
    return PlanPlace(
        check_number("the floor plan's resolution", content["resolution"], PLAN_RESOLUTIONS),
        _nested(content["origin"], (3,), within, "the floor plan's origin"),
    )


def _nested(value: Any, shape: tuple[int, ...], limits: Range, what: str) -> Any:
    """A number, or tuples of numbers of this shape."""
    if not shape:
        return check_number(what, value, limits)
    if not isinstance(value, list) or len(value) != shape[0]:
        raise ValueError(f"{what} has another shape")
    return tuple(_nested(one, shape[1:], limits, what) for one in value)
