"""A poison pill among ordinary objects: nobody else's placement, status, event or time changes.

More of them: ``make test-poison RUNS=100``, or ``--poison-runs N --chaos-seed S --chaos-server real``; each run is done
twice, without the pill and with it.
"""

from __future__ import annotations

from observation import Observe
from poison_pills import PILLS
from poison_run import PoisonRun, Script, timeless

LATER_SECONDS = 2.0
"""That a step may take longer than the longest without the pill; chosen: above what a busy machine adds to a step of
some 50 ms, and far below what each of the pills once cost (docs/guide/tenancy.md)."""


def test_a_poison_pill_changes_nothing_for_others(pill_seed: int, observe: Observe) -> None:
    script = Script.of(pill_seed)
    clean, _ = observe(lambda server, client: PoisonRun(script, server, client, poisoned=False))
    poisoned, accepted = observe(lambda server, client: PoisonRun(script, server, client, poisoned=True))
    assert len(clean.objects) == 12, "5 small pods and a large one, a Job and a Workload with 2 pods each"
    assert poisoned.objects == clean.objects, script
    assert poisoned.said == clean.said, script
    late = [
        (number, spent) for number, spent in enumerate(poisoned.seconds) if spent > max(clean.seconds) + LATER_SECONDS
    ]
    assert not late, f"{script}: {accepted} objects accepted; steps (number, seconds) {late}, without {clean.seconds}"


def test_every_pill_can_be_made_and_comes_in_a_row_of_seeds() -> None:
    assert {Script.of(seed).pill for seed in range(len(PILLS))} == set(PILLS)
    assert all(make() for make in PILLS.values())


def test_what_is_compared_is_all_but_moments() -> None:
    assert timeless({"status": {"phase": "Running", "startTime": "now"}}) == {"status": {"phase": "Running"}}
