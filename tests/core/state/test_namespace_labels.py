"""Labels of a namespace change: selectors of namespaces are compared where placed pods and the label concern them."""

from __future__ import annotations

from collections.abc import Mapping

import engine_objects
import pytest

from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Namespace, NamespaceUpserted, PodRules, PodTerm, PodUpserted, Requirement
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.state import pod_matches
from cotide_core.state.selection.peers import Scope

APP = (Requirement("app", "In", ("web",)),)
QUIET = (Requirement("noise", "DoesNotExist"),)


def engine() -> Scheduler:
    scheduler = Scheduler(SchedulerConfig(policy="fifo", seed=1), HeuristicCatalogue())
    scheduler.handle([engine_objects.node_upserted("n", 8000, labels=(("zone", "a"),))], 0.0)
    scheduler.handle([label("busy"), label("empty")], 0.5)
    scheduler.handle([place("busy/web")], 1.0)
    scheduler.handle([near("watch/first")], 2.0)
    return scheduler


def label(name: str, **labels: str) -> NamespaceUpserted:
    return NamespaceUpserted(Namespace(name, labels=tuple(sorted(labels.items()))))


def place(key: str) -> PodUpserted:
    return PodUpserted(engine_objects.pod(key, 1, key=key, uid=key, labels=(("app", "web"),)))


def near(key: str) -> PodUpserted:
    """A pod that wants to be beside one of an app in a quiet namespace."""
    rules = PodRules(affinity=(PodTerm("zone", APP, namespace_selector=QUIET),))
    return PodUpserted(engine_objects.pod(key, 1, key=key, uid=key, labels=(), rules=rules))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the namespaces whose labels are compared with a selector."""
    names: list[str] = []
    original = pod_matches._selects_namespace

    def noted(scope: Scope, name: str, labels: Mapping[str, str]) -> bool:
        names.append(name)
        return original(scope, name, labels)

    monkeypatch.setattr(pod_matches, "_selects_namespace", noted)
    return names


def test_a_label_that_no_selector_names_and_a_namespace_without_placed_pods_cost_no_comparison(
    compared: list[str],
) -> None:
    scheduler = engine()
    compared.clear()
    scheduler.handle([label("busy", other="x"), label("empty", noise="x"), label("new", noise="x")], 3.0)
    assert compared == []


def test_a_label_that_a_selector_names_changes_which_placed_pods_count() -> None:
    scheduler = engine()
    scheduler.handle([label("busy", noise="x")], 3.0)
    assert not [one for one in scheduler.handle([near("watch/second")], 4.0) if isinstance(one, Bind)]
    bound = [one.key for one in scheduler.handle([label("busy")], 5.0) if isinstance(one, Bind)]
    assert bound == ["watch/second"]
    scheduler.handle([place("empty/web"), label("busy", noise="x")], 6.0)
    assert [one.key for one in scheduler.handle([near("watch/third")], 7.0) if isinstance(one, Bind)] == ["watch/third"]
