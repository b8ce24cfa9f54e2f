"""The filters' hyper-parameters without scale, and their tuning ranges.

They are relative to the map's own spacing and kernels, so one set of defaults serves every map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from kbf_localization.embeddings.bayes_rule import Form
from kbf_localization.errors import ParameterError
from kbf_localization.limits import ParameterValue, Range, check_parameter


def tunable(default: float, low: float, high: float) -> Any:
    """Declare a parameter whose tuning range is `low` to `high` on a logarithmic scale."""
    return field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True)
class _Checked:
    """Refuses a value that a parameter cannot have."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            try:
                check_parameter(name, value if isinstance(value, str) else float(value))
            except ValueError as error:
                raise ParameterError(str(error)) from error


@dataclass(frozen=True)
class KernelBayesParameters(_Checked):
    """Those of the kernel Bayes' rule, which all kernel filters have.

    `bandwidth` is σ_p of k_X in units of the map's spacing (the median distance to the third
    nearest map pose), `heading_bandwidth` σ_θ in units of φ₀; `regularization` is nε in units of
    k_X(x, x); `power` is that of the image kernel (1 is the paper's). `rule` is the form of the
    rule (`embeddings/bayes_rule.py`), and `delta` what regularizes it: δ in units of
    max|β_i|² or, for the importance-weighted form, λ in units of max|β_i|, so that it acts alike on
    narrow and wide beliefs.
    """

    bandwidth: float = tunable(1.3, 0.8, 1.8)
    heading_bandwidth: float = tunable(0.9, 0.5, 1.5)
    regularization: float = tunable(0.1, 0.03, 0.5)
    delta: float = tunable(0.5, 0.05, 3.0)
    power: float = tunable(12.0, 1.0, 20.0)
    rule: Form = "original"


@dataclass(frozen=True)
class BeliefParameters(KernelBayesParameters):
    """Those of `kbf`."""


@dataclass(frozen=True)
class KernelParameters(KernelBayesParameters):
    """Those of the paper's filter: `noise_inflation` multiplies the motion model's variances.

    `heading_bandwidth` is σ_θ in radians. The defaults are the paper's: the bare image kernel and
    the estimated variances. Bandwidths and regularizations, which the paper tunes, are those that
    serve with them.
    """

    heading_bandwidth: float = tunable(0.4, 0.25, 0.6)
    delta: float = tunable(0.01, 1e-4, 0.5)
    power: float = tunable(1.0, 1.0, 20.0)
    noise_inflation: float = tunable(1.0, 1.0, 40.0)


@dataclass(frozen=True)
class ImportanceWeightedParameters(KernelParameters):
    """Those of the paper's filter with the importance-weighted rule.

    `delta` is λ in units of max β: as λ falls the rule becomes a regression that leaves the prior
    out, as it grows it becomes the plain product of prior and similarity.
    """

    delta: float = tunable(5.0, 0.1, 100.0)
    rule: Form = "importance-weighted"


@dataclass(frozen=True)
class NonparametricParameters(KernelParameters):
    """Those of the fully non-parametric filter.

    `control_bandwidth` is the width of the kernel on motions in units of their standard
    deviation, `transition_regularization` is nε of the learnt transition.
    """

    control_bandwidth: float = tunable(1.0, 0.3, 4.0)
    transition_regularization: float = tunable(0.1, 0.01, 1.0)


@dataclass(frozen=True)
class MonteCarloParameters(KernelParameters):
    """Those of the kernel Monte Carlo filter: `samples` are drawn at each step."""

    samples: float = 150.0


@dataclass(frozen=True)
class ParticleParameters(_Checked):
    """Those of the particle filter on the nearest images.

    The likelihood of a particle is a sum of Gaussians round the poses of the `neighbours` most
    similar images, weighted by the `power` of the similarity, plus `floor`. `noise_inflation`
    multiplies the motion model's variances.
    """

    neighbours: float = tunable(15.0, 3.0, 30.0)
    position_width: float = tunable(0.7, 0.3, 1.5)
    """Of the Gaussians, in units of the map's spacing."""
    heading_width: float = tunable(0.3, 0.15, 0.6)
    """In radians."""
    power: float = tunable(8.0, 2.0, 20.0)
    floor: float = tunable(0.3, 0.03, 3.0)
    noise_inflation: float = tunable(6.0, 2.0, 40.0)
    injection: float = tunable(0.02, 0.002, 0.1)
    """Fraction of particles that are replaced by poses of the nearest images."""
    particles: float = 500.0


@dataclass(frozen=True)
class NeighbourParameters(_Checked):
    """Those of the particle filter on the nearest images as the paper describes it.

    The `neighbours` most similar images count alike, and no particle is placed by an image.
    """

    neighbours: float = tunable(10.0, 3.0, 30.0)
    position_width: float = tunable(0.7, 0.3, 1.5)
    """Of the Gaussians, in units of the map's spacing."""
    heading_width: float = tunable(0.3, 0.15, 0.6)
    """In radians."""
    noise_inflation: float = tunable(1.0, 1.0, 40.0)
    particles: float = 500.0

    power: ClassVar[float] = 0.0
    floor: ClassVar[float] = 0.0
    injection: ClassVar[float] = 0.0


def _ranges(kind: type[_Checked]) -> dict[str, Range]:
    return {item.name: item.metadata["range"] for item in fields(kind) if "range" in item.metadata}


METHOD_PARAMETERS: dict[str, type[_Checked]] = {
    "kbf": BeliefParameters,
    "paper": KernelParameters,
    "paper-iw": ImportanceWeightedParameters,
    "fkbf": NonparametricParameters,
    "kmcf": MonteCarloParameters,
    "nn": ParticleParameters,
    "nn-paper": NeighbourParameters,
}
"""The class of each method's parameters; `nai` has none."""

SEARCH_RANGES: dict[str, dict[str, Range]] = {
    "nai": {},
    **{method: _ranges(kind) for method, kind in METHOD_PARAMETERS.items()},
}
"""The tuning ranges of each method's parameters, all on a logarithmic scale."""

# It learns the motion from pairs.
del SEARCH_RANGES["fkbf"]["noise_inflation"]

Parameters = TypeVar("Parameters", bound=_Checked)


def parameters_of(
    kind: type[Parameters], method: str, stored: Mapping[str, ParameterValue]
) -> Parameters:
    """Return parameters from "<method>.<name>" or plain entries, and defaults for the others."""
    defaults: dict[str, Any] = vars(kind())
    known = {key.removeprefix(f"{method}."): value for key, value in stored.items()}
    chosen = {name: type(defaults[name])(known[name]) for name in defaults if name in known}
    return kind(**chosen)


def random_parameters(method: str, generator: np.random.Generator) -> dict[str, float]:
    """Draw from a method's tuning ranges, log-uniformly."""
    return {
        name: float(np.exp(generator.uniform(np.log(low), np.log(high))))
        for name, (low, high) in SEARCH_RANGES[method].items()
    }
