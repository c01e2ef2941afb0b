"""Writes an experiment's figure as PNG or SVG; the same numbers write the same file.

Called by the `plot` modules of the experiments. matplotlib is an extra (``cotide[plots]``): no operator draws, and it
would be a tenth of the image.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cotide_core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES: Final = (".png", ".svg")
FIELD: Final = "--plot"
DOTS_PER_INCH: Final = 110
"""Chosen: text of 10 points is legible on a screen."""


def check(path: Path) -> None:
    """Raise InputError unless a figure can be written: called before the experiment, which may take minutes."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path.name} ends in neither of {', '.join(SUFFIXES)}", field=FIELD)
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("plots need matplotlib: pip install 'cotide[plots]'", field=FIELD)


@contextmanager
def figure_file(path: Path, inches: tuple[float, float]) -> Iterator[Figure]:
    """Yield an empty figure, and write it when the block ends without an error.

    Raises
    ------
    InputError
        When the name ends otherwise, matplotlib is missing, or the file can't be written.
    """
    check(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Fixed ids and no date: the same numbers write the same file.
    with mpl.rc_context({"svg.hashsalt": "cotide"}):
        figure = Figure(figsize=inches, layout="constrained")
        yield figure
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": "cotide"}
        try:
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata=metadata)
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror or error}", file=str(path), field=FIELD) from error
