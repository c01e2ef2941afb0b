"""The array types of everything that computes with numpy: one name for each element type.

Imported wherever arrays are annotated. A name says what the elements are, not the shape: that stands in a docstring.
"""

from __future__ import annotations
