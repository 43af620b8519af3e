"""Planning: how each table of a pipeline is kept up to date, decided before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.analysis import analyse
from headrace.errors import HeadraceError, UnsupportedQuery
from headrace.expr.spark_columns import quoted
from headrace.pipelines.affected_keys import described, keyed_plan
from headrace.pipelines.catalog import TableEntry
from headrace.pipelines.definitions import (
    POLICY,
    TOMBSTONES,
    Dataset,
    DatasetKind,
    Policy,
    TableName,
    parse_policy,
)
from headrace.pipelines.deliveries import check_sink, why_not_staged_here
from headrace.pipelines.errors import BadDefinition, NotIncremental, Report, reporting
from headrace.pipelines.graph import AnalysedQuery, Graph, StoredTable, stored_schema
from headrace.pipelines.leaves import (
    DeltaLeaf,
    FilesLeaf,
    Leaf,
    TableLeaf,
    UnversionedLeaf,
    column_origins,
    relation_like,
)
from headrace.pipelines.query_errors import message_of
from headrace.pipelines.shared_parts import SharedParts
from headrace.pipelines.table_fingerprints import fingerprint_of, fingerprint_parts
from headrace.pipelines.table_plan import ANSWER, Method, TablePlan
from headrace.pipelines.weighted_rows import comparable_schema
from headrace.queries.plan_details import (
    TIME_ZONE,
    UTC_NAMES,
    frame_of_plan,
    items,
    java_class,
    refuse_other_settings,
    refused_setting,
    with_subqueries,
)
from headrace.queries.planning import PlanCopier, reads_current_time
from headrace.queries.query import flow_over_leaves
from headrace.tables.version_folders import WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.flow.flow import Flow


_LOG = logging.getLogger("headrace.pipelines")


# --- rows of a stream in the order of their event time --------------------------------------------

# The watermark of a flow rises row by row, and Spark hands out files in any order. So the rows that a run
# reads are put in order first. A row is late only if an earlier run closed its window, as with Spark, whose
# watermark is in force from the next micro-batch on.


def in_time_order(rows: DataFrame, query: AnalysedQuery, leaf: Leaf, spark: SparkSession) -> DataFrame:
    """Sort rows of a leaf by the time column with a watermark; unchanged without a watermark."""
    from pyspark.sql import Column

    for watermark in _watermarks(query.plan):
        time = _time_in(leaf, watermark, spark)
        if time is not None:
            columns = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
            whole = frame_of_plan(relation_like(leaf.node, rows, spark), spark)
            return whole.sort(Column(columns.column(time)))
    return rows


def why_refused(query: AnalysedQuery, states: Sequence[str], spark: SparkSession) -> tuple[str, str] | None:
    """Return why Spark and a flow would disagree on late rows, and a fix; None if they agree.

    states: names of the operators with state. To Spark a row is late only to an operator that forgets by the
    least of all watermarks; in a flow, to all that is above its own watermark.
    """
    watermarks = _watermarks(query.plan)
    if not watermarks:
        return None
    if len(watermarks) > 1:
        return "it has more than one watermark", _ONE_STREAM
    keeping = [state for state in states if state != "Expand"]
    if "Join" in keeping:
        return "it joins streams, of which one has a watermark", "leave out the watermark"
    if len(keeping) > 1:
        return f"{' and '.join(keeping)} share a watermark", _ONE_EACH
    streams = [leaf for leaf in query.leaves if leaf.streaming]
    if any(_time_in(leaf, watermarks[0], spark) is not None for leaf in streams):
        return None
    above = _origin(watermarks[0])
    if above.children().size():
        return f"its watermark is above a {above.nodeName().lower()}", _ONE_STREAM
    return "its watermark is on a time that is not computed of one row of its stream", _ONE_STREAM


_ONE_EACH = "make a streaming table of each, which the next one reads as a stream with a watermark"
_ONE_STREAM = "write the rows into a streaming table, and put the watermark on a stream of that one"


def _watermarks(plan: Any) -> list[Any]:
    own = [plan] if plan.nodeName() == "EventTimeWatermark" else []
    return own + [found for child in items(plan.children()) for found in _watermarks(child)]


def _origin(watermark: Any) -> Any:
    """Return the relation below a watermark, or the first operator of several inputs."""
    node = watermark.child()
    while node.children().size() == 1:
        node = node.children().apply(0)
    return node


def _time_in(leaf: Leaf, watermark: Any, spark: SparkSession) -> Any | None:
    """Return the time of a watermark as an expression over a leaf; None if it is not over this leaf alone."""
    time, node = watermark.eventTime(), watermark.child()
    while node.children().size() == 1:
        if node.nodeName() == "Project":
            time = _with_computed(time, items(node.projectList()), spark)
        node = node.children().apply(0)
    if node.children().size():
        return None
    there = {each.exprId().id() for each in items(leaf.node.output())}
    read = {each.exprId().id() for each in items(time.references().toSeq())}
    return time if read and read <= there else None


def _time_columns(query: AnalysedQuery, inputs: Mapping[str, Leaf], spark: SparkSession) -> dict[str, str]:
    """Return the columns of streams that are the time of a watermark, by the names of the flow's sources."""
    found: dict[str, str] = {}
    for watermark in _watermarks(query.plan):
        for name, leaf in inputs.items():
            time = _time_in(leaf, watermark, spark) if leaf.streaming else None
            if time is not None and time.nodeName() == "AttributeReference":
                found[name] = time.name()
    return found


