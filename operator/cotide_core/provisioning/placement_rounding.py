"""Whole servers of several services in shared data centres; beyond Zhang and Boutaba 2014, where servers are rounded
up.

Called by `placement_plan` with the first step of a solved program. Rounded-up servers may not fit where several
services share a data centre. A service that moves gives up its old servers only once the new ones have arrived.
Invariant: the result fits next to the servers that stay until then, unless it is below the running servers.
"""

from __future__ import annotations

import numpy as np

from cotide_core.provisioning.programs import Booleans, Floats

ROUNDING = 1e-4
"""An interior-point solver's 3.00005 servers are three."""


def rounded_up(exact: Floats) -> Floats:
    """Return whole servers, of any shape."""
    whole: Floats = np.ceil(exact - ROUNDING).clip(min=0.0)
    return whole


def moving(counts: Floats, now: Floats, waits: Booleans) -> Booleans:
    """Return (S,): services that lose no server yet, since they are to get more; ``waits``: services that wait for
    other reasons.
    """
    found: Booleans = waits | (counts > now).any(axis=1)
    return found


def too_full(counts: Floats, now: Floats, stays: Booleans, sizes: Floats, room: Floats) -> Booleans:
    """Return (L,): data centres where not all fits at once; where nothing rises, the wanted servers must fit.

    Parameters
    ----------
    counts, now : (S, L) servers that are wanted, and that run.
    stays : (S,) services that lose no server yet.
    sizes : (S,) of a server.
    room : (L,) servers of size 1 that fit.
    """
    rises = (counts > now).any(axis=0)
    there = np.where(stays[:, None] & rises, np.maximum(counts, now), counts)
    full: Booleans = sizes @ there > room + ROUNDING
    return full


def fitted(exact: Floats, now: Floats, stays: Booleans, sizes: Floats, room: Floats, worth: Floats) -> Floats:
    """Return (S, L) whole servers: rounded up where all fits, elsewhere only as far as they fit.

    There, whole servers go first to the service with the highest worth of a server for its size. Then they go to the
    service with the most valuable missing part of one. ``exact`` : (S, L) servers of the program. ``worth`` : (S, L)
    money that a server saves. Others as `too_full`.
    """
    counts = rounded_up(exact)
    whole = np.minimum(np.floor(exact + ROUNDING), counts)
    for centre in np.flatnonzero(too_full(counts, now, stays, sizes, room)):
        runs = now[:, centre]
        column = np.minimum(whole[:, centre], runs)
        density = worth[:, centre] / sizes
        for upper, gain in ((whole, density), (counts, density * (exact - whole)[:, centre])):
            for service in np.argsort(-gain, kind="stable"):
                free = room[centre] - sizes @ np.where(stays, np.maximum(column, runs), column)
                free += sizes[service] * max(runs[service] - column[service], 0.0) * stays[service]
                more = np.floor((max(free, 0.0) + ROUNDING) / sizes[service])
                column[service] += min(max(upper[service, centre] - column[service], 0.0), more)
        counts[:, centre] = column
    return counts
