"""One run: the plan is carried out, everything is healed, and then all must come to an end, exactly.

Called by the tests with a site (the emulator or a real server) and a plan. What is asked at the end, besides what the
checker saw on the way::

    settled      every pod is on a node or has ended, every Job succeeded with each index once and keeps no pod
    agreement    the leader's engine holds exactly the server's pods, each on its node, and assumes nothing
    order        a first-come queue is after a kill as it was before
    ledgers      each operator's ledger, killed or stopped, replays instruction by instruction
    requests     one binding of a pod at a time, none after its 201, no write after a successor took the lease
    gangs        none held nodes for nothing beyond its time-out, where the plan has any
    manners      no traceback, no error in a log; a clean stop ends with 0
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from pathlib import Path
from typing import Any, Final

from backups import Site
from chaos_steps import ALL, Plan, Step
from consolidation_checks import SECTION, ConsolidationChecks
from environment import Environment
from fault_proxy import FaultProxy, Rule, Storm, Trouble
from fork_server import Birth, ForkServer
from gang_checks import GangChecks
from invariant_checker import InvariantChecker
from machine_troubles import HOST
from operator_child import REQUEST_SECONDS
from operator_config import CONFIG
from phased_nodes import PhasedNodes
from provisioning_site import ProvisioningSite
from queue_order import QueueOrder
from replica import Replica
from report import Report
from run_context import STEPS, RunContext
from settling import disagreement, unsettled

from cotide_kube.client import KubeClient

FIRST_COME: Final = ("fifo", "fifo-guarded")
BREACHES_SHOWN: Final = 5
"""Requests that should not have been made; chosen, one tells as much as a hundred."""
CHECK_SHARE: Final = 10.0
"""A check may take at most one part in this many of the time; chosen, for bursts."""


class Run:
    """Carries out one plan."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        checker: InvariantChecker,
        fork_server: ForkServer,
        folder: Path,
        client: KubeClient,
    ) -> None:
        self.plan, self._site, self._checker, self._folder = plan, site, checker, folder
        self._rng = random.Random(f"run {plan.seed}")
        self.namespace = f"chaos-{plan.seed}"
        self._client = client
        checker.moves_online = plan.consolidates
        self._consolidation = ConsolidationChecks(checker, self.namespace) if plan.consolidates else None
        self.environment = Environment(client, checker, self.namespace, tidy=plan.tidy)
        self.phased = PhasedNodes(client, checker, self.environment, plan.seed) if plan.phased else None
        self._machines = (
            ProvisioningSite(plan, self.environment, client, checker, folder) if plan.mishaps is not None else None
        )
        self.trouble = Trouble(
            [Rule(**vars(rule)) for rule in plan.rules], random.Random(f"trouble {plan.seed}"), self._interfere
        )
        self._gangs = GangChecks(checker, self.namespace, lambda: sum(replica.starts for replica in self.replicas))
        self._around = RunContext(plan, site, checker, self.environment, client, folder, self.trouble.record)
        self._around.apply = self._apply_anew
        names = ("operator", "standby") if plan.standby else ("operator",)
        self.replicas = [
            Replica(
                name, fork_server, folder, site.credentials, self.trouble, self._birth(name), outlived=plan.election
            )
            for name in names
        ]
        self.trouble.closes = plan.named
        self.trouble.observes = any(step.what == "backup" for step in plan.steps)
        self._around.backups.replicas = self.replicas
        self._kills, self._worked = list(plan.kill_at), list(plan.cpu_seconds)
        self._steps: set[asyncio.Task[None]] = set()
        self._begun: list[Step] = []
        self._server = asyncio.Lock()
        self._order = QueueOrder(checker)

    def _birth(self, name: str) -> Any:
        def born(url: str) -> Birth:
            config = CONFIG.format(
                policy=self.plan.policy,
                election=str(self.plan.election).lower(),
                lease=f"cotide-{self.namespace}",
                ledger=self._folder / f"ledger-{name}",
            ) + (SECTION if self.plan.consolidates else "")
            config += self._machines.section if self._machines is not None else ""
            config += self._around.sections()
            kill_at = self._kills.pop(0) if self._kills else 0
            worked = self._worked.pop(0) if self._worked else 0.0
            named = url.replace("127.0.0.1", HOST) if self.plan.named else url
            skew = dict(zip(("operator", "standby"), self.plan.skews, strict=False)).get(name, "")
            jumps, broken = list(self.plan.jumps), self.plan.broken
            return Birth(named, config, self.plan.kill_path, kill_at, broken, jumps, worked, skew)

        return born

    async def carry_out(self) -> Report:
        machines = self._machines.serving() if self._machines is not None else contextlib.nullcontext()
        async with machines, self._around.serving():
            return await self._carry_out()

    async def _carry_out(self) -> Report:
        begun = time.monotonic()
        report = Report()
        try:
            await self._prepare()
            for replica in self.replicas:
                replica.on_ready, replica.on_end = self._order.compare, self._ended
                replica.begin()
            await self._script()
            await self._heal()
            left = await self._until(self._unsettled)
            if left:
                waited = f"{self.plan.liveness_seconds:g} s after everything was healed"
                report.violations.append(f"not settled {waited}: {left[:4000]}")
            else:
                left = await self._until(self._disagreement)
                if left:
                    report.violations.append(f"the leader believes what is not so: {left}")
            for replica in reversed(self.replicas):
                await replica.end()
            self._look_back(report)
        finally:
            for task in self._steps:
                task.cancel()
            for replica in self.replicas:
                await replica.abandon()
            await self.environment.close()
        report.seconds = time.monotonic() - begun
        return report

    async def _prepare(self) -> None:
        namespace = {"metadata": {"name": self.namespace}}
        await self.environment.insist(lambda: self._client.create("/api/v1/namespaces", namespace))
        service_account, path = {"metadata": {"name": "default"}}, f"/api/v1/namespaces/{self.namespace}"
        await self.environment.insist(lambda: self._client.create(f"{path}/serviceaccounts", service_account))
        for index in range(len(self.plan.nodes)):
            await self.environment.node(self._node(index), self.plan.nodes[index])

    def _node(self, index: int) -> str:
        return f"{self.namespace}-n{index}"

    async def _script(self) -> None:
        if self.plan.warm:
            await self._until(lambda: "" if any(each.leading or each.ends for each in self.replicas) else "starting")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for step in self.plan.steps:
            await asyncio.sleep(max(0.0, begun + step.at - loop.time()))
            if step.what == "measured":  # all that follows waits for it
                await self._do(step)
                begun = loop.time() - step.at
                continue
            task = asyncio.ensure_future(self._do(step))
            self._steps.add(task)
        while self._steps:  # one may begin another: a rule that strikes late
            done, self._steps = self._steps, set()
            await asyncio.gather(*done)

    async def _do(self, step: Step) -> None:
        how = step.how
        self._begun.append(step)
        match step.what:
            case "pods":
                for index in range(how["count"]):
                    await self.environment.pod(f"{how['prefix']}-{index}", how["cls"], how["cpu"], how["seconds"])
            case "job":
                await self.environment.job(**how)
            case "service" | "scale":
                await (self.environment.service if step.what == "service" else self.environment.scale)(**how)
            case "take":
                await self._take(how["of"], how["which"])
            case "kill" | "stop" | "freeze":
                await self._hurt(self._leader(), step.what, how.get("seconds", 0.0))
            case "away" | "jump":
                for replica in self._meant(how.get("who", "")):
                    await self._leave(replica, how["seconds"]) if step.what == "away" else self._jump(replica)
            case "storm" | "calm" | "cut" | "crowd" | "disk" | "names":
                self._spoil(step)
            case one if one in STEPS:
                async with self._server if one in ("backup", "restore") else contextlib.nullcontext():
                    await self._around.do(step)
            case "compact" | "restart-api" | "restart-store":
                await self._hurt_server(step.what, how.get("down", 0.0))
            case _:
                await self._do_node(step.what, how.get("node", 0))

    def _spoil(self, step: Step) -> None:
        how = step.how
        if step.what == "storm":
            self.trouble.storm = Storm(how["kinds"], how["share"], how["effect"], how["seconds"], how["status"])
        elif step.what == "calm":
            self.trouble.storm = None
        elif step.what == "crowd":
            self.trouble.most_at_once = how["most"]
        elif step.what != "cut":
            for replica in self.replicas:
                wrong = {"nameless": not how["found"]} if step.what == "names" else {how.get("of", "disk"): how["says"]}
                replica.go_wrong(**wrong)
        else:
            for replica in self.replicas:
                if replica.proxy is not None:
                    replica.proxy.cut(how["how"], how["plural"])

    async def _do_node(self, what: str, index: int) -> None:
        name = self._node(index)
        match what:
            case "vanish" if self._machines is not None:
                await self._machines.vanish()
            case "node-gone":
                await self.environment.remove_node(name)
            case "node-back":
                await self.environment.node(name, self.plan.nodes[index])
            case "not-ready" | "ready":
                await self.environment.ready(name, ready=what == "ready")
            case "cordon" | "uncordon":
                await self.environment.change_node(name, {"unschedulable": what == "cordon" or None})
            case _:
                raise AssertionError(what)

    async def _interfere(self, what: str, path: str, proxy: FaultProxy) -> None:
        """Do what a rule asks for in the middle of a request."""
        replica = next((one for one in self.replicas if one.proxy is proxy), self._leader())
        word, _, rest = what.partition(" ")
        match word:
            case "kill":
                await self._hurt(replica, "kill", 0.0, ask=False)
            case "freeze":
                await self._hurt(replica, "freeze", float(rest), ask=False)
            case "jump":
                self._jump(replica)
            case "take":
                key = f"{self.namespace}/{path.split('/')[-2]}"
                pod = self._checker.pods.get(key)
                if pod is not None and self.environment.may_take(pod):
                    await self.environment.take(pod)
            case "node-blink":
                index = self._rng.randrange(len(self.plan.nodes))
                await self._do_node("node-gone", index)
                await self._do_node("node-back", index)
            case "restart-api":
                await self._hurt_server("restart-api", 0.1)
            case "blackout":
                effect, seconds = rest.split()
                self._blackout(effect, float(seconds))
            case _:
                raise AssertionError(what)

    def _blackout(self, effect: str, seconds: float) -> None:
        """For a while everything is done and nothing is answered, and no watch tells either."""
        self.trouble.storm = storm = Storm(ALL, 1.0, effect, 0.3)  # type: ignore[arg-type]  # an effect, by the plan
        for replica in self.replicas:
            if replica.proxy is not None:
                replica.proxy.cut("abrupt")

        async def over() -> None:
            await asyncio.sleep(seconds)
            if self.trouble.storm is storm:
                self.trouble.storm = None

        self._steps.add(asyncio.ensure_future(over()))

    async def _hurt_server(self, what: str, down: float) -> None:
        async with self._server:
            if what == "compact":
                await self._site.compact()
            else:
                await (self._site.restart_api if what == "restart-api" else self._site.restart_store)(down)

    def _leader(self) -> Replica:
        return next((replica for replica in self.replicas if replica.leading), self.replicas[0])

    def _meant(self, who: str) -> list[Replica]:
        """Return the leader, all others, or all."""
        leader = self._leader()
        return [replica for replica in self.replicas if not who or (replica is leader) == (who == "leader")]

    async def _leave(self, replica: Replica, seconds: float) -> None:
        """Kill a replica, and start it again only after some seconds."""
        replica.away_until = time.monotonic() + seconds
        await self._hurt(replica, "kill", 0.0)

    @staticmethod
    def _jump(replica: Replica) -> None:
        if replica.hears:
            replica.send(signal.SIGUSR2)

    async def _hurt(self, replica: Replica, how: str, seconds: float, *, ask: bool = True) -> None:
        operator = replica.operator
        if operator is None:
            return
        if how == "freeze":
            operator.send(signal.SIGSTOP)

            async def thaw() -> None:
                await asyncio.sleep(seconds)
                operator.send(signal.SIGCONT)

            self._steps.add(asyncio.ensure_future(thaw()))
            return
        if ask and (self.plan.ordered or self.plan.policy in FIRST_COME):
            replica.positions = (await replica.state(operator)).get("positions", {})
        operator.send(signal.SIGKILL if how == "kill" or not replica.leading else signal.SIGTERM)

    async def _take(self, of: str, which: float) -> None:
        pods = [pod for _, pod in sorted(self._checker.pods.items()) if self.environment.may_take(pod)]
        if of != "any":
            pods = [pod for pod in pods if bool(pod.node) == (of == "bound")]
        if pods:
            await self.environment.take(pods[int(which * len(pods))])

    async def _heal(self) -> None:
        self.trouble.calm()
        self._around.heal()
        async with self._server:
            pass
        for replica in self.replicas:
            replica.send(signal.SIGCONT)
            replica.go_wrong(disk="", models="", nameless=False)
        for index in range(len(self.plan.nodes)):
            for what in ("node-back", "ready", "uncordon"):
                if what != "uncordon" or self._consolidation is None:
                    await self._do_node(what, index)

    async def _apply_anew(self) -> None:
        """Ask once more for all that was asked for: a backup does not have what came after it."""
        for step in self.plan.steps:
            if step.what in ("pods", "job", "service") and step in self._begun:
                await self._do(step)
        for index in range(len(self.plan.nodes)):
            await self._do_node("node-back", index)

    async def _ended(self) -> None:
        """Look at what an operator left; excuse no more once none is left that knows what never was."""
        await self._around.ended()
        if self._checker.excuses and not self._around.backups.anyone_knows():
            self._checker.excuses = False

    async def _until(self, check: Any) -> str:
        """Wait until a check has nothing to say; returns what it says at the deadline."""
        deadline = time.monotonic() + self.plan.liveness_seconds
        while True:
            begun = time.monotonic()
            left = check()
            if asyncio.iscoroutine(left):
                left = await left
            broken = self._checker.violations or any(replica.violations for replica in self.replicas)
            if not left or time.monotonic() > deadline or broken:
                return str(left)
            await asyncio.sleep(max(0.02, (time.monotonic() - begun) * CHECK_SHARE))

    def _unsettled(self) -> str:
        left, follows = unsettled(self.plan, self._checker, self.namespace), self._machines or self._consolidation
        if self._checker.excuses:
            return "an operator that was there before a backup was restored goes on"
        return "; ".join(one for one in (left, "" if follows is None else follows.unsettled()) if one)

    async def _disagreement(self) -> str:
        state = await self._leader().state()
        if not state:
            return "no operator tells its state"
        return disagreement(state, self._checker, self.namespace)

    def _look_back(self, report: Report) -> None:
        report.violations += self._order.violations
        report.compared = self._order.compared
        report.violations += [f"the environment failed: {error!r}" for error in self.environment.faults]
        report.of_checker(self._checker)
        report.violations += self._gangs.finish() + self._around.breaches()
        if self._consolidation is None:
            report.of_evictions(self.trouble.record.evictions, self._checker)
        else:
            report.violations += self._consolidation.breaches(self.trouble.record)
        report.violations += [] if self._machines is None else self._machines.breaches()
        report.violations += self.trouble.record.breaches(REQUEST_SECONDS)[:BREACHES_SHOWN]
        for replica in self.replicas:
            report.of_replica(replica, self._folder, disk=any(step.what == "disk" for step in self.plan.steps))
        report.struck = self.trouble.struck
        if self.phased is not None:
            self.phased.report(report)
