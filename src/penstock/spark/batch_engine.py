"""What Spark has no form for runs in the in-process engine, inside a task: callables and loops.

A part of the flow is cut out, with a source for each edge that enters it and a
sink for each node that is read outside. So a callable gets the rows that it
gets in-process, is checked alike, and fails alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from penstock.flow.operators.sink import Sink
from penstock.flow.operators.source import Source
from penstock.graph.node import FlowGraph, Node
from penstock.spark.batch_errors import told
from penstock.spark.batch_operators import Site, named
from penstock.spark.plan import pickled
from penstock.spark.types import spark_schema, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.engine.machine import Machine
    from penstock.expr.types import Schema

Rows = list[tuple[Any, ...]]
_BATCH = 10_000
_PORT = "port"


def run_per_batch(site: Site) -> DataFrame:
    """An operator of which each row is answered alone: batch by batch, wherever the rows are."""
    node, schema, made = site.node, site.schemas[0], site.node.schema
    entry = Node(0, "in", Source("in", schema), (), schema, node.place)
    inside = replace(node, id=1, inputs=(0,))
    leave = Node(2, "out", Sink("out"), (1,), node.schema, node.place)
    part = FlowGraph(node.name, (entry, inside, leave), {"in": 0}, {"out": 2}, given_ticks=True)

    shipped = pickled(part)

    @told
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.io.arrow import rows_to_table, table_to_rows

        machine = _machine(shipped)
        for batch in batches:
            rows = machine.tick({"in": table_to_rows(batch, schema)}).get("out", [])
            yield from rows_to_table(rows, made).to_batches(max_chunksize=_BATCH)

    return site.inputs[0].mapInArrow(task, spark_schema(made))


# --- loops -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A loop cut out of a flow. entries: nodes read from outside; exits: nodes read by the outside."""

    graph: FlowGraph
    entries: tuple[int, ...]
    exits: tuple[int, ...]


def run_loop(
    graph: FlowGraph,
    group: Sequence[int],
    made: Mapping[int, DataFrame],
    share: Callable[[DataFrame], DataFrame],
) -> dict[int, DataFrame]:
    """The bags of the nodes of a loop that are read outside of it.

    share: applied to what the loop answers where more than one of its nodes is read.
    All rows that enter the loop come to one task, whose memory must hold them with what follows from them.
    """
    part = cut_out(graph, group)
    entering = [graph.nodes[i].schema for i in part.entries]
    leaving = [graph.nodes[i].schema for i in part.exits]
    whole: DataFrame | None = None
    for port, node in enumerate(part.entries):
        frame = _tagged(made[node], port, entering)
        whole = frame if whole is None else whole.unionAll(frame)
    assert whole is not None, "a loop that nothing enters has no rows"
    task = _loop_task(part, entering, leaving)
    answer = whole.repartition(1).mapInArrow(task, _ports_type(leaving))
    if len(leaving) > 1:
        answer = share(answer)
    return {node: _of_port(answer, port, leaving[port]) for port, node in enumerate(part.exits)}


def cut_out(graph: FlowGraph, group: Sequence[int]) -> Part:
    """The nodes of `group` as a flow of their own, with sources and sinks where edges were cut."""
    inside = set(group)
    entries = tuple(dict.fromkeys(i for n in group for i in graph.nodes[n].inputs if i not in inside))
    exits = tuple(n for n in group if any(n in m.inputs for m in graph.nodes if m.id not in inside))
    number = {node: at for at, node in enumerate((*entries, *group))}
    nodes = [
        Node(
            at,
            f"in{at}",
            Source(f"in{at}", graph.nodes[i].schema),
            (),
            graph.nodes[i].schema,
            graph.nodes[i].place,
        )
        for at, i in enumerate(entries)
    ]
    for n in group:
        node = graph.nodes[n]
        nodes.append(replace(node, id=number[n], inputs=tuple(number[i] for i in node.inputs)))
    sinks: dict[str, int] = {}
    for at, n in enumerate(exits):
        node = graph.nodes[n]
        sinks[f"out{at}"] = len(nodes)
        nodes.append(Node(len(nodes), f"out{at}", Sink(f"out{at}"), (number[n],), node.schema, node.place))
    sources = {f"in{at}": at for at in range(len(entries))}
    return Part(FlowGraph(graph.name, tuple(nodes), sources, sinks, given_ticks=True), entries, exits)


