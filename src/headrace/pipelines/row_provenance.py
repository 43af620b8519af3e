"""Provenance of a table's row: the rows of its inputs from which it was made, found without Spark.

A table that a flow keeps up to date is explained by that flow: it runs on the rows that the published
version was made from, and rows are left out as long as the row still comes out (`find_witness`). Rows that
differ in a key from all that can influence the row are left out while files are read.

Of a table that only Spark computes, no flow says where a row comes from. What is known then is which columns
the query hands on unchanged: the answer is its text, and the inputs' rows that agree in these columns.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.analysis.column_lineage import Restriction, restrict_sources
from headrace.engine.source_rereading import ReplayLimits
from headrace.engine.witness import Witness, find_witness
from headrace.errors import BadInput, HeadraceError, SourceLocation
from headrace.expr.tree import Column
from headrace.io.arrow import arrow_schema, table_to_rows, values_to_array
from headrace.io.in_process import ArrowTable
from headrace.operators.endpoints import TICK_TIME
from headrace.pipelines.catalog import SINK, PipelineCatalog, Position, TableEntry
from headrace.pipelines.definitions import SHARED, TableName, parse_table_name
from headrace.pipelines.errors import NeedsSpark, QueryRefused, UnknownDataset
from headrace.pipelines.in_process_inputs import arrow_columns, rows_of_files
from headrace.pipelines.input_identity import InputContents
from headrace.pipelines.kept_analysis import KeptAnalysis, load_with_any_policy
from headrace.pipelines.leaves import ConstantLeaf, DeltaLeaf, FilesLeaf, Leaf, TableLeaf, spark_columns
from headrace.pipelines.planned_project import Sessions, known
from headrace.pipelines.stored_rows import StoredVersion, reading, text_of, version_is_gone
from headrace.pipelines.table_files import (
    LIMIT,
    partition_columns,
    read_data_file,
    rows_of_part,
    weighted_files,
)
from headrace.pipelines.table_plan import ANSWER, Method, TablePlan
from headrace.pipelines.undivided_flow import ReadInput, UndividedFlow, undivided_flow
from headrace.tables.version_folders import data_files

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.pipelines.spec import PipelineSpec

_compute: Any = pc

MAX_AGREEING = 100
"""Rows of an input that are shown because they agree with a row."""

_LONGEST_QUERY = 80
"""Lines of a query that are shown."""


@dataclass(frozen=True, slots=True)
class AgreeingRows:
    """Rows of an input that have the values of a row in the columns that are handed on.

    columns: of the input, with their values as texts. count: of the rows, of which `rows` has the first.
    why_not: why there are none to show; empty if there are.
    """

    columns: Mapping[str, str | None]
    rows: pa.Table | None = None
    count: int = 0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """What is known of a row that no flow explains.

    why: no flow does. query: text of the query, and where it is. inputs: by their keys.
    """

    why: str
    query: str
    where: str
    inputs: Mapping[str, AgreeingRows]


def explain_row_of_table(
    spec: PipelineSpec,
    sessions: Sessions | None,
    table: str,
    wanted: Mapping[str, str | None],
    *,
    seconds: float = 10.0,
) -> Witness | Unexplained:
    """Explain a row of a table. wanted: texts of some of its columns; the first row that has them is meant.

    sessions: used only if no analysis of the project is kept; None raises `NeedsSpark` then.

    Raises `UnknownDataset` for another table, `BadInput` if there is no such row, and the errors of `known`
    and `explain_row`.
    """
    entries = PipelineCatalog.last_entries(spec.storage)
    sought = parse_table_name(table, spec.database).folded
    name = next((each for each in entries if each.folded == sought), None)
    if name is None or entries[name].layout == SINK:
        given = [str(each) for each in entries if not each.is_hidden]
        raise UnknownDataset(
            f"the storage has no table {table!r}",
            fix=f"give one of: {', '.join(sorted(given)) or 'there is none yet'}",
            dataset=table,
        )
    version = StoredVersion(spec.storage, name, entries[name])
    row = _found(version, wanted)
    kept = load_with_any_policy(spec)
    with ExitStack() as closing:
        if isinstance(kept, KeptAnalysis):
            plans = kept.plans
        elif sessions is None:
            raise NeedsSpark(
                f"Spark has to analyse the project: {kept}",
                fix="headrace pipeline run, which keeps the analysis",
                dataset=str(name),
            )
        else:
            _, plans = closing.enter_context(known(spec, sessions))
        if name not in plans:
            raise UnknownDataset(
                f"the project does not define {name}", fix="ask about one of its tables", dataset=str(name)
            )
        return explain_row(plans, version, row, entries, seconds=seconds)


def _found(version: StoredVersion, wanted: Mapping[str, str | None]) -> pa.Table:
    """Return the first row with some texts. Raises `BadInput` if there is none."""
    folded = {column.lower(): column for column in version.columns}
    unknown = [column for column in wanted if column.lower() not in folded]
    if unknown or not wanted:
        raise BadInput(
            f"{version.name} has no column {unknown[0]!r}" if unknown else "no column of the row is given",
            fix=f"give some of: {', '.join(version.columns)}",
        )
    row = version.find({folded[column.lower()]: text for column, text in wanted.items()})
    if row is None:
        raise BadInput(
            f"{version.name} has no row with these values",
            why="A run may have replaced it, or values are written otherwise.",
            fix="write values as `headrace pipeline ui` shows them; leave out columns",
        )
    return row


def explain_row(
    plans: Mapping[TableName, TablePlan],
    version: StoredVersion,
    row: pa.Table,
    entries: Mapping[TableName, TableEntry],
    *,
    seconds: float = 10.0,
) -> Witness | Unexplained:
    """Explain a row of a table's published version. row: a table of one row, with the table's types.

    plans: of all tables. entries: of all published ones.

    Raises `QueryRefused` if the query has changed since, and `UnreadableSource` for files that are gone.
    """
    plan = plans[version.name]
    if version.entry.fingerprint != plan.fingerprint:
        raise QueryRefused(
            f"the query of {version.name} has changed since its rows were made",
            fix="run the pipeline, and ask again",
            dataset=str(version.name),
        )
    inputs = _Inputs(version.storage, entries, InputContents.open(version.storage))
    read = plan.table.positions_in(version.entry)
    found = None if read is None else undivided_flow(plan, read, plans, entries)
    if found is None:
        differ = "its flows have read different parts of an input" if read is None else ""
        return _unexplained(plan, version, row, inputs, differ)
    limits = ReplayLimits(seconds=seconds)
    if plan.method in (Method.STATELESS, Method.APPEND) and not found.has_parts:
        # A row comes from one row of each input: halves are soon small.
        limits = replace(limits, shrink=limits.rows)
    return _witness(found, row, inputs, limits)


# --- by the flow ----------------------------------------------------------------------------------


def _witness(found: UndividedFlow, row: pa.Table, inputs: _Inputs, limits: ReplayLimits) -> Witness:
    flow, given = found.flow, found.inputs
    graph = flow.graph()
    schema = graph.nodes[graph.sinks[ANSWER]].schema
    columns = arrow_schema(schema)
    (internal,) = table_to_rows(row.select(columns.names).cast(columns), schema)
    keyed = restrict_sources(graph, ANSWER, internal, keys_only=True)
    wanted = {name: keyed[name] for name in given if name in keyed and name != TICK_TIME}
    rows = {name: inputs.read(given[name], each, limits.rows) for name, each in wanted.items()}
    witness = _searched(flow, rows, internal, limits)
    if not witness.found and any(each.is_part for each in rows.values()):
        anything = Restriction(None)
        rows = {name: inputs.read(given[name], anything, limits.rows) for name in wanted}
        witness = _searched(flow, rows, internal, limits)
    return witness


def _searched(
    flow: Flow, inputs: Mapping[str, InputRows], row: tuple[Any, ...], limits: ReplayLimits
) -> Witness:
    sources = {name: ArrowTable(each.rows) for name, each in inputs.items() if each.rows is not None}
    found = find_witness(flow, sources, ANSWER, row, limits=limits)
    described = {
        name: replace(source, why_not=inputs[name].why_not or source.why_not, rows=inputs[name].count)
        if name in inputs
        else source
        for name, source in found.sources.items()
    }
    return replace(found, sources=described)


# --- without a flow -------------------------------------------------------------------------------


def _unexplained(
    plan: TablePlan, version: StoredVersion, row: pa.Table, inputs: _Inputs, why: str
) -> Unexplained:
    why = why or plan.why or plan.only_spark or "it is computed by Spark from all rows of its inputs"
    found: dict[str, AgreeingRows] = {}
    for query in plan.table.queries:
        read = version.entry.positions.get(query.query.name, {})
        for leaf in query.leaves:
            handed_on = plan.column_origins.get(leaf.exact, {})
            given = ReadInput(leaf, read.get(leaf.key))
            found[leaf.key] = _agreeing(given, handed_on, row, inputs)
    texts = [statement_at(query.query.location) for query in plan.table.queries]
    where = ", ".join(str(query.query.location) for query in plan.table.queries)
    return Unexplained(why, "\n\n".join(filter(None, texts)), where, found)


def _agreeing(given: ReadInput, handed_on: Mapping[str, str], row: pa.Table, inputs: _Inputs) -> AgreeingRows:
    if not handed_on:
        return AgreeingRows({}, why_not="No column is known to be handed on unchanged.")
    columns = {column: text_of(row[name])[0].as_py() for name, column in handed_on.items()}
    equal = Restriction((tuple((Column(c), row[name][0]) for name, c in handed_on.items()),))
    found = inputs.read(given, equal, MAX_AGREEING, count=True)
    if found.rows is None:
        return AgreeingRows(columns, why_not=found.why_not)
    return AgreeingRows(columns, found.rows, found.agreeing)


def statement_at(location: SourceLocation) -> str:
    """Return the function, or the SQL statement, that begins at a line of a file; empty if there is none."""
    try:
        text = Path(location.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    lines = text.splitlines()
    first, last = location.line, location.line
    if location.file.endswith(".py"):
        first, last = _function_around(text, location.line)
    else:
        while last < len(lines) and not lines[last - 1].rstrip().endswith(";"):
            last += 1
    found = lines[first - 1 : last]
    more = ["..."] if len(found) > _LONGEST_QUERY else []
    return "\n".join([*found[:_LONGEST_QUERY], *more])


def _function_around(text: str, line: int) -> tuple[int, int]:
    """Return the first and the last line of the smallest function, or statement, that has a line."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return line, line
    found = (line, line)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Expr, ast.Assign)):
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(each.lineno for each in decorators)])
            last = node.end_lineno or node.lineno
            if first <= line <= last and (found[0] == found[1] or last - first <= found[1] - found[0]):
                found = (first, last)
    return found


