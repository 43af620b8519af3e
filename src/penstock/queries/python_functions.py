"""Lowering of functions written in Python, of values, groups (`applyInPandas`) and batches (`mapInPandas`).

The plan names a function only; Spark has it pickled. It is called with the values that Spark would give it:
timestamps without a zone, in UTC; nested rows as tuples with names; for pandas and Arrow, series and arrays.
How Spark divides rows into batches is open: here, a batch is one row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import SourceLocation, UnsupportedQuery
from penstock.expr.row_classes import computed_schema
from penstock.expr.tree import Call
from penstock.expr.types import DataType, Field, Schema, StructType
from penstock.flow import aggregates
from penstock.flow.operators.flat_map import FlatMap
from penstock.flow.operators.map import Map
from penstock.queries.catalyst_plan import FUNCTION, CatalystNode, parse_type
from penstock.queries.relations import AnyStream, Planner, Relation, lowers

if TYPE_CHECKING:
    from penstock.queries.expressions import Scope

# Numbers of `PythonEvalType` in Spark.
_ROWS = frozenset({100, 101})
_PANDAS, _PANDAS_ITERATOR, _ARROW, _ARROW_ITERATOR = 200, 204, 250, 251
_PANDAS_GROUP, _ARROW_GROUP = 201, 209
_PANDAS_AGGREGATE, _ARROW_AGGREGATE = 202, 252
_PANDAS_MAP, _ARROW_MAP = 205, 207


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """Python function of a plan. result: the type that it declares."""

    name: str
    call: Callable[..., Any]
    evaluation: int
    result: DataType

    @property
    def uses_arrow(self) -> bool:
        return self.evaluation in (_ARROW, _ARROW_ITERATOR, _ARROW_GROUP, _ARROW_AGGREGATE, _ARROW_MAP)


def _function(node: CatalystNode, *kinds: int) -> PythonFunction:
    """Return the function of a `PythonUDF`. Raises `UnsupportedQuery` for other kinds of function."""
    from pyspark.serializers import CloudPickleSerializer

    name, evaluation = node.fields["name"], node.fields["evalType"]
    if not node.fields["udfDeterministic"]:
        raise UnsupportedQuery(
            f"function {name!r} is not deterministic",
            why="What a row gave cannot be taken back with the row.",
            fix="compute it before, in a column of the table",
            function=name,
        )
    if evaluation not in kinds:
        raise UnsupportedQuery(
            f"the query calls {name!r}, a Python function of Spark's kind {evaluation}", function=name
        )
    call, _ = CloudPickleSerializer().loads(node.fields[FUNCTION])
    return PythonFunction(name, call, evaluation, parse_type(node.fields["dataType"]))


# -- scalar functions --------------------------------------------------------------------------


@lowers("ArrowEvalPython", "BatchEvalPython")
def _eval_python(node: CatalystNode, planner: Planner) -> Relation:
    below = planner.relation(node.children[0])
    stream, columns = below.stream, dict(below.columns)
    for udf, attribute in zip(node.trees("udfs"), node.trees("resultAttrs"), strict=True):
        stream, name = _evaluated(udf, stream, below.scope, planner)
        columns[attribute.expr_id] = name
    return Relation(stream.select(*columns.values()), columns)


def _evaluated(udf: CatalystNode, stream: AnyStream, scope: Scope, planner: Planner) -> tuple[AnyStream, str]:
    """Add a column with the value of a function, and return its name."""
    arguments: list[str] = []
    for child in udf.children:
        if child.kind == "PythonUDF":
            stream, name = _evaluated(child, stream, scope, planner)
        else:
            name = planner.fresh("argument")
            stream = stream.with_columns(**{name: scope.lower(child)})
        arguments.append(name)
    function = _function(udf, *_ROWS, _PANDAS, _PANDAS_ITERATOR, _ARROW, _ARROW_ITERATOR)
    fields = stream.schema.fields
    positions = tuple(stream.schema.names.index(name) for name in arguments)
    result = Field(planner.fresh(function.name), function.result, True)
    step: Callable[[Any], Any] = (
        WithValue(function, positions)
        if function.evaluation in _ROWS
        else WithColumnValue(function, positions, tuple(fields[at] for at in positions))
    )
    return _added(Map(step), (*fields, result), stream), result.name


def _added(operator: Any, fields: tuple[Field, ...], stream: AnyStream) -> AnyStream:
    return stream.flow.add(operator, computed_schema(fields), (stream,), None, SourceLocation.of_caller())


@dataclass(frozen=True, slots=True)
class WithValue:
    """Function of rows that appends `function` of some values. arguments: their positions."""

    function: PythonFunction
    arguments: tuple[int, ...]

    def __call__(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = (_without_zone(row[at]) for at in self.arguments)
        return (*row, _with_zone(self.function.call(*values)))


@dataclass(frozen=True, slots=True)
class WithColumnValue:
    """Function of rows that appends a vectorised `function` of some values, given as columns of one row."""

    function: PythonFunction
    arguments: tuple[int, ...]
    fields: tuple[Field, ...]

    def __call__(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        columns = [
            _column(self.function, [row[at]], field)
            for at, field in zip(self.arguments, self.fields, strict=True)
        ]
        call = self.function.call
        if self.function.evaluation in (_PANDAS_ITERATOR, _ARROW_ITERATOR):
            batch: Any = columns[0] if len(columns) == 1 else tuple(columns)
            (made,) = call(iter([batch]))
        else:
            made = call(*columns)
        (value,) = _values(self.function, made)
        return (*row, value)


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _with_zone(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _column(function: PythonFunction, values: list[Any], field: Field) -> Any:
    """Return values as a series, or as an array."""
    import pyarrow as pa

    from penstock.io.arrow import arrow_type

    if function.uses_arrow:
        return pa.array(values, arrow_type(field.type))
    array = pa.array(list(map(_without_zone, values)), _naive(arrow_type(field.type)))
    return array.to_pandas(date_as_object=True, maps_as_pydicts="strict")


def _naive(type: Any) -> Any:
    """Return an Arrow type with timestamps that have no zone."""
    import pyarrow as pa

    return pa.timestamp("us") if pa.types.is_timestamp(type) else type


def _values(function: PythonFunction, made: Any, of: DataType | None = None) -> list[Any]:
    """Return what a function made, a series or an array, as values of a type: by default that it declares."""
    import pyarrow as pa

    from penstock.io.arrow import arrow_type

    type = arrow_type(function.result if of is None else of)
    array = made.cast(type) if function.uses_arrow else pa.Array.from_pandas(made, type=_naive(type))
    return [_with_zone(value) for value in array.to_pylist(maps_as_pydicts="strict")]


# -- groups ------------------------------------------------------------------------------------


def collected(
    udf: CatalystNode, scope: Scope, names: tuple[str, ...] | None = None
) -> aggregates.Aggregation:
    """Lower the arguments of a function of a group: the sorted list of its rows, with these names."""
    names = names or tuple(f"_{at}" for at in range(len(udf.children)))
    return aggregates.collect(Call("struct", scope.lower_all(udf.children), (names,)))


def with_aggregate(udf: CatalystNode, stream: AnyStream, rows: str, name: str) -> AnyStream:
    """Replace the list of a group's rows in column `rows` by the value of an aggregate, as `name`."""
    function = _function(udf, _PANDAS_AGGREGATE, _ARROW_AGGREGATE)
    at = stream.schema.names.index(rows)
    step = WithGroupValue(function, at, _element_of(stream.schema, at).fields)
    return _added(Map(step), (*stream.schema.fields, Field(name, function.result, True)), stream)


