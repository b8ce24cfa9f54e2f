"""The describers by name: those of this package, and those that other packages bring.

Another package registers a describer under the entry point group `kbf_localization.describers`: its
name, and a function from settings to a `Describer` ({} means: its defaults).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.errors import DescriberError
from kbf_localization.limits import check_scale, shortened
from kbf_localization.vision.combination import MAX_PARTS, Product, WeightedSum
from kbf_localization.vision.describer import Describer, specification
from kbf_localization.vision.onnx_describer import OnnxDescriber, read_network
from kbf_localization.vision.visual_words import PyramidDescriber

GROUP = "kbf_localization.describers"

Factory = Callable[[Mapping[str, Any]], Describer]

OWN = ("sift", "onnx", "product", "sum")
"""Names that no other package can take."""


def describer_names() -> list[str]:
    """Return the names under which describers are registered."""
    return sorted({*OWN, *(point.name for point in entry_points(group=GROUP))})


def make_describer(
    content: Mapping[str, Any], pyramid: PyramidDescriber | None = None
) -> Describer:
    """Return the describer of a `specification`; `pyramid` is that called "sift"."""
    if not isinstance(content, Mapping) or content.keys() != {"name", "version", "settings"}:
        raise ValueError("its describer lacks something")
    name, version, settings = (content[key] for key in ("name", "version", "settings"))
    if not isinstance(name, str) or not isinstance(settings, Mapping):
        raise ValueError("its describer has no name or no settings")
    made: Describer
    if name == PyramidDescriber.name:
        if pyramid is None:
            raise ValueError("its describer is a pyramid, but it has no words")
        made = pyramid
    elif name in (Product.name, WeightedSum.name):
        parts = settings.get("parts")
        if not isinstance(parts, list) or len(parts) > MAX_PARTS:
            raise ValueError("its describer names no parts")
        if any(isinstance(part, Mapping) and part.get("name") == name for part in parts):
            raise ValueError("its describer is a combination of itself")
        made_parts = [make_describer(part, pyramid) for part in parts]
        if name == Product.name:
            made = Product(made_parts)
        else:
            made = WeightedSum(made_parts, _weights(settings.get("weights")))
    elif name == OnnxDescriber.name:
        made = OnnxDescriber.from_settings(settings)
    else:
        made = registered(name)(settings)
    if made.version != version:
        raise DescriberError(
            f"the map was made with version {shortened(version)} of the describer '{name}', "
            f"installed is {made.version}; build the map again"
        )
    return made


def registered(name: str) -> Factory:
    """Return the factory of the describer called `name`."""
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        raise DescriberError(
            f"no describer is called {shortened(name)}: there are {', '.join(describer_names())}; "
            "install the package that brings it"
        )
    try:
        made: Factory = points[0].load()
    except Exception as error:  # another package's code may raise anything
        raise DescriberError(f"the describer '{name}' cannot be loaded: {error}") from error
    return made


def _weights(values: Any) -> list[float] | None:
    if values is None:
        return None
    if not isinstance(values, list):
        raise ValueError("the weights of its describers are not numbers")
    return [check_scale(value) for value in values]


def use_network(describer: Describer, path: Path) -> None:
    """Let the describer describe further images by the network file that it was made with."""
    _, digest = read_network(path)
    networks = list(networks_of(describer))
    if not networks:
        raise DescriberError(f"{path}: not needed: the map was made without a network")
    own = [network for network in networks if network.digest == digest]
    if not own:
        known = ", ".join(
            f"'{network.file}' (SHA-256 {network.digest[:12]}…)" for network in networks
        )
        raise DescriberError(
            f"{path}: another network (SHA-256 {digest[:12]}…) than the map was made with, "
            f"{known}; name that file, or build the map again"
        )
    for network in own:
        network.open(path)


def networks_of(describer: Describer) -> Iterator[OnnxDescriber]:
    """Return all networks in a describer."""
    if isinstance(describer, OnnxDescriber):
        yield describer
    for part in getattr(describer, "parts", ()):
        yield from networks_of(part)


def formula(describer: Describer) -> str:
    """Return the describer as a recipe writes it, with the weights of a sum."""
    if isinstance(describer, Product):
        return "*".join(formula(part) for part in describer.parts)
    if isinstance(describer, WeightedSum):
        terms = zip(describer.weights, describer.parts, strict=True)
        return "+".join(f"{weight:.2g}*{formula(part)}" for weight, part in terms)
    return describer.name


def identity_of(describer: Describer) -> str:
    """Return a text that says what the rows of a map mean, but for the words of a vocabulary."""
    if isinstance(describer, PyramidDescriber):
        return repr(describer.layout)
    return json.dumps(specification(describer), sort_keys=True)


def same_descriptions(a: Describer, b: Describer) -> bool:
    """Tell whether what the two give can be compared; their kernels' scales may differ."""
    if identity_of(a) != identity_of(b) or (a.pyramid is None) != (b.pyramid is None):
        return False
    if a.pyramid is None or b.pyramid is None:
        return True
    return np.array_equal(a.pyramid.vocabulary.words, b.pyramid.vocabulary.words)