def _with_computed(expression: Any, columns: list[Any], spark: SparkSession) -> Any:
    """Rewrite an expression over a projection as one over the projection's input."""
    computed = {each.exprId().id(): each.child() for each in columns if each.nodeName() == "Alias"}

    def of_input(node: Any) -> Any:
        return computed.get(node.exprId().id()) if node.nodeName() == "AttributeReference" else None

    return PlanCopier(spark, expressions=of_input).expression(expression)


def plan_tables(
    graph: Graph,
    default: Policy,
    spark: SparkSession,
    report: Report | None = None,
    plans: Mapping[TableName, TablePlan] | None = None,
) -> dict[TableName, TablePlan]:
    """Plan all tables of a graph, in its order.

    default: policy of tables that have none. plans: those that are made already.

    Raises `BadDefinition`, and `NotIncremental` where `incremental_strict` cannot be kept, or reports them
    and leaves out their tables.
    """
    there, made = plans or {}, dict[TableName, TablePlan]()
    for table in graph.tables:
        if table.name in there:
            made[table.name] = there[table.name]
            continue
        with reporting(report):
            made[table.name] = _plan(table, policy_of(table.dataset, default), graph.names, spark)
    return made


@contextmanager
def sharing_parts(
    graph: Graph, default: Policy, spark: SparkSession, entries: Mapping[TableName, TableEntry], folder: Path
) -> Generator[tuple[Graph, dict[TableName, TablePlan]]]:
    """Provide a graph in which tables read the parts that they share, and the plans of both.

    A part that has no incremental form is not shared, and a table that would lose its own reads none.

    entries: of the last run. folder: for empty tables, which the session's catalogue has in the block.
    """
    readers = tuple(table for table in graph.tables if _may_share(table, default, spark))
    refused = frozenset[TableName]()
    while True:
        with closing(SharedParts(graph, readers, entries, spark, folder, refused)) as parts:
            try:
                shared = parts.graph_with_parts()
            except (PySparkException, Py4JJavaError) as error:  # Tables do without.
                _LOG.warning("no parts are shared: %s", message_of(error))
                shared = graph
            plans, failing = _plans_of_shared(graph, shared, default, spark)
            if not failing:
                yield shared, plans
                return
        refused |= failing
        readers = tuple(table for table in readers if table.name not in failing)


def _plans_of_shared(
    before: Graph, shared: Graph, default: Policy, spark: SparkSession
) -> tuple[dict[TableName, TablePlan], frozenset[TableName]]:
    """Plan parts and the tables that read them; also return those without an incremental form."""
    known = {table.name: table for table in before.tables}
    anew = [table for table in shared.tables if known.get(table.name) is not table]
    plans = {table.name: _plan_of_shared(table, default, shared, spark) for table in anew}
    failing = frozenset(name for name, plan in plans.items() if plan is None)
    return {name: plan for name, plan in plans.items() if plan is not None}, failing


def _may_share(table: StoredTable, default: Policy, spark: SparkSession) -> bool:
    """Return whether a table may read parts: it is not to be recomputed, nor computed row by row."""
    if table.dataset.kind is not DatasetKind.MATERIALIZED_VIEW or table.failure is not None:
        return False
    (query,) = table.queries
    try:
        _check_can_change(table, query, spark)
        full = policy_of(table.dataset, default) is Policy.FULL
    except HeadraceError:
        return False
    return not full and _is_stable(query, spark) and not _is_linear(query)


