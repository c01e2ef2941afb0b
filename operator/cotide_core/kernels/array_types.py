"""The array types of all code that computes with numpy: one name for each element type.

Imported wherever arrays are annotated. A name gives the type of the elements; docstrings give the shape.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Narrow = npt.NDArray[np.float32]
Nodes = npt.NDArray[np.int32]
