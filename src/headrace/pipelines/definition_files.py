"""Files of definitions: Python, as `pyspark.pipelines` registers them, and SQL, by Spark's own parser.

Files only define datasets: while a Python file is imported, calls that change the session, or read rows,
are refused, as `pyspark.pipelines` does for Spark Connect only.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable, Table, TemporaryView

from headrace.errors import HeadraceError, SourceLocation
from headrace.expr.spark_columns import quoted
from headrace.pipelines import expectations
from headrace.pipelines.definitions import (
    DELTA,
    AutoCdc,
    Dataset,
    DatasetKind,
    Definitions,
    QueryDefinition,
    TableName,
)
from headrace.pipelines.delta_source import resolve_delta_paths
from headrace.pipelines.errors import BadDefinition, Report, reporting
from headrace.pipelines.expectation_clauses import cut_expectations
from headrace.pipelines.expectations import Expectation, declared_below
from headrace.queries.catalyst_plan import QueryText
from headrace.queries.plan_details import frame_of_plan, items, java_class, java_session, pairs

if TYPE_CHECKING:
    from pyspark.pipelines.flow import AutoCdcFlow, Flow
    from pyspark.pipelines.source_code_location import SourceCodeLocation
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


# --- calls that are refused while files are imported and queries made -----------------------------


_INSTEAD = "dp.temporary_view defines a view; the spec's configuration and spark_conf= have settings"


def _changes() -> list[tuple[Any, str, str]]:
    """List the blocked calls: class, method, what they change."""
    from pyspark.sql.catalog import Catalog
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.conf import RuntimeConfig
    from pyspark.sql.udf import UDFRegistration

    return [
        (RuntimeConfig, "set", "a setting"),
        (RuntimeConfig, "unset", "a setting"),
        (Catalog, "setCurrentCatalog", "the current catalogue"),
        (Catalog, "setCurrentDatabase", "the current database"),
        (Catalog, "dropTempView", "a view"),
        (Catalog, "dropGlobalTempView", "a view"),
        (DataFrame, "createTempView", "a view"),
        (DataFrame, "createOrReplaceTempView", "a view"),
        (DataFrame, "createGlobalTempView", "a view"),
        (DataFrame, "createOrReplaceGlobalTempView", "a view"),
        (UDFRegistration, "register", "a function"),
        (UDFRegistration, "registerJavaFunction", "a function"),
        (UDFRegistration, "registerJavaUDAF", "a function"),
    ]


def _reads() -> list[tuple[Any, str, str]]:
    """List the calls that read rows, which are not yet available to a query function."""
    from pyspark.sql.classic.dataframe import DataFrame

    rows = ("collect", "take", "first", "head", "tail", "toPandas", "toArrow", "toLocalIterator")
    names = (
        *rows,
        "count",
        "isEmpty",
        "show",
        "foreach",
        "foreachPartition",
        "checkpoint",
        "localCheckpoint",
    )
    return [
        (DataFrame, name, "rows") for name in (*names, "foreachPartition", "checkpoint", "localCheckpoint")
    ]


@contextmanager
def definitions_only() -> Generator[None]:
    """Raise `BadDefinition` for calls in the block that change the session."""
    with _replaced(_changes(), _refuse_change):
        yield


@contextmanager
def queries_only() -> Generator[None]:
    """Raise `BadDefinition` for calls in the block that change the session or read rows."""
    with _replaced(_changes(), _refuse_change), _replaced(_reads(), _refuse_read):
        yield


def _refuse_change(method: str, what: str) -> NoReturn:
    raise BadDefinition(
        f"{method}() changes {what} of the session",
        where=[SourceLocation.of_caller()],
        why="Files of a pipeline only define datasets; what they change would reach other datasets, too.",
        fix=_INSTEAD,
        dataset="",
    )


def _refuse_read(method: str, what: str) -> NoReturn:
    raise BadDefinition(
        f"{method}() reads {what} in a query function",
        where=[SourceLocation.of_caller()],
        why="A query function returns a DataFrame; the tables it reads are not brought up to date before.",
        fix="compute it in the query, for example by a join with an aggregate",
        dataset="",
    )


@contextmanager
def _replaced(calls: list[tuple[Any, str, str]], refuse: Callable[[str, str], NoReturn]) -> Generator[None]:
    before = [(kind, name, getattr(kind, name)) for kind, name, _ in calls]
    for kind, name, what in calls:
        setattr(kind, name, _refusing(refuse, name, what))
    try:
        yield
    finally:
        for kind, name, method in before:
            setattr(kind, name, method)


def _refusing(refuse: Callable[[str, str], NoReturn], name: str, what: str) -> Callable[..., NoReturn]:
    def refused(*arguments: Any, **keywords: Any) -> NoReturn:
        refuse(name, what)

    return refused


_KINDS: Mapping[type[Output], DatasetKind] = {
    MaterializedView: DatasetKind.MATERIALIZED_VIEW,
    StreamingTable: DatasetKind.STREAMING_TABLE,
    TemporaryView: DatasetKind.TEMPORARY_VIEW,
}


def import_python_file(file: Path, root: Path, definitions: Definitions, spark: SparkSession) -> None:
    """Import a file of a pipeline, with `spark` in its globals.

    Raises `BadDefinition` with the line of the file that failed.
    """
    spec = importlib.util.spec_from_file_location(file.stem, str(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    registry = _Registry(definitions, spark)
    with graph_element_registration_context(registry), definitions_only(), _classic_columns():
        try:
            spec.loader.exec_module(module)
        except HeadraceError:
            raise
        except Exception as error:
            raise BadDefinition(
                f"{file.relative_to(root)} fails while it is imported",
                where=[location_in(file, error)],
                why=f"{type(error).__name__}: {_first_paragraph(error)}",
                fix="correct this line",
            ) from error


def name_parts(name: str, spark: SparkSession) -> list[str]:
    """Split a name like Spark, with support for backticks."""
    return items(java_session(spark).sessionState().sqlParser().parseMultipartIdentifier(name))


def location_in(file: Path, error: BaseException) -> SourceLocation:
    """Return the line of `file` at which an error was raised; its first line if it was raised elsewhere."""
    trace, line = error.__traceback__, getattr(error, "lineno", None) or 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return SourceLocation(str(file), line)


def _first_paragraph(error: BaseException) -> str:
    return str(error).partition("\n\n")[0].strip()


class _Registry(GraphElementRegistry):
    """The registry that the decorators of `pyspark.pipelines` call."""

    def __init__(self, definitions: Definitions, spark: SparkSession) -> None:
        self._definitions = definitions
        self._spark = spark
        self._last: Dataset | None = None

    def _parts(self, name: str) -> list[str]:
        return name_parts(name, self._spark)

    def register_output(self, output: Output) -> None:
        location = _location(output.source_code_location)
        if isinstance(output, Sink):
            name = self._definitions.name([output.name], location)
            sink = Dataset(
                name, DatasetKind.SINK, location, None, (), output.format.lower(), dict(output.options)
            )
            self._add(sink)
            return
        name = self._definitions.name(self._parts(output.name), location)
        kind = _KINDS[type(output)]
        if not isinstance(output, Table):
            self._add(Dataset(name, kind, location))
            return
        self._add(
            Dataset(
                name,
                kind,
                location,
                output.schema,
                tuple(output.partition_cols or ()),
                (output.format or "parquet").lower(),
                dict(output.table_properties),
            )
        )

    def _add(self, dataset: Dataset) -> None:
        self._definitions.add_dataset(dataset)
        self._last = dataset

    def expect_of_last(self, declared: Sequence[Expectation]) -> None:
        if not declared:
            return
        if self._last is None:
            raise _without_dataset(declared)
        self._definitions.add_expectations(self._last.name, declared)

    def register_flow(self, flow: Flow) -> None:
        location = _location(flow.source_code_location)
        target = self._definitions.name(self._parts(flow.target), location)
        self._definitions.add_query(
            QueryDefinition(flow.name, target, flow.func, location, settings=dict(flow.spark_conf))
        )
        if below := declared_below(flow.func):
            if self._last is None or (self._last.name, self._last.location) != (target, location):
                raise _without_dataset(below)
            self._definitions.add_expectations(target, below)
        elif self._last is not None and self._last.location != location:
            self._last = None  # Decorators above are of a flow.

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        location = _location(flow.source_code_location)
        target = self._definitions.name(self._parts(flow.target), location)
        cdc = AutoCdc(
            flow.source,
            self._columns(flow.keys),
            flow.sequence_by,
            flow.apply_as_deletes,
            self._columns(flow.column_list) if flow.column_list else None,
            self._columns(flow.except_column_list or ()),
            str(flow.stored_as_scd_type or 1) == "2",
            self._columns(flow.track_history_column_list) if flow.track_history_column_list else None,
            self._columns(flow.track_history_except_column_list or ()),
        )
        name = target.table if flow.name in (None, flow.target) else flow.name
        records = partial(cdc.records, self._spark)
        self._definitions.add_query(
            QueryDefinition(name or target.table, target, records, location, None, cdc, dict(flow.spark_conf))
        )

    def _columns(self, columns: Iterable[Column]) -> tuple[str, ...]:
        """Return the names of columns, which may be in backticks."""
        texts = [column._jc.toString() for column in columns]  # pyright: ignore
        parts = [self._parts(text) if text.startswith("`") else [text] for text in texts]
        return tuple(".".join(each) for each in parts)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise NotImplementedError  # Files of SQL are not registered by Python.


def _without_dataset(declared: Sequence[Expectation]) -> BadDefinition:
    return BadDefinition(
        f"the expectation {declared[0].name!r} is declared on a flow, not on a dataset",
        where=[declared[0].location],
        fix="declare it with @dp.materialized_view, @dp.table or @dp.temporary_view, "
        "or in headrace.pipelines.create_streaming_table",
        dataset="",
    )


@contextmanager
def _classic_columns() -> Generator[None]:
    """Make `pyspark.pipelines` create columns of this session instead of Spark Connect columns.

    So texts given to `create_auto_cdc_flow` need no package of Connect.
    """
    name = "pyspark.sql.connect.functions.builtin"
    before = sys.modules.get(name)
    sys.modules[name] = sys.modules["pyspark.sql.functions.builtin"]
    try:
        yield
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before


def _location(location: SourceCodeLocation) -> SourceLocation:
    if location.filename == expectations.__file__:
        return SourceLocation.of_caller()  # The user's line, which called our function of that name.
    return SourceLocation(location.filename, location.line_number or 1)


def read_sql_file(
    file: Path, definitions: Definitions, spark: SparkSession, report: Report | None = None
) -> None:
    """Add the definitions in a file. Raises `BadDefinition` for invalid text.

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
    text, clauses = cut_expectations(text, file)
    expected: dict[TableName, list[Expectation]] = {}
    for each in clauses:
        name = definitions.name(name_parts(each.dataset, spark), each.expectation.location)
        expected.setdefault(name, []).append(each.expectation)
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
    reader = _Reader(file, definitions, spark, expected)
    for statement in statements:
        with reporting(report):
            reader.read(statement.plan(), statement.queryOrigin())


@dataclass(slots=True)
class _Reader:
    """Reader of a file's statements.

    expected: expectations cut out of them, by dataset. settings: those set by SET so far.
    """

    file: Path
    definitions: Definitions
    spark: SparkSession
    expected: Mapping[TableName, Sequence[Expectation]]
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
        """Return the text of a statement as in its plan nodes, with preceding comments."""
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
        self.definitions.add_expectations(name, self.expected.get(name, ()))
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
    """Return a table's partition column. Raises `BadDefinition` for an expression."""
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
    """Return the value of an optional clause; None if absent."""
    if isinstance(value, int):
        return value
    kind = value.getClass().getName()
    return value.get() if kind == "scala.Some" else None if kind == "scala.None$" else value


def _names_of(listed: Any) -> tuple[str, ...] | None:
    """Return the columns listed in a clause; None if absent."""
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
