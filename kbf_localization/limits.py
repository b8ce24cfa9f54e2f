"""How large what comes from outside may be; SECURITY.md documents the same limits.

Each is far above what robots, cameras and recorders give, and far below what harms.
"""

from __future__ import annotations

import resource

from kbf_localization.errors import KbfError

Range = tuple[float, float]

# Numbers in messages, saved poses and maps.
MAX_COORDINATE_M = 1e7
"""A coordinate; UTM's reach to it. There double precision resolves 2 nm, and filters compute with
differences of positions, never with their squares."""
MAX_MAP_EXTENT_M = 1e6
"""Between two poses of a map; drives in UTM's and in a building's own frame are farther apart."""
MAX_SIGMA_M = 1e4
"""Standard deviation of a given position."""
MAX_SIGMA_RAD = 1e2
"""Standard deviation of a given heading, far more than "unknown"."""
VARIANCES: Range = (1e-12, 1e12)
"""Of a published covariance, in every direction."""
LAST_STAMP_NS = 2**63
"""A stamp, in nanoseconds."""

# The machine.
MIN_COMMAND_BYTES = 1_000_000_000
"""Address space of a command: the numeric libraries alone take 0.7 GB, and below crash or hang."""
MIN_NODE_BYTES = 1_500_000_000
"""Address space of the node: 1.4 GB with a small map, most of it stacks and arenas of threads."""

# Files.
MAX_PATH_BYTES = 4095
"""Linux's PATH_MAX without the null byte."""
MAX_SAVED_POSE_BYTES = 100_000
MAX_PARAMETER_FILE_BYTES = 1_000_000
MAX_METADATA_BYTES = 10_000_000
"""A bag's metadata."""

MAX_MAP_BYTES = 20_000_000_000
"""A map, all of which is read; one of 250,000 poses has about 4 GB."""

MAX_MAP_SOURCES = 10_000
"""Drives that a map was made of; each has a row in tables and a trajectory."""

# Networks.
MAX_NETWORK_BYTES = 2_000_000_000
"""A network file; protobuf itself reads no more."""
MAX_NETWORK_VECTOR = 65_536
"""Numbers that a network gives for an image."""

# Images.
MAX_MAP_PIXELS = 10_000_000
"""The size to which a map brings images; describing takes about 16 bytes per pixel."""
MAX_MAP_PATCHES = 250_000
"""Patches of an image; a descriptor takes 512 bytes."""
MAX_PLAN_PIXELS = 50_000_000
"""A floor plan, in its file and in a map: a byte each."""
PLAN_RESOLUTIONS: Range = (1e-6, 1e3)
"""Of a floor plan, in metres per pixel."""

_KINDS: dict[Range, str] = {
    (0.01, 100.0): "bandwidth heading_bandwidth",
    (1e-3, 1e3): "control_bandwidth position_width",
    (1e-3, 1e2): "heading_width",
    (1e-12, 1e6): "regularization transition_regularization delta",
    (0.01, 1e3): "power",
    (1e-6, 1e6): "noise_inflation",
    (0.0, 1e6): "floor",
    (0.0, 1.0): "injection",
    (1.0, 1e4): "neighbours",
    (1.0, 1e5): "samples particles",
}
PARAMETERS = {name: limits for limits, names in _KINDS.items() for name in names.split()}
"""What each hyper-parameter of a map or of a parameter file may be."""
CHOICES = {"rule": ("original", "importance-weighted", "plain")}
"""What each hyper-parameter may be whose value is a name."""
ParameterValue = float | str
"""Of a hyper-parameter: a number, or one of its `CHOICES`."""
OTHER_PARAMETERS: Range = (-1e12, 1e12)
"""Those of other names, which are kept and not used."""

CALIBRATION: dict[str, Range] = {
    "amplitude": (1e-6, 1e2),
    "distance_m": (1e-6, MAX_MAP_EXTENT_M),
    "angle_rad": (1e-6, 10.0),
    "exponent": (0.1, 10.0),
    "limit": (1e-6, 1e2),
    "correlation_length": (1e-6, 1e6),
    "bias_fraction": (0.0, 1.0),
    "variance_floor": (0.0, 1e6),
    "per_metre": (0.0, 1e6),
    "per_radian": (0.0, 1e6),
    "log_variance": (-1e3, 1e3),
}
"""Ranges of a calibration's numbers."""
OTHER_CALIBRATION: Range = (-1e6, 1e6)

SCALES: Range = (1e-9, 1e9)
"""A scale of an image kernel."""
COUNTS: Range = (0, 2**31 - 1)
"""What is counted in a map's description."""


def check_address_space(minimum: int) -> None:
    """Refuse a limit (`ulimit -v`) below which the libraries cannot even be loaded."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < minimum:
        raise KbfError(
            f"the address space is limited to {allowed / 1e6:.0f} MB, and {minimum / 1e6:.0f} MB "
            "or more are needed; raise the limit (ulimit -v), or limit the resident memory instead"
        )


def check_number(what: str, value: object, limits: Range) -> float:
    """Return a number from outside; ValueError where it is not within its limits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{what} is {shortened(value)}, not a number")
    low, high = limits
    if not low <= value <= high:  # neither is NaN; integers of any length can be compared
        raise ValueError(f"{what} is {shortened(value)}, not within {low:g} to {high:g}")
    return float(value)


def check_count(what: str, value: object, limits: Range) -> int:
    """Return a whole number from outside; ValueError where it is not within its limits."""
    if not isinstance(value, int):
        raise ValueError(f"{what} is {shortened(value)}, not a whole number")
    return int(check_number(what, value, limits))


def check_scale(value: object) -> float:
    """Return a fitted scale of an image kernel; ValueError where it is not within its limits."""
    return check_number("a scale of the image kernel", value, SCALES)


def check_parameter(name: str, value: object) -> ParameterValue:
    """Return the value of a parameter such as "nn.particles"; ValueError beyond its limits."""
    plain_name = name.rpartition(".")[2]
    if plain_name in CHOICES:
        for choice in CHOICES[plain_name]:
            if value == choice:
                return choice
        names = ", ".join(CHOICES[plain_name])
        raise ValueError(f"parameter {name} is {shortened(value)}: choose from {names}")
    limits = PARAMETERS.get(plain_name, OTHER_PARAMETERS)
    return check_number(f"parameter {name}", value, limits)


def shortened(value: object) -> str:
    """Return a value from outside as text for an error; integers of 4300 digits have none."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:37]}..."
