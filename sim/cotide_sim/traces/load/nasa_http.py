"""Reader of the NASA web requests per second of July 1995 (Internet Traffic Archive).

Called by the placement experiment. Invariant: one value a second, from the first on; only July is read, since August
follows a gap that the file does not hold.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import InputError
from cotide_files.bounded_text import bounded_lines

FILE: Final = "http/nasa_http_1995_requests_per_second.txt.gz"
JULY_SECONDS: Final = 2_381_544
"""Lines before August's first, which is line 2,381,545."""


def read_nasa_http(directory: Path) -> NDArray[np.float64]:
    """Return requests in each second.

    Raises
    ------
    InputError
        When the file is missing, or a line is no whole number >= 0.
    """
    path = directory / FILE
    counts: list[float] = []
    try:
        with gzip.open(path, "rt", encoding="ascii") as stream:
            for number, line in enumerate(bounded_lines(stream, str(path)), start=1):
                if number > JULY_SECONDS:
                    break
                if not line.strip().isdigit():
                    raise InputError(f"{line.strip()!r} is no whole number >= 0", file=str(path), line=number)
                counts.append(float(line))
    except FileNotFoundError:
        raise InputError("no such file, where the NASA web requests were expected", file=str(path)) from None
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise InputError(f"can't be read: {error}", file=str(path)) from error
    return np.array(counts)
