"""The describers by name: those of this package, and those that other packages bring.

Another package registers a describer under the entry point group `kbf_localization.describers`: its
name, and a function from settings to a `Describer` ({} means: its defaults).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from kbf_localization.errors import KbfError
from kbf_localization.limits import shortened
from kbf_localization.vision.describer import Describer
from kbf_localization.vision.pyramid_describer import PyramidDescriber

GROUP = "kbf_localization.describers"

Factory = Callable[[Mapping[str, Any]], Describer]

OWN = ("sift",)
"""Names that no other package can take."""


class DescriberError(KbfError):
    """A describer cannot be had, or cannot describe."""


def describer_names() -> list[str]:
    """The names under which describers are registered."""
    return sorted({*OWN, *(point.name for point in entry_points(group=GROUP))})


def specification(describer: Describer) -> dict[str, Any]:
    """What a map keeps to make the describer again, but for a pyramid's vocabulary."""
    return {
        "name": describer.name,
        "version": describer.version,
        "settings": dict(describer.settings),
    }


def make_describer(
    content: Mapping[str, Any], pyramid: PyramidDescriber | None = None
) -> Describer:
    """The describer of a `specification`; `pyramid` is the one called "sift"."""
    if not isinstance(content, Mapping) or content.keys() != {"name", "version", "settings"}:
        raise ValueError("its describer lacks something")
    name, version, settings = (content[key] for key in ("name", "version", "settings"))
    if not isinstance(name, str) or not isinstance(settings, Mapping):
        raise ValueError("its describer has no name or no settings")
    if name == PyramidDescriber.name:
        if pyramid is None:
            raise ValueError("its describer is a pyramid, but it has no words")
        made: Describer = pyramid
    else:
        made = registered(name)(settings)
    if made.version != version:
        raise DescriberError(
            f"the map was made with version {shortened(version)} of the describer '{name}', "
            f"installed is {made.version}; build the map anew"
        )
    return made


def registered(name: str) -> Factory:
    """What makes the describer called `name` from its settings."""
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise DescriberError(
            f"no describer is called {shortened(name)}: there are {', '.join(describer_names())}; "
            "install the package that brings it"
        )
    try:
        made: Factory = points[0].load()
    except Exception as error:  # another package's code may fail in any way
        raise DescriberError(f"the describer '{name}' cannot be loaded: {error}") from error
    return made


def identity_of(describer: Describer) -> str:
    """A text that says what the rows of a map mean, but for the words of a vocabulary."""
    if isinstance(describer, PyramidDescriber):
        return repr(describer.layout)
    return json.dumps(specification(describer), sort_keys=True)


def same_descriptions(a: Describer, b: Describer) -> bool:
    """Whether what the two give can be compared; their kernels' scales may differ."""
    if identity_of(a) != identity_of(b) or (a.pyramid is None) != (b.pyramid is None):
        return False
    if a.pyramid is None or b.pyramid is None:
        return True
    return np.array_equal(a.pyramid.vocabulary.words, b.pyramid.vocabulary.words)
