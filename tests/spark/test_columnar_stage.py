"""Stage 0 on columns gives what it gives row by row. No Spark but at the end."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Flow, col, io
from headrace.analysis.column_lineage import live_graph
from headrace.engine.columnar.columnar_intake import columns_of_frame
from headrace.engine.columnar.columnar_option import Columnar
from headrace.engine.columnar.runner import as_rows
from headrace.engine.machine import Machine
from headrace.errors import EvaluationError
from headrace.expr.types import INT64, Field, Schema
from headrace.io.arrow import rows_to_table, table_to_rows
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.stages import cut_stages
from headrace.spark.ticks.intake import Taken, read_inputs
from headrace.spark.ticks.plan import CompiledStage, Input, TickPlan, compiled
from tests.spark.tasks_in_process import InProcessTasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class Sale(NamedTuple):
    shop: str | None
    pieces: int | None
    price: int
    day: date
    at: datetime | None


class Order(NamedTuple):
    shop: str | None
    price: int
    note: str = ""


SALE = Flow("sale").source("sale", Sale).schema


def sums(sales: Any) -> Any:
    return sales.group_by("shop").agg(
        n=hr.count(),
        known=hr.count(col.pieces),
        pieces=hr.sum(col.pieces),
        mean=hr.mean(col.price + 1),
        price=hr.sum(col.price),
    )


def extremes(sales: Any) -> Any:
    return sales.group_by("day", late=col.price > 5).agg(
        first=hr.min(col.at), last=hr.max(col.at), dearest=hr.max(col.price), n=hr.count()
    )


def everything(sales: Any) -> Any:
    return sales.group_by().agg(n=hr.count(), price=hr.sum(col.price))


def chosen(sales: Any) -> Any:
    return sales.filter(col.price > 5).select(col.shop, twice=col.price + col.price)


def sampled(sales: Any) -> Any:
    return sales.sample_by_hash(0.5, by=["pieces", "price"], seed=3)


def united(sales: Any) -> Any:
    cheap = sales.filter(col.price < 0).select(col.day, col.at, col.price)
    return sales.select(col.day, col.at, price=col.price % 7).union(cheap)


@pytest.fixture(autouse=True, scope="module")
def few_rows_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.spark.ticks.columnar_stage._LEAST", 1)
        yield


def same(sale: Sale) -> Sale:
    return sale


def stage_of(build: Any, *, append: bool) -> CompiledStage:
    """Stage 0 of a flow on three shards."""
    return stages_of(build, append=append)[0]


def stages_of(build: Any, *, append: bool) -> tuple[CompiledStage, ...]:
    """Stages of a flow on three shards."""
    flow = Flow("sales")
    flow.sink("out", build(flow.source("sales", Sale) if append else flow.table("sales", Sale)))
    graph = flow.graph()
    stages = cut_stages(insert_partial_operators(live_graph(graph)), 3)
    sales = Input("sales", graph.nodes[0].schema, append, None)
    return compiled(TickPlan(stages, (sales,), {}, "", False)).stages


DAYS = st.sampled_from([date(2024, 2, 29), date(1969, 12, 31)])
MOMENTS = st.none() | st.datetimes(timezones=st.just(UTC), min_value=datetime(1900, 1, 1))
NUMBERS = st.integers(-3, 9) | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**62, -(2**63)])
SALES = st.tuples(st.sampled_from(["a", "", None]), st.none() | NUMBERS, NUMBERS, DAYS, MOMENTS)
WEIGHTS = st.integers(-2, 3) | st.sampled_from([2**61, -(2**63)])


def bag(of: CompiledStage, sink: str, given: Any) -> Counter[Any]:
    """Rows of a sink, in rows or columns, as a bag: with their weights summed, or counted."""
    schema = next(n.schema for n in of.stage.graph.nodes if n.id == of.stage.graph.sinks[sink])
    weighted = not of.program.sink_append[sink]
    rows = given if isinstance(given, list) else table_to_rows(given, schema, weighted=weighted)
    if of.program.sink_append[sink]:
        return Counter(rows)
    total: Counter[Any] = Counter()
    for *row, weight in rows:
        total[tuple(row)] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def check(of: CompiledStage, rows: list[tuple[Any, ...]], *, append: bool) -> dict[str, Any]:
    """Compare the stage on columns with the stage in rows; return what the columns gave."""
    assert of.columnar.sources == {"sales"}
    table = rows_to_table(rows, SALE, weighted=not append)
    made = of.columnar.run("sales", table)
    expected = Machine(of.program, {}).tick({"sales": table_to_rows(table, SALE, weighted=not append)})
    assert {sink: bag(of, sink, given) for sink, given in made.items() if len(given)} == {
        sink: bag(of, sink, given) for sink, given in expected.items()
    }
    return made


@pytest.mark.parametrize("build", [sums, extremes, everything, chosen, sampled, united])
@given(st.lists(SALES, max_size=12))
def test_rows_that_only_come(build: Any, rows: list[tuple[Any, ...]]) -> None:
    of = stage_of(build, append=True)
    try:
        check(of, rows, append=True)
    except EvaluationError:
        with pytest.raises(EvaluationError):
            Machine(of.program, {}).tick({"sales": rows})


@pytest.mark.parametrize("build", [sums, everything, chosen, sampled, united])
@given(st.lists(st.tuples(SALES, WEIGHTS), max_size=12))
def test_rows_that_come_and_go(build: Any, rows: list[tuple[tuple[Any, ...], int]]) -> None:
    of, weighted = stage_of(build, append=False), [(*row, weight) for row, weight in rows if weight]
    try:
        check(of, weighted, append=False)
    except EvaluationError:
        with pytest.raises(EvaluationError):
            Machine(of.program, {}).tick({"sales": weighted})


def test_a_sum_that_could_leave_int64_is_exact() -> None:
    of = stage_of(everything, append=True)
    day = date(2024, 1, 1)
    rows = [("a", 1, price, day, None) for price in (2**62, 2**62, -(2**62))]
    ((sink, made),) = check(of, rows, append=True).items()
    assert bag(of, sink, made) == {(3, 2**62): 1}


@pytest.mark.parametrize("build", [sums, everything])
@pytest.mark.parametrize("append", [True, False])
@given(st.data())
def test_partial_groups_are_merged_in_columns_as_in_rows(build: Any, append: bool, data: Any) -> None:
    before, of = stages_of(build, append=append)[:2]
    (exchange,) = of.stage.arriving
    in_rows, in_columns = (
        Machine(of.program, {slot.name: {} for slot in of.program.slots}, columnar)
        for columnar in (None, Columnar(1, release=lambda _: None))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        sales: list[tuple[Any, ...]] = data.draw(st.lists(SALES, min_size=1, max_size=6))
        sales = [(shop, pieces, min(price, 2**62), *rest) for shop, pieces, price, *rest in sales]
        if not append:
            sales = [(*sale, data.draw(st.sampled_from([-2, -1, 1, 2]))) for sale in sales]
        partial = Machine(before.program, {}).tick({"sales": sales})[exchange.name]
        table = rows_to_table(partial, exchange.schema)
        given: Any = columns_of_frame(exchange.schema, True, table, valid=True)
        try:
            expected = in_rows.tick({exchange.name: partial})
        except EvaluationError:
            with pytest.raises(EvaluationError):
                in_columns.tick({exchange.name: given})
            return
        made = in_columns.tick({exchange.name: given})
        (sink,) = of.stage.sinks
        assert bag(of, sink, as_rows(made.get(sink, []))) == bag(of, sink, expected.get(sink, []))


def test_groups_with_more_than_sums_leave_a_stage_as_rows() -> None:
    of = stage_of(extremes, append=True)
    (made,) = check(of, [("a", 1, n, date(2024, 1, 1), None) for n in range(10)], append=True).values()
    assert isinstance(made, list)


def test_rows_stay_columns_from_a_filter_to_an_exchange() -> None:
    of = stage_of(lambda sales: chosen(sales).distinct(), append=True)
    (made,) = check(of, [("a", 1, n, date(2024, 1, 1), None) for n in range(10)], append=True).values()
    assert isinstance(made, pa.Table)
    assert made.num_rows == 4


def test_changes_stay_columns_from_a_filter_to_an_exchange() -> None:
    of = stage_of(lambda sales: chosen(sales).distinct(), append=False)
    rows = [("a", 1, n, date(2024, 1, 1), None, 1 - n % 3) for n in range(10) if n % 3 != 1]
    (made,) = check(of, rows, append=False).values()
    assert isinstance(made, pa.Table)
    assert made.column("weight").to_pylist() == [1, -1, 1]


def test_a_column_named_weight_leaves_changes_to_the_row_path() -> None:
    build = lambda sales: sales.select(weight=col.price + 1).distinct()  # noqa: E731
    (made,) = stage_of(build, append=False).columnar.run(
        "sales", rows_to_table([], SALE, weighted=True)
    ).values() or [[]]
    assert made == []


class Rate(NamedTuple):
    shop: str
    share: float


class Shop(NamedTuple):
    shop: str
    town: str


def test_changes_that_only_go_on_stay_columns_unless_equal_values_may_differ() -> None:
    """0.0 and -0.0 are equal, and a table holds one of them."""

    def forwarded(row: type) -> set[str]:
        flow = Flow("joined")
        one, other = flow.table("one", row), flow.table("other", row)
        flow.sink("out", one.join(other, on="shop", suffix="_2"))
        stages = cut_stages(insert_partial_operators(live_graph(flow.graph())), 3)
        inputs = tuple(
            Input(n.operator.name, n.schema, False, None) for n in flow.graph().nodes if not n.inputs
        )
        return set(compiled(TickPlan(stages, inputs, {}, "", False)).stages[0].forwarded)

    assert forwarded(Shop) == {"one", "other"}
    assert forwarded(Rate) == set()


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_changes_of_tables_in_files_are_joined(spark: SparkSession, tmp_path: Path, way: Any) -> None:
    """Weights travel as a column, those that are missing in the file included."""
    folder = tmp_path
    shops = [(f"s{n % 40}", f"t{n % 3}", (1, 2, None)[n % 7 % 3]) for n in range(60)]
    for name in ("one", "other"):
        (folder / name).mkdir()
        for number in range(2):
            part = shops[number * 20 : number * 20 + 40]
            columns = dict(zip(("shop", "town", "weight"), map(list, zip(*part, strict=True)), strict=True))
            pq.write_table(pa.table(columns), folder / name / f"{number}.parquet")
    flow = Flow("joined")
    one, other = flow.table("one", Shop), flow.table("other", Shop)
    flow.sink("out", one.join(other, on="shop", suffix="_2").group_by("shop").agg(n=hr.count()))
    flow.sink("all", one.filter(col.town != "t1"))
    found, expected = [{"out": io.Memory(), "all": io.Memory()} for _ in range(2)]
    sources = lambda: {n: io.ParquetFiles(folder / n, files_per_tick=1) for n in ("one", "other")}  # noqa: E731
    hr.spark.run(flow, spark, sources=sources(), sinks=found, way=way)
    hr.run(flow, sources=sources(), sinks=expected)
    assert {n: Counter(found[n].rows()) for n in found} == {n: Counter(expected[n].rows()) for n in found}


def test_batches_that_are_summed_up_are_read_together() -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0, 0, -1], pa.int32()),
            pa.nulls(3, pa.string()),
            pa.nulls(3, pa.int64()),
            pa.array([{"n": 1}, {"n": 2}, None], pa.struct([("n", pa.int64())])),
        ],
        names=["tag", "path", "place", "row_0"],
    )
    schema = Schema((Field("n", INT64),))
    taken = Taken()
    inputs = (Input("sales", schema, True, None),)
    pieces = list(read_inputs([batch, batch], inputs, taken, columns={"sales"}, gathered={"sales"}))
    assert [table_to_rows(piece.rows, schema) for piece in pieces] == [[(1,), (2,), (1,), (2,)]]
    assert taken.rows == {"sales": 4}


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.top_k(1, by=col.price),
        lambda s: s.map(same).distinct(),
        lambda s: s.distinct(),
    ],
)
def test_a_source_of_which_nothing_is_computed_on_columns_is_read_in_rows(build: Any) -> None:
    assert stage_of(build, append=True).columnar.sources == frozenset()


@pytest.mark.parametrize("read", ["json", "csv", "parquet"])
def test_files_are_filtered_and_summed_up_on_columns(spark: SparkSession, tmp_path: Path, read: str) -> None:
    """Their dead letters stay what they are, and a function behind a filter gets its rows."""
    flow = Flow("orders")
    orders = flow.source("orders", Order)
    big = orders.filter(col.price > 3)
    flow.sink("shops", big.group_by("shop").agg(n=hr.count(), most=hr.max(col.price)))
    flow.sink("twice", big.select(col.shop, twice=col.price * 2))
    folder = tmp_path / "in"
    folder.mkdir()
    table = pa.table({"shop": ["a", "b", None, "a"], "price": [1, 5, 7, 9], "note": ["x", "y", "z", ""]})
    # So many that workers, too, find them enough.
    table = pa.concat_tables([table] * 300)
    for number in range(3):
        if read == "parquet":
            pq.write_table(table, folder / f"{number}.parquet")
        elif read == "json":
            lines = [json.dumps(row) for row in table.to_pylist()]
            (folder / f"{number}.jsonl").write_text("\n".join([*lines, '{"shop": "a", "price": "much"}']))
        else:
            rows = ["a,1,x", "b,5,y", ",7,z", "a,9,q"]
            lines = ["shop,price,note", *rows * 300, "a,much,z"]
            (folder / f"{number}.csv").write_text("\n".join(lines))
    make = {"json": io.JsonFiles, "csv": io.CsvFiles, "parquet": io.ParquetFiles}[read]
    letters = {} if read == "parquet" else {"dead_letter": tmp_path / "bad"}
    found: dict[str, Any] = {"shops": io.Memory(), "twice": io.Memory()}
    expected: dict[str, Any] = {"shops": io.Memory(), "twice": io.Memory()}
    result = hr.spark.run(flow, spark, sources={"orders": make(folder, **letters)}, sinks=found)
    letters = {} if read == "parquet" else {"dead_letter": tmp_path / "bad in process"}
    here = hr.run(flow, sources={"orders": make(folder, **letters)}, sinks=expected)
    assert result.set_aside == here.set_aside
    for name, memory in expected.items():
        assert Counter(found[name].rows()) == Counter(memory.rows()), name


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_a_dataframe_is_grouped_on_its_way_to_python(spark: SparkSession, tmp_path: Path, way: Any) -> None:
    flow = Flow("sales")
    sales = flow.source("sales", Sale).filter(col.price > 0)
    flow.sink("out", sales.group_by("shop").agg(n=hr.count(), pieces=hr.sum(col.pieces), d=hr.max(col.day)))
    rows = [
        (None if n % 7 == 0 else f"s{n % 5}", None if n % 3 else n, n % 11, date(2024, 1, 1 + n % 28), None)
        for n in range(500)
    ]
    schema = "shop string, pieces long, price long, day date, at timestamp"
    progress: list[Any] = []
    changes: list[Any] = []
    hr.spark.run(
        flow,
        spark,
        sources={"sales": hr.spark.Frame(spark.createDataFrame(rows, schema))},
        sinks={"out": changes},
        way=way,
        on_tick=progress.append,
    )
    expected: list[Any] = []
    hr.run(flow, sources={"sales": io.Rows([[Sale(*row) for row in rows]])}, sinks={"out": expected})
    assert sorted(changes, key=repr) == sorted(expected, key=repr)
    assert [p.rows_in for p in progress] == [sum(row[2] > 0 for row in rows)]


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_the_rows_of_a_dataframe_are_counted(spark: SparkSession, way: Any) -> None:
    flow = Flow("counted")
    flow.sink("out", flow.source("sales", Sale).filter(col.price > 3).group_by().agg(n=hr.count()))
    schema = "shop string, pieces long, price long, day date, at timestamp"
    frame = spark.createDataFrame([("a", 1, n, date(2024, 1, 1), None) for n in range(10)], schema)
    changes: list[Any] = []
    hr.spark.run(flow, spark, sources={"sales": hr.spark.Frame(frame)}, sinks={"out": changes}, way=way)
    assert [tuple(change.row) for change in changes] == [(6,)]


class Line(NamedTuple):
    text: str | None
    tags: list[str]


def test_words_are_counted_from_lists_in_columns(tmp_path: Path) -> None:
    flow = Flow("words")
    lines = flow.table("lines", Line)
    words = lines.select(word=hr.functions.split(col.text, " ", -1)).explode(col.word)
    tags = lines.explode(col.tags, position="at").select(word=col.tags)
    flow.sink("out", words.union(tags).group_by("word").agg(n=hr.count()))
    engine, tasks = hr.Engine(flow), InProcessTasks(flow, 2, tmp_path, "one task", reading=None)
    graph = tasks.plan.stages[0].stage.graph
    exploding = {node.id for node in graph.nodes if node.operator.kind == "explode"}
    assert len(exploding) == 2
    assert exploding <= tasks.plan.stages[0].columnar.nodes
    rows = [Line(text, tags) for text in ("a b", "", None, " b") for tags in ([], ["a"], ["c", "c"])]
    for tick in (rows[:7], rows[7:]):
        expected = Counter(map(repr, engine.tick(lines=[*map(hr.insert, tick)])["out"].raw))
        assert Counter(map(repr, tasks.tick({"lines": [*map(hr.insert, tick)]})["out"])) == expected
    (gone,) = engine.tick(lines=[hr.delete(rows[0])]).values()
    assert Counter(tasks.tick({"lines": [hr.delete(rows[0])]})["out"]) == Counter(gone.raw)
