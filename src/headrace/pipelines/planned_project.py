"""A project planned by Spark: a session with its settings, its graph, and the plan of each table."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError, SourceLocation
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import (
    POLICY,
    SHARING,
    Policy,
    TableName,
    parse_policy,
)
from headrace.pipelines.delta_source import register_delta
from headrace.pipelines.errors import BadDefinition, BadSpec, Report
from headrace.pipelines.graph import Graph, StoredTable
from headrace.pipelines.input_identity import digest
from headrace.pipelines.kept_analysis import KeptAnalysis, noting_sources
from headrace.pipelines.kept_analysis import keep as keep_analysis
from headrace.pipelines.kept_analysis import load as load_analysis
from headrace.pipelines.query_errors import message_of
from headrace.pipelines.spec import PipelineSpec, settings_of
from headrace.pipelines.table_plan import TablePlan
from headrace.queries.plan_details import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.debug.maxToStringFields": "10000",
    # Times as other readers of Parquet know them, with their zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A quarter smaller than Spark's default.
    "spark.sql.parquet.compression.codec": "zstd",
}
"""Settings of a project's session, unless its configuration has others."""


Sessions: TypeAlias = "SparkSession | Callable[[], SparkSession]"
"""A session of Spark, or what starts one where a run needs it."""


@contextmanager
def planned(
    spec: PipelineSpec, spark: SparkSession, default: Policy | None = None, report: Report | None = None
) -> Generator[tuple[Graph, Mapping[TableName, TablePlan]]]:
    """Provide the graph of a project with the plan of each table: all that is known before a run.

    default: policy of tables that have none; else that of the spec's configuration.
    report:  is given the errors of single files, statements and tables; what they concern is left out.

    Raises `BadSpec`, and without a `report` `BadDefinition`, `QueryRefused`, and `NotIncremental`.
    """
    from headrace.pipelines.plans import plan_tables, sharing_parts
    from headrace.pipelines.project_analysis import analysed, read_definitions

    with _session_of(spec, spark) as session, _working_folder(spec.root, session):
        definitions, policy = read_definitions(spec, session, report), default or default_policy(spec)
        entries, shares = PipelineCatalog.last_entries(spec.storage), shares_parts(spec)
        with ExitStack() as closing:
            empty = Path(closing.enter_context(TemporaryDirectory(prefix="headrace-empty-")))
            graph = closing.enter_context(analysed(definitions, session, empty, entries, report))
            plans = dict[TableName, TablePlan]()
            if shares:
                parts = sharing_parts(graph, policy, session, entries, empty)
                graph, plans = closing.enter_context(parts)
            yield graph, plan_tables(graph, policy, session, report, plans)


@contextmanager
def _session_of(spec: PipelineSpec, spark: SparkSession) -> Generator[SparkSession]:
    """Provide a separate session for a project, with its settings and case-insensitive names.

    It is the active one meanwhile, which query functions ask for.
    """
    from pyspark.sql import SparkSession as Sessions

    from headrace.queries.planning import activate, without_error_log

    if spark.conf.get("spark.sql.catalogImplementation") != "in-memory":
        raise BadSpec(
            "the session has a Hive catalogue",
            where=[SourceLocation(str(spec.file), 1)],
            why="Tables of a pipeline lie under its storage; the catalogue's own would be in the way.",
            fix="remove spark.sql.catalogImplementation from the configuration",
            field="configuration",
        )
    session, before = spark.newSession(), Sessions.getActiveSession()
    for key, value in {**_SETTINGS, **settings_of(spec)}.items():
        if session.conf.isModifiable(key):
            _set(session, key, value, spec)
    activate(session)
    try:
        with without_error_log():
            register_delta(session, spec.root)
            yield session
    finally:
        activate(before or spark)


def _set(session: SparkSession, key: str, value: str, spec: PipelineSpec) -> None:
    try:
        session.conf.set(key, value)
    except (PySparkException, Py4JJavaError) as error:
        raise BadSpec(
            f"'configuration' has {key}: {value!r}",
            where=[SourceLocation(str(spec.file), 1)],
            why=message_of(error),
            fix="correct the value",
            field="configuration",
        ) from None


@contextmanager
def _working_folder(folder: Path, spark: SparkSession) -> Generator[None]:
    """Set the working folder, of this process and of Spark, for the block."""
    hadoop = java_class(spark, "org.apache.hadoop.fs")
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # pyright: ignore
    files: Any = hadoop.FileSystem.get(hadoop.Path("file:/").toUri(), configuration)
    before, there = Path.cwd(), files.getWorkingDirectory()
    os.chdir(folder)
    files.setWorkingDirectory(hadoop.Path(f"file:{folder}"))
    try:
        yield
    finally:
        os.chdir(before)
        files.setWorkingDirectory(there)


