"""Lowering of Catalyst's aggregates and window functions: groups, sessions and pivots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any, TypeAlias, cast

from headrace.errors import UnsupportedQuery
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import FLOAT64, DataType
from headrace.operators.aggregate import collected_values, counts, extremes, sums
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.aggregate.collected_values import BitOperation, Bits, StringAgg
from headrace.operators.aggregate.counts import of_distinct
from headrace.operators.aggregate.exact_totals import Moment
from headrace.operators.aggregate.histograms import Histogram
from headrace.operators.aggregate.moments import Moments
from headrace.operators.aggregate.percentiles import Mode, Percentile
from headrace.operators.aggregate.sketches import ApproxCountDistinct, HllSketchAgg, HllUnionAgg
from headrace.operators.aggregate.sums import NullOnError
from headrace.operators.over import row_functions
from headrace.operators.over.window_function import FrameUnit, Months, Over, WindowFrame, WindowFunction
from headrace.queries.catalyst_plan import (
    CONSTANT,
    PIVOT,
    CatalystNode,
    parse_type,
    refusals_of,
    registrar,
    same_expression,
)
from headrace.queries.event_time import closing_sessions, first_of_each, grouped, session_key, with_session
from headrace.queries.expressions import Scope, orderings, typed_constant
from headrace.queries.python_functions import collected, with_aggregate
from headrace.queries.relations import Planner, Relation, lowers
from headrace.queries.scalar_functions import is_of_months

Lower: TypeAlias = Callable[[CatalystNode], Expr]
"""Lowers a child of an aggregate function; null for rows that its filter drops."""

_AggregateLowering: TypeAlias = Callable[[CatalystNode, Lower], Aggregation]


def _of_one(make: Callable[[Expr], Aggregation]) -> _AggregateLowering:
    return lambda node, lower: make(lower(node.children[0]))


def _of_two(make: Callable[[Expr, Expr], Aggregation]) -> _AggregateLowering:
    return lambda node, lower: make(lower(node.children[0]), lower(node.children[1]))


def _moment(moment: Moment) -> _AggregateLowering:
    return lambda node, lower: Moments(moment, *map(lower, node.children))


def _percentile(node: CatalystNode, lower: Lower) -> Aggregation:
    given = node.child("frequencyExpression")
    frequency = None if given.kind == "Literal" and given.fields["value"] == "1" else lower(given)
    value, descending = lower(node.child("child")), bool(node.fields["reverse"])
    return Percentile(value, _parts(node), False, descending, frequency)


def _percentile_disc(node: CatalystNode, lower: Lower) -> Aggregation:
    value = FunctionCall("cast", (lower(node.child("child")),), (FLOAT64,))
    return Percentile(value, _parts(node), True, bool(node.fields["reverse"]))


def _parts(node: CatalystNode) -> float | tuple[float, ...]:
    """Return the constant fractions of a percentile."""
    parts = node.child("percentageExpression")
    several: Any = parts.fields.get(CONSTANT)
    if several is not None:
        return tuple(map(float, cast("tuple[Any, ...]", several)))
    if parts.kind != "Literal":
        raise UnsupportedQuery("the part of a percentile is no constant", function=node.kind)
    return float(parts.fields["value"])


def _histogram(node: CatalystNode, lower: Lower) -> Aggregation:
    value, bins = node.children
    if bins.kind != "Literal":
        raise UnsupportedQuery("the number of bins of a histogram is no constant", function=node.kind)
    return Histogram(lower(value), int(bins.fields["value"]))


def _approx_count_distinct(node: CatalystNode, lower: Lower) -> Aggregation:
    return ApproxCountDistinct(lower(node.children[0]), float(node.fields["relativeSD"]))


def _hll_sketch(node: CatalystNode, lower: Lower) -> Aggregation:
    value, lg_k = node.children
    if lg_k.kind != "Literal":
        raise UnsupportedQuery("the lgConfigK of a sketch is no constant", function=node.kind)
    return HllSketchAgg(lower(value), int(lg_k.fields["value"]))


def _hll_union(node: CatalystNode, lower: Lower) -> Aggregation:
    value, any_lg_k = node.children
    if any_lg_k.kind != "Literal":
        raise UnsupportedQuery("allowDifferentLgConfigK is no constant", function=node.kind)
    return HllUnionAgg(lower(value), any_lg_k.fields["value"] == "true")


def _string_agg(node: CatalystNode, lower: Lower) -> Aggregation:
    delimiter = node.child("delimiter")
    if delimiter.kind != "Literal":
        raise UnsupportedQuery("the delimiter of listagg is no constant", function=node.kind)
    by = tuple(orderings((node.children[at] for at in node.fields["orderExpressions"]), lower))
    return StringAgg(lower(node.child("child")), delimiter.fields["value"] or "", by)


_AGGREGATES: dict[str, _AggregateLowering] = {
    "Sum": _of_one(sums.Sum),
    "Average": _of_one(sums.Mean),
    "TrySum": _of_one(lambda expr: NullOnError(sums.Sum(expr))),
    "TryAverage": _of_one(lambda expr: NullOnError(sums.Mean(expr))),
    "Min": _of_one(extremes.Minimum),
    "Max": _of_one(extremes.Maximum),
    "MaxBy": _of_two(extremes.Last),
    "MinBy": _of_two(extremes.First),
    # In which order, Spark leaves open; here they are sorted.
    "CollectList": _of_one(collected_values.Collect),
    "CollectSet": _of_one(lambda expr: collected_values.collect(expr, distinct=True)),
    # Which row is the first, Spark leaves open, too.
    "First": _of_one(extremes.Minimum),
    "Last": _of_one(extremes.Maximum),
    "AnyValue": _of_one(extremes.Minimum),
    "HyperLogLogPlusPlus": _approx_count_distinct,
    # Spark approximates it in little memory; here it is exact.
    "ApproximatePercentile": lambda node, lower: Percentile(lower(node.child("child")), _parts(node), True),
    "Percentile": _percentile,
    "PercentileDisc": _percentile_disc,
    # Of several, Spark leaves open which one, unless asked for the least (reversed) or the greatest.
    "Mode": lambda node, lower: Mode(lower(node.child("child")), node.fields.get("reverseOpt") is False),
    "HistogramNumeric": _histogram,
    "ListAgg": _string_agg,
    "HllSketchAgg": _hll_sketch,
    "HllUnionAgg": _hll_union,
    "BitAndAgg": _of_one(lambda expr: Bits(expr, BitOperation.AND)),
    "BitOrAgg": _of_one(lambda expr: Bits(expr, BitOperation.OR)),
    "BitXorAgg": _of_one(lambda expr: Bits(expr, BitOperation.XOR)),
    "VarianceSamp": _moment(Moment.VAR_SAMP),
    "VariancePop": _moment(Moment.VAR_POP),
    "StddevSamp": _moment(Moment.STDDEV_SAMP),
    "StddevPop": _moment(Moment.STDDEV_POP),
    "Skewness": _moment(Moment.SKEWNESS),
    "Kurtosis": _moment(Moment.KURTOSIS),
    "CovSample": _moment(Moment.COVAR_SAMP),
    "CovPopulation": _moment(Moment.COVAR_POP),
    "Corr": _moment(Moment.CORR),
    "RegrReplacement": _moment(Moment.SUM_OF_SQUARES),
    "RegrSXY": _moment(Moment.REGR_SXY),
    "RegrSlope": _moment(Moment.REGR_SLOPE),
    "RegrIntercept": _moment(Moment.REGR_INTERCEPT),
    "RegrR2": _moment(Moment.REGR_R2),
}
_INDIFFERENT = frozenset(
    {"Min", "Max", "MinBy", "MaxBy", "First", "Last", "AnyValue", "CollectSet", "HyperLogLogPlusPlus"}
    | {"BitAndAgg", "BitOrAgg", "HllSketchAgg", "HllUnionAgg"}
)
"""Functions to which it makes no difference how often a value is there."""


def lower_aggregate(node: CatalystNode, scope: Scope) -> Aggregation:
    """Lower an `AggregateExpression`. Raises `RefusedNode`."""
    with refusals_of(node):
        return _lowered(node, scope)


def _lowered(node: CatalystNode, scope: Scope) -> Aggregation:
    function = node.child("aggregateFunction")
    condition, distinct = node.tree("filter"), bool(node.fields["isDistinct"])
    passes = None if condition is None else scope.lower(condition)

    def lower(child: CatalystNode) -> Expr:
        value = scope.lower(child)
        return value if passes is None else FunctionCall("when", (passes, value, Literal(None)))

    if function.kind == "Count":
        arguments = tuple(map(lower, function.children))
        if distinct:
            return counts.count_distinct(*arguments)
        return _count(function, arguments, filtered=passes is not None)
    lowering = _AGGREGATES.get(function.kind)
    if lowering is None:
        raise UnsupportedQuery(
            f"the query aggregates by {function.kind}, which has no incremental form yet",
            function=function.kind,
        )
    return of_distinct(lowering(function, lower), distinct and function.kind not in _INDIFFERENT)


def _count(function: CatalystNode, arguments: tuple[Expr, ...], *, filtered: bool) -> Aggregation:
    constants = all(
        child.kind == "Literal" and child.fields["value"] is not None for child in function.children
    )
    if constants and not filtered:
        return counts.count()
    if len(arguments) == 1:
        return counts.count(arguments[0])
    known = reduce(and_, (a.is_not_null() for a in arguments))
    return counts.count(FunctionCall("when", (known, Literal(1), Literal(None))))


def _is_first(node: CatalystNode) -> bool:
    """Return whether an aggregate takes its value from an arbitrary row, as in `dropDuplicates`."""
    function = node.child("aggregateFunction")
    return (
        function.kind in ("First", "AnyValue")
        and not function.fields["ignoreNulls"]
        and not node.fields.get("filter")
    )


@lowers("Aggregate")
def _aggregate(node: CatalystNode, planner: Planner) -> Relation:
    keys, results = node.trees("groupingExpressions"), node.trees("aggregateExpressions")
    below = planner.relation(node.children[0])
    found: list[CatalystNode] = []
    for result in results:
        for part in result.walk():
            if part.kind == "AggregateExpression" and not any(same_expression(part, f) for f in found):
                found.append(part)
    below, scope = planner.with_subqueries(below, [*keys, *found])
    session = session_key(keys)
    closing = None if session is None else closing_sessions(below, session)
    if session is not None and closing is None:
        below = with_session(
            below, session, scope.lower_all(tuple(key for key in keys if key is not session))
        )
    named_keys = {f"key {at}": scope.lower(key) for at, key in enumerate(keys)}
    if keys and found and all(map(_is_first, found)):
        # Of all columns the same row: the least one.
        first = first_of_each(below, tuple(named_keys.values()))
        of_row = [(part, scope.lower(part.child("aggregateFunction").children[0])) for part in found]
        return planner.projected(first, results, Scope(scope.columns, tuple(of_row)))
    if not keys and not found:
        # Of aggregates that nobody reads, there is one row all the same.
        after, held = planner.with_subqueries(Relation(planner.one_row(), {}), results)
        return planner.projected(after, results, held)
    parts = [_part(part, f"aggregate {at}", scope) for at, part in enumerate(found)]
    aggregations = {name: each for part in parts for name, each in part.aggregations.items()}
    groups = grouped(below.stream, named_keys, aggregations, closing, closes=planner.closes)
    for part in parts:
        if part.function is not None:
            (rows,) = part.aggregations
            groups = with_aggregate(part.function, groups, rows, part.name)
    computed = [(key, Column(name)) for key, name in zip(keys, named_keys, strict=True)]
    values = [(node, part.value) for node, part in zip(found, parts, strict=True)]
    if not keys:
        types = {each.name: each.type for each in groups.schema.fields}
        values = [(node, _of_all(part, types)) for node, part in zip(found, parts, strict=True)]
        whole = groups.with_columns(one=Literal(1))
        groups = planner.one_row().join(whole, on="one", how="left")
    known = (*values, *computed)
    after, held = planner.with_subqueries(Relation(groups, {}), results, [node for node, _ in known])
    return planner.projected(after, results, Scope({}, known, held.subqueries))


@dataclass(frozen=True, slots=True)
class _Part:
    """Lowering of one aggregate of a group.

    name:     of its column.
    function: the Python function that makes it of the list that its one aggregation is.
    """

    name: str
    aggregations: Mapping[str, Aggregation]
    value: Expr
    function: CatalystNode | None = None


def _of_all(part: _Part, types: Mapping[str, DataType]) -> Expr:
    """Return the value of a global aggregate, which has one even without rows."""
    nothing = part.aggregations[part.name].of_no_rows if part.name in part.aggregations else None
    if nothing is None:
        return part.value
    return FunctionCall("coalesce", (part.value, typed_constant(nothing, types[part.name])))


def _part(node: CatalystNode, name: str, scope: Scope) -> _Part:
    function = node.child("aggregateFunction")
    if function.kind == "PythonUDAF":
        return _Part(name, {f"rows of {name}": collected(function, scope)}, Column(name), function)
    if function.kind == "PivotFirst":
        return _pivot(function, function.fields[PIVOT], name, scope)
    return _Part(name, {name: lower_aggregate(node, scope)}, Column(name))


def _pivot(function: CatalystNode, values: list[object], name: str, scope: Scope) -> _Part:
    """Lower a pivot to a list: for each pivot value, the value from the one row that has it."""
    column, value = function.child("pivotColumn"), scope.lower(function.child("valueColumn"))
    type, of = parse_type(column.fields["dataType"]), scope.lower(column)
    aggregations = {
        f"{name} {at}": extremes.min(
            FunctionCall(
                "when",
                (FunctionCall("eq_null_safe", (of, typed_constant(wanted, type))), value, Literal(None)),
            )
        )
        for at, wanted in enumerate(values)
    }
    return _Part(name, aggregations, FunctionCall("array", tuple(map(Column, aggregations))))


_WindowLowering: TypeAlias = Callable[[CatalystNode, Scope], WindowFunction]
_WINDOW_FUNCTIONS: dict[str, _WindowLowering] = {
    "RowNumber": lambda node, scope: row_functions.RowNumber(),
    "Rank": lambda node, scope: row_functions.Rank(),
    "DenseRank": lambda node, scope: row_functions.DenseRank(),
    "PercentRank": lambda node, scope: row_functions.PercentRank(),
    "CumeDist": lambda node, scope: row_functions.CumeDist(),
    "NTile": lambda node, scope: row_functions.ntile(_constant(node, 0)),
}
of_kind = registrar(_WINDOW_FUNCTIONS)


@lowers("Window")
def _window(node: CatalystNode, planner: Planner) -> Relation:
    node = _in_order_of_rows(node)
    partition, order, listed = map(node.trees, ("partitionSpec", "orderSpec", "windowExpressions"))
    below = planner.relation(node.children[0])
    rows, scope = planner.with_subqueries(Relation(below.rows, below.columns), [*partition, *order, *listed])
    per, by = scope.lower_all(partition), tuple(orderings(order, scope.lower))
    added: dict[str, Any] = {}
    known: list[tuple[CatalystNode, Expr]] = []
    for each in listed:
        # What stands there may be a constant by now, or an attribute of the rows.
        for function in (part for part in each.walk() if part.kind == "WindowExpression"):
            whole = each.kind == "Alias" and each.child("child") is function
            name = planner.name(each.expr_id, each.fields["name"]) if whole else planner.fresh("over")
            known.append((function, Column(name)))
            with refusals_of(each):
                added[name] = _over(function, scope, per, by)
    stream = rows.stream.with_columns(**added) if added else rows.stream
    columns, scope = dict(below.columns), replace(scope, computed=tuple(known))
    computed: dict[str, Expr] = {}
    for each in listed:
        value = scope.lower(each)
        if not isinstance(value, Column):
            name = planner.name(each.expr_id, each.fields["name"])
            computed[name] = value
            value = Column(name)
        columns[each.expr_id] = value.name
    return Relation(stream.with_columns(**computed) if computed else stream, columns)


def _in_order_of_rows(node: CatalystNode) -> CatalystNode:
    """Return a window ordered like the rows that it numbers, if it has no order of its own.

    Catalyst writes the limit of a correlated subquery so; it may be sorted by columns that it drops.
    """
    above = node.children[0]
    rows = above.children[0] if above.kind == "Project" else above
    parts = (part for each in node.trees("windowExpressions") for part in each.walk())
    if node.fields["orderSpec"] or rows.kind != "Sort" or all(part.kind != "RowNumber" for part in parts):
        return node
    if rows is not above:
        listed = {each.expr_id for each in above.trees("projectList")}
        read = {
            part.expr_id: [part.fields]
            for each in rows.trees("order")
            for part in each.walk()
            if part.kind == "AttributeReference" and part.expr_id not in listed
        }
        projected = [*above.fields["projectList"], *read.values()]
        above = replace(above, fields={**above.fields, "projectList": projected})
    return replace(node, fields={**node.fields, "orderSpec": rows.fields["order"]}, children=(above,))


@lowers("WindowGroupLimit")
def _group_limit(node: CatalystNode, planner: Planner) -> Relation:
    below, function = planner.relation(node.children[0]), node.tree("rankLikeFunction")
    assert function is not None
    if function.kind != "RowNumber":
        return below  # peers of the last row come, too, so there is no number of rows
    per = below.scope.lower_all(node.trees("partitionSpec"))
    by = list(orderings(node.trees("orderSpec"), below.scope.lower))
    return Relation(below.stream.top_k(node.fields["limit"], by=by, per=per), below.columns)


def _over(node: CatalystNode, scope: Scope, per: tuple[Expr, ...], by: Any) -> Over:
    function, definition = node.child("windowFunction"), node.child("windowSpec")
    if function.kind == "AggregateExpression" and function.child("aggregateFunction").kind in (
        "First",
        "Last",
    ):
        made = _end_value(function.child("aggregateFunction"), scope)
    elif function.kind == "AggregateExpression":
        made = lower_aggregate(function, scope)
    elif function.kind in _WINDOW_FUNCTIONS:
        made = _WINDOW_FUNCTIONS[function.kind](function, scope)
    else:
        raise UnsupportedQuery(
            f"the query uses {function.kind} over rows, which has no incremental form yet",
            function=function.kind,
        )
    frame = _frame(definition.children[-1]) if made.framed else None
    return Over(made, per, by, frame)


def _end_value(node: CatalystNode, scope: Scope) -> WindowFunction:
    make = row_functions.first_value if node.kind == "First" else row_functions.last_value
    return make(scope.lower(node.child("child")), ignore_nulls=bool(node.fields["ignoreNulls"]))


@of_kind("Lag", "Lead")
def _lag(node: CatalystNode, scope: Scope) -> WindowFunction:
    value, default, offset = scope.lower(node.child("input")), node.child("default"), _constant(node, 1)
    other = None if default.kind == "Literal" and default.fields["value"] is None else scope.lower(default)
    # Lag's offset is as the query has it; that of lead counts forward.
    offset = offset if node.kind == "Lag" else -offset
    return row_functions.Lag(value, offset, other, bool(node.fields["ignoreNulls"]))


@of_kind("NthValue")
def _nth_value(node: CatalystNode, scope: Scope) -> WindowFunction:
    value, ignores = scope.lower(node.child("input")), bool(node.fields["ignoreNulls"])
    return row_functions.nth_value(value, _constant(node, 1), ignore_nulls=ignores)


def _constant(node: CatalystNode, at: int) -> int:
    child = node.children[at]
    sign = 1
    while child.kind == "UnaryMinus":
        sign, child = -sign, child.children[0]
    if child.kind != "Literal":
        raise UnsupportedQuery(f"the offset of {node.kind} is no constant", function=node.kind)
    return sign * int(child.fields["value"])


def _frame(node: CatalystNode) -> WindowFrame:
    unit = FrameUnit.ROWS if node.setting("frameType") == "RowFrame" else FrameUnit.RANGE
    lower, upper = (_bound(node.child(name)) for name in ("lower", "upper"))
    return WindowFrame(unit, lower, upper)


def _bound(node: CatalystNode) -> Any:
    sign: Any = 1
    while node.kind == "UnaryMinus":
        sign, node = -sign, node.children[0]
    if node.kind in ("UnboundedPreceding", "UnboundedFollowing"):
        return None
    if node.kind == "CurrentRow":
        return 0
    text, type_ = node.fields.get("value"), node.fields.get("dataType")
    if node.kind == "Literal" and text is not None and isinstance(type_, str):
        if type_ in ("integer", "long", "short", "byte"):
            return sign * int(text)
        if type_ in ("double", "float"):
            return sign * float(text)
        if type_.startswith("decimal"):
            return sign * Decimal(text)
        if type_.startswith("interval"):
            return (
                Months(sign * int(text)) if is_of_months(node) else sign * timedelta(microseconds=int(text))
            )
    raise UnsupportedQuery(f"a frame has a bound of type {type_}", fix="give a number or an interval")
