"""Whether a run has come to its end: every pod where it belongs, every Job and service as it was asked for."""

from __future__ import annotations

from typing import Any

from chaos_steps import Plan
from invariant_checker import ENDED, CheckedPod, InvariantChecker


def unsettled(plan: Plan, checker: InvariantChecker, namespace: str) -> str:
    """Say what has not come to its end yet; empty where all has."""
    mine = pods_of(checker, namespace)
    waiting = [f"{pod.key} ({pod.phase} on {pod.node or '-'})" for pod in mine if not _settled(pod)]
    jobs = [
        f"{key}: {job.get('status', {}).get('phase')}, {job.get('status', {}).get('succeeded')} succeeded"
        for key, job in checker.jobs.items()
        if not _complete(checker, key, job)
    ]
    wanted = [f"{namespace}/{step.how['name']}" for step in plan.steps if step.what == "job"]
    missing = [name for name in wanted if name not in checker.jobs]
    replicas = {step.how["name"]: step.how["replicas"] for step in plan.steps if step.what in ("service", "scale")}
    services = [
        f"{name} has {alive} of {count} pods"
        for name, count in replicas.items()
        if (alive := sum(1 for pod in mine if pod.service == name)) != count
    ]
    return "; ".join([*waiting, *jobs, *missing, *services])


def pods_of(checker: InvariantChecker, namespace: str) -> list[CheckedPod]:
    """Return the pods of a run's own namespace, as the server has them."""
    return [pod for pod in checker.pods.values() if pod.key.partition("/")[0] == namespace]


def disagreement(state: dict[str, Any], checker: InvariantChecker, namespace: str) -> str:
    """Say where what a leader believes, as it wrote it down, is not what is so; empty where all is."""
    believed = {key: (uid, node) for key, (uid, node, _, phase) in state["pods"].items() if phase not in ENDED}
    true = {pod.key: (pod.uid, pod.node or None) for pod in pods_of(checker, namespace) if pod.phase not in ENDED}
    assumed = [key for key, (_, _, assumed, _) in state["pods"].items() if assumed]
    wrong = {key: (believed.get(key), true.get(key)) for key in believed.keys() | true.keys()}
    wrong = {key: pair for key, pair in wrong.items() if pair[0] != pair[1]}
    if wrong or assumed or state["backlog"] or any(state["pending"].values()):
        return (
            f"believed and true: {wrong}; assumed: {assumed}; under way: {state['backlog']}; "
            f"waiting: {state['pending']}"
        )
    return ""


def _settled(pod: CheckedPod) -> bool:
    return not pod.kept and (pod.phase in ENDED or (pod.phase == "Running" and pod.seconds is None and not pod.leaving))


def _complete(checker: InvariantChecker, key: str, job: dict[str, Any]) -> bool:
    status, wanted = job.get("status", {}), job["spec"]["completions"]
    done = {index for (name, index) in checker.succeeded if name == key}
    done |= {index for (uid, index) in checker.lost_successes if uid == job["metadata"]["uid"]}
    return (
        status.get("phase") == "Succeeded"
        and status.get("succeeded") == wanted
        and done == {str(index) for index in range(wanted)}
    )