# --- inputs as a published version has read them --------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputRows:
    """Rows of an input. rows: None if they cannot be read; why_not tells why then.

    count: of the rows that were looked at. agreeing: of those that agree with a restriction.
    is_part: whether rows were left out because they do not.
    """

    rows: pa.Table | None = None
    why_not: str = ""
    count: int = 0
    agreeing: int = 0
    is_part: bool = False


@dataclass(frozen=True)
class _Inputs:
    """Inputs of tables, at the positions to which their published versions have read them."""

    storage: Path
    entries: Mapping[TableName, TableEntry]
    contents: InputContents

    def read(self, given: ReadInput, wanted: Restriction, most: int, *, count: bool = False) -> InputRows:
        """Read the rows that meet a restriction, `most` of them. count: go on counting after these."""
        columns = arrow_columns(spark_columns(given.leaf))
        kept = [columns.empty_table()]
        looked = agreeing = 0
        is_part = False
        try:
            for table in self._tables(given.leaf, given.position):
                mask = _mask(table, wanted)
                found = table if mask is None else table.filter(mask)
                looked, agreeing = looked + len(table), agreeing + len(found)
                is_part |= len(found) < len(table)
                if sum(map(len, kept)) < most:
                    # One more tells that there are more than the limit.
                    kept.append(found.slice(0, most + 1))
                elif not count:
                    break
        except HeadraceError as error:
            return InputRows(why_not=error.what)
        rows = pa.concat_tables(kept)
        return InputRows(rows.slice(0, most) if count else rows, "", looked, agreeing, is_part)

    @singledispatchmethod
    def _tables(self, leaf: Leaf, position: Position | None) -> Iterator[pa.Table]:
        """Yield the rows of an input file by file. Raises the errors of what cannot be read again."""
        raise NeedsSpark(f"{leaf.key} cannot be read again without Spark")

    @_tables.register
    def _(self, leaf: TableLeaf, position: Position | None) -> Iterator[pa.Table]:
        entry = self.entries.get(leaf.name)
        folder = PipelineCatalog.rows_in(self.storage, leaf.name).folder(_number(position))
        if entry is None or not folder.is_dir():
            raise version_is_gone(leaf.name, _number(position))
        columns = arrow_columns(spark_columns(leaf))
        with reading(leaf.name):
            if leaf.name.database == SHARED:
                files = sorted(data_files(folder))
                if weighted_files(files):
                    LIMIT.check(files, f"the rows of {leaf.name}", "run the pipeline, and ask again")
                    yield rows_of_part(files, columns)
                    return
            for file in sorted(data_files(folder)):
                yield read_data_file(folder, file, columns, partition_columns(entry.layout))

    @_tables.register
    def _(self, leaf: FilesLeaf, position: Position | None) -> Iterator[pa.Table]:
        there = position if isinstance(position, dict) else {}
        folders = set(map(os.path.dirname, there))
        for path, mark in sorted(there.items()):
            kept = None if self.contents.is_current(path, mark) else self.contents.kept(path, mark)
            if kept is None and not self.contents.is_current(path, mark):
                raise NeedsSpark(f"{path} was read, and has changed or is gone since")
            yield rows_of_files(leaf, {path: str(kept or path)}, folders)

    @_tables.register
    def _(self, leaf: DeltaLeaf, position: Position | None) -> Iterator[pa.Table]:
        from headrace.pipelines.delta_source import rows_of_version
        from headrace.tables.versioned_table import TableVersion

        number = TableVersion.parse(str(position)).number
        for batch in rows_of_version(leaf.path, number, spark_columns(leaf)):
            yield pa.Table.from_batches([batch])

    @_tables.register
    def _(self, leaf: ConstantLeaf, position: Position | None) -> Iterator[pa.Table]:
        raise NeedsSpark("its rows are written in the query")


