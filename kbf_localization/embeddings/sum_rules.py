"""The kernel sum rules: kernel mean of x in, kernel mean of y out; they chain in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.embeddings.density import Density
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.kernels import DensityKernel, Kernel
from kbf_localization.embeddings.linear_solver import RidgeSolver
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


class ModelBasedSumRule:
    """Mb-KSR: y = f(x) + ε with a known `function` f and `noise` (None: y = f(x) exactly).

    `function` maps points (n, m) to (n, m'), as f(points) or, with a control input u, as
    f(points, u). `kernel` is the kernel of y; noise and kernel must be conjugate. A noise that
    changes over time is another rule at each step: making one costs nothing.
    """

    def __init__(
        self, function: Callable[..., Array], noise: Density | None, kernel: DensityKernel
    ) -> None:
        self.function = function
        self.noise = noise
        self.kernel = kernel
        self.profile = kernel.smoothed(noise)

    def __repr__(self) -> str:
        return f"ModelBasedSumRule({self.noise!r}, {self.kernel!r})"

    def moved(self, points: ArrayLike, control: Any = None) -> Array:
        """f(points) or f(points, control), checked, as an array (n, m')."""
        origins = as_points("points", points)
        ends = self.function(origins) if control is None else self.function(origins, control)
        ends = as_points("function", ends, self.kernel.dimension)
        if len(ends) != len(origins):
            raise ValueError(f"function: took {len(origins)} points and gave {len(ends)}")
        return ends

    def gram(self, at: ArrayLike, points: ArrayLike, control: Any = None) -> Array:
        """G_{X'|X}: the conditional kernel means m_{Y|x = points_j} at at_i, (len at, n)."""
        return self.profile.pairwise(at, self.moved(points, control))

    def __call__(self, prior: KernelMean, control: Any = None) -> KernelMean:
        """Σ_i γ_i m_{Y|X̃_i} (equation MbKSRestimator).

        A prior that itself carries noise goes through where `function` is an AffineMap, since
        A ε is then known; otherwise project it on points first.
        """
        noise = self.noise
        if prior.noise is not None:
            if not isinstance(self.function, AffineMap):
                raise ValueError(
                    "prior: carries a noise model, which only an AffineMap takes along exactly; "
                    "pass prior.projected(points, regularization)"
                )
            carried = prior.noise.pushed(self.function.matrix)
            noise = carried if noise is None else carried.convolve(noise)
        return KernelMean(self.moved(prior.points, control), prior.weights, self.kernel, noise)


class NonparametricSumRule:
    """NP-KSR: p(y | x) is learnt from pairs `inputs` X_i (n, m), `outputs` Y_i (n, m').

    `regularization` is ε. With `controls` U_i (n, …) and a `control_kernel` the pairs were made
    under control inputs, and the kernel of (x, u) is the product of both.
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
        ridge = len(self.inputs) * as_positive("regularization", regularization)
        self._solver = RidgeSolver(gram, ridge)

    def __repr__(self) -> str:
        return f"NonparametricSumRule({len(self.inputs)} pairs, {self.output_kernel!r})"

    def weights(self, prior_values: ArrayLike, control: Any = None) -> Array:
        """(G_X + nεI)⁻¹ (m_Π(X_1), …, m_Π(X_n)) for `prior_values` (n,) (weight-NPKSR-eval)."""
        values = as_vector("prior_values", prior_values, len(self.inputs))
        if self.controls is not None and self.control_kernel is not None:
            if control is None:
                raise ValueError("control: this rule was learnt with controls and needs one")
            values = values * self.control_kernel.gram(self.controls, np.atleast_2d(control))[:, 0]
        elif control is not None:
            raise ValueError("control: this rule was learnt without controls")
        return self._solver.solve(values)

    def __call__(self, prior: KernelMean, control: Any = None) -> KernelMean:
        """Σ_j w_j k_Y(·, Y_j) (KernelSumRuleMapping), for a prior with noise or without."""
        if not self.input_kernel.same_as(prior.kernel):
            raise ValueError("prior: its kernel is not this rule's input kernel")
        weights = self.weights(prior.evaluate(self.inputs), control)
        return KernelMean(self.outputs, weights, self.output_kernel)
