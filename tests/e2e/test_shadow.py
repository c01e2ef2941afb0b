"""Shadow mode: it decides as if, writes nothing, and its report is about what happened."""

from __future__ import annotations

from pathlib import Path

from operator_world import ALONE, PODS, World

from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.recording.shadow_report import shadow_report
from cotide_lab.commands.ledger_replay import replay
from cotide_operator.cache.preflight import install

WRITES = ("POST", "PUT", "PATCH", "DELETE")


async def test_nothing_is_written_and_the_report_tells_of_what_another_scheduler_did(
    world: World, tmp_path: Path
) -> None:
    await world.nodes(2, cpu="2")
    text = f"mode: shadow\n{ALONE}ledger: {{directory: {tmp_path}}}\n"
    await install(world.client)  # by whoever administrates
    async with world.operator(text, install_crds=False) as running:
        counts = [world.server.strike(method=method, path="", count=-1) for method in WRITES]
        await world.pods(3, schedulerName="default-scheduler")
        own = 3
        await world.until("it decided as if", lambda: len(running.loop.scheduler.state.assumed()) == 3)
        for name, node in (("p0", "n0"), ("p1", "n0")):
            uid = (await world.client.get(f"{PODS}/{name}"))["metadata"]["uid"]
            assert (await world.client.bind("default", name, uid, node)).ok
            own += 1
        await world.until("it saw where they went", lambda: len(running.loop.scheduler.state.assumed()) == 1)
        assert sum(count.met for count in counts) == own
    file = tmp_path / "ledger.jsonl"
    found = shadow_report(file.open("rb"), HeuristicCatalogue())
    assert (found.placed, found.refused) == (2, {})
    assert found.waits.pods == 2
    assert replay(file.open("rb"), HeuristicCatalogue()).difference is None
