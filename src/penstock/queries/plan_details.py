"""Details of a plan that its JSON omits, fetched from the JVM.

The JSON says neither which relation is which, nor the rows of VALUES, functions of Python, values of a pivot
and nested constants, nor what a session window is. Its nodes are found again by the ids of their attributes
and results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import UnsupportedQuery
from penstock.expr.code_runtime import EPOCH
from penstock.expr.types import DateType, DecimalType, ListType, MapType, StrType, StructType, TimestampType
from penstock.queries.catalyst_plan import (
    CONSTANT,
    FUNCTION,
    PIVOT,
    ROWS,
    SESSION,
    TABLE,
    UNREAD,
    parse_schema,
    parse_type,
    simple_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from penstock.errors import SourceLocation

Details = dict[int, dict[str, Any]]


def complete(
    listed: list[Any], plan: Any, inputs: Mapping[str, Any], session: SparkSession, location: SourceLocation
) -> None:
    """Add the details to the JSON of a plan. inputs: the plan of each relation, by its name."""
    plans = [plan, *items(plan.subqueriesAll())]
    details = _Details(dict(_marked_leaves(plans, inputs, session, location)))
    kinds = _kinds_in(listed)
    if kinds & {"Generate"}:
        details.generators.update(detail for each in plans for detail in _generated(each))
    if kinds & {"PivotFirst", "PythonUDF", "PythonUDAF", "PreciseTimestampConversion", _NESTED_LITERAL}:
        for each in (expression for plan in plans for expression in expressions(plan)):
            details.results.update(_expression_details(each, session))
            if each.getClass().getSimpleName() == "Literal":
                details.add_literal(each, location)
    details.add_to(listed)


def add_projections(listed: list[Any], plan: Any) -> None:
    """Add the rows of each `Expand` to the JSON of a plan, which leaves them out where they are vectors."""
    known = {node["output"][0][0]["exprId"]["id"]: node for node in _without_projections(listed)}
    if known:
        for each in (plan, *items(plan.subqueriesAll())):
            for expand in filter(_is_expand, _operators(each)):
                node = known.get(expand.output().apply(0).exprId().id())
                if node is not None:
                    rows = map(items, items(expand.projections()))
                    node["projections"] = [[json.loads(value.toJSON()) for value in row] for row in rows]


def _without_projections(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        for item in cast("list[Any]", found):
            yield from _without_projections(item)
    elif isinstance(found, dict):
        node = cast("dict[str, Any]", found)
        if "projections" in node and node["projections"] is None:
            yield node
        for value in node.values():
            yield from _without_projections(value)


def _is_expand(operator: Any) -> bool:
    return operator.nodeName() == "Expand"


def _operators(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _operators(child)


_NESTED_LITERAL = "nested literal"


@dataclass(slots=True)
class _Details:
    """What is known of nodes.

    relations:  by the id of the first attribute of each.
    generators: by the id of the first attribute that each makes.
    results:    of expressions, by the id of their result.
    literals:   constants of a nested type, by text and type.
    """

    relations: Details
    generators: Details = field(default_factory=dict[int, dict[str, Any]])
    results: Details = field(default_factory=dict[int, dict[str, Any]])
    literals: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])

    def add_literal(self, literal: Any, location: SourceLocation) -> None:
        type, value = literal.dataType(), literal.value()
        if value is None or type.typeName() not in ("array", "map", "struct"):
            return
        key = value.toString(), type.json()
        found = _internal(value, type)
        if self.literals.setdefault(key, found) != found:
            raise UnsupportedQuery(
                f"two constants of the query are both written {key[0]}",
                where=[location],
                fix="give them as a table",
            )

    def add_to(self, found: Any) -> None:
        """Add details to the nodes in the JSON of a plan."""
        if isinstance(found, list):
            for item in cast("list[Any]", found):
                self.add_to(item)
        elif isinstance(found, dict):
            node = cast("dict[str, Any]", found)
            node.update(self._of(node))
            for value in node.values():
                self.add_to(value)

    def _of(self, node: dict[str, Any]) -> dict[str, Any]:
        output, generated = node.get("output"), node.get("generatorOutput")
        result = node.get("resultId") or node.get("exprId")
        if generated:
            return self.generators[generated[0][0]["exprId"]["id"]]
        if output and not node["num-children"]:
            return self.relations.get(output[0][0]["exprId"]["id"], {})
        if result:
            return self.results.get(result["id"], {})
        if _is_nested_literal(node) and node["value"] is not None:
            type = json.dumps(node["dataType"], separators=(",", ":"))
            return {CONSTANT: self.literals[node["value"], type]}
        return {}


def _is_nested_literal(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("dataType"), dict) and str(node.get("class", "")).endswith(".Literal")


def _generated(plan: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the columns that each generator of a plan drops, by its first attribute."""
    for operator in _operators(plan):
        if operator.nodeName() == "Generate":
            unread = items(operator.unrequiredChildIndex())
            yield operator.generatorOutput().apply(0).exprId().id(), {UNREAD: unread}


RELATIONS: Mapping[str, Callable[[Any], Any]] = {
    "LogicalRDD": lambda leaf: leaf.rdd(),
    "LogicalRelation": lambda leaf: leaf.relation(),
    "HiveTableRelation": lambda leaf: leaf.tableMeta(),
    "LocalRelation": lambda leaf: leaf.data(),
}
"""What makes relations of a kind the same: Spark makes a new one where a table is joined with itself."""


