"""Errors that a user can do something about; the command line prints them as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class KbfError(Exception):
    """A known error: its message names the file or argument and says what to do."""


class DatasetError(KbfError):
    """A drive cannot be read."""


class MissingDriveError(DatasetError):
    """There is no drive of this name."""


class MapError(KbfError):
    """A training map cannot be read, built or written."""


class ParameterError(KbfError):
    """A parameter has a value that it cannot have."""


class DescriberError(KbfError):
    """A describer of images cannot be had, or cannot describe."""


class MissingPackageError(KbfError):
    """A package that only some commands need is not installed."""


EXTRAS = {
    "apsw": "bags",
    "rosbags": "bags",
    "distributed": "dask",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "tornado": "live",
}
"""The optional packages, with the extra of setup.py that installs each."""


def missing_package(package: str) -> MissingPackageError:
    """Return the error that says how to install an optional package."""
    return MissingPackageError(
        f"this needs the package {package}: pip install 'kbf_localization[{EXTRAS[package]}]', "
        f"or pip install {package}"
    )


@contextmanager
def naming_missing_extras() -> Iterator[None]:
    """Within it, the failed import of an optional package says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise missing_package(package) from error
