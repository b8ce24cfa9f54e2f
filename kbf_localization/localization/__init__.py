"""The localizer of the node and of the offline replay."""

from kbf_localization.localization.localizer import Localizer
from kbf_localization.localization.result import Localization, LocalizerSettings, State

__all__ = ["Localization", "Localizer", "LocalizerSettings", "State"]