def _loop_task(part: Part, entering: list[Schema], leaving: list[Schema]) -> Callable[..., Any]:
    shipped = pickled(part.graph)

    @told
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inputs: dict[str, Rows] = {f"in{port}": [] for port in range(len(entering))}
        for batch in batches:
            for port, schema in enumerate(entering):
                inputs[f"in{port}"] += _rows_of_port(batch, port, schema)
        answers = _until_quiet(_machine(shipped), inputs)
        for port, schema in enumerate(leaving):
            yield from _batches_of_port(answers[f"out{port}"], port, schema, leaving)

    return task


def _machine(shipped: bytes) -> Machine:
    from pyspark import cloudpickle

    from penstock.engine.machine import Machine
    from penstock.engine.program import compile_program

    program = compile_program(cloudpickle.loads(shipped))
    return Machine(program, {slot.name: {} for slot in program.slots})


def _until_quiet(machine: Machine, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
    """What the sinks hold after a tick with `inputs`, and after those that deferred rows ask for."""
    totals: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in machine.program.graph.sinks}
    changes = machine.tick(inputs)
    while True:
        for name, rows in changes.items():
            if machine.program.sink_append[name]:
                totals[name].update(rows)
            else:
                for *row, weight in rows:
                    totals[name][tuple(row)] += weight
        if not machine.pending:
            return {name: list(total.elements()) for name, total in totals.items()}
        changes = machine.tick({})


# --- rows of several streams in one frame ----------------------------------------------


def _ports_type(schemas: Sequence[Schema]) -> Any:
    from pyspark.sql.types import IntegerType, StructField, StructType

    rows = [StructField(f"row{port}", spark_schema(schema), True) for port, schema in enumerate(schemas)]
    return StructType([StructField(_PORT, IntegerType(), False), *rows])


def _tagged(frame: DataFrame, port: int, schemas: Sequence[Schema]) -> DataFrame:
    """The rows of one stream, each as a struct in the column of its port; the other columns are null."""
    columns = [f.lit(port).alias(_PORT)]
    for at, schema in enumerate(schemas):
        # No cast of the rows that are there: Spark takes a column for nullable where it cannot tell, and
        # refuses to cast such a one to one that is not.
        row = f.struct(*(named(n) for n in schema.names))
        none = f.lit(None).cast(spark_schema(schema))
        columns.append((row if at == port else none).alias(f"row{at}"))
    return frame.select(*columns)


def _of_port(frame: DataFrame, port: int, schema: Schema) -> DataFrame:
    row = named(f"row{port}")
    columns = [row.getField(x.name).cast(spark_type(x.type)).alias(x.name) for x in schema.fields]
    return frame.filter(named(_PORT) == port).select(*columns)


def _rows_of_port(batch: pa.RecordBatch, port: int, schema: Schema) -> Rows:
    import pyarrow
    from pyarrow import compute

    from penstock.io.arrow import table_to_rows

    arrow: Any = compute  # its functions are made when it is imported; type checkers know none of them
    mine = arrow.equal(batch.column(_PORT), port)
    structs = batch.column(f"row{port}").filter(mine)
    table = pyarrow.Table.from_arrays(structs.flatten(), names=list(schema.names))
    return table_to_rows(table, schema)


def _batches_of_port(
    rows: Rows, port: int, schema: Schema, schemas: Sequence[Schema]
) -> Iterator[pa.RecordBatch]:
    import pyarrow

    from penstock.io.arrow import arrow_schema, rows_to_table

    for batch in rows_to_table(rows, schema).to_batches(max_chunksize=_BATCH):
        arrays: list[Any] = [pyarrow.array([port] * len(batch), pyarrow.int32())]
        for at, other in enumerate(schemas):
            kind = pyarrow.struct(list(arrow_schema(other)))
            arrays.append(batch.to_struct_array() if at == port else pyarrow.nulls(len(batch), kind))
        yield pyarrow.RecordBatch.from_arrays(
            arrays, names=[_PORT, *(f"row{at}" for at in range(len(schemas)))]
        )
