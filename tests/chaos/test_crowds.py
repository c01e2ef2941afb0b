"""Many legal objects of one tenant: the other tenants' pods go where they went without, and hardly later.

More of them: ``make test-crowd RUNS=100``, or ``--crowd-runs N --chaos-seed S --chaos-server real``; each run is done
twice, without the crowd and with it.
"""

from __future__ import annotations

from crowd_run import CrowdRun, CrowdScript
from crowds import CROWDS
from observation import Observe

from cotide_operator.cache.object_cache import OPTIONAL_KINDS, PATHS

LATER_SECONDS = 2.0
"""That a step may take longer than the longest without the crowd: the bound that the project promises."""
OF_THE_CLUSTER = {
    "priorityclasses",
    "persistentvolumes",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "volumeattachments",
}
"""Kinds that are an administrator's; tenants with self-service may make namespaces, and a kubelet writes its node."""


def test_a_crowd_of_one_tenant_delays_no_other(crowd_seed: int, observe: Observe) -> None:
    script = CrowdScript.of(crowd_seed)
    clean, _ = observe(lambda server, client: CrowdRun(script, server, client, crowded=False))
    crowded, accepted = observe(lambda server, client: CrowdRun(script, server, client, crowded=True))
    assert sum(clean.objects.values()) == 9, "5 small pods, and 2 each of a Job and a Workload"
    assert crowded.objects == clean.objects, script
    assert accepted > 10, f"{script}: the server refused the crowd"
    late = [
        (number, spent) for number, spent in enumerate(crowded.seconds) if spent > max(clean.seconds) + LATER_SECONDS
    ]
    assert not late, f"{script}: {accepted} objects; steps (number, seconds) {late}, without {clean.seconds}"


def test_crowds_are_of_every_kind_that_a_tenant_may_make_and_come_in_a_row_of_seeds() -> None:
    scripts = [CrowdScript.of(seed) for seed in range(len(CROWDS))]
    assert {script.crowd.kind for script in scripts} == set(CROWDS)
    made = {path.rpartition("/")[2] for script in scripts for path, _ in script.crowd.requests()}
    watched = {path.rpartition("/")[2] for kind, path in PATHS.items() if kind not in OPTIONAL_KINDS}
    assert watched - made == OF_THE_CLUSTER
