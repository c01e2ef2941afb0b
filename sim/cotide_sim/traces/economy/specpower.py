"""Power curves of published SPECpower_ssj2008 results: watts at 0, 10, ..., 100 % load, and operations at full load.

Facts of https://www.spec.org/power_ssj2008/results/, as the CloudSim toolkit lists them, too (Beloglazov and Buyya
2012); each entry names its result. Called by the capacity experiment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cotide_core.provisioning.power import PowerCurve


class PublishedServer(NamedTuple):
    """One result: the curve, and ssj_ops at full load, the measure of size for servers of different age."""

    name: str
    curve: PowerCurve
    operations: int
    source: str


SERVERS: Final = (
    PublishedServer(
        "IBM System x3550 M3, Xeon X5670",
        PowerCurve((66, 107, 120, 131, 143, 156, 173, 191, 211, 229, 247)),
        912_178,
        "res2010q2/power_ssj2008-20100315-00239",
    ),
    PublishedServer(
        "IBM System x3550 M3, Xeon X5675",
        PowerCurve((58.4, 98, 109, 118, 128, 140, 153, 170, 189, 205, 222)),
        890_651,
        "res2011q2/power_ssj2008-20110406-00368",
    ),
    PublishedServer(
        "IBM System x3250 M3, Xeon X3470",
        PowerCurve((41.6, 46.7, 52.3, 57.9, 65.4, 73.0, 80.7, 89.5, 99.6, 105, 113)),
        313_804,
        "res2009q4/power_ssj2008-20091104-00213",
    ),
    PublishedServer(
        "HP ProLiant ML110 G5, Xeon 3075",
        PowerCurve((93.7, 97, 101, 105, 110, 116, 121, 125, 129, 133, 135)),
        98_472,
        "res2011q1/power_ssj2008-20110124-00339",
    ),
)


def sized(server: PublishedServer, cpu: float) -> PowerCurve:
    """Return the curve of a machine of this make with ``cpu`` times the operations of the first server."""
    return server.curve.scaled(cpu * SERVERS[0].operations / server.operations)