def _plan_of_shared(
    table: StoredTable, default: Policy, graph: Graph, spark: SparkSession
) -> TablePlan | None:
    """Return the plan of a part, or of a table that reads one; None if it has no incremental form."""
    is_part = table.dataset.kind is DatasetKind.SHARED
    if is_part and comparable_schema(table.schema) is None:
        return None
    policy = Policy.INCREMENTAL_STRICT if is_part else policy_of(table.dataset, default)
    try:
        plan = _plan(table, policy, graph.names, spark)
    except HeadraceError:
        return None
    return plan if plan.method in (Method.INCREMENTAL, Method.STATELESS) else None


def policy_of(dataset: Dataset, default: Policy) -> Policy:
    """Return the policy of a table. Raises `BadDefinition` for an unknown one."""
    given = dataset.properties.get(POLICY)
    return default if given is None else parse_policy(given, str(dataset.name), [dataset.location])


def _plan(
    table: StoredTable, policy: Policy, names: Mapping[TableName, TableName], spark: SparkSession
) -> TablePlan:
    if table.failure is not None:
        return TablePlan(table, Method.RECOMPUTE, "", True, table.failure.what)
    tombstones = table.dataset.properties.get(TOMBSTONES)
    if tombstones is not None and not any(query.query.cdc for query in table.queries):
        raise BadDefinition(
            f"{table.name} has the property {TOMBSTONES}, and no AUTO CDC flow",
            where=[table.dataset.location],
            why="Only a table of SCD type 1 keeps deleted keys.",
            fix="leave the property out",
            dataset=str(table.name),
        )
    parts = fingerprint_parts(table, names, spark)
    plan = replace(_planned(table, policy, fingerprint_of(parts), names, spark), parts=parts)
    if plan.flow is not None:
        return plan
    found = (column_origins(query.plan, names, spark) for query in table.queries)
    return replace(plan, column_origins={exact: columns for each in found for exact, columns in each.items()})


def _planned(
    table: StoredTable,
    policy: Policy,
    fingerprint: str,
    names: Mapping[TableName, TableName],
    spark: SparkSession,
) -> TablePlan:
    stable = all(_is_stable(query, spark) for query in table.queries)
    check_sink(table)
    if table.dataset.kind in (DatasetKind.STREAMING_TABLE, DatasetKind.SINK):
        return _plan_of_streams(table, fingerprint, stable, spark)
    if table.dataset.kind is DatasetKind.SNAPSHOT:
        return TablePlan(table, Method.RECOMPUTE, fingerprint, stable)
    (query,) = table.queries
    if policy is Policy.FULL:
        return TablePlan(table, Method.RECOMPUTE, fingerprint, stable, "the policy is full")
    chooses = policy is Policy.AUTO
    if stable and _is_linear(query):
        plan = TablePlan(table, Method.STATELESS, fingerprint, stable, chooses=chooses)
        return _with_flow(plan, query, spark)
    inputs = _name_inputs(query.leaves)
    try:
        _check_can_change(table, query, spark)
        flow = _flow_of(table, query, inputs)
    except HeadraceError as error:
        if policy is Policy.INCREMENTAL_STRICT:
            raise NotIncremental(
                f"{table.name} cannot be kept up to date incrementally: {error.what}",
                where=error.where or [query.query.location],
                why=error.why,
                fix=f"{error.fix}; or give it the refresh policy 'auto', and Spark recomputes it",
                dataset=str(table.name),
            ) from None
        plan = TablePlan(table, Method.RECOMPUTE, fingerprint, stable, error.what, error.where)
        keyed = keyed_plan(table, query, names, spark) if stable else None
        return plan if keyed is None else replace(plan, method=Method.AFFECTED, keys=described(keyed, query))
    return TablePlan(table, Method.INCREMENTAL, fingerprint, stable, "", (), flow, inputs, chooses)


_LINEAR = frozenset(
    {"Project", "Filter", "Union", "Generate", "SubqueryAlias", "View", "ResolvedHint"}
    | {"WithCTE", "CTERelationDef", "CTERelationRef", "LogicalRelation"}
)
"""Operators that make of more rows more rows, each of one."""


