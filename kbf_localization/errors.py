"""Errors that a user can do something about; the command line prints them as one line."""


class KbfError(Exception):
    """A known error: its message names the file or argument and says what to do."""


class DatasetError(KbfError):
    """A drive cannot be read."""


class MapError(KbfError):
    """A training map cannot be read, built or written."""


class ParameterError(KbfError):
    """A parameter has a value that it cannot have."""
