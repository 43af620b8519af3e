"""Large ticks on frames: the same outputs, the same state, the same failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import Annotated, Any, NamedTuple, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.analysis import analyse
from headrace.columns.columns import ColumnarDeclined, Columns
from headrace.engine.change import Change
from headrace.engine.columnar.arranged_slot import ArrangedSlot
from headrace.engine.columnar.columnar_flow import large_ticks_code
from headrace.engine.columnar.columnar_option import Columnar, explain_large_ticks
from headrace.engine.columnar.runner import PartRunner
from headrace.engine.machine import Machine
from headrace.engine.program import Program, compile_program
from headrace.expr.constructors import col, left, right
from headrace.expr.row_classes import from_user
from headrace.expr.types import BOOL, FLOAT64, INT64, INTERVAL, INTERVALS, STR, TIMESTAMP, DecimalType
from headrace.expr.typing_rules import bounded_code
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.aggregate.aggregation import accumulator_for
from headrace.operators.aggregate.counts import DistinctAccumulator
from headrace.operators.aggregate.sums import FloatTotals
from headrace.operators.event_time.temporal_filter import TemporalFilter
from headrace.operators.event_time.window import Window
from headrace.operators.join.interval_join import IntervalJoin
from headrace.operators.join.join import How, Join
from headrace.operators.time_spans import Sessions
from headrace.operators.top_k import TopK
from headrace.testing.strategies import rows
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, _add_sinks, _taken_back, cases, cuts
from tests.random_flows.expressions import columns, expressions
from tests.random_flows.grow import (
    Grown,
    _aggregate,
    _distinct,
    _filter,
    _over,
    _select,
    _top_k,
    _union,
    _with_columns,
    grow,
)

pytest.importorskip("polars")


Rows = list[tuple[Any, ...]]
Stream = hr.Stream[Any, Any, Any, Any]
ALWAYS = Columnar(1, always=True, release=lambda slot: None)
HOUR = timedelta(hours=1)


class Run:
    """A machine over state that can be looked at."""

    def __init__(self, program: Program, columnar: Columnar | None) -> None:
        self.program, self.facts = program, analyse(program.graph).facts
        self.names = [slot.name for slot in program.slots]
        self.machine = Machine(program, {name: {} for name in self.names}, columnar)
        joins = [n.operator.how for n in program.graph.nodes if isinstance(n.operator, Join)]
        self.shown = _shown if {*joins} <= {How.INNER} else _shown_with_one_zero

    def tick(self, inputs: Mapping[str, Rows], *, in_order: bool = False) -> object:
        """The outputs as bags, those in order as lists, or the failure as text."""
        try:
            made = self.machine.tick(inputs)
        except Exception as error:
            return str(error)
        rows = {name: out if isinstance(out, list) else out.rows() for name, out in made.items()}
        ordered = {name for name, node in self.program.graph.sinks.items() if self.facts[node].ordered}
        return {
            name: (list if in_order and name in ordered else Counter)(map(self.shown, out))
            for name, out in rows.items()
            if out
        }

    def settled(self) -> object:
        """The state; the lists of rows in it as bags, since joins keep their inputs in any order."""
        slots = {name: _as_dict(self.machine.slot(name)) for name in self.names}
        shown = self.shown
        return {
            name: {
                shown(k): _bag(self._reduced(name, v), shown)
                for k, v in slot.items()
                if not (name.endswith(".held") and v == 0)
            }
            for name, slot in slots.items()
            if not _is_idle(name, slot) and not self._is_calendar(name)
        }

    def _is_calendar(self, name: str) -> bool:
        """Whether a slot is a calendar in which columns note many keys by one entry, or sessions once."""
        node, _, kind = name.partition(".")
        operator = self.program.graph.nodes[int(node)].operator
        if isinstance(operator, Window):
            return isinstance(operator.shape, Sessions) and kind in ("calendar", "due")
        entries = kind.endswith(("calendar", "counts", "due"))
        return entries and isinstance(operator, IntervalJoin | TemporalFilter)

    def _reduced(self, name: str, group: Any) -> Any:
        """A group without what depends on the order of rows: fractions unreduced, first rows at hand."""
        node, _, kind = name.partition(".")
        operator = self.program.graph.nodes[int(node)].operator if kind == "groups" else None
        if kind == "sessions":
            # Their numbers tell no more than their order.
            return [(start, last, repr(_plain(kept))) for start, last, _, kept in group]
        if isinstance(operator, TopK):
            return group[1:] if isinstance(group[0], list) else group
        if not isinstance(operator, Aggregate):
            return group
        graph, at, group = self.program.graph, 2, list(group)
        (source,) = graph.nodes[int(node)].inputs
        for _, aggregation in operator.aggregations:
            kept = accumulator_for(aggregation, graph.nodes[source].schema, self.facts[source].append)
            total = kept.of if isinstance(kept, DistinctAccumulator) else kept
            if isinstance(total, FloatTotals):
                first = at + (total is not kept)
                group[first : first + 2] = Fraction(*group[first : first + 2]).as_integer_ratio()
            at += len(kept.fields())
        return group


def _is_idle(name: str, slot: dict[Any, Any]) -> bool:
    """Whether it is a clock that no row has reached: only flows of one region run it in such a tick."""
    return name.endswith(".clock") and all(top == mark and not late for top, mark, late in slot.values())


def _as_dict(slot: Any) -> dict[Any, Any]:
    return {key: slot.get(key) for key in slot.keys()} if isinstance(slot, ArrangedSlot) else slot  # noqa: SIM118


def _shown(row: object) -> str:
    return repr(_plain(row))


def _plain(value: object) -> object:
    """Rows as users gave them may be instances of their class inside."""
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _shown_with_one_zero(row: object) -> str:
    """Which zero a row shows that came with both may depend on which has been taken back."""
    return repr(_with_one_zero(row))


def _with_one_zero(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_with_one_zero, value))
    return 0.0 if isinstance(value, float) and value == 0 else value


def _bag(value: object, shown: Callable[[object], str]) -> object:
    """A piece of state without the order in which its parts came."""
    if isinstance(value, Columns):
        value = value.rows()
    if isinstance(value, dict):
        return {shown(k): _bag(v, shown) for k, v in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(v, tuple) for v in value):
            return Counter(map(shown, value))
        return [_bag(v, shown) for v in value]
    return shown(value)


def _inside(case: Case, tick: Tick) -> dict[str, Rows]:
    """A tick's rows as they are inside."""
    return {
        name: from_user(
            case.source(name).schema, what=name, change=None if case.source(name).append else Change
        )(rows)
        for name, rows in tick.items()
    }


