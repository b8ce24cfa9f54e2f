"""Pose filters: the bank of hypotheses, Algorithm 1 of the paper, and the baselines."""
