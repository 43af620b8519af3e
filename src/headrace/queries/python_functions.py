"""Lowering of Python functions of values, groups (`applyInPandas`) and batches (`mapInPandas`).

The plan names a function only; Spark has it pickled. It is called with the values that Spark would give it:
timestamps without a zone, in UTC; nested rows as `Row`; for pandas and Arrow, series and arrays.
How Spark divides rows into batches is open. Here, scalar functions get the rows of a tick, and functions of
batches one row, since nothing tells which of a batch's rows led to which result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import SourceLocation, UnsupportedQuery, UserFunctionFailed
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import FunctionCall
from headrace.expr.types import DataType, Field, Schema, StructType
from headrace.operators.aggregate import collected_values
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.map import FlatMap, Map, VectorisedFunction
from headrace.queries.catalyst_plan import FUNCTION, CatalystNode, parse_type
from headrace.queries.relations import Planner, Relation, RowStream, lowers
from headrace.queries.udf_values import (
    from_pandas,
    from_result,
    null_finder,
    numbered,
    to_argument,
    to_batch,
    to_frame,
    to_series,
    to_values,
)

if TYPE_CHECKING:
    from headrace.queries.expressions import Scope


# Numbers of `PythonEvalType` in Spark.
_ROWS = frozenset({100, 101})
_PANDAS, _PANDAS_ITERATOR, _ARROW, _ARROW_ITERATOR = 200, 204, 250, 251
_PANDAS_GROUP, _ARROW_GROUP = 201, 209
_PANDAS_AGGREGATE, _ARROW_AGGREGATE = 202, 252
_PANDAS_MAP, _ARROW_MAP = 205, 207

_MAX_PIECE = 10_000
"""Limit on rows per call, Spark's default for `spark.sql.execution.arrow.maxRecordsPerBatch`."""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """Python function in a plan. result: its declared type."""

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


def _evaluated(udf: CatalystNode, stream: RowStream, scope: Scope, planner: Planner) -> tuple[RowStream, str]:
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
        WithValue(function, tuple((at, fields[at].type) for at in positions))
        if function.evaluation in _ROWS
        else WithColumnValue(function, positions, numbered(fields[at].type for at in positions))
    )
    return _added(Map(step), (*fields, result), stream), result.name


def _added(operator: Any, fields: tuple[Field, ...], stream: RowStream) -> RowStream:
    return stream.flow.add(operator, computed_schema(fields), (stream,), None, SourceLocation.of_caller())


