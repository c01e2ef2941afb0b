"""The name of our API group, for those who need not load the resources' schemas (pydantic) to know it."""

from __future__ import annotations

from typing import Final

GROUP: Final = "cotide.dev"
VERSION: Final = "v1alpha1"
