"""Definitions in Python files, as `pyspark.pipelines` registers them while a file is imported.

Files only define datasets: calls that change the session, or read rows, are refused meanwhile, as
`pyspark.pipelines` does for Spark Connect only.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable, Table, TemporaryView

from headrace.errors import HeadraceError, SourceLocation
from headrace.pipelines.auto_cdc import AutoCdc
from headrace.pipelines.definitions import Dataset, DatasetKind, Definitions, QueryDefinition
from headrace.pipelines.errors import BadDefinition
from headrace.queries.plan_details import items, java_session

if TYPE_CHECKING:
    from pyspark.pipelines.flow import AutoCdcFlow, Flow
    from pyspark.pipelines.source_code_location import SourceCodeLocation
    from pyspark.sql import Column, SparkSession


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
    """List the calls that read rows, of which a query function sees none yet."""
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
    """Refuse, by `BadDefinition`, calls that change the session."""
    with _replaced(_changes(), _refuse_change):
        yield


@contextmanager
def queries_only() -> Generator[None]:
    """Refuse, by `BadDefinition`, calls that change the session or read rows."""
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
    """Split a name as Spark does, which takes backticks."""
    return items(java_session(spark).sessionState().sqlParser().parseMultipartIdentifier(name))


def location_in(file: Path, error: BaseException) -> SourceLocation:
    """Return the line of `file` at which an error was raised; its first one if it was raised elsewhere."""
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

    def _parts(self, name: str) -> list[str]:
        return name_parts(name, self._spark)

    def register_output(self, output: Output) -> None:
        location = _location(output.source_code_location)
        if isinstance(output, Sink):
            name = self._definitions.name([output.name], location)
            sink = Dataset(
                name, DatasetKind.SINK, location, None, (), output.format.lower(), dict(output.options)
            )
            self._definitions.add_dataset(sink)
            return
        name = self._definitions.name(self._parts(output.name), location)
        kind = _KINDS[type(output)]
        if not isinstance(output, Table):
            self._definitions.add_dataset(Dataset(name, kind, location))
            return
        self._definitions.add_dataset(
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

    def register_flow(self, flow: Flow) -> None:
        location = _location(flow.source_code_location)
        target = self._definitions.name(self._parts(flow.target), location)
        self._definitions.add_query(
            QueryDefinition(flow.name, target, flow.func, location, settings=dict(flow.spark_conf))
        )

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


@contextmanager
def _classic_columns() -> Generator[None]:
    """Let `pyspark.pipelines` make columns of this session, where it makes those of Spark Connect.

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
    return SourceLocation(location.filename, location.line_number or 1)
