"""Numerical integrals over R and R², which the closed forms are held against."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy.integrate import quad

from kbf_localization.arrays import Array

Function = Callable[[Array], Array]


def random_scale(generator: np.random.Generator, dimension: int) -> Array:
    """A well-conditioned random positive definite matrix (dimension, dimension)."""
    factor = generator.uniform(-0.7, 0.7, (dimension, dimension))
    return factor @ factor.T + generator.uniform(0.2, 1.0) * np.eye(dimension)


def integral_on_line(function: Function, breaks: Sequence[float]) -> float:
    """∫ f(x) dx over R for f of points (n, 1), smooth but at the `breaks`."""
    edges = [-np.inf, *sorted(breaks), np.inf]
    return sum(
        quad(
            lambda x: float(function(np.array([[x]]))[0]),
            low,
            high,
            epsabs=1e-13,
            epsrel=1e-11,
            limit=200,
        )[0]
        for low, high in pairwise(edges)
        if low < high
    )


def integral_on_box(function: Function, centre: Array, reach: float) -> float:
    """∫ f over the square of half-width `reach` round `centre`, for a smooth f; Gauss–Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(160)
    u, v = np.meshgrid(nodes, nodes, indexing="ij")
    points = centre + reach * np.stack([u.ravel(), v.ravel()], axis=1)
    return float(reach**2 * np.outer(weights, weights).ravel() @ function(points))


def integral_round_two_points(
    function: Function, first: Array, second: Array, scale: Array
) -> float:
    """∫ f over R² for f with a kink, in Mahalanobis distance of `scale`, at two points.

    In elliptic coordinates with the points as foci, (cosh μ cos ν, sinh μ sin ν) times half their
    distance, the distances to both are smooth, and so is what depends on them.
    """
    lower = np.linalg.cholesky(scale)
    apart = np.linalg.solve(lower, second - first)
    focus = np.linalg.norm(apart) / 2.0
    along = apart / (2.0 * focus)
    turn = np.array([along, [-along[1], along[0]]]).T
    nodes, weights = np.polynomial.legendre.leggauss(60)
    total = 0.0
    angle = np.pi * (nodes + 1.0)
    for low in np.arange(0.0, 24.0, 1.5):
        mu, nu = np.meshgrid(low + 0.75 * (nodes + 1.0), angle, indexing="ij")
        plane = focus * np.stack([np.cosh(mu) * np.cos(nu), np.sinh(mu) * np.sin(nu)], axis=-1)
        jacobian = focus**2 * (np.sinh(mu) ** 2 + np.sin(nu) ** 2)
        points = (first + second) / 2.0 + plane.reshape(-1, 2) @ turn.T @ lower.T
        mass = np.outer(0.75 * weights, np.pi * weights) * jacobian * np.linalg.det(lower)
        total += float(mass.ravel() @ function(points))
    return total