def _number(position: Position | None) -> int:
    return position if isinstance(position, int) else 0


def _mask(table: pa.Table, wanted: Restriction) -> Any | None:
    """Return which rows meet a restriction; None where that is to be found row by row."""
    if wanted.alternatives is None:
        return None
    found: Any = None
    for equalities in wanted.alternatives:
        mask: Any = None
        for expr, value in equalities:
            same = _same(table, expr, value)
            if same is not None:  # Other conditions are checked later, row by row.
                mask = same if mask is None else _compute.and_(mask, same)
        if mask is None:
            return None
        found = mask if found is None else _compute.or_(found, mask)
    return found


def _same(table: pa.Table, expr: object, value: Any) -> Any | None:
    """Return which rows have a flow's value, or Arrow's, in a column; None if that is not known."""
    if not isinstance(expr, Column) or expr.name not in table.column_names:
        return None
    column = table[expr.name]
    try:
        wanted = value if isinstance(value, pa.Scalar) else values_to_array([value], column.type)[0]
        if not wanted.is_valid:
            return _compute.is_null(column)
        if pa.types.is_floating(column.type) and wanted.as_py() != wanted.as_py():
            return _compute.fill_null(_compute.is_nan(column), False)
        return _compute.fill_null(_compute.equal(column, wanted), False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


__all__ = ["AgreeingRows", "Unexplained", "explain_row", "explain_row_of_table", "statement_at"]
