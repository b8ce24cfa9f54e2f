"""The localizer that the node and the offline replay share."""

from kbf_localization.localization.localizer import Localizer
from kbf_localization.localization.result import Localization, LocalizerSettings, State

__all__ = ["Localization", "Localizer", "LocalizerSettings", "State"]
