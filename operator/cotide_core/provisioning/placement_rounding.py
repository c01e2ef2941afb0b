"""Whole servers of several services in the room of shared data centres; beyond Zhang and Boutaba 2014, who round up.

Called by `placement_plan` with the first step of a solved program. What is rounded up may not fit where several share a
data centre, and what a service gives up that moves elsewhere is gone only once it has arrived there. Invariant: what is
returned fits beside what stays so long, unless less than what runs fits.
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


def moving(counts: Floats, now: Floats, waits: Booleans) -> Booleans:
    """Return (S,): services of which nothing goes yet, since more of them is to come; ``waits``: for other reasons."""
    found: Booleans = waits | (counts > now).any(axis=1)
    return found


def too_full(counts: Floats, now: Floats, stays: Booleans, sizes: Floats, room: Floats) -> Booleans:
    """Return (L,): data centres in which not all of it fits at once; where nothing rises, what is wanted must fit.

    Parameters
    ----------
    counts, now : (S, L) servers that are wanted, and that run.
    stays : (S,) services of which nothing goes yet.
    sizes : (S,) of a server.
    room : (L,) servers of size 1 that there may be.
    """
    rises = (counts > now).any(axis=0)
    there = np.where(stays[:, None] & rises, np.maximum(counts, now), counts)
    full: Booleans = sizes @ there > room + ROUNDING
    return full


def fitted(exact: Floats, now: Floats, stays: Booleans, sizes: Floats, room: Floats, worth: Floats) -> Floats:
    """Return (S, L) whole servers: rounded up where all fits, elsewhere only as far as it does.

    There whole servers go first to whom a server is worth most for what it takes, then to whom the missing part of one
    is. ``exact`` : (S, L) servers of the program. ``worth`` : (S, L) money that a server saves. Others as `too_full`.
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
