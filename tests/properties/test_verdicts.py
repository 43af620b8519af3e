"""A verdict that claims an answer does not depend on arrival is right, to the last sign and type.

Rows of an append source may come in any order, and everything may be cut into ticks in any
way. Answers are compared by what they show, so that 0.0 and -0.0, 1 and True, differ.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, col
from headrace.analysis import Verdict, analyse
from headrace.engine.change import Change
from headrace.expr.types import FLOAT64
from headrace.lattice import Max, Min, Pair, SetUnion
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases
from tests.random_flows.folds import FOLDS
from tests.random_flows.grow import WAYS, AnyStream, Grow, Grown, grow
from tests.random_flows.pairs import CHAINS, PAIRS

CLAIMS = (Verdict.NO_COORDINATION, Verdict.DETERMINISTIC)
Columnar = Literal["never", "always"]


def text(value: Any) -> str:
    """What a value shows; a set in one order."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(text, value)))}}}"
    return f"({', '.join(map(text, value))})" if type(value) is tuple else repr(value)


def answers(case: Case, ticks: list[Tick], columnar: Columnar) -> dict[str, dict[str, int]]:
    """Per sink what it shows in the end, by the text of its rows."""
    engine = Engine(case.flow, columnar=columnar)
    held: dict[str, Counter[str]] = {name: Counter() for name in case.graph.sinks}
    for tick in (*ticks, *({} for _ in range(100))):
        if not tick and not engine.pending:
            continue
        for name, changes in engine.tick(**tick).items():
            for *row, weight in changes.raw:
                held[name][text(tuple(row))] += weight
    return {name: {row: n for row, n in rows.items() if n} for name, rows in held.items()}


@st.composite
def arrivals(draw: st.DrawFn, case: Case) -> list[Tick]:
    """All input of a case in any order and cut, but that a row is taken back after it was given."""
    count = draw(st.integers(1, 4))
    ticks: list[dict[str, list[Change[Any]]]] = [{name: [] for name in case.inputs} for _ in range(count)]
    for name, changes in case.inputs.items():
        source = case.source(name)
        by_row: dict[Any, list[Change[Any]]] = defaultdict(list)
        for change in changes:
            by_row[repr(change.row)].append(change)
        order = draw(st.permutations([repr(change.row) for change in changes]))
        last = 0 if source.bounded else count - 1
        at = sorted(draw(st.lists(st.integers(0, last), min_size=len(order), max_size=len(order))))
        for tick, row in zip(at, order, strict=True):
            ticks[tick][name].append(by_row[row].pop(0))
    return [case.tick({name: part for name, part in tick.items() if part}) for tick in ticks]


def with_arrivals(
    drawn: st.SearchStrategy[Case],
) -> st.SearchStrategy[tuple[Case, list[Tick], list[Tick], Columnar]]:
    columnar: st.SearchStrategy[Columnar] = st.sampled_from(["never", "always"])
    return drawn.flatmap(lambda case: st.tuples(st.just(case), arrivals(case), arrivals(case), columnar))


def check(case: Case, one: list[Tick], other: list[Tick], columnar: Columnar) -> None:
    verdicts = analyse(case.graph).verdicts
    shown, shown_too = answers(case, one, "never"), answers(case, other, columnar)
    for sink, verdict in verdicts.items():
        if verdict in CLAIMS:
            assert shown[sink] == shown_too[sink], f"{sink}: {verdict.value}"


# -- zeros -----------------------------------------------------------------------------------------


class Reading(NamedTuple):
    key: float
    value: float
    at: int