def _is_linear(query: AnalysedQuery) -> bool:
    """Return whether a query is linear: applied to input changes, it yields its output changes."""
    if not all(isinstance(leaf, (TableLeaf, FilesLeaf, DeltaLeaf)) for leaf in query.leaves):
        return False
    plan: Any = query.plan
    if plan.subqueriesAll().size() or not query.leaves:
        return False
    return all(
        node.nodeName() in _LINEAR and not (node.nodeName() == "Generate" and _is_python_generator(node))
        for node in _nodes(plan)
    )


def _plan_of_streams(table: StoredTable, fingerprint: str, stable: bool, spark: SparkSession) -> TablePlan:
    """Plan a streaming table. Raises `BadDefinition` for streams that cannot be run."""
    records = any(query.query.cdc for query in table.queries)
    states = [state for query in table.queries for state in _nodes_with_state(query)]
    state = next(iter(states), None)
    if state is None and not records:
        plan = TablePlan(table, Method.APPEND, fingerprint, stable)
        if table.dataset.kind is DatasetKind.SINK and (why := why_not_staged_here(table.dataset)):
            return replace(plan, only_spark=why)
        united = _united(table)
        return (
            replace(plan, only_spark=united) if isinstance(united, str) else _with_flow(plan, united, spark)
        )
    query = table.queries[0]
    if table.dataset.kind is DatasetKind.SINK:
        raise _refused_stream(query, f"{state or 'AUTO CDC'} keeps state, and a sink has none")
    if len(table.queries) > 1:
        raise _refused_stream(query, f"{state} keeps state, and there are several flows")
    for name in (*query.frame.columns, *table.schema.fieldNames()):
        if name in (WEIGHT, "tick"):
            raise _refused_stream(query, f"a column is called {name!r}, as one of changes is")
    if refused := why_refused(query, states, spark):
        raise _refused_stream(query, *refused)
    inputs = _name_inputs(query.leaves)
    try:
        flow = _flow_of(table, query, inputs, closes=True)
    except HeadraceError as error:
        raise _refused_stream(query, error.what, error.fix) from None
    graph = flow.graph()
    if not records and not analyse(graph).facts[graph.sinks[ANSWER]].append:
        raise _refused_stream(query, f"{state} takes rows back")
    times = _time_columns(query, inputs, spark)
    plan = TablePlan(table, Method.INCREMENTAL, fingerprint, stable, "", (), flow, inputs, time_columns=times)
    if _watermarks(query.plan) and not times:
        return replace(plan, only_spark="its watermark is on a computed time")
    return plan


def _united(table: StoredTable) -> AnalysedQuery | str:
    """Return one query that does what all flows of a table do, or why there is none."""
    first, *others = table.queries
    if not others:
        return first
    leaves = {leaf.exact: leaf for query in table.queries for leaf in query.leaves}
    if len({leaf.key for leaf in leaves.values()}) < len(leaves):
        return "its flows read an input in several ways"
    if any(query.query.settings for query in table.queries):
        return "it has several flows, with settings"
    frames = [query.frame.select(*map(quoted, table.schema.names)) for query in table.queries]
    if any(stored_schema(frame.schema) != table.schema for frame in frames):
        return "it has several flows, with columns of other types"
    return replace(
        first,
        query=replace(first.query, text=None),
        frame=reduce(lambda one, other: one.union(other), frames),
        leaves=tuple(leaves.values()),
    )


def _with_flow(plan: TablePlan, query: AnalysedQuery, spark: SparkSession) -> TablePlan:
    """Return the plan of a table whose rows are computed one by one with a flow that does the same.

    Spark runs such a query as it is; a run without Spark has the flow.
    """
    inputs = _name_inputs(query.leaves)
    # A flow keeps no state from run to run here, so it may read nothing but what is new.
    if any(node.nodeName() in ("Join", "EventTimeWatermark") for node in _nodes(query.plan)):
        return replace(plan, only_spark="it joins a stream, or has a watermark")
    if cast("Any", query.plan).subqueriesAll().size():
        return replace(plan, only_spark="it has a subquery")
    if plan.method is Method.APPEND and not all(leaf.streaming for leaf in query.leaves):
        return replace(plan, only_spark="it reads more than streams")
    try:
        _check_can_change(plan.table, query, spark)
        return replace(plan, flow=_flow_of(plan.table, query, inputs), inputs=inputs)
    except HeadraceError as error:
        return replace(plan, only_spark=error.what)