@dataclass(slots=True)
class Project:
    """A project that is analysed by Spark once a run needs it.

    closing: closed when the run ends. why: why it was analysed. not_kept: why the analysis is not kept.
    """

    spec: PipelineSpec
    sessions: Sessions
    policy: Policy | None
    closing: ExitStack
    skip_invalid: bool = False
    errors: list[HeadraceError] = field(default_factory=list[HeadraceError])
    session: SparkSession | None = None
    why: str = ""
    not_kept: str = ""

    def analysed(self, why: str) -> tuple[Graph, Mapping[TableName, TablePlan]]:
        """Return the graph and the plans, and keep them for later runs. Raises the errors of `planned`."""
        from pyspark.sql import SparkSession

        self.why = why
        spark = _session_from(self.sessions)
        report = self.errors.append if self.skip_invalid else None
        with noting_sources() as sources:
            graph, plans = self.closing.enter_context(planned(self.spec, spark, self.policy, report))
        self.session = SparkSession.getActiveSession()
        graph = _plannable_part(graph, plans)
        if not self.errors:
            try:
                self.not_kept = keep_analysis(self.spec, self.policy, graph, plans, sources, self.settings)
            except Exception as error:  # The run does without.
                self.not_kept = f"{type(error).__name__}: {message_of(error)}"
        return graph, plans

    @property
    def settings(self) -> str:
        """Settings of the session that was given, by which queries are analysed; empty for none."""
        return settings_of_session(self.sessions)


def settings_of_session(sessions: Sessions) -> str:
    """Return the settings of a session, by which queries are analysed; empty if none is there yet."""
    from pyspark.sql import SparkSession

    if not isinstance(sessions, SparkSession):
        return ""
    given = sessions.sparkContext.getConf().getAll()
    return digest(str(sorted((key, value) for key, value in given if key.startswith("spark.sql."))))


def _session_from(sessions: Sessions) -> SparkSession:
    from pyspark.sql import SparkSession

    return sessions if isinstance(sessions, SparkSession) else sessions()


@contextmanager
def known(
    spec: PipelineSpec, sessions: Sessions, policy: Policy | None = None
) -> Generator[tuple[Graph, Mapping[TableName, TablePlan]]]:
    """Provide the graph and the plans of a project: as they are kept, or else planned by Spark.

    Raises the errors of `planned`.
    """
    kept = load_analysis(spec, policy, settings_of_session(sessions))
    if isinstance(kept, KeptAnalysis):
        yield kept.graph, kept.plans
        return
    with planned(spec, _session_from(sessions), policy) as both:
        yield both


def _plannable_part(graph: Graph, plans: Mapping[TableName, TablePlan]) -> Graph:
    """Return a graph without the tables that cannot be planned, and without their readers."""
    kept: dict[TableName, StoredTable] = {}
    # A table is updated together with those beside it, or not at all.
    names = {table.name for table in graph.tables}
    left_out = {table.dataset.beside or table.name for table in graph.tables if table.name not in plans}
    left_out |= {table.dataset.beside for table in graph.tables if table.dataset.beside} - names
    for table in graph.tables:
        if (table.dataset.beside or table.name) not in left_out and table.reads <= kept.keys():
            kept[table.name] = table
    return replace(graph, tables=tuple(kept.values()))


def default_policy(spec: PipelineSpec) -> Policy:
    """Return the policy of tables that have none. Raises `BadDefinition` for an unknown one."""
    given = spec.configuration.get(POLICY, Policy.AUTO.value)
    return parse_policy(given, "the configuration", [SourceLocation(str(spec.file), 1)])


def shares_parts(spec: PipelineSpec) -> bool:
    """Return whether tables share parts. Raises `BadDefinition` for another value of the setting."""
    given = spec.configuration.get(SHARING, "true")
    if given.lower() not in ("true", "false"):
        raise BadDefinition(
            f"the configuration has {SHARING}: {given!r}",
            where=[SourceLocation(str(spec.file), 1)],
            fix="one of: true, false",
        )
    return given.lower() == "true"


@contextmanager
def spark_for(spec: PipelineSpec) -> Generator[Callable[[], SparkSession]]:
    """Yield a function that gives the existing Spark session, or starts one with a project's settings.

    One that it has started is stopped after the block.
    """
    from pyspark import SparkContext

    started: list[SparkSession] = []

    def start() -> SparkSession:
        from headrace.spark.session import need_pyspark, session

        need_pyspark()
        there = SparkContext._active_spark_context is not None  # pyright: ignore[reportPrivateUsage]
        given = dict(settings_of(spec))
        memory, master = given.pop("spark.driver.memory", "1g"), given.pop("spark.master", "local[*]")
        # The first run may read all there has ever been, the next ones a few rows.
        spark = session(master=master, app_name=spec.name, memory=memory, jit="hot", config=given)
        if not there:
            started.append(spark)
        return spark

    try:
        yield start
    finally:
        for spark in started:
            spark.stop()
