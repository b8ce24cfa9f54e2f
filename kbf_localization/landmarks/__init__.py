"""Landmarks: points triangulated from the mapping drives, which measure a camera image's pose."""