def _flow_of(
    table: StoredTable, query: AnalysedQuery, inputs: Mapping[str, Leaf], *, closes: bool = False
) -> Flow:
    cdc, location = query.query.cdc, query.query.location
    tombstones = table.dataset.properties.get(TOMBSTONES)
    return flow_over_leaves(
        query.frame,
        {name: leaf.node for name, leaf in inputs.items()},
        ANSWER,
        location,
        text=query.query.text,
        append=frozenset(name for name, leaf in inputs.items() if leaf.streaming),
        closes=closes,
        then=cdc.table(query.frame, tombstones, location) if cdc is not None else lambda rows: rows,
    )


def _refused_stream(query: AnalysedQuery, why: str, fix: str = "") -> BadDefinition:
    target = query.query.target
    return BadDefinition(
        f"the stream into {target} cannot be run: {why}",
        where=[query.query.location],
        fix=fix or "make it a materialized view over the table that the stream reads",
        dataset=str(target),
    )


def _name_inputs(leaves: tuple[Leaf, ...]) -> dict[str, Leaf]:
    """Assign a unique name to each leaf of a query. Their order is the same each time."""
    named: dict[str, Leaf] = {}
    for leaf in leaves:
        wanted = leaf.name.table if isinstance(leaf, TableLeaf) else "input"
        name, number = wanted, 1
        while name in named:
            number += 1
            name = f"{wanted}_{number}"
        named[name] = leaf
    return named


def _check_can_change(table: StoredTable, query: AnalysedQuery, spark: SparkSession) -> None:
    """Raise `UnsupportedQuery` for unversioned inputs, reserved column names and unsupported settings."""
    for leaf in query.leaves:
        if isinstance(leaf, UnversionedLeaf):
            raise UnsupportedQuery(
                f"it reads {leaf.key}, which does not tell its changes",
                fix="read files or tables of the pipeline",
            )
        if WEIGHT in [each.name() for each in items(leaf.node.output())]:
            raise UnsupportedQuery(
                f"an input has a column {WEIGHT!r}", fix="rename it in a table that the view reads"
            )
    if WEIGHT in table.schema.fieldNames() or "tick" in table.schema.fieldNames():
        raise UnsupportedQuery(f"it has a column {WEIGHT!r} or 'tick'", fix="give the column another name")
    own = query.query.settings
    refuse_other_settings(lambda name, assumed: own.get(name, spark.conf.get(name, assumed)))
    zone = own.get(TIME_ZONE, spark.conf.get(TIME_ZONE))
    if zone not in UTC_NAMES:
        raise refused_setting(TIME_ZONE, f"{zone}")


def _nodes_with_state(query: AnalysedQuery) -> list[str]:
    """Return the operators of a stream that do not compute rows one by one.

    Raises `BadDefinition` for a source that does not tell which of its rows are new.
    """
    for leaf in query.leaves:
        if isinstance(leaf, UnversionedLeaf) and leaf.streaming:
            raise _refused_stream(query, f"it reads {leaf.key}", "read files or tables of the pipeline")
    plan: Any = query.plan
    nodes = (*_nodes(plan), *(each for each in items(plan.subqueriesAll()) if each.isStreaming()))
    return [str(n.nodeName()) for n in nodes if n.isStreaming() and not _is_row_by_row(n)]


def _is_row_by_row(node: Any) -> bool:
    """Return whether a stream's new rows depend only on new rows of its input."""
    streaming = [each.isStreaming() for each in items(node.children())]
    kind = node.nodeName()
    if kind == "Union":
        return all(streaming)
    if kind == "Join":
        return (node.joinType().toString(), *streaming) in _JOINS
    if kind == "Generate":
        return not _is_python_generator(node)
    return kind in _LINEAR or kind in ("StreamingRelation", "StreamingRelationV2", "EventTimeWatermark")


_JOINS = frozenset(
    [(kind, True, False) for kind in ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti")]
    + [(kind, False, True) for kind in ("Inner", "Cross", "RightOuter")]
)
"""Joins of a stream with a table, by kind, and on which side the stream is."""


def _is_python_generator(node: Any) -> bool:
    return node.generator().getClass().getSimpleName().endswith("PythonUDTF")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def _is_stable(query: AnalysedQuery, spark: SparkSession) -> bool:
    """Return whether a query is deterministic."""
    plan: Any = query.plan
    known = all(each.deterministic() for each in with_subqueries(plan))
    return known and not reads_current_time(plan, spark)
