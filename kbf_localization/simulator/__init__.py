"""A simulated office that is driven through, photographed, and written in COLD's layout."""

from kbf_localization.simulator.optics import SimulatedCamera
from kbf_localization.simulator.simulated_drives import simulate, simulate_along

__all__ = ["SimulatedCamera", "simulate", "simulate_along"]
