"""Pose filters: the kernel Bayes filter and its rivals."""
