"""Why guards are asked for: the same input, cut in two ways, has two answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import headrace as hr
from headrace import col


class Road(NamedTuple):
    start: str
    end: str


def answer(flow: hr.Flow, ticks: list[dict[str, list[Any]]]) -> dict[Any, int]:
    """What the sink `out` has after these ticks and those that they put off."""
    engine = hr.Engine(flow)
    weights: dict[Any, int] = {}
    for inputs in ticks:
        for change in engine.tick(**inputs)["out"]:
            weights[change.row] = weights.get(change.row, 0) + change.weight
    for _ in range(20):
        if not engine.pending:
            break
        for change in engine.tick()["out"]:
            weights[change.row] = weights.get(change.row, 0) + change.weight
    assert not engine.pending
    return {row: weight for row, weight in weights.items() if weight}


def test_rows_that_went_round_a_tick_later_hold_each_other_up() -> None:
    def reachable() -> hr.Flow:
        flow = hr.Flow("reachability")
        seed, roads = flow.table("seed", str), flow.table("roads", Road)
        reached = flow.feedback(str, changes=True)
        further = reached.join(roads, on=col.value == col.start).select(value=col.end, into=str)
        reached.close(seed.union(further).defer_tick(nondet="where one was, one may stay"))
        flow.sink("out", reached)
        return flow

    roads = [hr.insert(Road("a", "b")), hr.insert(Road("b", "a"))]
    slowly = [{"seed": [hr.insert("a")], "roads": roads}, {}, {}, {}, {"seed": [hr.delete("a")]}]
    at_once = [{"seed": [hr.insert("a"), hr.delete("a")], "roads": roads}]
    assert answer(reachable(), slowly) == {"a": 1, "b": 1}
    assert answer(reachable(), at_once) == {}


def test_who_hears_of_earlier_answers_depends_on_what_was_earlier() -> None:
    def first_come() -> hr.Flow:
        flow = hr.Flow("first come")
        asked = flow.source("asked", int)
        taken = flow.feedback(int, changes=True)
        free = asked.difference(taken.select(value=3 - col.value, into=int))
        taken.close(free.defer_tick(nondet="of 1 and 2, who asks first is served"))
        flow.sink("out", free)
        return flow

    assert answer(first_come(), [{"asked": [1]}, {"asked": [2]}]) == {1: 1}
    assert answer(first_come(), [{"asked": [2]}, {"asked": [1]}]) == {2: 1}