class Plain(NamedTuple):
    """A row whose columns can all stand in a frame."""

    k: int
    n: int | None
    s: str
    x: float | None
    t: datetime | None
    b: bool
    i: timedelta
    j: timedelta | None
    d: Annotated[Decimal, DecimalType(12, 2)]
    e: Annotated[Decimal, DecimalType(36, 3)] | None


_KEYS = (INT64, STR, BOOL, TIMESTAMP, INTERVAL)


def _join(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """A join on columns that frames can be joined on, some of which are null at times."""
    other = draw(st.sampled_from(all_))
    mine, theirs = (
        [f.name for f in g.schema.fields if f.type in (INT64, STR, BOOL, TIMESTAMP, INTERVAL)]
        for g in (one, other)
    )
    pairs = [
        (m, t)
        for m in mine
        for t in theirs
        if one.schema.fields[one.schema.position(m) or 0].type
        == other.schema.fields[other.schema.position(t) or 0].type
    ]
    if not pairs or one.size * other.size > 400 or len(one.schema.fields) > 8:
        return None
    how: Any = draw(st.sampled_from(["inner", "inner", "left", "semi", "anti"]))
    keys = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique=True))
    conditions = [left[m] == right[t] for m, t in keys]
    if draw(st.integers(0, 3)) == 0:
        m, t = draw(st.sampled_from(pairs))
        conditions.append(draw(st.sampled_from([left[m] != right[t], left[m].is_null()])))
    condition: Any = reduce(and_, conditions)
    suffix = {} if how in ("semi", "anti") else {"suffix": f"_{len(one.stream.flow.nodes)}"}
    return Grown(one.stream.join(other.stream, on=condition, how=how, **suffix), one.size * other.size)


