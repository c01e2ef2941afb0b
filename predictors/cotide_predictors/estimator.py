"""The scikit-learn contract without scikit-learn: parameters are the constructor's keywords.

Base of every estimator of this package, so that `sklearn.base.clone` and parameter searches work on them.
Invariant: a constructor only stores its arguments under their own names; what `fit` learns ends in ``_``.
"""

from __future__ import annotations

import inspect
from typing import Self


class Estimator:
    """Reads and sets constructor parameters by name."""

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the constructor's parameters and their values; ``deep`` exists for the contract."""
        del deep
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: object) -> Self:
        """Set constructor parameters by name; an unknown name is a ValueError."""
        known = self._parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({shown})"

    @classmethod
    def _parameter_names(cls) -> list[str]:
        parameters = inspect.signature(cls).parameters.values()
        return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