@dataclass(frozen=True, slots=True)
class WithValue:
    """Row function that appends the result of `function`. arguments: column positions and types."""

    function: PythonFunction
    arguments: tuple[tuple[int, DataType], ...]

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.function.name

    def __call__(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = (to_argument(type)(row[at]) for at, type in self.arguments)
        return (*row, from_result(self.function.result)(self.function.call(*values)))


@dataclass(frozen=True, slots=True)
class WithColumnValue(VectorisedFunction):
    """Row function that appends the result of a vectorised `function` of some values, passed as columns."""

    function: PythonFunction
    arguments: tuple[int, ...]
    fields: tuple[Field, ...]

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.function.name

    def __call__(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        columns = _columns(self.function, [[row[at]] for at in self.arguments], self.fields, frames=True)
        (value,) = self._results((columns,), (1,))
        return (*row, value)

    def of_rows(self, rows: list[tuple[Any, ...]]) -> list[Any]:
        if len(rows) == 1:
            return [self(rows[0])]
        values = [[row[at] for row in rows] for at in self.arguments]
        pieces = _pieces(self.function, values, self.fields, len(rows))
        parts = ([[column[at] for at in piece] for column in values] for piece in pieces)
        columns = (_columns(self.function, part, self.fields, frames=True) for part in parts)
        made = self._results(columns, list(map(len, pieces)))
        places = (at for piece in pieces for at in piece)
        appended: list[Any] = [None] * len(rows)
        for at, value in zip(places, made, strict=True):
            appended[at] = (*rows[at], value)
        return appended

    def _results(self, pieces: Iterable[tuple[Any, ...]], sizes: Sequence[int]) -> list[Any]:
        """Call the function on the columns of each piece, and return all values."""
        call, function = self.function.call, self.function
        made: list[Any] = []
        if function.evaluation in (_PANDAS_ITERATOR, _ARROW_ITERATOR):
            for result in call(piece[0] if len(piece) == 1 else piece for piece in pieces):
                made += _values(function, result)
            _check_count(function, len(made), sum(sizes))
            return made
        for piece, size in zip(pieces, sizes, strict=True):
            part = list(_values(function, call(*piece)))
            _check_count(function, len(part), size)
            made += part
        return made


def _pieces(
    function: PythonFunction, columns: list[list[Any]], fields: tuple[Field, ...], count: int
) -> list[Sequence[int]]:
    """Divide row positions into pieces, each passed to a function in one call.

    A row must look to it as it does alone, or its result could not be taken back; so for pandas, rows are
    divided by where they have nulls that change the types of columns.
    """
    nulls: list[Iterable[object]] = []
    if not function.uses_arrow:
        pairs = zip(columns, fields, strict=True)
        nulls = [map(find, values) for values, field in pairs if (find := null_finder(field.type))]
    alike: dict[tuple[object, ...], list[int]] = {}
    for at, found in enumerate(zip(*nulls, strict=True)):
        alike.setdefault(found, []).append(at)
    groups: Iterable[Sequence[int]] = alike.values() if nulls else [range(count)]
    return [g[at : at + _MAX_PIECE] for g in groups for at in range(0, len(g), _MAX_PIECE)]


def _check_count(function: PythonFunction, made: int, given: int) -> None:
    if made != given:
        raise UserFunctionFailed(
            f"function {function.name!r} returned {made} values for {given} rows",
            why="A function of series or arrays returns one value for each row, in their order.",
            fix="return as many values as it is given, or use an aggregate",
            function=function.name,
        )


def _columns(
    function: PythonFunction, columns: Iterable[Sequence[Any]], fields: tuple[Field, ...], *, frames: bool
) -> tuple[Any, ...]:
    """Convert columns of values to arrays or series. frames: convert columns of structs to frames."""
    if function.uses_arrow:
        return tuple(to_batch(columns, fields).columns)
    return tuple(to_series(columns, fields, frames=frames))


def _values(function: PythonFunction, made: Any, of: DataType | None = None) -> Iterable[Any]:
    """Convert a function's result, a series or an array, to values of a type, by default the declared one."""
    type = function.result if of is None else of
    return to_values(made if function.uses_arrow else from_pandas(made, type), type)


# -- groups ------------------------------------------------------------------------------------


def collected(udf: CatalystNode, scope: Scope, names: tuple[str, ...] | None = None) -> Aggregation:
    """Lower the arguments of a group function to the sorted list of the group's rows, with these names."""
    names = names or tuple(f"_{at}" for at in range(len(udf.children)))
    return collected_values.collect(FunctionCall("struct", scope.lower_all(udf.children), (names,)))


def with_aggregate(udf: CatalystNode, stream: RowStream, rows: str, name: str) -> RowStream:
    """Replace the list of a group's rows in column `rows` by the value of an aggregate, as `name`."""
    function = _function(udf, _PANDAS_AGGREGATE, _ARROW_AGGREGATE)
    at = stream.schema.names.index(rows)
    step = WithGroupValue(function, at, numbered(f.type for f in _element_of(stream.schema, at).fields))
    return _added(Map(step), (*stream.schema.fields, Field(name, function.result, True)), stream)


def _element_of(schema: Schema, at: int) -> StructType:
    element: Any = schema.fields[at].type
    return cast("StructType", element.element)


@dataclass(frozen=True, slots=True)
class WithGroupValue:
    """Row function that appends an aggregate of the rows listed at a position."""

    function: PythonFunction
    rows: int
    fields: tuple[Field, ...]

    def __call__(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        columns = zip(*row[self.rows], strict=True)
        made = self.function.call(*_columns(self.function, columns, self.fields, frames=False))
        (value,) = _values(self.function, _one(made, self.function))
        return (*row, value)


def _one(value: Any, function: PythonFunction) -> Any:
    """Return a series or an array of one value."""
    if function.uses_arrow:
        import pyarrow as pa

        return pa.repeat(value, 1) if isinstance(value, pa.Scalar) else pa.array([value])
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
    step = GroupRows(function, groups.schema.fields[: len(named)], element.fields, result.fields)
    return Relation(_added(FlatMap(step), made, groups), columns)


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Function from a group (its keys and the list of its rows) to the rows of the table computed from it."""

    function: PythonFunction
    keys: tuple[Field, ...]
    fields: tuple[Field, ...]
    made: tuple[Field, ...]

    def __call__(self, row: tuple[Any, ...]) -> Iterable[tuple[Any, ...]]:
        *key, rows = row
        group = self._table(list(zip(*rows, strict=True)))
        if len(inspect.getfullargspec(self.function.call).args) != 2:
            return _rows(self.function, self.function.call(group), self.made)
        columns = _columns(self.function, [[value] for value in key], self.keys, frames=False)
        keys = tuple(column[0] for column in columns)
        return _rows(self.function, self.function.call(keys, group), self.made)

    def _table(self, columns: list[Sequence[Any]]) -> Any:
        if self.function.uses_arrow:
            import pyarrow as pa

            batch = to_batch(columns, self.fields)
            return pa.Table.from_arrays(batch.columns, names=batch.schema.names)
        import pandas as pd

        return pd.concat(to_series(columns, self.fields), axis=1)


def _rows(function: PythonFunction, made: Any, fields: tuple[Field, ...]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table returned by a function. A batch of Arrow has its columns in order.

    Others have them by name, or in order if they have no names. An empty table may have no columns.
    """
    if not function.uses_arrow:
        columns = from_pandas(made, StructType(fields)).flatten()
    elif not made.num_columns and not made.num_rows:
        return iter(())
    elif function.evaluation == _ARROW_MAP:
        columns = made.columns
    else:
        columns = [made[field.name] for field in fields]
    values = (to_values(column, field.type) for column, field in zip(columns, fields, strict=True))
    return zip(*values, strict=True)


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
    fields = tuple(Field(n, f.type, f.nullable) for n, f in zip(names, stream.schema.fields, strict=True))
    columns = {a.expr_id: planner.name(a.expr_id, a.fields["name"]) for a in node.trees("output")}
    result = cast("StructType", function.result)
    made = tuple(Field(name, f.type, True) for name, f in zip(columns.values(), result.fields, strict=True))
    step = BatchRows(function, fields, result.fields)
    return Relation(_added(FlatMap(step), made, stream), columns)


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Function from a row to the rows that `function` returns for it as its only batch."""

    function: PythonFunction
    fields: tuple[Field, ...]
    made: tuple[Field, ...]

    def __call__(self, row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if self.function.uses_arrow:
            batch = to_batch([[value] for value in row], self.fields)
        else:
            batch = to_frame(row, self.fields)
        for made in self.function.call(iter([batch])):
            yield from _rows(self.function, made, self.made)