def _element_of(schema: Schema, at: int) -> StructType:
    element: Any = schema.fields[at].type
    return cast("StructType", element.element)


@dataclass(frozen=True, slots=True)
class WithGroupValue:
    """Function of groups that appends an aggregate of the rows listed at a position."""

    function: PythonFunction
    rows: int
    fields: tuple[Field, ...]

    def __call__(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        columns = zip(self.fields, zip(*row[self.rows], strict=True), strict=True)
        made = self.function.call(*(_column(self.function, list(values), f) for f, values in columns))
        (value,) = _values(self.function, _one(made, self.function))
        return (*row, value)


def _one(value: Any, function: PythonFunction) -> Any:
    """Return a value as a series, or as an array."""
    if function.uses_arrow:
        import pyarrow as pa

        return pa.array([value.as_py() if isinstance(value, pa.Scalar) else value])
    import pandas as pd

    return pd.Series([value])


@lowers("FlatMapGroupsInPandas", "FlatMapGroupsInArrow")
def _flat_map_groups(node: CatalystNode, planner: Planner) -> Relation:
    below, udf = planner.relation(node.children[0]), node.tree("functionExpr")
    assert udf is not None
    function = _function(udf, _PANDAS_GROUP, _ARROW_GROUP)
    keys = below.scope.lower_all(node.trees("groupingAttributes"))
    named = {f"key {at}": key for at, key in enumerate(keys)}
    names = tuple(child.fields["name"] for child in udf.children)
    groups = below.stream.group_by(**named).agg(rows=collected(udf, below.scope, names))
    output = node.trees("output")
    columns = {a.expr_id: planner.name(a.expr_id, a.fields["name"]) for a in output}
    result = cast("StructType", function.result)
    made = tuple(Field(name, f.type, True) for name, f in zip(columns.values(), result.fields, strict=True))
    element = _element_of(groups.schema, len(named))
    step = GroupRows(function, element.fields, result.fields)
    return Relation(_added(FlatMap(step), made, groups), columns)


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Function from a group, its keys and the list of its rows, to the rows of the table made of it."""

    function: PythonFunction
    fields: tuple[Field, ...]
    made: tuple[Field, ...]

    def __call__(self, row: tuple[Any, ...]) -> Iterable[tuple[Any, ...]]:
        import pyarrow as pa

        *key, rows = row
        columns = [
            _column(self.function, list(c), f)
            for f, c in zip(self.fields, zip(*rows, strict=True), strict=True)
        ]
        names = [field.name for field in self.fields]
        group: Any
        if self.function.uses_arrow:
            group = pa.Table.from_arrays(columns, names=names)
            key = [pa.scalar(value) for value in key]
        else:
            group = _frame(columns, names)
        takes_key = len(inspect.getfullargspec(self.function.call).args) == 2
        made = self.function.call(tuple(key), group) if takes_key else self.function.call(group)
        return _rows(self.function, made, self.made)


def _rows(function: PythonFunction, made: Any, fields: tuple[Field, ...]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table that a function made; a batch of Arrow has its columns in order.

    Others have them by name, or in order if they have no names. A table of nothing may be without columns.
    """
    labels = made.column_names if function.uses_arrow else list(made.columns)
    if not labels and not len(made):
        return iter(())
    if function.evaluation == _ARROW_MAP:
        made, labels = made.columns, range(made.num_columns)
    named = any(isinstance(label, str) for label in labels)
    columns = (
        _values(function, made[field.name if named else labels[at]], field.type)
        for at, field in enumerate(fields)
    )
    return zip(*columns, strict=True)


def _frame(columns: list[Any], names: list[str]) -> Any:
    import pandas as pd

    frame = pd.concat(columns, axis=1)
    frame.columns = pd.Index(names)
    return frame


# -- batches -----------------------------------------------------------------------------------


@lowers("MapInPandas", "MapInArrow")
def _map_in_batches(node: CatalystNode, planner: Planner) -> Relation:
    below, udf = planner.relation(node.children[0]), node.tree("functionExpr")
    assert udf is not None
    function = _function(udf, _PANDAS_MAP, _ARROW_MAP)
    if node.fields["isBarrier"]:
        raise UnsupportedQuery(
            f"function {function.name!r} is called in barrier mode",
            why="Its tasks would wait for each other, and here it is called with one row at a time.",
            fix="leave out barrier=True",
            function=function.name,
        )
    names = tuple(child.fields["name"] for child in udf.children)
    given = {planner.fresh(name): below.scope.lower(e) for name, e in zip(names, udf.children, strict=True)}
    stream = below.stream.select(**given)
    columns = {a.expr_id: planner.name(a.expr_id, a.fields["name"]) for a in node.trees("output")}
    result = cast("StructType", function.result)
    made = tuple(Field(name, f.type, True) for name, f in zip(columns.values(), result.fields, strict=True))
    step = BatchRows(function, stream.schema.fields, names, result.fields)
    return Relation(_added(FlatMap(step), made, stream), columns)


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Function from a row to the rows that `function` makes of it as its only batch.

    names: of the batch's columns.
    """

    function: PythonFunction
    fields: tuple[Field, ...]
    names: tuple[str, ...]
    made: tuple[Field, ...]

    def __call__(self, row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        import pyarrow as pa

        columns = [_column(self.function, [v], field) for v, field in zip(row, self.fields, strict=True)]
        batch: Any
        if self.function.uses_arrow:
            batch = pa.RecordBatch.from_arrays(columns, names=list(self.names))
        else:
            batch = _frame(columns, list(self.names))
        for made in self.function.call(iter([batch])):
            yield from _rows(self.function, made, self.made)
