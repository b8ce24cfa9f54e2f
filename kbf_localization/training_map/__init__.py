"""The training map: building, selecting, storing."""
