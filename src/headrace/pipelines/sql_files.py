"""Definitions in SQL files, by Spark's own parser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import SourceLocation
from headrace.expr.spark_columns import quoted
from headrace.pipelines.auto_cdc import AutoCdc
from headrace.pipelines.definitions import (
    DELTA,
    Dataset,
    DatasetKind,
    Definitions,
    QueryDefinition,
    TableName,
)
from headrace.pipelines.delta_source import resolve_delta_paths
from headrace.pipelines.errors import BadDefinition, Report, reporting
from headrace.queries.catalyst_plan import QueryText
from headrace.queries.plan_details import frame_of_plan, items, java_class, java_session, pairs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_sql_file(
    file: Path, definitions: Definitions, spark: SparkSession, report: Report | None = None
) -> None:
    """Add the definitions in a file. Raises `BadDefinition` for text that is none.

    report: is given the errors of single statements instead.
    """
    from pyspark.errors import PySparkException

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDefinition(
            f"{file.name} cannot be read", why=f"{error}.", fix="write it as UTF-8"
        ) from error
    splitter = java_class(
        spark, "org.apache.spark.sql.pipelines.graph.SqlGraphRegistrationContext$"
    ).__getattr__("MODULE$")
    try:
        statements = items(splitter.splitSqlFileIntoQueries(java_session(spark), text, file.name))
    except PySparkException as error:
        message = str(error).partition("\n\nJVM stacktrace")[0].strip()
        raise BadDefinition(
            f"Spark cannot read {file.name}",
            where=[SourceLocation(str(file), 1)],
            why=message,
            fix="correct the text",
        ) from None
    reader = _Reader(file, definitions, spark)
    for statement in statements:
        with reporting(report):
            reader.read(statement.plan(), statement.queryOrigin())


@dataclass(slots=True)
class _Reader:
    """Reader of the statements of a file. settings: those of SET so far."""

    file: Path
    definitions: Definitions
    spark: SparkSession
    settings: dict[str, str] = field(default_factory=dict[str, str])

    def read(self, plan: Any, origin: Any) -> None:
        line = origin.line().get() if origin.line().isDefined() else 1
        text = origin.sqlText().get() if origin.sqlText().isDefined() else ""
        kind = plan.getClass().getSimpleName()
        reader = _READERS.get(kind)
        location = SourceLocation(str(self.file), line)
        if reader is None:
            raise BadDefinition(
                f"{' '.join(text.split()[:4])} ... defines nothing of a pipeline",
                where=[location],
                fix="CREATE MATERIALIZED VIEW, STREAMING TABLE, FLOW or TEMPORARY VIEW, or SET; "
                "docs/reference/pipelines.md lists what a file may have",
            )
        reader(self, plan, _Place(location, self._text_of(plan, text, line)))

    def _text_of(self, plan: Any, text: str, line: int) -> QueryText:
        """Return a statement as its nodes know it: with the comments in front of it."""
        whole = plan.origin().sqlText()
        if whole.isEmpty() or text not in whole.get():
            return QueryText(text, str(self.file), line)
        before = whole.get().partition(text)[0]
        return QueryText(whole.get(), str(self.file), line - before.count("\n"))

    def dataset(
        self, parts: Iterable[str], kind: DatasetKind, place: _Place, plan: Any | None = None
    ) -> Dataset:
        name = self.definitions.name(list(parts), place.location)
        if plan is None:
            made = Dataset(name, kind, place.location)
        else:
            spec = plan.tableSpec()
            provider = spec.provider()
            made = Dataset(
                name,
                kind,
                place.location,
                self._declared(plan),
                tuple(_column_of(each, place) for each in items(plan.partitioning())),
                provider.get().lower() if provider.isDefined() else "parquet",
                dict(pairs(spec.properties())),
            )
        self.definitions.add_dataset(made)
        return made

    def query(self, name: str, target: TableName, query_of: Callable[[Any], Any], place: _Place) -> None:
        """Add the query of a statement. query_of: finds it in the statement's plan."""
        frame = partial(_frame_of, self.spark, place.text.text, query_of, self.definitions)
        settings = dict(self.settings)
        self.definitions.add_query(
            QueryDefinition(name, target, frame, place.location, place.text, None, settings)
        )

    def auto_cdc(self, name: str, target: TableName, plan: Any, place: _Place) -> None:
        from pyspark.sql import functions as f

        source = plan.source()
        while source.children().size():
            source = source.children().apply(0)
        deleted = plan.deleteCondition()
        cdc = AutoCdc(
            ".".join(map(quoted, items(source.multipartIdentifier()))),
            _names_of(plan.keys()) or (),
            f.expr(plan.sequenceByExpr().sql()),
            f.expr(deleted.get().sql()) if deleted.isDefined() else None,
            _names_of(plan.includeColumns()),
            _names_of(plan.excludeColumns()) or (),
            _scd_type(plan) == 2,
            _names_of(plan.trackHistoryColumns()),
            _names_of(plan.trackHistoryExceptColumns()) or (),
        )
        settings = dict(self.settings)
        records = partial(cdc.records, self.spark)
        self.definitions.add_query(
            QueryDefinition(name, target, records, place.location, None, cdc, settings)
        )

    def _declared(self, plan: Any) -> StructType | None:
        """Return the columns that a statement declares; None if the query decides."""
        from pyspark.sql.types import StructType

        columns = [
            {
                "name": c.name(),
                "type": json.loads(c.dataType().json()),
                "nullable": c.nullable(),
                "metadata": {},
            }
            for c in items(plan.columns())
        ]
        return StructType.fromJson({"type": "struct", "fields": columns}) if columns else None


