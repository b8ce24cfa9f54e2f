"""The settings of the pyramid describer, equal for a map and its queries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from kbf_localization.limits import MAX_MAP_PATCHES, MAX_MAP_PIXELS

CELLS_PER_SIDE = 4
"""A descriptor has 4 by 4 cells."""

ORIENTATIONS = 8
"""A cell has 8 orientation bins."""

DESCRIPTOR_LENGTH = CELLS_PER_SIDE * CELLS_PER_SIDE * ORIENTATIONS

ALIGNED_COLUMNS = 40
"""Columns of words, at most, that are compared when images are aligned."""

LEVEL_WEIGHTS = {1: (1.0,), 2: (0.5, 0.5), 3: (0.25, 0.25, 0.5)}
"""Lazebnik's weights of the pyramid's levels 0 … L: 2^-L, then 2^-(L - l + 1)."""


@dataclass(frozen=True)
class DescriberSettings:
    """The size to which images are brought, the grid of patches, and the pyramid over it.

    Lengths are in pixels. `flat_gradient` is the mean gradient (grey levels over two pixels) below
    which a patch counts as flat: its descriptor then keeps the small length that it has instead of
    length one.
    """

    image_width: int = 640
    image_height: int = 480
    patch_size: int = 16
    grid_step: int = 8
    levels: int = 3
    words: int = 200
    flat_gradient: float = 3.0

    def __post_init__(self) -> None:
        if self.patch_size % CELLS_PER_SIDE or self.patch_size < 2 * CELLS_PER_SIDE:
            raise ValueError(f"patch_size must be a multiple of 4 from 8, not {self.patch_size}")
        if self.grid_step < 1 or self.grid_step % self.cell_size:
            raise ValueError(
                f"grid_step must be a multiple of patch_size / 4, not {self.grid_step}"
            )
        if self.levels not in LEVEL_WEIGHTS:
            raise ValueError(f"levels must be 1, 2 or 3, not {self.levels}")
        if not 1 <= self.words <= 65535:
            raise ValueError(f"words must be between 1 and 65535, not {self.words}")
        if not 0.0 <= self.flat_gradient < 256.0:
            raise ValueError(f"flat_gradient must be in [0, 256), not {self.flat_gradient}")
        if min(self.grid_shape) < self.regions_per_side(self.levels - 1):
            raise ValueError(
                f"images of {self.image_width}x{self.image_height} are too small for a pyramid "
                f"of {self.levels} levels on patches of {self.patch_size} pixels"
            )
        if self.image_width * self.image_height > MAX_MAP_PIXELS:
            raise ValueError(f"images must have at most {MAX_MAP_PIXELS} pixels")
        if self.patches > MAX_MAP_PATCHES:
            raise ValueError(f"images must have at most {MAX_MAP_PATCHES} patches")

    @property
    def cell_size(self) -> int:
        """Return pixels a side of one of a patch's 4 by 4 cells."""
        return self.patch_size // CELLS_PER_SIDE

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Return rows and columns of patches that fit into the image."""
        return (
            max(0, (self.image_height - self.patch_size) // self.grid_step + 1),
            max(0, (self.image_width - self.patch_size) // self.grid_step + 1),
        )

    @property
    def reduced_grid_step(self) -> int:
        """Return the step between rows and columns of words that are kept for alignment."""
        return -(-self.grid_shape[1] // ALIGNED_COLUMNS)

    @property
    def reduced_grid_shape(self) -> tuple[int, int]:
        """Return rows and columns of the grid of words that is kept for alignment."""
        rows, columns = (-(-length // self.reduced_grid_step) for length in self.grid_shape)
        return rows, columns

    @property
    def word_type(self) -> str:
        """Return the smallest type of numbers that a word's number fits into."""
        return "|u1" if self.words <= 256 else "<u2"

    @property
    def patches(self) -> int:
        rows, columns = self.grid_shape
        return rows * columns

    @staticmethod
    def regions_per_side(level: int) -> int:
        """Level l cuts the image into 2^l by 2^l regions."""
        return int(2**level)

    def level_columns(self) -> list[slice]:
        """Return where each level's bins stand in a histogram; level 0 comes first."""
        bins = [self.words * self.regions_per_side(level) ** 2 for level in range(self.levels)]
        ends = accumulate(bins)
        return [slice(end - count, end) for count, end in zip(bins, ends, strict=True)]

    @property
    def bins(self) -> int:
        """Return the length of a histogram: 21 regions of 200 words are 4200."""
        return int(self.level_columns()[-1].stop)

    def level_divisors(self) -> list[int]:
        """Return how many patches one count stands for, a level.

        Counts are stored in eight bits. The divisor leaves room for a word that fills a quarter
        of a region; what is beyond (a bare wall) saturates, which keeps the kernel positive
        definite, since it is the intersection kernel of the stored counts.
        """
        divisors = []
        for level in range(self.levels):
            in_region = self.patches / self.regions_per_side(level) ** 2
            divisors.append(max(1, -int(-in_region // (4 * 255))))
        return divisors
