"""Loops of a batch that leave their one task: the same answers in rounds over parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace import Flow, col, left, right
from headrace.engine.change import Change
from headrace.errors import NoFixpoint
from headrace.spark.batch.batch_plan import plan_batch
from headrace.spark.batch.loops import LoopBound, why_in_one_task
from headrace.spark.batch.run_batch import lower_plan
from headrace.spark.batch.subplans import loop_flow
from headrace.spark.ticks.failures import decoded_errors
from tests.properties.test_recursion import RULES, Given, Pair
from tests.spark.batch_rows_of import bag_of_frame, frames_of, true_bags

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
AnyStream = hr.Stream[Any, Any, Any, Any]
EDGES = [Pair(n, n + 1) for n in range(6)] + [Pair(6, 2), Pair(9, 9), Pair(2, 9), Pair(2, 9)]


def loop(*rules: str) -> Flow:
    """A feedback closed by seeds and by what each of some rules makes of it."""
    flow = Flow("loop")
    edges, marks, seeds = (flow.source(name, Pair) for name in ("edges", "marks", "seeds"))
    back = flow.feedback(Pair, changes=True)
    given = Given(back, back, edges, marks)
    back.close(seeds.union(*(RULES[rule](back, given) for rule in rules)))
    flow.sink("out", back)
    flow.sink("counts", back.group_by("a").agg(n=hr.count()))
    return flow


def materials() -> Flow:
    """A bag that goes round."""
    flow = Flow("bill of materials")
    parts, seeds = flow.source("edges", Pair), flow.source("seeds", Pair)
    needed = flow.feedback(Pair, changes=True, distinct=False)
    further = needed.join(parts.filter(col.a < col.b), on=left.b == right.a, suffix="_2")
    needed.close(seeds.union(further.select("a", b=col.b_2, into=Pair)))
    flow.sink("out", needed)
    return flow


def inputs(flow: Flow) -> dict[str, list[Change[Any]]]:
    rows = {"edges": EDGES, "marks": [Pair(2, 5), Pair(4, 4), Pair(4, 4)], "seeds": [Pair(0, 0), Pair(3, 2)]}
    return {name: [Change(row, 1) for row in rows[name]] for name in flow.graph().sources}


def bags(spark: SparkSession, flow: Flow, bound: LoopBound) -> dict[str, Counter[Any]]:
    def same(frame: DataFrame) -> DataFrame:
        return frame

    graph = flow.graph()
    with decoded_errors():
        sinks = lower_plan(plan_batch(graph), frames_of(spark, flow, inputs(flow)), same, bound).sinks
        return {n: bag_of_frame(f, graph.nodes[graph.sinks[n]].schema) for n, f in sinks.items()}


FLOWS: dict[str, Callable[[], Flow]] = {
    "by one key": lambda: loop("along edges"),
    "by two keys": lambda: loop("along paths", "map"),
    "right side complete": lambda: loop("unmarked", "with mark", "whole rows unmarked"),
    "bag": materials,
}


@pytest.mark.parametrize(("what", "local"), [(what, True) for what in FLOWS] + [("by one key", False)])
def test_rounds_answer_what_the_loop_means(
    spark: SparkSession, what: str, local: bool, tmp_path: Path
) -> None:
    flow = FLOWS[what]()
    found = bags(spark, flow, LoopBound(0, tmp_path, local))
    assert found == true_bags(flow, inputs(flow))
    assert list(tmp_path.glob("*/rows/*.arrow")), "the loop did not run in rounds"


def test_few_rows_stay_in_one_task(spark: SparkSession, tmp_path: Path) -> None:
    flow = loop("along edges")
    rows = sum(map(len, inputs(flow).values()))
    assert bags(spark, flow, LoopBound(rows, tmp_path, True)) == true_bags(flow, inputs(flow))
    assert not list(tmp_path.iterdir())


def test_a_loop_has_so_many_parts_that_each_keeps_the_bound(tmp_path: Path) -> None:
    bound = LoopBound(1_000, tmp_path, True)
    assert [bound.parts(rows, cores=2) for rows in (0, 1_000, 1_001, 5_001)] == [0, 0, 2, 6]
    assert LoopBound(0, tmp_path, True).parts(5, cores=1) == 1


def test_a_loop_that_waits_for_the_next_tick_stays_in_one_task() -> None:
    flow = Flow("slow")
    edges = flow.source("edges", Pair)
    flow.sink("out", flow.fixpoint(lambda found: RULES["less"](found, None).defer_tick(), edges))  # type: ignore[arg-type]
    graph = flow.graph()
    group = [node.id for node in graph.nodes if node.operator.kind not in ("source", "sink")]
    assert "waits for the next tick" in why_in_one_task(loop_flow(graph, group).graph)


def test_a_loop_without_end_is_an_error_in_rounds_too(spark: SparkSession, tmp_path: Path) -> None:
    flow = Flow("endless")
    seed = flow.source("seeds", Pair)
    back = flow.feedback(Pair, max_iterations=5)
    back.close(seed.union(back.select(a=col.a + 1, b=col.b, into=Pair)))
    flow.sink("out", back)
    with pytest.raises(NoFixpoint, match="after 5 rounds") as raised:
        bags(spark, flow, LoopBound(0, tmp_path, True))
    assert raised.value.where[0].location.file == __file__
