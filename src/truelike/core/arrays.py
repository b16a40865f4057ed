"""The types of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Codes = NDArray[np.int32]  # row numbers, and places in arrays
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
