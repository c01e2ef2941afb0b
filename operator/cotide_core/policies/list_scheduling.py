"""List scheduling (Naghshnejad 2019, section 3.2.2): an order, and a rule for the node, named together as in svf-ef.

Live, pods come one after another: all waiting pods are planned again after every change. EF searches a node in each
plan, LW and RANDOM choose one when a pod is first planned. `hybrid-machines` is HYBRID of section 3.3.3: pods of more
than half a machine have nodes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from cotide_core.config import SchedulerConfig
from cotide_core.placement.placer import Policy
from cotide_core.placement.plan_rule import Machines, PlanRule, Sharing
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.queueing.ordering import Order, RandomOrder, ShortestFirst, SmallestDemandFirst, SmallestVolumeFirst

_ORDERS: Final[dict[str, tuple[Callable[[int], Order], str]]] = {
    "sjf": (lambda _: ShortestFirst(), "is planned behind shorter pods"),
    "sdf": (lambda _: SmallestDemandFirst(), "is planned behind pods of smaller demand"),
    "svf": (lambda _: SmallestVolumeFirst(), "is planned behind pods of smaller volume"),
    "random": (RandomOrder, "is planned behind pods that were drawn before it"),
}
_ON_ITS_NODE: Final = "is planned on the node that it was given, behind the pods there"


def list_policy(order: str, machines: Machines, config: SchedulerConfig) -> Policy:
    """Compose an order and a rule for the node."""
    make, words = _ORDERS[order]
    behind = words if machines is Machines.EARLIEST else _ON_ITS_NODE
    rule = PlanRule(machines=machines, behind=behind)
    name = order if machines is Machines.EARLIEST and order != "random" else f"{order}-{machines}"
    return Policy(name, make(config.seed), LeastAllocated(), plan=rule)


LIST_POLICIES: Final[dict[str, Callable[[SchedulerConfig], Policy]]] = {
    f"{order}-{machine}": partial(list_policy, order, machine)
    for order in _ORDERS
    for machine in Machines
    if machine is not Machines.EARLIEST or order == "random"
}
"""Every order with a node that is chosen once, and the random order by EF; `sjf`, `sdf` and `svf` are the others by EF.
"""


def hybrid_machines(config: SchedulerConfig) -> Policy:
    """Smallest volume first; pods of more than half a machine on separate nodes, shortest first."""
    del config
    rule = PlanRule(sharing=Sharing.HIGH_DEMAND, behind="is planned behind other pods in its part of the nodes")
    return Policy("hybrid-machines", SmallestVolumeFirst(), LeastAllocated(), plan=rule)