READINGS = [Reading(0.0, -0.0, 1), Reading(-0.0, 0.0, 1), Reading(-0.0, -0.0, 1), Reading(0.0, 0.0, 1)]
ONE_OF_EQUAL: dict[str, Callable[[AnyStream], AnyStream]] = {
    "max": lambda s: s.group_by("at").agg(value=hr.max(col.value)),
    "min of what is computed": lambda s: s.group_by("at").agg(value=hr.min(-col.value)),
    "first": lambda s: s.group_by("at").agg(value=hr.first(col.value, by=col.key)),
    "last": lambda s: s.group_by("at").agg(value=hr.last(col.value, by=col.key)),
    "collect": lambda s: s.group_by("at").agg(value=hr.collect(col.value)),
    "mean that is too small for a float": lambda s: s.group_by("at").agg(value=hr.mean(col.value * 5e-324)),
    "group key": lambda s: s.group_by("key").agg(n=hr.count_distinct(col.value)),
    "distinct": lambda s: s.distinct(),
    "unique": lambda s: s.unique(),
    "top k": lambda s: s.top_k(2, by=col.at),
    "lattice fold": lambda s: s.lattice_fold(Max(), value="value", per="at", into="value"),
    "lattice fold per zero": lambda s: s.lattice_fold(Min(), value="value", per="key", into="value"),
    "commutative fold": lambda s: s.reduce_keyed("at", max, value="value", into="value", commutative=True),
    "aggregate of an aggregate": lambda s: (
        s.group_by("at", "key").agg(value=hr.max(col.value)).group_by("at").agg(all=hr.collect(-col.value))
    ),
    "loop": lambda s: s.flow.fixpoint(lambda r: r.with_columns(value=-col.value), s),
    "difference": lambda s: s.difference(s.filter(col.at > 1)),
    "left join": lambda s: s.join(s.filter(col.at > 1), on="key", how="left", suffix="_b"),
    "join with groups": lambda s: s.join(s.group_by("key").agg(v=hr.max(-col.value)), on="key"),
}


@pytest.mark.parametrize("columnar", ["never", "always"])
@pytest.mark.parametrize("build", ONE_OF_EQUAL.values(), ids=ONE_OF_EQUAL)
def test_one_zero_stands_for_both_where_one_of_equal_is_shown(
    build: Callable[[AnyStream], AnyStream], columnar: Columnar
) -> None:
    flow = hr.Flow("zeros")
    flow.sink("out", build(flow.source("readings", Reading)))
    case = Case(flow, {})
    together = [[{"readings": list(order)}] for order in itertools.permutations(READINGS)]
    apart = [[{"readings": [reading]} for reading in order] for order in (READINGS, READINGS[::-1])]
    shown = [answers(case, ticks, columnar)["out"] for ticks in (*together, *apart)]
    assert all(other == shown[0] for other in shown)
    assert not any("-0.0" in row for row in shown[0])


def test_a_table_counts_rows_by_equality_and_shows_one_zero() -> None:
    flow = hr.Flow("table")
    table = flow.table("table", Reading)
    flow.sink("rows", table)
    flow.sink("seen", table.map(repr, returns=str))
    flow.sink("later", table.defer_tick().map(repr, returns=str))
    given = [hr.insert(READINGS[0]), hr.insert(READINGS[1]), hr.delete(READINGS[2])]
    shown = answers(Case(flow, {}), [{"table": [change]} for change in given], "never")
    row = Reading(0.0, 0.0, 1)
    seen = {f"({str(row)!r})": 1}
    assert shown == {"rows": {repr(tuple(row)): 1}, "seen": seen, "later": seen}


def test_rows_that_are_only_added_keep_the_zero_they_came_with() -> None:
    flow = hr.Flow("rows")
    numbers = flow.source("numbers", float).filter(col.value < 1.0)
    flow.sink("same", numbers)
    flow.sink("negated", numbers.map(lambda x: -x, returns=float))
    shown = answers(Case(flow, {}), [{"numbers": [0.0, -0.0, 0.0]}], "never")
    assert shown == {"same": {"(0.0)": 2, "(-0.0)": 1}, "negated": {"(0.0)": 1, "(-0.0)": 2}}


# -- flows of few values that are equal and differ -------------------------------------------------


class Numbers(NamedTuple):
    k: float
    v: float | None
    n: int


class Anything(NamedTuple):
    o: object
    v: float


