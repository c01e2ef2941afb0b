"""The array types of everything that computes with numpy: one name for each element type.

Imported wherever arrays are annotated. A name says what the elements are, not the shape: that stands in a docstring.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
