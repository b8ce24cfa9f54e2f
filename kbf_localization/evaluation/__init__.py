"""Replay, metrics, cross validation and reports."""
