"""Kernels, kernel means, and the rules of kernel Bayesian inference."""
