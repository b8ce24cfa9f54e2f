"""Names for the kinds of arrays that the package computes with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Stamps = NDArray[np.int64]  # nanoseconds
Rows = NDArray[np.intp]
Counts = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Image = NDArray[np.uint8]  # grey: rows, columns; or rows, columns, colours
