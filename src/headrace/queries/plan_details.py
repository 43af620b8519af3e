"""Details of a plan that its JSON omits, fetched from the JVM.

The JSON says neither which relation is which, nor the rows of VALUES, functions of Python, values of a pivot
and nested constants, nor what a session window is. Catalyst's class of `try_add` is that of `+`, and neither
the JSON of a plan nor its text tells them apart.

Settings of a session may change what a query answers. Most act when Spark parses, analyses or optimises a
query, so its plan has them: `caseSensitive`, ordinals in GROUP BY, `timestampType`, types of literals,
padding of CHAR. A query is planned in a copy of the user's session, so these are honoured. Others act when
rows are computed; under another value than functions here assume, a query is refused. The time zone is a
matter of each expression: its plan says in which it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import UnsupportedQuery
from headrace.expr.code_runtime import EPOCH
from headrace.expr.types import (
    DateType,
    DecimalType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.queries.catalyst_plan import (
    CONSTANT,
    DELAY,
    ESCAPE,
    FUNCTION,
    INPUT,
    KIND,
    OPTIONS,
    PATTERNS,
    PIVOT,
    RANGE,
    ROWS,
    SESSION,
    TABLE,
    UNREAD,
    Fields,
    PlanNode,
    UnpairedNode,
    has_counterpart,
    located,
    parse_schema,
    parse_type,
    plan_nodes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.errors import SourceLocation
    from headrace.queries.catalyst_plan import QueryText


ANSI = "spark.sql.ansi.enabled"
PRECISION = "spark.sql.decimalOperations.allowPrecisionLoss"
TIME_ZONE = "spark.sql.session.timeZone"
UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})

_LEGACY = "spark.sql.legacy."
_PYTHON = "spark.sql.execution.pythonUDF."
ASSUMED: Mapping[str, str] = MappingProxyType(
    {
        ANSI: "true",
        PRECISION: "true",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
        "spark.sql.icu.caseMappings.enabled": "true",
        "spark.sql.chunkBase64String.enabled": "true",
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        # JSON
        "spark.sql.jsonGenerator.ignoreNullFields": "true",
        "spark.sql.json.enableExactStringParsing": "true",
        "spark.sql.json.enablePartialResults": "true",
        "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
        f"{_LEGACY}json.allowEmptyString.enabled": "false",
        f"{_LEGACY}json.enableDateTimeParsingFallback": "",
        # functions as they were in older versions
        f"{_LEGACY}timeParserPolicy": "CORRECTED",
        f"{_LEGACY}allowNegativeScaleOfDecimal": "false",
        f"{_LEGACY}allowNullComparisonResultInArraySort": "false",
        f"{_LEGACY}allowZeroIndexInFormatString": "false",
        f"{_LEGACY}castComplexTypesToString.enabled": "false",
        f"{_LEGACY}codingErrorAction": "false",
        f"{_LEGACY}disableMapKeyNormalization": "false",
        f"{_LEGACY}followThreeValuedLogicInArrayExists": "true",
        f"{_LEGACY}histogramNumericPropagateInputType": "true",
        f"{_LEGACY}javaCharsets": "false",
        f"{_LEGACY}negativeIndexInArrayInsert": "false",
        f"{_LEGACY}nullInEmptyListBehavior": "",
        f"{_LEGACY}percentileDiscCalculation": "false",
        f"{_LEGACY}statisticalAggregate": "false",
        f"{_LEGACY}truncateForEmptyRegexSplit": "false",
        f"{_LEGACY}earlyEvalCurrentTime": "false",
        # how Python functions get and give values
        f"{_LEGACY}execution.pandas.groupedMap.assignColumnsByName": "true",
        f"{_LEGACY}execution.pythonUDF.pandas.conversion.enabled": "false",
        f"{_PYTHON}pandas.intToDecimalCoercionEnabled": "false",
        f"{_PYTHON}pandas.preferIntExtensionDtype": "false",
        "spark.sql.execution.pandas.convertToArrowArraySafely": "true",
        "spark.sql.execution.pyspark.binaryAsBytes": "true",
    }
)
"""Settings that act when rows are computed, with the value that functions here assume; empty: not set."""


def refuse_other_settings(
    setting: Callable[[str, str | None], str | None], location: SourceLocation | None = None
) -> None:
    """Raise `UnsupportedQuery` if a setting differs from the value that functions here assume.

    setting: the value of a setting, by its name and what it is unless it is set.
    """
    for name, assumed in ASSUMED.items():
        value = setting(name, assumed or None)
        if value is not None and value.lower() != assumed.lower():
            raise refused_setting(name, value, location=location)


def refused_setting(
    name: str, value: str, why: str = "", location: SourceLocation | None = None
) -> UnsupportedQuery:
    """Build the error for a query under an unsupported setting."""
    assumed = "UTC" if name == TIME_ZONE else ASSUMED[name]
    return UnsupportedQuery(
        f"{name} is {value}",
        where=[] if location is None else [location],
        why=why or "Rows would be computed otherwise than Spark computes them.",
        fix=f'spark.conf.set("{name}", "{assumed}")' if assumed else f'spark.conf.unset("{name}")',
        setting=name,
    )


def setting_of(session: SparkSession) -> Callable[[str, str | None], str | None]:
    """Return a function from a setting's name and default to its value in a session."""
    return session.conf.get


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Context of planning.

    relations: the plan of each relation, by its name. text: of the query, if it has one. location: of the
    caller. zone: the time zone of the user's session.
    """

    relations: Mapping[str, Any]
    session: SparkSession
    text: QueryText | None
    location: SourceLocation
    zone: str


def complete(listed: list[Fields], plan: Any, inputs: PlanInputs) -> None:
    """Add the details to the nodes in the JSON of a plan.

    Tables lose columns of types that flows do not support.
    Raises `UnsupportedQuery` for relations that are no inputs, and functions that are null where they fail.
    """
    tables: list[Fields] = []
    for node in plan_nodes(listed, plan):
        try:
            for name, value in _details(node, inputs):
                node.fields[name] = value
        except UnsupportedQuery as error:
            raise located(error, inputs.text, inputs.location, [node]) from None
        except UnpairedNode as error:
            raise _unreadable(error, inputs) from None
        if TABLE in node.fields:
            tables.append(node.fields)
    for table in tables:  # whose nodes are paired with the attributes that the JVM has until here
        table["output"] = [each for each in table["output"] if has_counterpart(each[0]["dataType"])]


def _unreadable(error: UnpairedNode, inputs: PlanInputs) -> UnsupportedQuery:
    return UnsupportedQuery("the plan of the query cannot be read", where=[inputs.location], why=f"{error}.")


_SEED = re.compile(r"\bREPEATABLE\s*\(\s*(\d+)\s*\)$", re.IGNORECASE)
"""The end of a clause `TABLESAMPLE` with a seed."""


def refuse_samples_without_seed(analysed: Any, inputs: PlanInputs) -> None:
    """Raise `UnsupportedQuery` for a sample without a seed in the query's text: Spark draws one each time.

    analysed: as Spark analysed the text, whose place the optimiser and copies of nodes may lose.
    """
    for node in plan_nodes(json.loads(analysed.toJSON()), analysed):
        if node.kind == "Sample" and not _has_seed(node, inputs):
            error = UnsupportedQuery(
                "the sample has no seed in the text of the query",
                why="Spark draws another sample each time; deletions would miss the rows they delete.",
                fix="TABLESAMPLE (...) REPEATABLE (1), or sample_by_hash() on a stream",
            )
            raise located(error, inputs.text, inputs.location, [node])


def _has_seed(sample: PlanNode, inputs: PlanInputs) -> bool:
    try:
        origin = sample.tree.origin()
    except UnpairedNode as error:
        raise _unreadable(error, inputs) from None
    if origin.sqlText().isEmpty() or origin.stopIndex().isEmpty():
        return False
    seed = _SEED.search(origin.sqlText().get()[: origin.stopIndex().get() + 1])
    return seed is not None and int(seed[1]) == sample.fields["seed"]


def _details(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    detail = _DETAILS.get(node.kind)
    if detail is not None:
        yield from detail(node, inputs)
    _refuse_other_settings(node, inputs)
    if _mode(node) == "TRY" or _reads_time_or_null(node):
        if node.kind not in _TRIED:
            raise UnsupportedQuery(
                f"the query uses {node.tree.toString()}, which has no incremental form yet",
                why="It is null where it fails.",
                fix="test for what would fail, by CASE WHEN",
            )
        yield KIND, f"Try{node.kind}"


_TRIED = frozenset({"Add", "Subtract", "Multiply", "Divide", "Remainder", "Cast", "Sum", "Average"})


def _mode(node: PlanNode) -> str:
    """Return the error mode of an expression; empty if it has only one."""
    if "evalMode" in node.fields:
        return node.tree.evalMode().toString()
    return node.tree.evalContext().evalMode().toString() if "evalContext" in node.fields else ""


def _refuse_other_settings(node: PlanNode, inputs: PlanInputs) -> None:
    """Raise `UnsupportedQuery` for an expression created under an unsupported setting, which it retains."""
    precise = "evalContext" in node.fields and not node.tree.evalContext().allowDecimalPrecisionLoss()
    lenient = _mode(node) == "LEGACY" and not (
        node.kind == "Cast" and (_cannot_fail(node, inputs) or _reads_time_or_null(node))
    )
    for name, other in ((ANSI, lenient), (PRECISION, precise)):
        if other:
            raise refused_setting(name, "false", f"{node.tree.sql()} was made under it.")
    zone = inputs.zone if node.kind.startswith("PythonUD") else node.fields.get("timeZoneId")
    if isinstance(zone, str) and zone not in UTC_NAMES and (node.kind != "Cast" or _needs_zone(node, inputs)):
        raise refused_setting(TIME_ZONE, zone, f"{node.tree.sql()} is computed in that time zone.")


def _needs_zone(cast: PlanNode, inputs: PlanInputs) -> bool:
    return _casts(inputs).needsTimeZone(cast.tree.child().dataType(), cast.tree.dataType())


def _cannot_fail(cast: PlanNode, inputs: PlanInputs) -> bool:
    """Return whether a cast behaves the same in every mode. Spark inserts some of these itself."""
    source, target = cast.tree.child().dataType(), cast.tree.dataType()
    of_time = (source.simpleString(), target.simpleString()) == ("timestamp", "date")
    return of_time or _casts(inputs).canUpCast(source, target)


def _reads_time_or_null(node: PlanNode) -> bool:
    """Return whether an expression is Spark's form of `try_to_timestamp` or `try_to_date` of one text."""
    if node.kind != "Cast" or _mode(node) != "LEGACY":
        return False
    source, target = node.tree.child().dataType(), node.tree.dataType()
    return source.typeName() == "string" and target.typeName() in ("date", "timestamp", "timestamp_ntz")


