"""Order within a tick: what runs, how often, and what does not run at all."""

from __future__ import annotations

from typing import NamedTuple

import headrace as hr
from headrace import Engine, col, left, right
from headrace.engine.machine import Machine
from headrace.engine.program import compile_program


class Pair(NamedTuple):
    key: int
    value: int


def counting(flow: hr.Flow) -> tuple[Engine, list[str]]:
    """An engine, and the names of the functions it calls, in order."""
    engine = Engine(flow)
    called: list[str] = []
    machine: Machine = engine._machine
    parts = []
    for part, (function, inputs, outputs) in zip(engine.program.parts, machine._parts, strict=True):

        def counted(*args: object, function: object = function, name: str = part.function) -> object:
            called.append(name)
            return function(*args)  # type: ignore[operator]

        parts.append((counted, inputs, outputs))
    machine._parts = parts  # type: ignore[assignment]
    return engine, called


def wide(inputs: int) -> hr.Flow:
    """`inputs` sources, each with a group of its own, summed per ten."""
    flow = hr.Flow("wide")
    for ten in range(inputs // 10):
        groups = [
            flow.source(f"s{ten * 10 + i}", Pair).group_by("key").agg(total=hr.sum(col.value))
            for i in range(10)
        ]
        everything = groups[0].union(*groups[1:])
        flow.sink(f"sum{ten}", everything.group_by().agg(total=hr.sum(col.total)))
    return flow


def test_only_what_reads_from_the_changed_source_runs() -> None:
    engine, called = counting(wide(100))
    engine.tick(s42=[Pair(1, 5)])
    assert len(called) == 2, "the group of one source, and the sum of its ten"


def test_a_junction_runs_once_whatever_the_paths_that_lead_to_it() -> None:
    flow = hr.Flow("unequal diamond")
    a, b = flow.source("a", Pair), flow.source("b", Pair)
    short = a.union(b)
    long = short.group_by("key").agg(n=hr.count()).filter(col.n > 0).group_by("key").agg(m=hr.max(col.n))
    flow.sink("out", short.join(long, on="key"))
    flow.sink("beside", a.filter(col.value > 0))
    engine, called = counting(flow)
    changes = engine.tick(a=[Pair(1, 1)], b=[Pair(1, 2)])["out"]
    assert len(called) == len(set(called)), "no function runs twice in a tick"
    assert sorted(changes) == [((1, 1, 2), 1), ((1, 2, 2), 1)], "and no answer with half of the tick is seen"


def test_an_operator_behind_a_silent_filter_does_not_run() -> None:
    flow = hr.Flow("silent")
    a, b = flow.source("a", Pair), flow.source("b", Pair)
    quiet = a.filter(col.value > 100).group_by("key").agg(n=hr.count())
    flow.sink("out", quiet.join(b, on="key"))
    engine, called = counting(flow)
    engine.tick(a=[Pair(1, 1)])
    assert len(called) == 1


def test_a_flow_with_one_activation_is_one_straight_line_function() -> None:
    flow = hr.Flow("diamond")
    a = flow.source("a", Pair)
    b, c = a.with_columns(b=col.value + 1), a.with_columns(c=col.value + 2)
    flow.sink("out", b.join(c, on=(left.key == right.key) & (left.value == right.value), suffix="_c"))
    program = compile_program(flow.graph())
    assert len(program.parts) == 1
    assert "def tick(inputs):" in program.source_code


def test_what_leads_to_no_sink_is_not_compiled() -> None:
    flow = hr.Flow("dead end")
    a = flow.source("a", Pair)
    a.group_by("key").agg(n=hr.count())
    a.defer_tick()
    flow.sink("out", a)
    program = compile_program(flow.graph())
    assert not program.slots
    assert not program.delayed


def test_a_chain_of_row_operators_needs_no_buffer() -> None:
    flow = hr.Flow("chain")
    a = flow.source("a", Pair)
    flow.sink("out", a.filter(col.value > 1).select(twice=col.value * 2).filter(col.twice < 100))
    assert compile_program(flow.graph()).source_code.count(".append(") == 1


def test_many_joins_in_a_row_do_not_multiply_the_code() -> None:
    flow = hr.Flow("joins")
    stream = flow.table("s", Pair)
    for at in range(12):
        stream = stream.join(flow.table(f"t{at}", Pair), on="key", suffix=f"_{at}")
    flow.sink("out", stream)
    assert len(compile_program(flow.graph()).source_code.splitlines()) < 12 * 120
