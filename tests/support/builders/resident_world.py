"""The kubelets' state machine on one node, with the time in a test's hand."""

from __future__ import annotations

from manifests import pod_object

from cotide_sim.cluster.machine import MachinePark
from cotide_sim.interference.model import GeneratedInterference
from cotide_sim.kubelets.admission import NodeRoom
from cotide_sim.kubelets.clock import SimulatedClock
from cotide_sim.kubelets.residents import Residents

ORIGIN = 1_000_000.0


def pod(name="a", cpu="1", uid=None, node="n0", **more):
    """A batch pod of ten lone seconds, unless told otherwise."""
    annotations = {"sim.cotide.dev/lone-seconds": "10"} | more.pop("annotations", {})
    metadata = {"namespace": "d", "uid": uid or f"u-{name}", "labels": {"cotide.dev/class": "batch"}}
    metadata |= {"annotations": annotations} | more.pop("metadata", {})
    spec = {"nodeName": node, "restartPolicy": "Never"} | more.pop("spec", {})
    return pod_object(name, cpu, spec=spec, status=more.pop("status", {}), **metadata)


class World:
    """Residents on one node of four cores, and the time."""

    def __init__(self, speed=1.0, cpu=4000):
        self.now = ORIGIN
        self.clock = SimulatedClock(ORIGIN, speed, wall=lambda: ORIGIN)
        self.park = MachinePark(GeneratedInterference(), origin_seconds=ORIGIN)
        self.residents = Residents(self.park, self.clock)
        self.room = NodeRoom("n0", {"cpu": cpu, "memory": 2**33, "pods": 110})
        self.park.add_node("n0", cpu, 2**33)
        self.residents.add_node(self.room, "198.18.0.1")

    def see(self, *pods):
        for one in pods:
            self.residents.observe(one, self.now)
        return self.taken()

    def after(self, seconds):
        self.now += seconds
        self.residents.advance(self.now)
        return self.taken()

    def taken(self):
        actions, self.residents.outbox = self.residents.outbox, []
        return actions