def _casts(inputs: PlanInputs) -> Any:
    return getattr(java_class(inputs.session, "org.apache.spark.sql.catalyst.expressions.Cast$"), "MODULE$")


# -- relations ---------------------------------------------------------------------------------

RELATIONS: Mapping[str, Callable[[Any], Any]] = {
    "LogicalRDD": lambda leaf: leaf.rdd(),
    "LogicalRelation": lambda leaf: leaf.relation(),
    "HiveTableRelation": lambda leaf: leaf.tableMeta(),
    "LocalRelation": lambda leaf: leaf.data(),
    "Range": lambda leaf: f"{leaf.start()} {leaf.end()} {leaf.step()}",
    "StreamingRelation": lambda leaf: leaf.dataSource(),
    "StreamingRelationV2": lambda leaf: leaf.table(),
}
"""What makes relations of a kind the same: Spark makes a new one where a table is joined with itself."""


def _relation(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the content of a relation: the name of its table, a range, or constant rows."""
    same, leaf = RELATIONS[node.kind], node.tree
    if node.kind == "HiveTableRelation":
        yield "output", node.fields["dataCols"] + node.fields["partitionCols"]
    for name, given in inputs.relations.items():
        if given.nodeName() == node.kind and _equal(same(leaf), same(given)):
            yield TABLE, name
            return
    if node.kind == "Range":
        yield RANGE, (leaf.start(), leaf.end(), leaf.step())
        return
    if node.kind != "LocalRelation":
        raise UnsupportedQuery(
            f"the query reads {leaf.simpleString(25)}, which is none of its inputs",
            fix="give the DataFrame that it comes from, in tables={...} or sources={...}",
        )
    yield ROWS, _constant_rows(leaf, inputs.session)


def _equal(one: Any, other: Any) -> bool:
    return one == other if isinstance(one, str) else one.equals(other)


def _constant_rows(leaf: Any, session: SparkSession) -> list[tuple[Any, ...]]:
    """Return the constant rows in a query, as from VALUES."""
    from headrace.io.arrow import table_to_rows

    named = frame_of_plan(leaf, session)
    frame = named.toDF(*(f"column {at}" for at in range(len(named.columns))))
    schema = parse_schema(frame.schema.jsonValue())  # which refuses what Arrow has no type for, too
    return table_to_rows(frame.toArrow(), schema)


# -- operators and expressions --------------------------------------------------------------------


def _projections(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the projections of an `Expand`, which the JSON omits if they are vectors."""
    if node.fields["projections"] is None:
        rows = map(items, items(node.tree.projections()))
        yield "projections", [[json.loads(value.toJSON()) for value in row] for row in rows]


def _dropped_columns(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the positions of the columns that a `Generate` drops, counting only columns that a flow has."""
    unread = {*items(node.tree.unrequiredChildIndex())}
    columns = enumerate(items(node.tree.child().output()))
    there = [at for at, each in columns if has_counterpart(json.loads(each.dataType().json()))]
    yield UNREAD, [place for place, at in enumerate(there) if at in unread]


def _nested_constant(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    type, value = node.fields["dataType"], node.fields["value"]
    if (isinstance(type, dict) or type == "binary") and value is not None:
        yield CONSTANT, _internal(node.tree.value(), node.tree.dataType())


def _session_window(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield a mark for a session window, which is an ordinary struct in the JSON."""
    if isinstance(node.fields["dataType"], dict) and node.tree.metadata().contains("spark.sessionWindow"):
        yield SESSION, True


def _function(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the pickled function of a Python UDF, with its type."""
    byte = java_class(inputs.session, "scala.reflect.ClassTag").Byte()
    yield FUNCTION, node.tree.func().command().toArray(byte)


def _pivot_values(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the internal values of a pivot column that get a column of their own."""
    type = node.tree.pivotColumn().dataType()
    yield PIVOT, [_internal(value, type) for value in items(node.tree.pivotColumnValues())]


def _delay(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the delay of a watermark, in milliseconds."""
    watermarks = java_class(inputs.session, "org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark")
    yield DELAY, watermarks.getDelayMs(node.tree.delay())


def _patterns(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the constant patterns that a text is matched against."""
    yield PATTERNS, [None if each is None else each.toString() for each in items(node.tree.patterns())]


def _options(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the options of a JSON or CSV function."""
    pairs = node.tree.options().iterator()
    found: dict[str, str] = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[pair._1()] = pair._2()
    yield OPTIONS, found


def _input_type(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    yield INPUT, node.tree.left().dataType().typeName()


def _uncast_type(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the type of the argument of a UTF-8 function, before any cast."""
    if node.fields["functionName"].lower().endswith(("valid", "validateutf8string")):
        text = node.tree.children().head()
        is_cast = text.getClass().getSimpleName() == "Cast"
        yield INPUT, text.child().dataType().typeName() if is_cast else "string"


Detail: TypeAlias = Callable[[PlanNode, PlanInputs], Iterator[tuple[str, Any]]]


def _depth(node: PlanNode, inputs: PlanInputs) -> Iterator[tuple[str, Any]]:
    """Yield the session's recursion limit, if the query sets none."""
    if node.fields.get("maxDepth") is None:
        yield "maxDepth", int(inputs.session.conf.get("spark.sql.cteRecursionLevelLimit") or "100")


_DETAILS: dict[str, Detail] = {
    **dict.fromkeys(RELATIONS, _relation),
    "Expand": _projections,
    "Generate": _dropped_columns,
    "Literal": _nested_constant,
    "AttributeReference": _session_window,
    "EventTimeWatermark": _delay,
    "PythonUDF": _function,
    "PythonUDAF": _function,
    "PivotFirst": _pivot_values,
    "UnionLoop": _depth,
    "Like": lambda node, inputs: iter([(ESCAPE, node.tree.escapeChar())]),
    **dict.fromkeys(("JsonToStructs", "StructsToCsv"), _options),
    **dict.fromkeys(("UnixTimestamp", "ToUnixTimestamp"), _input_type),
    **dict.fromkeys(("Invoke", "StaticInvoke"), _uncast_type),
    **dict.fromkeys(("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"), _patterns),
}


def items(seq: Any) -> list[Any]:
    return [seq.apply(at) for at in range(seq.size())]


def pairs(mapping: Any) -> Iterator[tuple[str, str]]:
    each = mapping.iterator()
    while each.hasNext():
        pair = each.next()
        yield pair._1(), pair._2()


def with_subqueries(plan: Any) -> list[Any]:
    """Return a plan and the plans of all its subqueries."""
    return [plan, *items(plan.subqueriesAll())]


def frame_of_plan(plan: Any, session: SparkSession) -> DataFrame:
    """Return the DataFrame of a JVM plan."""
    from pyspark.sql import DataFrame

    dataset = java_class(session, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(java_session(session), plan), session)


def java_session(session: Any) -> Any:
    return session._jsparkSession


def java_class(session: Any, name: str) -> Any:
    """Find a JVM class by its full name."""
    found: Any = session.sparkContext._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _internal(value: Any, catalyst_type: Any) -> Any:
    """Convert one of Catalyst's internal values."""
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
        case TimestampNtzType():
            return EPOCH.replace(tzinfo=None) + timedelta(microseconds=value)
        case IntervalType():
            return timedelta(microseconds=value)
        case DecimalType():
            return Decimal(value.toString())
        case StrType():
            return value.toString()
        case _:
            return value


def _elements(values: Any, each: Any) -> tuple[Any, ...]:
    """Convert a Catalyst array with elements of a type."""
    count = values.numElements()
    return tuple(
        _internal(None if values.isNullAt(at) else values.get(at, each), each) for at in range(count)
    )