@dataclass(frozen=True, slots=True)
class _Place:
    location: SourceLocation
    text: QueryText


def _frame_of(
    spark: SparkSession, text: str, query_of: Callable[[Any], Any], definitions: Definitions
) -> DataFrame:
    # Parsed anew: a plan remembers the rules that found nothing in it, such as tables that were not there.
    parsed = java_session(spark).sessionState().sqlParser().parsePlan(text)
    query = query_of(parsed)
    if DELTA in text.lower():
        query = resolve_delta_paths(query, spark, definitions.datasets)
    return frame_of_plan(query, spark)


def _column_of(transform: Any, place: _Place) -> str:
    """Return the column that a table is partitioned by. Raises `BadDefinition` for a function of one."""
    names = [list(each.fieldNames()) for each in transform.references()]
    if transform.name() != "identity" or len(names) != 1 or len(names[0]) != 1:
        raise BadDefinition(
            f"the table is partitioned by {transform.describe()}",
            where=[place.location],
            fix="compute a column in the query, and partition by it",
        )
    return names[0][0]


def _view(kind: DatasetKind) -> Callable[[_Reader, Any, _Place], None]:
    def read(reader: _Reader, plan: Any, place: _Place) -> None:
        made = reader.dataset(items(plan.name().nameParts()), kind, place, plan)
        reader.query(made.name.table, made.name, lambda parsed: parsed.query(), place)

    return read


def _streaming_table(reader: _Reader, plan: Any, place: _Place) -> None:
    reader.dataset(items(plan.name().nameParts()), DatasetKind.STREAMING_TABLE, place, plan)


def _flow(reader: _Reader, plan: Any, place: _Place) -> None:
    insert = plan.flowOperation()
    if insert.getClass().getSimpleName() == "AutoCdcInto":
        target = reader.definitions.name(items(insert.targetTable().nameParts()), place.location)
        reader.auto_cdc(items(plan.name().nameParts())[-1], target, insert, place)
        return
    target = reader.definitions.name(items(insert.table().multipartIdentifier()), place.location)
    *_, name = items(plan.name().nameParts())
    reader.query(name, target, lambda parsed: parsed.flowOperation().query(), place)


def _streaming_table_of_cdc(reader: _Reader, plan: Any, place: _Place) -> None:
    made = reader.dataset(items(plan.name().nameParts()), DatasetKind.STREAMING_TABLE, place, plan)
    reader.auto_cdc(made.name.table, made.name, plan, place)


def _scd_type(plan: Any) -> int:
    given = _given(plan.storedAsScdType())
    return 1 if given is None else int(str(given))


def _given(value: Any) -> Any:
    """Return what an optional clause says; None without one."""
    if isinstance(value, int):
        return value
    kind = value.getClass().getName()
    return value.get() if kind == "scala.Some" else None if kind == "scala.None$" else value


def _names_of(listed: Any) -> tuple[str, ...] | None:
    """Return the columns that a clause lists; None without one."""
    listed = _given(listed)
    return None if listed is None else tuple(each.name() for each in items(listed))


def _temporary_view(reader: _Reader, plan: Any, place: _Place) -> None:
    name = plan.name()
    if plan.viewType().toString() != "LocalTempView":
        raise BadDefinition(
            "the view is not TEMPORARY",
            where=[place.location],
            fix="CREATE TEMPORARY VIEW, or MATERIALIZED VIEW",
        )
    database = [name.database().get()] if name.database().isDefined() else []
    made = reader.dataset([*database, name.table()], DatasetKind.TEMPORARY_VIEW, place)
    reader.query(made.name.table, made.name, lambda parsed: parsed.plan(), place)


def _stored_view(reader: _Reader, plan: Any, place: _Place) -> None:
    # The session's catalogue ends with the run, so the view is one of the pipeline alone.
    made = reader.dataset(items(plan.child().nameParts()), DatasetKind.TEMPORARY_VIEW, place)
    reader.query(made.name.table, made.name, lambda parsed: parsed.query(), place)


def _set(reader: _Reader, plan: Any, place: _Place) -> None:
    given = plan.kv()
    if given.isEmpty() or given.get()._2().isEmpty():
        return  # It shows a setting.
    reader.settings[given.get()._1()] = given.get()._2().get()


_READERS: dict[str, Callable[[_Reader, Any, _Place], None]] = {
    "CreateMaterializedViewAsSelect": _view(DatasetKind.MATERIALIZED_VIEW),
    "CreateStreamingTableAsSelect": _view(DatasetKind.STREAMING_TABLE),
    "CreateStreamingTable": _streaming_table,
    "CreateStreamingTableAutoCdc": _streaming_table_of_cdc,
    "CreateFlowCommand": _flow,
    "CreateViewCommand": _temporary_view,
    "CreateView": _stored_view,
    "SetCommand": _set,
}