def _marked_leaves(
    plans: list[Any], inputs: Mapping[str, Any], session: SparkSession, location: SourceLocation
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what each relation of a plan is, by its first attribute: a table's name, or constant rows."""
    for plan in plans:
        for leaf in items(plan.collectLeaves()):
            kind = leaf.nodeName()
            if not leaf.output().size() or kind == "UnionLoopRef":
                continue
            attribute = leaf.output().apply(0).exprId().id()
            same = RELATIONS.get(kind)
            if same is None:
                raise UnsupportedQuery(f"the query reads a {kind}", where=[location], operator=kind)
            for name, given in inputs.items():
                if given.nodeName() == kind and same(leaf).equals(same(given)):
                    yield attribute, {TABLE: name}
                    break
            else:
                if kind != "LocalRelation":
                    raise UnsupportedQuery(
                        f"the query reads {leaf.simpleString(25)}, which is none of its inputs",
                        where=[location],
                        fix="give the DataFrame that it comes from, in tables={...} or sources={...}",
                    )
                yield attribute, {ROWS: _constant_rows(leaf, session)}


def _constant_rows(leaf: Any, session: SparkSession) -> list[tuple[Any, ...]]:
    """Return the rows that a query holds itself, by VALUES."""
    from pyspark.sql import DataFrame

    from penstock.io.arrow import table_to_rows

    dataset = java_class(session, "org.apache.spark.sql.classic.Dataset")
    named = DataFrame(dataset.ofRows(java_session(session), leaf), session)
    frame = named.toDF(*(f"column {at}" for at in range(len(named.columns))))
    return table_to_rows(frame.toArrow(), parse_schema(frame.schema.jsonValue()))


def expressions(plan: Any) -> Iterator[Any]:
    for operator in _operators(plan):
        waiting = items(operator.expressions())
        while waiting:
            expression = waiting.pop()
            yield expression
            waiting += items(expression.children())


def items(seq: Any) -> list[Any]:
    return [seq.apply(at) for at in range(seq.size())]


def java_session(session: Any) -> Any:
    return session._jsparkSession


def java_class(session: Any, name: str) -> Any:
    """Find a class of the JVM by its full name."""
    found: Any = session.sparkContext._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _expression_details(expression: Any, session: SparkSession) -> Iterator[tuple[int, dict[str, Any]]]:
    kind = expression.getClass().getSimpleName()
    if kind == "AttributeReference" and expression.metadata().contains("spark.sessionWindow"):
        yield expression.exprId().id(), {SESSION: True}
    elif kind in ("PythonUDF", "PythonUDAF"):
        yield expression.resultId().id(), {FUNCTION: _command(expression, session)}
    elif kind == "AggregateExpression" and expression.aggregateFunction().prettyName() == "pivotfirst":
        yield expression.resultId().id(), {PIVOT: _pivot_values(expression.aggregateFunction())}


def _command(function: Any, session: Any) -> bytes:
    """Return the pickled function of a Python UDF, with its type."""
    byte = java_class(session, "scala.reflect.ClassTag").Byte()
    return function.func().command().toArray(byte)


def _pivot_values(pivot: Any) -> list[Any]:
    """Return the internal values of a pivot's column that have a column of their own."""
    type = pivot.pivotColumn().dataType()
    return [_internal(value, type) for value in items(pivot.pivotColumnValues())]


def _internal(value: Any, catalyst_type: Any) -> Any:
    """Convert an internal value of Catalyst."""
    match parse_type(json.loads(catalyst_type.json())):
        case _ if value is None:
            return None
        case StructType(fields):
            types = [catalyst_type.apply(at).dataType() for at in range(len(fields))]
            return tuple(
                _internal(None if value.isNullAt(at) else value.get(at, each), each)
                for at, each in enumerate(types)
            )
        case ListType():
            return _elements(value, catalyst_type.elementType())
        case MapType():
            keys = _elements(value.keyArray(), catalyst_type.keyType())
            return tuple(zip(keys, _elements(value.valueArray(), catalyst_type.valueType()), strict=True))
        case DateType():
            return EPOCH.date() + timedelta(days=value)
        case TimestampType():
            return EPOCH + timedelta(microseconds=value)
        case DecimalType():
            return Decimal(value.toString())
        case StrType():
            return value.toString()
        case _:
            return value


def _elements(values: Any, each: Any) -> tuple[Any, ...]:
    """Convert an array of Catalyst whose elements have a type."""
    count = values.numElements()
    return tuple(
        _internal(None if values.isNullAt(at) else values.get(at, each), each) for at in range(count)
    )


def _kinds_in(found: Any) -> set[str]:
    """Return the simple class names of all nodes in the JSON of a plan."""
    if isinstance(found, list):
        return set[str]().union(*map(_kinds_in, cast("list[Any]", found)))
    if not isinstance(found, dict):
        return set()
    node = cast("dict[str, Any]", found)
    own = {simple_name(node["class"])} if "class" in node else set[str]()
    if _is_nested_literal(node):
        own.add(_NESTED_LITERAL)
    return own.union(*map(_kinds_in, node.values()))
