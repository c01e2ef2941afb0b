"""Namespaces take turns at a Prometheus: a slow one waits for itself only."""

from __future__ import annotations

import asyncio
from collections import Counter

from cotide_operator.usage.query_budgets import QueryBudgets


class Asking:
    """Queries ``NAMESPACE NUMBER``: those of the namespace ``slow`` never end by themselves."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.flying: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def __call__(self, query: str, seconds: float) -> str:
        space = query.split(maxsplit=1)[0]
        self.order.append(query)
        for name in (space, "all"):
            self.flying[name] += 1
            self.most[name] = max(self.most[name], self.flying[name])
        try:
            await asyncio.sleep(seconds if space == "slow" else 0)
        finally:
            for name in (space, "all"):
                self.flying[name] -= 1
        return "late" if space == "slow" else "answered"


def queries(space: str, count: int) -> list[str]:
    return [f"{space} {number}" for number in range(count)]


def soon() -> float:
    return asyncio.get_running_loop().time() + 30.0


async def test_sixty_slow_queries_of_one_namespace_leave_the_others_their_turns() -> None:
    budgets: QueryBudgets[str, str] = QueryBudgets(concurrent=8, per_namespace=2, seconds=0.2)
    asking = Asking()
    answers = await budgets.run({"slow": queries("slow", 60), "b": queries("b", 20)}, asking, soon())
    assert [answers[query] for query in queries("b", 20)] == ["answered"] * 20
    assert asking.most["slow"] == 2
    assert sum(query.startswith("slow") for query in answers) == 2, "its 0.2 s were over with the first two"


async def test_no_more_queries_fly_than_are_allowed_in_all() -> None:
    budgets: QueryBudgets[str, str] = QueryBudgets(concurrent=3, per_namespace=2, seconds=5.0)
    asking = Asking()
    answers = await budgets.run({space: queries(space, 5) for space in "abcd"}, asking, soon())
    assert len(answers) == 20
    assert asking.most["all"] == 3


async def test_what_was_not_reached_comes_first_the_next_time() -> None:
    budgets: QueryBudgets[str, str] = QueryBudgets(concurrent=8, per_namespace=1, seconds=0.05)
    asking = Asking()
    for _ in range(4):
        await budgets.run({"slow": queries("slow", 3)}, asking, soon())
    assert asking.order == ["slow 0", "slow 1", "slow 2", "slow 0"]


async def test_a_namespace_that_used_much_time_lately_comes_after_all_others() -> None:
    budgets: QueryBudgets[str, str] = QueryBudgets(concurrent=1, per_namespace=1, seconds=0.05)
    asking = Asking()
    await budgets.run({"slow": queries("slow", 1), "b": queries("b", 1)}, asking, soon())
    asking.order.clear()
    await budgets.run({"a slow one's name": [], "slow": queries("slow", 1), "zz": queries("zz", 2)}, asking, soon())
    assert asking.order == ["zz 0", "zz 1", "slow 0"]


async def test_at_the_deadline_nothing_more_is_asked() -> None:
    budgets: QueryBudgets[str, str] = QueryBudgets(concurrent=1, per_namespace=1, seconds=60.0)
    asking = Asking()
    deadline = asyncio.get_running_loop().time() + 0.1
    answers = await budgets.run({f"{n}": [f"slow {n}"] for n in range(5)}, asking, deadline)
    assert list(answers.values()) == ["late"], "the first one got the whole time"
