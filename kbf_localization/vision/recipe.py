"""A describer as the command line writes it: "sift", "onnx", "sift*onnx", "0.3*sift+0.7*onnx"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kbf_localization.errors import DescriberError, ParameterError
from kbf_localization.vision.combination import Product, WeightedSum
from kbf_localization.vision.describer import Describer
from kbf_localization.vision.registry import describer_names, registered
from kbf_localization.vision.visual_words import PyramidDescriber


@dataclass(frozen=True)
class Recipe:
    """Describers by name, of which `known` are made already; the pyramid is made with the map.

    "a*b" is the product of their kernels, "a+b" their sum with weights that the map learns,
    "0.3*a+0.7*b" with these weights.
    """

    text: str
    known: Mapping[str, Describer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for weight, names in self._terms():
            for name in names:
                if name not in self.known and name not in describer_names():
                    single = set(describer_names()) - {Product.name, WeightedSum.name}
                    raise ParameterError(
                        f"no describer is called '{name}': there are {', '.join(sorted(single))}"
                    )
            if weight is not None and not 0.0 < weight < 1e6:
                raise ParameterError(f"--descriptor: the weight {weight:g} is not positive")

    def names(self) -> list[str]:
        """Return the names of all parts."""
        return [name for _, names in self._terms() for name in names]

    def make(self, pyramid: Callable[[], PyramidDescriber]) -> Describer:
        """Return the describer; `pyramid` is called once where it is among them."""
        try:
            terms = [
                (weight, [self._one(name, pyramid) for name in names])
                for weight, names in self._terms()
            ]
            parts = [made[0] if len(made) == 1 else Product(made) for _, made in terms]
            if len(parts) == 1:
                return parts[0]
            weights = [weight for weight, _ in terms if weight is not None]
            if weights and len(weights) < len(parts):
                raise ParameterError(f"'{self.text}': give all describers a weight, or none")
            return WeightedSum(parts, weights or None)
        except ValueError as error:
            raise DescriberError(f"'{self.text}': {error}") from error

    def _one(self, name: str, pyramid: Callable[[], PyramidDescriber]) -> Describer:
        if name in self.known:
            return self.known[name]
        return pyramid() if name == PyramidDescriber.name else registered(name)({})

    def _terms(self) -> list[tuple[float | None, list[str]]]:
        terms: list[tuple[float | None, list[str]]] = []
        for term in self.text.split("+"):
            factors = [factor.strip() for factor in term.split("*")]
            weight = None
            try:
                weight = float(factors[0])
                factors = factors[1:]
            except ValueError:
                pass
            if not factors or not all(factors):
                raise ParameterError(
                    f"'{self.text}' names no describer: write for example sift, onnx, sift*onnx or "
                    "0.5*sift+0.5*onnx"
                )
            terms.append((weight, factors))
        return terms