def _sums(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """Groups with aggregates that Polars sums up before rows see them."""
    summed = [type for type in (INT64, INTERVAL, FLOAT64, *_DECIMALS) if columns(one.schema, type)]
    if not summed:
        return None
    number = draw(expressions(one.schema, draw(st.sampled_from(summed))))
    if draw(st.booleans()) and columns(one.schema, _DECIMALS[0]):
        short = draw(st.sampled_from(columns(one.schema, _DECIMALS[0])))
        number = draw(st.sampled_from([number, short * 3, 1 - short, short * short, short.round(1)]))
    keys = draw(st.lists(st.sampled_from(one.schema.names), max_size=2, unique=True))
    some = draw(st.sampled_from(columns(one.schema)))
    aggregates: dict[str, Any] = {
        "rows": hr.count(), "present": hr.count(some), "total": hr.sum(number), "mean": hr.mean(number),
        "least": hr.min(some), "most": hr.max(some), "twos": hr.sum(hr.lit(2)), "two": hr.max(hr.lit(-0.0)),
    }  # fmt: skip
    if columns(one.schema, INT64):
        whole = draw(expressions(one.schema, INT64))
        aggregates |= {"spread": hr.stddev(whole), "skew": hr.skewness(whole)}
        aggregates |= {"once": hr.sum(whole, distinct=True), "kinds": hr.count_distinct(whole)}
    aggregates |= {"early": hr.first(some, by=number), "pairs": hr.count_distinct(some, number)}
    wanted = draw(st.lists(st.sampled_from(sorted(aggregates)), min_size=1, max_size=4, unique=True))
    named = {f"{name}_{len(one.stream.flow.nodes)}": aggregates[name] for name in wanted}
    more = (
        {f"always_{len(one.stream.flow.nodes)}": hr.lit(draw(st.sampled_from([7, -0.0, "x"])))}
        if draw(st.integers(0, 3)) == 0
        else {}
    )
    return Grown(one.stream.group_by(*keys, **more).agg(**named), one.size)


def _upsert(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """The latest row of each key, in order of arrival or by a sequence, or all its versions."""
    numbers = [f.name for f in one.schema.fields if f.type == INT64]
    if not one.append or not numbers:
        return None
    by = draw(st.lists(st.sampled_from(one.schema.names), min_size=1, max_size=2, unique=True))
    row = hr.struct(**{name: col[name] for name in one.schema.names}) if draw(st.booleans()) else None
    deleted = draw(st.sampled_from([None, col[numbers[0]] > 1]))
    if not one.facts.ordered or draw(st.booleans()):
        sequence = col[draw(st.sampled_from(numbers))]
        options: dict[str, Any] = {
            "row": row, "sequence": sequence, "deleted": deleted,
            "on_misfit": draw(st.sampled_from(["error", "trust_key"])),
        }  # fmt: skip
        if draw(st.booleans()) and not {"start_at", "end_at"} & set(one.schema.names):
            return Grown(one.stream.history(by, **options), 2 * one.size)
        return Grown(one.stream.upsert(by, **options), one.size)
    return Grown(one.stream.upsert(by, row=row, deleted=deleted), one.size)


_DECIMALS = (DecimalType(12, 2), DecimalType(36, 3))
ROW_BY_ROW = (_select, _with_columns, _filter, _union)
COLUMNAR = (
    *ROW_BY_ROW,
    *ROW_BY_ROW,
    _distinct,
    _sums,
    _sums,
    _join,
    _join,
    _join,
    _top_k,
    _top_k,
    _upsert,
    _upsert,
    _over,
    _over,
    _aggregate,
)


@st.composite
def columnar_cases(draw: st.DrawFn) -> Case:
    """Flows of operators that have a columnar form, and of what stands between them."""
    flow = hr.Flow("drawn")
    sources: list[Grown] = []
    inputs: dict[str, list[Change[Any]]] = {}
    for at in range(draw(st.integers(1, 2))):
        is_table = draw(st.booleans())
        name = f"s{at}"
        stream = flow.table(name, Plain) if is_table else flow.source(name, Plain)
        given = draw(st.lists(rows(stream.schema), max_size=10))
        inputs[name] = [Change(row, 1) for row in given]
        if is_table:
            inputs[name] = draw(_taken_back(inputs[name], settled=draw(st.booleans())))
        sources.append(Grown(stream, max(1, len(given))))
    streams = grow(draw, sources, draw(st.integers(1, 5)), COLUMNAR)
    _add_sinks(draw, flow, streams)
    return Case(flow, inputs)


@st.composite
def runs(draw: st.DrawFn, kind: st.SearchStrategy[Case]) -> tuple[Case, list[Tick], list[bool]]:
    case = draw(kind)
    ticks = draw(cuts(case))
    return case, ticks, draw(st.lists(st.booleans(), min_size=len(ticks), max_size=len(ticks)))


@examples(0.8)
@given(runs(columnar_cases()))
def test_flows_of_expressions_are_the_same_in_columns(run: tuple[Case, list[Tick], list[bool]]) -> None:
    check_alike(*run)


@examples(0.3)
@given(runs(st.booleans().flatmap(lambda deferred: cases(deferred=deferred))))
def test_flows_of_any_operators_are_the_same_in_columns(run: tuple[Case, list[Tick], list[bool]]) -> None:
    check_alike(*run)


@contextmanager
def noting_declines() -> Generator[list[Exception | None]]:
    """Note for each part of a tick that began in columns why it ran in rows after all, if it did."""
    declines: list[Exception | None] = []
    in_columns: Any = PartRunner._on_frames

    def noted(runner: PartRunner, *inputs: Any) -> Any:
        try:
            made = in_columns(runner, *inputs)
        except Exception as error:
            declines.append(error)
            raise
        declines.append(None)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartRunner, "_on_frames", noted)
        yield declines


def check_alike(case: Case, ticks: list[Tick], large: list[bool], *, in_order: bool = False) -> None:
    """Outputs and state are the same, whichever ticks run on frames. Polars fails only where rows fail.

    in_order: outputs that are said to be in order have the same order, too.
    """
    program = compile_program(case.graph)
    in_rows, always, mixed = (Run(program, c) for c in (None, ALWAYS, ALWAYS))
    for tick, is_large in zip(ticks, large, strict=True):
        inputs = _inside(case, tick)
        wanted = in_rows.tick(inputs, in_order=in_order)
        with noting_declines() as declines:
            assert always.tick(inputs, in_order=in_order) == wanted
            mixed.machine.least = 1 if is_large else 10**9
            assert mixed.tick(inputs, in_order=in_order) == wanted
        if isinstance(wanted, str):
            return
        assert all(why is None or isinstance(why, ColumnarDeclined) for why in declines)
    assert always.settled() == in_rows.settled()
    assert mixed.settled() == in_rows.settled()


def _filtered(rows: Stream, others: Stream) -> Stream:
    return rows.filter((col.n > 1) & col.s.is_in("a", "b")).with_columns(more=col.n + 1)


def _joined(rows: Stream, others: Stream) -> Stream:
    return rows.join(others, on="k", suffix="_r")


def _joined_left(rows: Stream, others: Stream) -> Stream:
    return rows.join(others, on="k", how="left", suffix="_r")


def _present(rows: Stream, others: Stream) -> Stream:
    return rows.join(others, on=(left.k == right.k) & (left.n != right.n), how="semi")


def _first(rows: Stream, others: Stream) -> Stream:
    return rows.top_k(2, by=[col.n.desc(), col.k], per=col.s)


def _absent(rows: Stream, others: Stream) -> Stream:
    return rows.join(others, on="n", how="anti")


def _distinct_of_union(rows: Stream, others: Stream) -> Stream:
    return rows.union(others).select("k", "s").distinct()


def _upserted(rows: Stream, others: Stream) -> Stream:
    return rows.upsert("k", deleted=col.n % 4 == 0)


def _upserted_by_sequence(rows: Stream, others: Stream) -> Stream:
    return rows.upsert("k", sequence="n")


def _upserted_by_deleting_sequence(rows: Stream, others: Stream) -> Stream:
    return rows.upsert("k", sequence="n", deleted=col.n % 4 == 0, tombstones=7)


def _versions(rows: Stream, others: Stream) -> Stream:
    return rows.history("k", sequence="n", deleted=col.n % 4 == 0, track=["s"])


def _grouped(rows: Stream, others: Stream) -> Stream:
    return rows.group_by("s").agg(n=hr.count(), total=hr.sum(col.n), mean=hr.mean(col.d), least=hr.min(col.t))


def _extremes(rows: Stream, others: Stream) -> Stream:
    return rows.group_by("s").agg(
        least=hr.min(col.x),
        most=hr.max(col.e),
        early=hr.first(col.n, by=col.t),
        late=hr.last(col.t, by=col.d),
    )


def _extremes_of_all(rows: Stream, others: Stream) -> Stream:
    return rows.group_by().agg(n=hr.count(), least=hr.min(col.j), most=hr.max(col.s))


def _distinct_values(rows: Stream, others: Stream) -> Stream:
    return rows.group_by("s", "b").agg(
        ns=hr.count_distinct(col.n), xs=hr.count_distinct(col.x), total=hr.sum(col.d, distinct=True)
    )


def _ranked(rows: Stream, others: Stream) -> Stream:
    def over(function: Any, **frame: Any) -> Any:
        return function.over(partition_by="s", order_by=[col.n.desc(), col.x], **frame)

    return rows.with_columns(
        place=over(hr.row_number()), rank=over(hr.rank()), dense=over(hr.dense_rank()),
        part=over(hr.percent_rank()), share=over(hr.cume_dist()), tile=over(hr.ntile(3)),
        before=over(hr.lag(col.k, 2, default=col.n)), after=over(hr.lead(col.t)),
        running=over(hr.sum(col.n)), near=over(hr.mean(col.d), rows=(-1, 2)), most=over(hr.max(col.e)),
        first=over(hr.first_value(col.x)), last=over(hr.last_value(col.s), rows=(None, None)),
    )  # fmt: skip


def _filtered_by_interval(rows: Stream, others: Stream) -> Stream:
    later = (col.i * 2 - HOUR + -col.i).cast(INTERVALS[1])
    return rows.filter(abs(col.i) > HOUR).with_columns(later=later, since=col.j - col.i)


def _joined_by_interval(rows: Stream, others: Stream) -> Stream:
    return rows.join(others, on="i", suffix="_r")


def _grouped_intervals(rows: Stream, others: Stream) -> Stream:
    return rows.group_by("i").agg(n=hr.count(col.j), total=hr.sum(col.i), mean=hr.mean(col.j))


def _divided_intervals(rows: Stream, others: Stream) -> Stream:
    return rows.filter(col.i // HOUR > -3).with_columns(a=col.i // -HOUR, b=col.j // (abs(col.i) + HOUR))


def _discounted(rows: Stream, others: Stream) -> Stream:
    chosen = rows.filter((col.d > Decimal("0.5")) & col.d.between(0, 99))
    return chosen.with_columns(p=col.d * (1 - col.d), q=col.d / 7, r=col.e.cast(DecimalType(38, 1)))


def _summed_decimals(rows: Stream, others: Stream) -> Stream:
    product = col.d * (1 - col.d)
    return rows.group_by("k").agg(n=hr.count(col.e), p=hr.sum(product), m=hr.mean(col.d), e=hr.sum(col.e))


_OF_DECIMALS = [_discounted, _summed_decimals]
_OF_INTERVALS = [_divided_intervals, _filtered_by_interval, _joined_by_interval, _grouped_intervals]


_WITH_STATE = [_joined, _joined_left, _present, _absent, _first, _distinct_of_union, _grouped]
_WITH_VALUES = [_extremes, _extremes_of_all, _distinct_values, _ranked]


@pytest.mark.parametrize("build", [_filtered, *_WITH_STATE, *_WITH_VALUES, *_OF_INTERVALS, *_OF_DECIMALS])
@pytest.mark.parametrize("is_table", [False, True])
def test_what_has_a_columnar_form_runs_in_it(build: Callable[..., Stream], is_table: bool) -> None:
    check_runs_in_columns(build, is_table)


@pytest.mark.parametrize(
    "build", [_upserted, _upserted_by_sequence, _upserted_by_deleting_sequence, _versions]
)
def test_what_takes_records_runs_in_columns(build: Callable[..., Stream]) -> None:
    check_runs_in_columns(build, is_table=False)


def check_runs_in_columns(build: Callable[..., Stream], is_table: bool) -> None:
    flow = hr.Flow("columnar")
    sides = [flow.table(n, Plain) if is_table else flow.source(n, Plain) for n in ("rows", "others")]
    flow.sink("out", build(*sides))
    explained = list(explain_large_ticks(flow.graph()))
    assert [line for line in explained if not line.startswith(("on frames", "state in"))] == []
    with noting_declines() as declines:
        engine = hr.Engine(flow, columnar="always")
        for tick in range(4):
            made = [
                Plain(
                    *(n % 5, n, "abc"[n % 3], n / 4, None, n % 2 == 0, HOUR * (n % 4), HOUR * -n),
                    *(Decimal(n) / 4, Decimal(n).scaleb(30)),
                )
                for n in range(tick, tick + 30)
            ]
            changes = [*map(hr.insert, made), *map(hr.delete, made[::3])] if is_table else made
            engine.tick(rows=changes, others=changes[::2])
    assert declines == [None] * 4


@pytest.mark.parametrize("build", [*_WITH_STATE, *_WITH_VALUES])
def test_what_rows_change_between_large_ticks_is_written_once(build: Callable[..., Stream]) -> None:
    flow = hr.Flow("alternating")
    flow.sink("out", build(*(flow.table(name, Plain) for name in ("rows", "others"))))
    program = compile_program(flow.graph())
    schema = program.graph.nodes[program.graph.sources["rows"]].schema
    inside = from_user(schema, what="rows", change=Change)
    in_rows, mixed = Run(program, None), Run(program, ALWAYS)
    for tick, count in enumerate([40, 2, 40, 2, 40]):
        made = [
            Plain(
                *(n % 5, n, "abc"[n % 3], n / 4, None, n % 2 == 0, HOUR * (n % 4), HOUR * -n),
                *(Decimal(n) / 4, Decimal(n)),
            )
            for n in range(tick, tick + count)
        ]
        rows = inside([*map(hr.insert, made)])
        mixed.machine.least = 1 if count > 2 else 10**9
        with noting_declines() as declines:
            assert mixed.tick({"rows": rows, "others": rows[::2]}) == in_rows.tick(
                {"rows": rows, "others": rows[::2]}
            )
        assert declines == ([None] if count > 2 else [])
    assert mixed.settled() == in_rows.settled()


def test_what_comes_and_goes_in_rows_leaves_nothing_behind() -> None:
    flow = hr.Flow("sums")
    numbers = flow.table("numbers", int)
    flow.sink("sums", numbers.group_by("value").agg(n=hr.count()))
    program = compile_program(flow.graph())
    run = Run(program, ALWAYS)
    run.tick({"numbers": [(n, 1) for n in range(10)]})
    run.machine.least = 10**9
    for n in range(5, 100):
        run.tick({"numbers": [(n, 1)]})
        run.tick({"numbers": [(n, -1)]})
    (slot,) = (run.machine.slot(name) for name in run.names)
    assert isinstance(slot, ArrangedSlot)
    assert set(slot._entries) <= set(range(10))


@pytest.mark.parametrize("appends", [True, False])
def test_rows_of_a_key_that_rows_touch_between_large_ticks_are_kept_once(appends: bool) -> None:
    flow = hr.Flow("pairs")
    ones, others = ((flow.source if appends else flow.table)(name, Plain) for name in ("rows", "others"))
    flow.sink("out", ones.select("k", "n").join(others.select(k=col.k, m=col.n), on="k"))
    program = compile_program(flow.graph())
    in_rows, mixed = Run(program, None), Run(program, ALWAYS)

    def rows(*numbers: int) -> Rows:
        made = [Plain(1, n, "a", 0.5, None, True, HOUR, HOUR, Decimal(1), Decimal(n)) for n in numbers]
        schema = program.graph.nodes[program.graph.sources["rows"]].schema
        return from_user(schema, what="rows", change=None if appends else Change)(made)

    for large, tick in enumerate([{"rows": (1, 2), "others": (7,)}, {"rows": (3,)}, {"rows": (4, 5)}] * 2):
        mixed.machine.least = 10**9 if large % 3 == 1 else 1
        given = {name: rows(*numbers) for name, numbers in tick.items()}
        assert mixed.tick(given) == in_rows.tick(given)
        mixed.machine.least = 10**9
        given = {"others": rows(8)}
        assert mixed.tick(given) == in_rows.tick(given)


def test_first_rows_are_right_where_no_rows_have_keys() -> None:
    flow = hr.Flow("first")
    flow.sink("out", flow.table("rows", int).top_k(1, by=col.value))
    program = compile_program(flow.graph())
    in_rows, in_columns = Run(program, None), Run(program, ALWAYS)
    for start in range(0, 60, 10):
        given = {"rows": [(100 - n, 1) for n in range(start, start + 10)]}
        assert in_columns.tick(given) == in_rows.tick(given)
    for number in (41, 42, 200, 43):
        given = {"rows": [(number, 1 if number == 200 else -1)]}
        assert in_columns.tick(given) == in_rows.tick(given)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("is_table", [False, True])
def test_what_a_delay_keeps_of_a_large_tick_stays_in_columns(is_table: bool, lazy: bool) -> None:
    def built(release: Callable[[str], None] | None) -> Run:
        flow = hr.Flow("later")
        rows = flow.table("rows", Plain) if is_table else flow.source("rows", Plain)
        chosen = rows.select("k", "n", "s").filter(col.k > 1)
        later = chosen.defer_tick_lazy(nondet="test") if lazy else chosen.defer_tick()
        flow.sink("out", later.filter(col.n > 3).group_by("s").agg(n=hr.count(), total=hr.sum(col.n)))
        program = compile_program(flow.graph())
        return Run(program, Columnar(1, always=True, release=release))

    in_columns, stored = built(lambda slot: None), built(None)
    (name,) = (name for name in in_columns.names if name.endswith(".deferred"))
    schema = in_columns.program.graph.nodes[in_columns.program.graph.sources["rows"]].schema
    inside = from_user(schema, what="rows", change=Change if is_table else None)
    for tick, large in enumerate([True, True, False, True, True]):
        made = [
            Plain(n % 5, n, "abc"[n % 3], 0.5, None, True, HOUR, None, Decimal(n), None)
            for n in range(tick, tick + 30)
        ]
        given = {"rows": inside([*map(hr.insert, made), *map(hr.delete, made[::3])] if is_table else made)}
        in_columns.machine.least = stored.machine.least = 1 if large else 10**9
        assert in_columns.tick(given) == stored.tick(given)
        assert isinstance(in_columns.machine.slot(name).get(()), Columns) is large
        assert isinstance(stored.machine.slot(name).get(()), list)
        assert in_columns.settled() == stored.settled()


def test_code_of_large_ticks_keeps_to_the_bounds_of_its_program() -> None:
    flow = hr.Flow("bounded")
    numbers = flow.source("numbers", int).filter(col.value > 1)
    flow.sink("odd", numbers.filter(lambda n: n % 2 == 1))
    flow.sink("even", numbers.filter(lambda n: n % 2 == 0).union(numbers).distinct())
    with bounded_code():
        program = compile_program(flow.graph())
    assert "x_made(" in program.source_code
    assert "x_made(" in large_ticks_code(program, arranged=True).program.source_code


class Measured(NamedTuple):
    id: int
    value: float


@given(st.lists(st.tuples(st.lists(st.sampled_from([0.0, -0.0]), max_size=3), st.booleans()), max_size=5))
def test_rows_that_are_only_added_keep_their_negative_zeros(ticks: list[tuple[list[float], bool]]) -> None:
    flow = hr.Flow("zeros")
    left, right = (flow.source(name, Measured) for name in ("left", "right"))
    flow.sink("out", left.join(right.select("id"), on="id"))
    run = Run(compile_program(flow.graph()), ALWAYS)
    for zeros, large in ticks:
        run.machine.least = 1 if large else 10**9
        run.tick({"left": [(1, zero) for zero in zeros]})
    made: Any = run.machine.tick({"right": [(1, 0.5)]}).get("out", [])
    rows = made if isinstance(made, list) else made.rows()
    assert Counter(map(repr, rows)) == Counter(repr((1, zero)) for zeros, _ in ticks for zero in zeros)


def test_state_goes_into_arrangements_in_vain_only_after_as_many_rows_as_it_has() -> None:
    flow = hr.Flow("rare")
    made = flow.source("made", int).filter(col.value > 0)
    flow.sink("first", made.distinct())
    flow.sink("many", made.select(value=col.value % 2).group_by("value").agg(n=hr.count()))
    in_rows, run = Run(compile_program(flow.graph()), None), Run(compile_program(flow.graph()), ALWAYS)
    brought: list[int] = []
    settle: Any = ArrangedSlot.settle

    def noted(slot: ArrangedSlot) -> None:
        brought.append(len(slot._entries))
        settle(slot)

    def declined(*_: object) -> NoReturn:
        raise ColumnarDeclined

    def tick(begin: int, count: int, *, large: bool) -> None:
        given: Any = {"made": [(n,) for n in range(begin, begin + count)]}
        run.machine.least = 1 if large else 10**9
        assert run.tick(given) == in_rows.tick(given)

    tick(1, 100, large=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArrangedSlot, "settle", noted)
        patch.setattr(PartRunner, "_on_frames", declined)
        for at in range(20):
            tick(1_000 + 50 * at, 50, large=True)
    assert [entries for entries in brought if entries > 2] == [100, 200, 400, 800]
    assert run.settled() == in_rows.settled()
    tick(9_000, 2_000, large=True)
    assert run.settled() == in_rows.settled()
    assert all(isinstance(run.machine.slot(name), ArrangedSlot) for name in run.names)
