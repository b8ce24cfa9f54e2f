"""Pose filters: the belief filter (kbf), Algorithm 1 of the paper, and the baselines."""
