"""The kernel sum rules: kernel mean of x in, kernel mean of y out; they chain in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.density import ConjugacyError, Density
from kbf_localization.embeddings.kernel_mean import KernelMean, KernelMeanSum
from kbf_localization.embeddings.kernels import DensityKernel, Kernel
from kbf_localization.embeddings.linear_solver import relative_solver
from kbf_localization.embeddings.validation import as_points, as_positive, as_vector


class SumRule(Protocol):
    """Takes the kernel mean of x to that of y ~ p(y | x), under a control where it has one."""

    def __call__(self, prior: KernelMean, control: Any = None) -> KernelMean: ...


class AffineMap:
    """f(x) = A x + b with `matrix` A (p, m) and `offset` b (p,), zero when omitted."""

    def __init__(self, matrix: ArrayLike, offset: ArrayLike | None = None) -> None:
        self.matrix = as_points("matrix", matrix)
        rows = len(self.matrix)
        self.offset = np.zeros(rows) if offset is None else as_vector("offset", offset, rows)

    def __repr__(self) -> str:
        rows, columns = self.matrix.shape
        return f"AffineMap(from {columns} to {rows} dimensions)"

    def __call__(self, points: Array) -> Array:
        return np.asarray(points @ self.matrix.T + self.offset)


NoiseModel = Callable[..., Sequence[Density]]
"""Gives the noise of each of the points (n, m), as noise(points) or noise(points, control)."""


class ModelBasedSumRule:
    """Mb-KSR: y = f(x) + ε with a known `function` f and `noise` (None: y = f(x) exactly).

    `function` maps points (n, m) to (n, m'), as f(points) or, with a control input u, as
    f(points, u). `kernel` is the kernel of y. `noise` is a density, or a function that gives one
    for each point where the noise depends on the state; a noise that changes over time is another
    rule at each step: making one costs nothing.

    Noise and kernel must be conjugate, or `samples` be given: then so many draws of the noise for
    each point represent it, and the error falls with the root of their number. `seed` makes them
    the same each time.
    """

    def __init__(
        self,
        function: Callable[..., Array],
        noise: Density | NoiseModel | None,
        kernel: DensityKernel,
        samples: int | None = None,
        seed: int = 0,
    ) -> None:
        if samples is not None and samples < 1:
            raise ValueError(f"samples: must be at least 1, got {samples}")
        self.function = function
        self.noise = noise
        self.kernel = kernel
        self.samples = samples
        self.seed = seed
        self._profile: Density | None = None
        if noise is None or isinstance(noise, Density):
            self._profile = self._smoothed(noise)

    def __repr__(self) -> str:
        return f"ModelBasedSumRule({self.noise!r}, {self.kernel!r})"

    def moved(self, points: ArrayLike, control: Any = None) -> Array:
        """Return f(points) or f(points, control), checked, as an array (n, m')."""
        origins = as_points("points", points)
        ends = self.function(origins) if control is None else self.function(origins, control)
        ends = as_points("function", ends, self.kernel.dimension)
        if len(ends) != len(origins):
            raise ValueError(f"function: took {len(origins)} points and gave {len(ends)}")
        return ends

    def gram(self, at: ArrayLike, points: ArrayLike, control: Any = None) -> Array:
        """Return G_{X'|X}: the conditional kernel means m_{Y|x = points_j} at at_i, (len at, n)."""
        ends = self.moved(points, control)
        targets = as_points("at", at, self.kernel.dimension)
        columns = np.empty((len(targets), len(ends)))
        for rows, noise in self._noises(points, control):
            profile = self._profile or self._smoothed(noise)
            if profile is not None:
                columns[:, rows] = profile.pairwise(targets, ends[rows])
            else:
                drawn = self.kernel.gram(targets, self._drawn(ends[rows], noise))
                columns[:, rows] = drawn.reshape(len(targets), len(rows), -1).mean(axis=2)
        return columns

    def __call__(self, prior: KernelMean, control: Any = None) -> KernelMean:
        """Return Σ_i γ_i m_{Y|X̃_i} (equation MbKSRestimator).

        A prior that itself carries noise goes through where `function` is an AffineMap, since
        A ε is then known; otherwise project it on points first.
        """
        if isinstance(prior, KernelMeanSum):
            return KernelMeanSum([self(part, control) for part in prior.parts])
        pushed = self._pushed_noise(prior)
        ends = self.moved(prior.points, control)
        parts = []
        for rows, noise in self._noises(prior.points, control):
            points, weights = ends[rows], prior.weights[rows]
            if (self._profile or self._smoothed(noise)) is None:
                points, noise = self._drawn(points, noise), None
                many = len(points) // len(rows)
                weights = np.repeat(weights / many, many)
            if pushed is not None:
                noise = pushed if noise is None else pushed.convolve(noise)
            parts.append(KernelMean(points, weights, self.kernel, noise))
        return parts[0] if len(parts) == 1 else KernelMeanSum(parts)

    def draw(
        self, points: ArrayLike, count: int, generator: np.random.Generator, control: Any = None
    ) -> Array:
        """Return `count` draws of y for each of the points (n, m), in turn: (n·count, m')."""
        ends = np.repeat(self.moved(points, control), count, axis=0)
        for rows, noise in self._noises(points, control):
            if noise is not None:
                own = (rows[:, None] * count + np.arange(count)).ravel()
                ends[own] += noise.sample(len(own), generator)
        return ends

    def _pushed_noise(self, prior: KernelMean) -> Density | None:
        """Return the prior's own noise after f."""
        if prior.noise is None:
            return None
        if not isinstance(self.function, AffineMap):
            raise ValueError(
                "prior: carries a noise model, which only an AffineMap takes along exactly; "
                "pass prior.projected(points, regularization)"
            )
        return prior.noise.pushed(self.function.matrix)

    def _noises(self, points: ArrayLike, control: Any) -> list[tuple[Rows, Density | None]]:
        """Return the noises that there are, each with the rows of its points."""
        origins = as_points("points", points)
        if self.noise is None or isinstance(self.noise, Density):
            return [(np.arange(len(origins)), self.noise)]
        given = self.noise(origins) if control is None else self.noise(origins, control)
        if len(given) != len(origins):
            raise ValueError(f"noise: took {len(origins)} points and gave {len(given)} densities")
        rows_of: dict[int, list[int]] = {}
        for row, density in enumerate(given):
            rows_of.setdefault(id(density), []).append(row)
        return [(np.array(rows, dtype=np.intp), given[rows[0]]) for rows in rows_of.values()]

    def _smoothed(self, noise: Density | None) -> Density | None:
        """Return the kernel smoothed by the noise.

        None where that is sampled for want of a closed form.
        ConjugacyError where there are no samples either.
        """
        try:
            return self.kernel.smoothed(noise)
        except ConjugacyError:
            if self.samples is None:
                raise
            return None

    def _drawn(self, ends: Array, noise: Density | None) -> Array:
        """Return points (n·samples, m') round `ends` (n, m'), the same each time."""
        assert noise is not None and self.samples is not None
        draws = noise.sample(len(ends) * self.samples, np.random.default_rng(self.seed))
        return np.repeat(ends, self.samples, axis=0) + draws


class NonparametricSumRule:
    """NP-KSR: p(y | x) is learnt from pairs `inputs` X_i (n, m), `outputs` Y_i (n, m').

    `regularization` is ε in units of the input kernel's k(x, x). With `controls` U_i (n, …) and a
    `control_kernel` the pairs were made under control inputs, and the kernel of (x, u) is the
    product of both.
    """

    def __init__(
        self,
        inputs: ArrayLike,
        outputs: ArrayLike,
        input_kernel: DensityKernel,
        output_kernel: DensityKernel,
        regularization: float,
        controls: ArrayLike | None = None,
        control_kernel: Kernel | None = None,
    ) -> None:
        self.inputs = as_points("inputs", inputs, input_kernel.dimension)
        self.outputs = as_points("outputs", outputs, output_kernel.dimension)
        if len(self.inputs) != len(self.outputs):
            raise ValueError(f"outputs: {len(self.outputs)} for {len(self.inputs)} inputs")
        self.input_kernel = input_kernel
        self.output_kernel = output_kernel
        if (controls is None) != (control_kernel is None):
            raise ValueError("control_kernel: goes together with controls")
        gram = input_kernel.gram(self.inputs, self.inputs)
        self.control_kernel = control_kernel
        self.controls: Array | None = None
        if controls is not None and control_kernel is not None:
            self.controls = as_points("controls", controls)
            if len(self.controls) != len(self.inputs):
                raise ValueError(f"controls: {len(self.controls)} for {len(self.inputs)} inputs")
            gram = gram * control_kernel.gram(self.controls, self.controls)
        self._solver = relative_solver(gram, as_positive("regularization", regularization))

    def __repr__(self) -> str:
        return f"NonparametricSumRule({len(self.inputs)} pairs, {self.output_kernel!r})"

    def weights(self, prior_values: ArrayLike, control: Any = None) -> Array:
        """Return (G_X + nεk(x, x)I)⁻¹ (m_Π(X_1), …, m_Π(X_n)) (weight-NPKSR-eval).

        `prior_values` (n,) are m_Π(X_i).
        """
        values = as_vector("prior_values", prior_values, len(self.inputs))
        if self.controls is not None and self.control_kernel is not None:
            if control is None:
                raise ValueError("control: this rule was learnt with controls and needs one")
            values = values * self.control_kernel.gram(self.controls, np.atleast_2d(control))[:, 0]
        elif control is not None:
            raise ValueError("control: this rule was learnt without controls")
        return self._solver.solve(values)

    def __call__(self, prior: KernelMean, control: Any = None) -> KernelMean:
        """Return Σ_j w_j k_Y(·, Y_j) (KernelSumRuleMapping), for a prior with noise or without."""
        if not self.input_kernel.same_as(prior.kernel):
            raise ValueError("prior: its kernel is not this rule's input kernel")
        weights = self.weights(prior.evaluate(self.inputs), control)
        return KernelMean(self.outputs, weights, self.output_kernel)
