"""Whole servers of several services in the room of shared data centres; beyond Zhang and Boutaba 2014, who round up.

Called by `placement_plan` with the first step of a solved program. What is rounded up may not fit where several share a
data centre, and what one gives up another can't have before it is gone. Invariant: what is returned fits, unless less
than what runs fits.
"""

from __future__ import annotations

import numpy as np

from cotide_core.provisioning.programs import Booleans, Floats

ROUNDING = 1e-4
"""An interior-point solver's 3.00005 servers are three."""


def rounded_up(exact: Floats) -> Floats:
    """Return whole servers, of whatever shape."""
    whole: Floats = np.ceil(exact - ROUNDING).clip(min=0.0)
    return whole


def too_full(counts: Floats, now: Floats, sizes: Floats, room: Floats) -> Booleans:
    """Return (L,): data centres in which not all of it fits at once.

    What falls has its room until it is gone; where nothing rises, only what stays must fit.

    Parameters
    ----------
    counts, now : (S, L) servers that are wanted, and that run.
    sizes : (S,) of a server.
    room : (L,) servers of size 1 that there may be.
    """
    rises = (counts > now).any(axis=0)
    stays = np.where(rises, np.maximum(counts, now), counts)
    full: Booleans = sizes @ stays > room + ROUNDING
    return full


def fitted(exact: Floats, now: Floats, sizes: Floats, room: Floats, worth: Floats) -> Floats:
    """Return (S, L) whole servers: rounded up where all fits, elsewhere only as far as it does.

    First those whose missing part of a server costs most for what a server takes. Since what runs has its room, two
    services do not take turns over a fraction.

    ``exact`` : (S, L) servers of the program. ``worth`` : (S, L) money that a server saves. Others as `too_full`.
    """
    counts = rounded_up(exact)
    least = np.minimum(np.floor(exact + ROUNDING), counts)
    for centre in np.flatnonzero(too_full(counts, now, sizes, room)):
        column, upper = least[:, centre].copy(), counts[:, centre]
        here, limit = now[:, [centre]], room[[centre]]
        gain = (exact[:, centre] - column) * worth[:, centre] / sizes
        for service in np.argsort(-gain, kind="stable"):
            before, column[service] = column[service], upper[service]
            if too_full(column[:, None], here, sizes, limit)[0]:
                column[service] = before
        counts[:, centre] = column
    return counts
