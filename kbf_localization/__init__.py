"""Localization of a mobile robot from wheel odometry and one camera, by kernel Bayes filtering."""

__version__ = "0.1.0"
