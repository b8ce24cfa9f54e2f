"""The description inside a map file: JSON in, checked values out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

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
from kbf_localization.training_map.learned import Learned
from kbf_localization.training_map.training_map import Source
from kbf_localization.vision.settings import DescriberSettings

LIMITS: dict[str, Range] = {
    **LEARNED,
    "resolution": PLAN_RESOLUTIONS,
    "origin": (-FARTHEST_M, FARTHEST_M),
    "stamps_ns": (0, LAST_STAMP_NS - 1),
}
"""What the numbers of these names may be; other whole ones are counts."""

T = TypeVar("T")


@dataclass(frozen=True)
class PlanPlace:
    """Where a map's floor plan lies, as in `FloorPlanImage`."""

    resolution: float
    origin: tuple[float, float, float]


@dataclass(frozen=True)
class Description:
    """What a map file says besides its arrays.

    `layout` is that of the pyramid, where the map has one; `describer` is as
    `describer.specification` gives it, with the scales of its kernel, None for the pyramid;
    `learned` is None in a map of version 1, which then learns it.
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
    sources, warnings = content.get("sources"), content.get("warnings")
    if not isinstance(sources, list) or not sources:
        raise ValueError("its description names no sources")
    if not isinstance(warnings, list) or not all(isinstance(line, str) for line in warnings):
        raise ValueError("the description's warnings are not lines")
    describer = content.get("describer")
    if not isinstance(describer, (dict, type(None))):
        raise ValueError("the description's describer is not a table")
    parameters = content.get("parameters")
    if not isinstance(parameters, dict):
        raise ValueError("the description's parameters are not a table")
    layout, learned, plan = (content.get(key) for key in ("settings", "learned", "floor_plan"))
    has_pyramid = layout is not None or describer is None
    return Description(
        layout=_made(layout, DescriberSettings, whole=True) if has_pyramid else None,
        describer=describer,
        sources=tuple(_source(source) for source in sources),
        parameters={key: check_parameter(key, value) for key, value in parameters.items()},
        learned=None if learned is None else _made(learned, Learned),
        warnings=tuple(warnings),
        plan=None if plan is None else _made(plan, PlanPlace),
    )


def _source(content: Any) -> Source:
    source = _made(content, Source)
    if source.stamps_ns is not None and source.stamps_ns[0] > source.stamps_ns[1]:
        raise ValueError(f"the stamps of a source are {source.stamps_ns}")
    return source


def _made(content: Any, kind: type[T], *, whole: bool = False) -> T:
    """The data class `kind` of a table, each value of its type and within its limits.

    Unless it must be `whole`, what has a default is missing in maps made before that was known.
    """
    types = get_type_hints(kind)
    optional = {item.name for item in fields(kind) if item.default is not MISSING and not whole}  # type: ignore[arg-type]
    if (
        not isinstance(content, dict)
        or not types.keys() - optional <= content.keys() <= types.keys()
    ):
        raise ValueError(f"the description's {kind.__name__} lacks something")
    return kind(
        **{
            name: _checked(value, types[name], f"the description's {kind.__name__}.{name}", name)
            for name, value in content.items()
        }
    )


def _checked(value: Any, kind: Any, what: str, name: str) -> Any:
    """The value, where it is as a type such as `tuple[float, float] | None` says."""
    if is_dataclass(kind):
        return _made(value, kind)  # type: ignore[arg-type]
    parts = get_args(kind)
    if type(None) in parts:
        return None if value is None else _checked(value, parts[0], what, name)
    if parts:
        if not isinstance(value, list) or len(value) != len(parts):
            raise ValueError(f"{what} has another shape")
        return tuple(
            _checked(one, part, what, name) for one, part in zip(value, parts, strict=True)
        )
    if kind is float:
        return check_number(what, value, LIMITS.get(name, OTHER_LEARNED))
    if kind is int:
        check_count(what, value, LIMITS.get(name, COUNTS))
    elif not isinstance(value, kind):
        raise ValueError(f"{what} is {shortened(value)}")
    return value
