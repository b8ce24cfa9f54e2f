"""Visual words: the vocabulary that turns descriptors into counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix

from kbf_localization.arrays import Floats, Rows
from kbf_localization.progress import Progress, no_progress


@dataclass(frozen=True)
class Vocabulary:
    """Centres (words, length) of clusters of descriptors."""

    words: Floats

    @cached_property
    def _half_squares(self) -> Floats:
        return np.asarray(0.5 * np.einsum("ij,ij->i", self.words, self.words))

    def assign(self, descriptors: Floats) -> Rows:
        """Return the number (n,) of the word nearest to each descriptor (n, length)."""
        # |d - w|² is least where d·w - |w|²/2 is greatest: one matrix product.
        closeness = descriptors @ self.words.T
        closeness -= self._half_squares
        return np.asarray(closeness.argmax(axis=1))


def learn_vocabulary(
    descriptors: Floats,
    words: int = 200,
    seed: int = 0,
    iterations: int = 30,
    progress: Progress = no_progress,
) -> Vocabulary:
    """Cluster descriptors (n, length) by k-means, started by k-means++ from `seed`."""
    if len(descriptors) == 0:
        raise ValueError("descriptors must not be empty")
    rng = np.random.default_rng(seed)
    centres = _spread_start(descriptors, words, rng)
    previous: Rows | None = None
    for iteration in range(iterations):
        progress(iteration, iterations, "learning the visual words")
        nearest = Vocabulary(centres).assign(descriptors)
        if previous is not None and np.array_equal(nearest, previous):
            break
        previous = nearest
        counts = np.bincount(nearest, minlength=words)
        members = csr_matrix(
            (np.ones(len(nearest), np.float32), (nearest, np.arange(len(nearest)))),
            shape=(words, len(nearest)),
        )
        sums = np.asarray(members @ descriptors)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None].astype(np.float32)
        empty = np.flatnonzero(~filled)
        if len(empty):
            # An empty cluster restarts at a random descriptor.
            centres[empty] = descriptors[rng.integers(len(descriptors), size=len(empty))]
    progress(iterations, iterations, "learning the visual words")
    return Vocabulary(centres)


def _spread_start(descriptors: Floats, words: int, rng: np.random.Generator) -> Floats:
    """Return starting centres by k-means++: each drawn in proportion to its squared distance."""
    sample = descriptors
    if len(sample) > 100 * words:
        sample = sample[np.sort(rng.choice(len(sample), 100 * words, replace=False))]
    squares = np.einsum("ij,ij->i", sample, sample, dtype=np.float64)
    centres = np.empty((words, sample.shape[1]), dtype=np.float32)
    distances = np.full(len(sample), np.inf)
    chosen = int(rng.integers(len(sample)))
    for word in range(words):
        centres[word] = sample[chosen]
        to_new = squares - 2.0 * (sample @ centres[word]) + squares[chosen]
        np.minimum(distances, np.maximum(to_new, 0.0), out=distances)
        cumulative = np.cumsum(distances)
        if cumulative[-1] > 0.0:
            drawn = rng.random() * cumulative[-1]
            chosen = min(int(np.searchsorted(cumulative, drawn)), len(sample) - 1)
        else:
            chosen = int(rng.integers(len(sample)))
    return centres
