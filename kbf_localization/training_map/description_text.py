"""The description inside a map file: JSON in, checked values out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kbf_localization.training_map.training_map import Source
from kbf_localization.vision.settings import DescriberSettings


@dataclass(frozen=True)
class Description:
    """What a map file says besides its arrays."""

    settings: DescriberSettings
    sources: tuple[Source, ...]
    parameters: Mapping[str, float]
    thresholds: Mapping[str, float]
    warnings: tuple[str, ...]


def parse_description(text: bytes) -> Description:
    """Raises ValueError for anything that is not as `save_map` writes it."""
    try:
        content = json.loads(text)
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError("its description is not JSON") from error
    if not isinstance(content, dict):
        raise ValueError("its description is not a table")
    sources = content.get("sources")
    warnings = content.get("warnings")
    if not isinstance(sources, list) or not sources:
        raise ValueError("its description names no sources")
    if not isinstance(warnings, list) or not all(isinstance(line, str) for line in warnings):
        raise ValueError("the description's warnings are not lines")
    return Description(
        settings=DescriberSettings(**_typed(content.get("settings"), DescriberSettings)),
        sources=tuple(Source(**_typed(source, Source)) for source in sources),
        parameters=_numbers(content.get("parameters"), "parameters"),
        thresholds=_numbers(content.get("thresholds"), "thresholds"),
        warnings=tuple(warnings),
    )


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "str | None": (str, type(None)),
}


def _typed(values: Any, kind: type) -> dict[str, Any]:
    """The arguments of data class `kind`, each there and of its type."""
    wanted = {item.name: str(item.type) for item in fields(kind)}
    if not isinstance(values, dict) or values.keys() != wanted.keys():
        raise ValueError(f"the description's {kind.__name__} lacks something")
    for name, annotation in wanted.items():
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, _TYPES[annotation]):
            raise ValueError(f"the description's {kind.__name__}.{name} is {value!r}")
        if isinstance(value, (int, float)) and not 0 <= value < 2**31:
            raise ValueError(f"the description's {kind.__name__}.{name} is {value!r}")
    return values


def _numbers(values: Any, name: str) -> dict[str, float]:
    if not isinstance(values, dict):
        raise ValueError(f"the description's {name} are not a table")
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"the description's {name} have {key} = {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"the description's {name} have {key} = {value!r}")
    return {key: float(value) for key, value in values.items()}
