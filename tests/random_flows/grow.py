"""Random flows: each operator of the library as one way to grow a flow by a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from hypothesis import strategies as st

import headrace as hr
from headrace.analysis.analysis import find_facts
from headrace.expr.check import check
from headrace.expr.constructors import col, left, lit, right
from headrace.expr.tree import Column
from headrace.expr.types import (
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    INTEGERS,
    INTERVAL,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
    ListType,
    Schema,
)
from headrace.flow.stream import Stream
from headrace.graph.node import FlowGraph
from headrace.graph.operator_declarations import Facts
from headrace.lowering.reference import ExamplePair
from headrace.operators import all_operators
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.aggregate.exact_totals import Moment, degrees_of, variables_of
from headrace.operators.aggregate.moments import Moments
from headrace.operators.over.window_function import Months
from headrace.operators.signals.lift import SignalOperator
from tests.random_flows.callables import Together, class_of, doubling, keeping, picking
from tests.random_flows.expressions import (
    column_types,
    columns,
    expressions,
    join_conditions,
    orderings,
    predicates,
)

AnyStream: TypeAlias = Stream[Any, Any, Any, Any]

# Joins multiply. A stream that may hold more rows than this is joined no more.
_LARGEST = 600
_WIDEST = 6


@dataclass(frozen=True, slots=True)
class Grown:
    """A stream of a flow under construction, with the most rows it may come to hold."""

    stream: AnyStream
    size: int

    @property
    def schema(self) -> Schema:
        return self.stream.schema

    @property
    def append(self) -> bool:
        """Whether its rows are only ever added: what a loop may be fed from."""
        return self.facts.append

    @property
    def bounded(self) -> bool:
        """Whether all its rows come with the first tick: what a loop may speak of the absence of."""
        return self.facts.bounded

    @property
    def facts(self) -> Facts:
        """What is known of the stream."""
        flow, last = self.stream.flow, self.stream.node_id
        # Facts of a node depend on nodes before it, and on loops that are closed by now.
        return find_facts(FlowGraph(flow.name, flow.nodes, {}, {}))[last]


Grow: TypeAlias = Callable[[st.DrawFn, Grown, list[Grown]], Grown | None]


def _select(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    named: dict[str, Any] = {}
    for name in draw(st.sampled_from(["a", "ab", "abc"])):
        named[name] = draw(expressions(one.schema, draw(st.sampled_from(column_types(one.schema)))))
    return Grown(one.stream.select(**named), one.size)


def _with_columns(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    name = draw(st.sampled_from([*one.schema.names, "extra"]))
    value = draw(expressions(one.schema, draw(st.sampled_from(column_types(one.schema)))))
    return Grown(one.stream.with_columns(**{name: value}), one.size)


def _filter(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.filter(draw(predicates(one.schema))), one.size)


def _filter_by_callable(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.filter(keeping(one.schema, draw(st.sampled_from(one.schema.names)))), one.size)


def _map(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    order = draw(st.permutations(one.schema.fields))
    kept = class_of(order[: draw(st.integers(1, len(order)))])
    function = picking(one.schema, kept)
    if len(kept._fields) != 2:
        function = Together(function)
    return Grown(one.stream.map(function, returns=kept), one.size)


def _flat_map(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    same = class_of(one.schema.fields)
    function = doubling(one.schema, same, draw(st.sampled_from(one.schema.names)))
    return Grown(one.stream.flat_map(function, returns=same), one.size * 2)


def _explode(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    lists = [f.name for f in one.schema.fields if isinstance(f.type, ListType)]
    if not lists:
        return None
    column = draw(st.sampled_from(lists))
    into, position = draw(st.sampled_from([None, "element"])), draw(st.sampled_from([None, "position"]))
    if {into, position} & set(one.schema.names):
        return None
    exploded = one.stream.explode(column, into=into, position=position, outer=draw(st.booleans()))
    return Grown(exploded, one.size * 2)


_ROW_BY_ROW = [
    example
    for operator in all_operators()
    if operator.row_by_row and operator.linear and not issubclass(operator, SignalOperator)
    for example in operator.examples.values()
]


def _example(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """An example of an operator that works row by row, on two columns."""
    numbers = columns(one.schema, INT64)
    if not numbers or one.size > _LARGEST:
        return None
    small, other = (draw(st.sampled_from(numbers)) for _ in range(2))
    rest = hr.coalesce(small, 0) % 5
    pairs = one.stream.select(a=rest * rest % 5, b=other, into=ExamplePair)
    return Grown(draw(st.sampled_from(_ROW_BY_ROW))(pairs, pairs), one.size * 4)


def _alike(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    """A stream of the row type of `one`: another of the flow, or a part of itself."""
    wanted = [(f.name, f.type) for f in one.schema.fields]
    others = [g for g in all_ if [(f.name, f.type) for f in g.schema.fields] == wanted and g is not one]
    if others and draw(st.integers(0, 3)):
        return draw(st.sampled_from(others))
    for other in draw(st.permutations(all_)):
        if all(columns(other.schema, f.type) for f in one.schema.fields):
            chosen = {f.name: draw(st.sampled_from(columns(other.schema, f.type))) for f in one.schema.fields}
            return Grown(other.stream.select(**chosen), other.size)
    return _filter(draw, one, all_)


def _union(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    others = [_alike(draw, one, all_) for _ in range(draw(st.integers(1, 2)))]
    return Grown(one.stream.union(*(o.stream for o in others)), one.size + sum(o.size for o in others))


def _difference(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.difference(_alike(draw, one, all_).stream), one.size)


def _join(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    other = draw(st.sampled_from(all_))
    how = draw(st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]))
    pairs = how not in ("semi", "anti")
    if pairs and (one.size * other.size > _LARGEST or len(one.schema.fields + other.schema.fields) > _WIDEST):
        how = "semi" if how == "inner" else "anti"
        pairs = False
    condition = draw(join_conditions(one.schema, other.schema))
    if condition is None:
        return None
    suffix = f"_{len(one.stream.flow.nodes)}" if pairs else None
    joined = one.stream.join(other.stream, on=condition, how=how, suffix=suffix)  # type: ignore[call-overload]
    return Grown(joined, one.size * max(1, other.size) + other.size if pairs else one.size)


def _distinct(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.distinct(), one.size)


def _top_k(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    by = draw(st.lists(orderings(one.schema), min_size=1, max_size=2))
    per = draw(st.lists(st.sampled_from(one.schema.names), max_size=1))
    return Grown(one.stream.top_k(draw(st.integers(1, 3)), by=by, per=per), one.size)


def _over(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    """Window functions of one partition and order, with every kind of frame."""
    by = draw(st.lists(orderings(one.schema), min_size=1, max_size=2))
    per = draw(st.lists(st.sampled_from(one.schema.names), max_size=1))
    distances = distances_of(check(by[0].expr, one.schema).type) if len(by) == 1 else None
    number, named = len(one.stream.flow.nodes), dict[str, Any]()
    for at in range(draw(st.integers(1, 3))):
        function: Any = draw(window_functions(one.schema))
        frame: dict[str, Any] = {}
        if function.framed:
            frame = draw(
                st.sampled_from(
                    [frames("rows"), frames("range", distances), st.just({})]
                    if distances is not None
                    else [frames("rows"), st.sampled_from([{"range": (None, 0)}, {"range": (0, None)}, {}])]
                ).flatmap(lambda made: made)
            )
        named[f"over{number}_{at}"] = function.over(partition_by=per, order_by=by, **frame)
    return Grown(one.stream.with_columns(**named), one.size)


def frames(unit: str, distances: Sequence[Any] = (1,)) -> st.SearchStrategy[dict[str, Any]]:
    """Frames by `rows=` or `range=`, bounded or not, also without the row itself.

    distances: of which bounds are multiples, where they are not the row itself.
    """

    def bounds(distance: Any) -> st.SearchStrategy[tuple[Any, Any]]:
        counts = st.tuples(*[st.none() | st.integers(-2, 2)] * 2)
        return counts.filter(lambda p: None in p or p[0] <= p[1]).map(
            lambda p: tuple(_times(distance, count) if count else count for count in p)
        )

    return st.sampled_from(distances).flatmap(bounds).map(lambda pair: {unit: pair})


def _times(distance: Any, count: int) -> Any:
    return Months(distance.count * count) if isinstance(distance, Months) else distance * count


def distances_of(type: DataType) -> Sequence[Any] | None:
    """Distances of values of a type that a range may have; None for others."""
    if isinstance(type, DecimalType):
        return (1, Decimal("0.5"))
    of_time = (timedelta(hours=6), timedelta(days=1), timedelta(days=400), Months(1), Months(7))
    numbers: dict[DataType, Sequence[Any]] = {INT32: (1,), INT64: (1,), FLOAT64: (1, 0.1)}
    return {**numbers, DATE: (1, *of_time), TIMESTAMP: of_time, INTERVAL: of_time[:2]}.get(type)


@st.composite
def window_functions(draw: st.DrawFn, schema: Schema) -> Any:
    """A window function over columns of `schema`."""
    some = Column(draw(st.sampled_from(schema.names)))
    ignore_nulls = draw(st.booleans())
    offset = draw(st.integers(-2, 2))
    return draw(
        st.sampled_from(
            [
                hr.row_number(),
                hr.rank(),
                hr.dense_rank(),
                hr.percent_rank(),
                hr.cume_dist(),
                hr.ntile(3),
                hr.lag(some, offset, ignore_nulls=ignore_nulls),
                hr.lag(some, offset, some),
                hr.first_value(some, ignore_nulls=ignore_nulls),
                hr.last_value(some, ignore_nulls=ignore_nulls),
                hr.nth_value(some, 2, ignore_nulls=ignore_nulls),
            ]
        )
        | aggregates(schema)
    )


def _aggregate(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    names = draw(st.lists(st.sampled_from(one.schema.names), max_size=2, unique=True))
    number = len(one.stream.flow.nodes)
    keys: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        keys[f"key{number}"] = draw(expressions(one.schema, draw(st.sampled_from(column_types(one.schema)))))
    aggregations = {f"agg{number}_{i}": draw(aggregates(one.schema)) for i in range(draw(st.integers(1, 3)))}
    return Grown(one.stream.group_by(*names, **keys).agg(**aggregations), one.size)


@st.composite
def aggregates(draw: st.DrawFn, schema: Schema) -> Aggregation:
    """An aggregate function over columns of `schema`."""
    type_ = draw(st.sampled_from(column_types(schema)))
    expr = draw(expressions(schema, type_, 1))
    by = draw(st.sampled_from(columns(schema)))
    choices: list[Aggregation] = [
        hr.count(),
        hr.count(expr),
        hr.count_distinct(expr),
        hr.min(expr),
        hr.max(expr),
        hr.first(expr, by=by),
        hr.last(expr, by=by),
        hr.collect(expr, distinct=draw(st.booleans())),
        hr.count_distinct(expr, by),
        hr.approx_count_distinct(expr, draw(st.sampled_from([0.05, 0.3]))),
        hr.mode(expr, greatest=draw(st.booleans())),
        hr.percentile(expr, draw(st.sampled_from([0.0, 0.3, 1.0, (0.5, 0.9)])), discrete=True),
    ]
    if type_ in (*INTEGERS, FLOAT32, FLOAT64) or isinstance(type_, DecimalType):
        choices += [hr.sum(expr), hr.mean(expr)] * 2
        choices += [hr.sum(expr, distinct=True), hr.mean(expr, distinct=True), hr.median(expr)]
        moment = draw(st.sampled_from(Moment))
        choices += [Moments(moment, *(expr,) * variables_of(degrees_of(moment)))] * 2
    if type_ == INTERVAL:
        choices += [hr.median(expr), hr.percentile(expr, 0.3)]
        choices += [total(expr, distinct=draw(st.booleans())) for total in (hr.sum, hr.mean)] * 3
    if type_ in (*INTEGERS, FLOAT64):
        choices += [hr.histogram_numeric(expr, draw(st.integers(2, 4)), distinct=draw(st.booleans()))]
    if type_ in INTEGERS:
        choices += [hr.bit_and(expr), hr.bit_or(expr), hr.bit_xor(expr)]
    if type_ == STR:
        choices += [hr.string_agg(expr, ", ", order_by=by.desc(), distinct=draw(st.booleans()))] * 2
    return draw(st.sampled_from(choices))


def _defer_tick(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown:
    return Grown(one.stream.defer_tick(), one.size)


def _countdown(draw: st.DrawFn, one: Grown, all_: list[Grown], deferred: bool = False) -> Grown | None:
    """A loop that makes new rows: each number down to -2."""
    numbers = [f.name for f in one.schema.fields if f.type == INT64]
    if not numbers or one.size > _LARGEST or (deferred and not one.append):
        return None
    n = draw(st.sampled_from(numbers))

    def body(reached: AnyStream) -> AnyStream:
        smaller = reached.filter(col[n] > -2).with_columns(**{n: col[n] - 1})
        return smaller.defer_tick() if deferred else smaller

    return Grown(one.stream.flow.fixpoint(body, one.stream.filter(col[n] < 6)), one.size * 8)


def _countdown_of_a_bag(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """The same, with each copy of a number by itself."""
    numbers = [f.name for f in one.schema.fields if f.type == INT64]
    if not numbers or one.size > _LARGEST or not one.append:
        return None
    n = draw(st.sampled_from(numbers))
    back = one.stream.flow.feedback(class_of(one.schema.fields), distinct=False)
    smaller = one.stream.filter(col[n] < 6).union(back)
    less: dict[str, Any] = {n: col[n] - 1, "into": back.schema.row_class}
    back.close(smaller.filter(col[n] > -2).with_columns(**less))
    return Grown(draw(st.sampled_from([smaller, back])), one.size * 8)


def _slow_countdown(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """The same with a round per tick."""
    return _countdown(draw, one, all_, deferred=True)


def _closure(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """Paths along edges: a linear rule, or one that joins paths with paths."""
    for type_ in column_types(one.schema):
        names = [f.name for f in one.schema.fields if f.type == type_]
        if len(names) > 1 and one.size <= _LARGEST:
            break
    else:
        return None
    edges = one.stream.select(x=Column(names[0]), y=Column(names[1]))
    linear = draw(st.booleans())
    refined = draw(st.lists(st.sampled_from(["distinct", "edge", "edge unlike", "path", "copy", "known"])))
    known = [g.stream for g in all_ if g.schema.fields[0].type == type_]

    def refine(further: AnyStream, paths: AnyStream, how: str) -> AnyStream:
        """The same paths, or some of them: what a loop may do with its rows."""
        if how == "distinct":
            return further.distinct()
        if how == "copy":
            same = class_of(further.schema.fields)
            return further.flat_map(doubling(further.schema, same, "x"), returns=same)
        if how == "known":
            return (
                further.join(known[0], on=left.x == right[known[0].schema.names[0]], how="anti")
                if known
                else further
            )
        if how == "edge unlike":
            return further.join(edges, on=(left.x == right.x) & (left.y != right.y), how="semi")
        return further.join(edges if how == "edge" else paths, on=left.y == right.x, how="semi")

    def body(paths: AnyStream) -> AnyStream:
        step = edges if linear else paths
        pairs = paths.join(step.select(via=col.x, z=col.y), on=left.y == right.via)
        further = pairs.select(x=col.x, y=col.z)
        for how in refined:
            further = refine(further, paths, how)
        return further

    return Grown(one.stream.flow.fixpoint(body, edges), 60)


def _mutual(draw: st.DrawFn, one: Grown, all_: list[Grown]) -> Grown | None:
    """Two feedbacks that feed each other: even and odd distances below a number."""
    numbers = [f.name for f in one.schema.fields if f.type == INT64 and not f.nullable]
    if not numbers:
        return None
    flow = one.stream.flow
    even, odd = flow.feedback(int, changes=True), flow.feedback(int, changes=True)
    seed = one.stream.select(value=lit(0) + Column(draw(st.sampled_from(numbers))), into=int)
    small = seed.filter(col.value < 6)

    def less(numbers: AnyStream) -> AnyStream:
        return numbers.filter(col.value > -1).select(value=col.value - 1, into=int)

    even.close(small.union(less(odd)))
    odd.close(less(even))
    return Grown(draw(st.sampled_from([even, odd])), 60)


LOOPS: tuple[Grow, ...] = (_countdown, _countdown_of_a_bag, _closure, _mutual)

WAYS: tuple[Grow, ...] = (
    _select,
    _with_columns,
    _filter,
    _filter_by_callable,
    _map,
    _flat_map,
    _explode,
    _example,
    _union,
    _difference,
    _join,
    _join,
    _join,
    _distinct,
    _top_k,
    _over,
    _aggregate,
    _aggregate,
    _aggregate,
    _countdown,
    _countdown_of_a_bag,
    _closure,
    _mutual,
)
COMPETING: tuple[Grow, ...] = (_top_k, _over)
"""Ways whose answer for a row depends on the rows that compete with it."""
DEFERRED: tuple[Grow, ...] = (*WAYS, _defer_tick, _defer_tick, _slow_countdown)


def grow(draw: st.DrawFn, sources: list[Grown], steps: int, ways: tuple[Grow, ...] = WAYS) -> list[Grown]:
    """All streams of a flow after `steps` operators more; a way that does not fit adds none."""
    streams = list(sources)
    for _ in range(steps):
        # Mostly onto what came last, so that flows are deep and not only wide.
        one = streams[-1] if draw(st.integers(0, 2)) else draw(st.sampled_from(streams))
        grown = draw(st.sampled_from(ways))(draw, one, streams)
        if grown is not None:
            streams.append(grown)
    return streams
