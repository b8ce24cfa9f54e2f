"""Which keyframes may show the same place: vectors of locally aggregated descriptors (VLAD)."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from kbf_localization.arrays import Floats, Rows
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.vision.keypoints import Keypoints

WORDS = 64
SAMPLED_DESCRIPTORS = 20_000
"""On which k-means finds the words."""
KMEANS_ROUNDS = 12
OWN_CANDIDATES, OTHER_CANDIDATES = 2, 1
"""Most similar keyframes that are verified, of a keyframe's own drive and of each other piece:
there, closures are plenty."""
MIN_PATH_M = 5.0
"""Keyframes of one drive nearer along the path are neighbours, not closures."""
SUPPRESSED_M = 1.0
"""Of a run of similar keyframes only the best is a candidate."""
ROWS_AT_ONCE = 512


def describe(keypoints: Sequence[Keypoints], seed: int = 0) -> Floats:
    """Return VLAD vectors (n, 64 · 128) of unit length; zero for images without keypoints."""
    words = _words(keypoints, seed)
    found = np.zeros((len(keypoints), len(words) * 128), dtype=np.float32)
    half = 0.5 * np.einsum("ij,ij->i", words, words)
    for row, image in enumerate(keypoints):
        if not len(image):
            continue
        descriptors = image.descriptors.astype(np.float32)
        nearest = (descriptors @ words.T - half).argmax(axis=1)
        summed = np.zeros_like(words)
        np.add.at(summed, nearest, descriptors - words[nearest])
        # Each word's sum counts the same (intra-normalization), so repeated texture does not rule.
        lengths = np.linalg.norm(summed, axis=1, keepdims=True)
        summed /= np.maximum(lengths, 1e-6)
        found[row] = summed.ravel() / max(float(np.linalg.norm(summed)), 1e-6)
    return found


def _words(keypoints: Sequence[Keypoints], seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    per_image = max(1, -(-SAMPLED_DESCRIPTORS // max(len(keypoints), 1)))
    drawn = [
        image.descriptors[rng.permutation(len(image))[:per_image]]
        for image in keypoints
        if len(image)
    ]
    if not drawn:
        return np.zeros((1, 128), dtype=np.float32)
    sample = np.concatenate(drawn).astype(np.float32)
    count = min(WORDS, len(sample))
    cv2.setRNGSeed(seed)
    criteria = (cv2.TERM_CRITERIA_MAX_ITER, KMEANS_ROUNDS, 0.0)
    none = np.empty((0, 1), dtype=np.int32)
    _, _, words = cv2.kmeans(sample, count, none, criteria, 1, cv2.KMEANS_RANDOM_CENTERS)
    return np.asarray(words, dtype=np.float32)


def candidates(vectors: Floats, keyframes: Keyframes) -> tuple[Rows, Rows]:
    """Return rows of keyframes and of those that look most like them, best first.

    They are of different pieces or more than 5 m of path apart.
    """
    queries: list[int] = []
    found: list[int] = []
    described = np.flatnonzero(np.any(vectors[:, :: max(1, vectors.shape[1] // 256)], axis=1))
    described = described[np.linalg.norm(vectors[described], axis=1) > 0.5]
    for start in range(0, len(described), ROWS_AT_ONCE):
        rows = described[start : start + ROWS_AT_ONCE]
        similarity = vectors[rows] @ vectors.T
        for row, scores in zip(rows, similarity):
            same_drive = keyframes.drive_of == keyframes.drive_of[row]
            apart = np.abs(keyframes.path_m - keyframes.path_m[row]) > MIN_PATH_M
            usable = apart | ~same_drive | (keyframes.piece_of != keyframes.piece_of[row])
            for piece in np.unique(keyframes.piece_of):
                own = np.flatnonzero(usable & (keyframes.piece_of == piece))
                count = OWN_CANDIDATES if same_drive[own].any() else OTHER_CANDIDATES
                for _ in range(count):
                    if not len(own):
                        break
                    best = int(own[np.argmax(scores[own])])
                    queries.append(int(row))
                    found.append(best)
                    gap = np.abs(keyframes.path_m[own] - keyframes.path_m[best])
                    own = own[gap > SUPPRESSED_M]
    return np.array(queries, dtype=np.intp), np.array(found, dtype=np.intp)