ZEROS = st.sampled_from([0.0, -0.0, float("nan"), 1.0])
ONES = st.sampled_from([0.0, -0.0, float("nan"), 1, True, 1.0, (0.0, 1), (-0.0, True)])
ROWS: dict[Any, st.SearchStrategy[Any]] = {
    Numbers: st.builds(Numbers, ZEROS, st.none() | ZEROS, st.integers(0, 1)),
    Anything: st.builds(Anything, ONES, ZEROS),
    float: ZEROS,
    object: ONES,
    list[float]: st.lists(ZEROS, max_size=2),
}


def _floats(one: Grown) -> list[str]:
    return [field.name for field in one.schema.fields if field.type == FLOAT64]


def _negated(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    names = _floats(one)
    if not names:
        return None
    name = draw(st.sampled_from(names))
    return Grown(one.stream.with_columns(**{name: -col[name]}), one.size)


def _shown(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """What tells a zero from the other, or 1 from True."""
    if draw(st.booleans()):
        return Grown(one.stream.map(repr, returns=str), one.size)
    names = _floats(one)
    return Grown(one.stream.with_columns(shown=col[names[0]].cast(str)), one.size) if names else None


def _merged(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    if not one.append:
        return None
    value, name = draw(st.sampled_from(one.schema.names)), f"merged{len(one.stream.flow.nodes)}"
    lattice = draw(st.sampled_from([Max(), Min()]))
    if draw(st.booleans()) and one.schema.scalar and str(one.schema.fields[0].type).startswith("list"):
        return Grown(one.stream.lattice_fold(SetUnion(), into=name), 1)
    if one.schema.fields[one.schema.names.index(value)].type != FLOAT64:
        return None
    per = draw(st.lists(st.sampled_from(one.schema.names), max_size=1))
    return Grown(one.stream.lattice_fold(lattice, value=value, per=per, into=name), one.size)


def _paired(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """The greatest and the least of a column, in one value."""
    names = _floats(one)
    if not one.append or not names:
        return None

    def pair(row: Any) -> Held:
        value = row if one.schema.scalar else getattr(row, names[0])
        return Held(Ends(value or -0.0, -(value or 0.0)))

    return Grown(one.stream.map(pair).lattice_fold(Pair(Max(), Min()), value="ends", into="both"), 1)


class Ends(NamedTuple):
    high: float
    low: float


class Held(NamedTuple):
    ends: Ends


FEW: tuple[Grow, ...] = (*WAYS, *PAIRS, *FOLDS, *CHAINS, *(_negated, _shown, _merged, _paired) * 3)


@st.composite
def few_values(draw: st.DrawFn, row_types: Sequence[Any] = tuple(ROWS)) -> Case:
    flow = hr.Flow("few values")
    sources: list[Grown] = []
    inputs: dict[str, list[Change[Any]]] = {}
    for at in range(draw(st.integers(1, 2))):
        row_type = draw(st.sampled_from(row_types))
        given = draw(st.lists(ROWS[row_type], max_size=6))
        name, kind = f"s{at}", draw(st.sampled_from(["append", "bounded", "table"]))
        stream: AnyStream = (
            flow.table(name, row_type)
            if kind == "table"
            else flow.source(name, row_type, bounded=kind == "bounded")
        )
        inputs[name] = [Change(row, 1) for row in given]
        if kind == "table":
            inputs[name] += [Change(row, -1) for row in given if draw(st.booleans())]
        sources.append(Grown(stream, max(1, len(given))))
    streams = grow(draw, sources, draw(st.integers(1, 5)), FEW)
    for at in {len(streams) - 1, draw(st.integers(0, len(streams) - 1))}:
        flow.sink(f"out{at}", streams[at].stream)
    return Case(flow, inputs)


@examples(2)
@given(with_arrivals(few_values()))
def test_what_a_verdict_calls_deterministic_does_not_show_arrival(
    drawn: tuple[Case, list[Tick], list[Tick], Columnar],
) -> None:
    check(*drawn)


@examples(1)
@given(with_arrivals(cases(folds=True, deferred=True)))
def test_no_flow_of_any_operators_does(drawn: tuple[Case, list[Tick], list[Tick], Columnar]) -> None:
    check(*drawn)
