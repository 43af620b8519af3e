"""Construction of thresholds on monotone columns, for `at_least(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import BadRow, NeedNotMet, SourceLocation, Step, WrongType
from headrace.expr.row_classes import computed_schema, from_user
from headrace.expr.tree import Column
from headrace.expr.types import Field, Schema
from headrace.graph.operator_declarations import find_monotone_columns, introducing_operator
from headrace.operators.column_arguments import render_argument
from headrace.operators.lattice_fold import AtLeast

if TYPE_CHECKING:
    from headrace.flow.output_handle import Output
    from headrace.graph.node import Node


def threshold(
    stream: Output,
    value: object,
    column: Column | str | None,
    location: SourceLocation,
) -> tuple[AtLeast, Schema]:
    """Return the threshold operator and its output schema: the keys, then the threshold.

    Raises `NeedNotMet` unless the column is monotone by construction; the analysis checks for retractions.
    """
    nodes, schema = stream.flow.nodes, stream.schema
    growth = find_monotone_columns(nodes, stream.node_id)
    growing = tuple(growth.columns) if growth is not None else ()
    if not isinstance(column, Column | str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongType(
            f"at_least needs a column, got {render_argument(column)}",
            where=[location],
            fix='at_least(100, column="n")',
        )
    named = column.name if isinstance(column, Column) else column
    name = named if named is not None else growing[0] if len(growing) == 1 else None
    if name is None and growing:
        raise WrongType(
            "at_least does not know which column is meant",
            where=[location],
            why=f"Several only grow: {', '.join(growing)}.",
            fix=f"say it: at_least(..., column={growing[0]!r})",
        )
    if name is not None and schema.position(name) is None:
        raise WrongType(
            f"at_least has no column {name!r}",
            where=[location],
            why=f"The rows have {schema}.",
            fix=f"one that only grows: {', '.join(growing)}" if growing else "a column that only grows",
            column=name,
        )
    if growth is None or name is None or name not in growth.columns:
        raise _refused(
            introducing_operator(nodes, stream.node_id), nodes[stream.node_id].name, location, name
        )
    fields = {f.name: f for f in schema.fields}
    checked = _checked(value, fields[name], location)
    row = (*(fields[key] for key in growth.keys), Field(name, fields[name].type))
    keys = tuple(Column(key) for key in growth.keys)
    result = computed_schema(row)
    if not keys and schema.scalar:
        result = Schema(row, schema.row_class, scalar=True)
    return AtLeast(checked, name, keys, growth.columns[name]), result


def _checked(value: object, field: Field, location: SourceLocation) -> object:
    """Convert the threshold to the column's internal value. Raises `WrongType` for another type."""
    try:
        ((checked,),) = from_user(Schema((Field(field.name, field.type),), scalar=True), what="it")([value])
    except BadRow as error:
        raise WrongType(
            f"at_least of {field.name!r} needs a threshold of type {field.type}, "
            f"got {render_argument(value)}",
            where=[location],
            why=error.why,
            fix="a value that the column may have",
            column=field.name,
        ) from None
    return checked


def _refused(maker: Node, node: str, location: SourceLocation, column: str | None) -> NeedNotMet:
    what = "at_least needs a value that only grows"
    if column is not None:
        what = f"at_least needs {column!r} to only grow, and it may fall"
    note = "nothing that is made here only grows" if column is None else f"{column!r} is made here"
    end = "what passed the threshold is never taken back"
    same = maker.location == location
    return NeedNotMet(
        what,
        where=[Step(location, f"{note}; {end}")]
        if same
        else [Step(maker.location, note), Step(location, end)],
        why="Of a value that falls again, it would have been wrong to say that it had come so far.",
        fix="read count(), max() or count_distinct() of rows that are only added, lattice_fold(...),\n"
        "or a fold that claims monotone=True; of a value that may fall, filter(...) the table",
        node=node,
        fact="grows",
    )
