"""The filters' hyper-parameters without scale, and the ranges in which they are sought.

They are relative to the map's own spacing and kernels, so one set of defaults serves every map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

import numpy as np

from kbf_localization.errors import ParameterError
from kbf_localization.limits import Range, check_parameter


@dataclass(frozen=True)
class KernelParameters:
    """Those of the paper's filter; its relatives add theirs.

    `bandwidth` is σ_p of k_X in units of the map's spacing (the median distance to the third
    nearest map pose), `heading_bandwidth` σ_θ; `regularization` is nε in units of k_X(x, x);
    `delta` is δ in units of max|β_i|², so that it acts alike on narrow and wide beliefs; `power`
    is that of the image kernel (1 is the paper's); `noise_inflation` multiplies the motion model's
    variances.
    """

    bandwidth: float = 1.3
    heading_bandwidth: float = 0.4
    regularization: float = 0.1
    delta: float = 0.5
    power: float = 12.0
    noise_inflation: float = 6.0

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class NonparametricParameters(KernelParameters):
    """Those of the fully non-parametric filter.

    `control_bandwidth` is the width of the kernel on motions in units of their standard
    deviation, `transition_regularization` is nε of the learnt transition.
    """

    control_bandwidth: float = 1.0
    transition_regularization: float = 0.1


@dataclass(frozen=True)
class MonteCarloParameters(KernelParameters):
    """Those of the kernel Monte Carlo filter: `samples` are drawn at each step."""

    samples: float = 150.0


@dataclass(frozen=True)
class ParticleParameters:
    """Those of the particle filter on the nearest images.

    The likelihood of a particle is a sum of Gaussians of widths `position_width` (in units of the
    map's spacing) and `heading_width` (rad) round the poses of the `neighbours` most similar
    images, weighted by the `power` of the similarity, plus `floor`. `injection` is the share of
    particles placed anew at those poses.
    """

    neighbours: float = 15.0
    position_width: float = 0.7
    heading_width: float = 0.3
    power: float = 8.0
    floor: float = 0.3
    noise_inflation: float = 6.0
    injection: float = 0.02
    particles: float = 500.0

    def __post_init__(self) -> None:
        _check(self)


def _check(parameters: KernelParameters | ParticleParameters) -> None:
    for name, value in asdict(parameters).items():
        try:
            check_parameter(name, float(value))
        except ValueError as error:
            raise ParameterError(str(error)) from error


_KERNEL_RANGES: dict[str, Range] = {
    "bandwidth": (0.8, 1.8),
    "heading_bandwidth": (0.25, 0.6),
    "regularization": (0.03, 0.5),
    "delta": (0.05, 3.0),
    "power": (6.0, 20.0),
    "noise_inflation": (2.0, 20.0),
}
_OF_THE_MODEL = ("noise_inflation",)
SEARCH_RANGES: dict[str, dict[str, Range]] = {
    "kbf": {
        "bandwidth": (0.8, 1.8),
        "heading_bandwidth": (0.5, 1.5),
        "regularization": (0.03, 0.5),
        "delta": (0.05, 3.0),
        "power": (6.0, 20.0),
    },
    "paper": _KERNEL_RANGES,
    "fkbf": {
        **{name: one for name, one in _KERNEL_RANGES.items() if name not in _OF_THE_MODEL},
        "control_bandwidth": (0.3, 4.0),
        "transition_regularization": (0.01, 1.0),
    },
    "kmcf": _KERNEL_RANGES,
    "nn": {
        "neighbours": (3.0, 30.0),
        "position_width": (0.3, 1.5),
        "heading_width": (0.15, 0.6),
        "power": (2.0, 20.0),
        "floor": (0.03, 3.0),
        "noise_inflation": (2.0, 40.0),
        "injection": (0.002, 0.1),
    },
    "nai": {},
}
"""Where each method's parameters are sought; the scale of all of them is logarithmic."""

Parameters = TypeVar("Parameters", bound="KernelParameters | ParticleParameters")


def parameters_of(kind: type[Parameters], method: str, stored: Mapping[str, float]) -> Parameters:
    """Parameters from "<method>.<name>" or plain entries, defaults for what is not there."""
    names = {field.name for field in fields(kind)}
    known = {key.removeprefix(f"{method}."): value for key, value in stored.items()}
    return kind(**{name: float(value) for name, value in known.items() if name in names})


def random_parameters(method: str, generator: np.random.Generator) -> dict[str, float]:
    """One draw from a method's search ranges, log-uniform."""
    return {
        name: float(np.exp(generator.uniform(np.log(low), np.log(high))))
        for name, (low, high) in SEARCH_RANGES[method].items()
    }
