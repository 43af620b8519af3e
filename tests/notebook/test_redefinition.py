"""Cells of a notebook that run again replace what they defined."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col
from headrace.analysis.fingerprints import fingerprint
from headrace.analysis.flow_report import unused_nodes
from headrace.compute.plans import encode
from headrace.errors import BadFlow
from headrace.view import picture_of
from tests.golden import assert_golden
from tests.notebook.execution import run_cells, text_of, without_line_numbers


class Order(NamedTuple):
    city: str
    cents: int


class Cells:
    """Executions of cells, counted as IPython does."""

    def __init__(self) -> None:
        self.execution_count = 1
        self.compile = SimpleNamespace(format_code_name=lambda file: None)

    def next(self) -> None:
        self.execution_count += 1


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    shell = Cells()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return shell


def totals(flow: Flow, orders: Any, least: int) -> None:
    large = orders.filter(col.cents >= least, name="large")
    flow.sink("totals", large.group_by("city").agg(cents=hr.sum(col.cents)))


def answer(flow: Flow) -> list[Any]:
    return list(hr.Engine(flow).tick(orders=[Order("bath", 5), Order("bath", 50)])["totals"])


def test_a_flow_whose_cell_ran_again_equals_one_that_was_built_once(cells: Cells) -> None:
    once, again = Flow("f"), Flow("f")
    totals(once, once.source("orders", Order), 10)
    orders = again.source("orders", Order)
    for least in (1, 2, 10):
        cells.next()
        totals(again, orders, least)
    assert shape(again) == shape(once)
    assert fingerprint(again.graph()) == fingerprint(once.graph())
    assert hr.Engine(again).slots == hr.Engine(once).slots
    assert len(picture_of(again).boxes) == 4
    assert encode(again).body == encode(once).body
    assert [change.row[1] for change in answer(again)] == [50]


def shape(flow: Flow) -> list[Any]:
    return [(n.id, n.name, str(n.operator), n.inputs, n.schema) for n in flow.graph().nodes]


def test_two_sinks_of_one_execution_stay_an_error(cells: Cells) -> None:
    flow = Flow("f")
    orders = flow.source("orders", Order)
    flow.sink("totals", orders)
    with pytest.raises(BadFlow, match="two sinks"):
        flow.sink("totals", orders)
    cells.next()
    flow.sink("totals", orders)
    with pytest.raises(BadFlow, match="two sinks"):
        flow.sink("totals", orders)


def test_two_sinks_of_a_script_stay_an_error() -> None:
    flow = Flow("f")
    orders = flow.source("orders", Order)
    for _ in range(2):
        if flow.nodes[1:]:
            with pytest.raises(BadFlow, match="two sinks"):
                flow.sink("totals", orders)
        else:
            flow.sink("totals", orders)


def test_what_reads_a_source_goes_on_with_its_redefinition(cells: Cells) -> None:
    flow = Flow("f")
    orders = flow.source("orders", Order)
    totals(flow, orders, 10)
    cells.next()
    assert flow.source("orders", Order).node_id == orders.node_id
    assert len(flow.graph().nodes) == 4
    with pytest.raises(BadFlow, match="two sources"):
        flow.source("orders", Order)


def test_other_columns_of_a_source_need_the_cells_that_read_it(cells: Cells) -> None:
    class Sale(NamedTuple):
        city: str
        cents: float

    flow = Flow("f")
    totals(flow, flow.source("orders", Order), 10)
    cells.next()
    orders = flow.source("orders", Sale)
    with pytest.raises(BadFlow, match="was redefined") as error:
        hr.Engine(flow)
    assert_golden(Path(__file__).parent / "source_redefined.txt", f"{without_line_numbers(error.value)}\n")
    cells.next()
    totals(flow, orders, 10)
    assert [change.row for change in answer(flow)] == [("bath", 50.0)]


def test_keyed_tables_and_feedbacks_can_be_defined_again(cells: Cells) -> None:
    flow = Flow("f")
    for _ in range(2):
        cells.next()
        orders = flow.table("orders", Order, key="city")
        flow.feedback(Order)  # a cell that failed before it was closed
        cells.next()
        back = flow.feedback(Order)
        back.close(back.union(orders.select(city=col.city, cents=col.cents)))
        if cells.execution_count == 5:
            flow.sink("out", back)
        else:
            flow.sink("out", orders)
    assert [node.operator.kind for node in flow.graph().nodes].count("upsert") == 1
    engine = hr.Engine(flow)
    assert [change.row for change in engine.tick(orders=[Order("bath", 1)])["out"]] == [("bath", 1)]


def test_a_cell_that_failed_halfway_leaves_nothing_behind(cells: Cells) -> None:
    once, flow = Flow("f"), Flow("f")
    for built, fails in ((flow, True), (flow, False), (once, False)):
        cells.next()
        orders = built.source("orders", Order)
        back = built.feedback(Order)
        large = orders.filter(col.cents > 10, name="large")
        if not fails:
            back.close(back.union(large))
            built.sink("out", back)
    assert shape(flow) == shape(once)
    assert unused(flow) == []


def test_a_named_operator_that_is_defined_again_leaves_nothing_behind(cells: Cells) -> None:
    flow = Flow("f")
    orders = flow.source("orders", Order)
    flow.sink("all", orders)
    for least in (1, 2):
        cells.next()
        large = orders.filter(col.cents > least, name="large")
    assert [node.name for node in flow.graph().nodes].count("large") == 1
    assert len(flow.graph().nodes) == 3
    assert unused(flow) == ["large"]
    cells.next()
    flow.sink("large", large)
    assert unused(flow) == []


def test_a_feedback_that_is_left_open_in_the_last_execution_is_an_error(cells: Cells) -> None:
    flow = Flow("f")
    flow.sink("all", flow.source("orders", Order))
    cells.next()
    flow.feedback(Order)
    cells.next()
    with pytest.raises(BadFlow, match="never closed"):
        flow.graph()


def unused(flow: Flow) -> list[str]:
    return [node.name for node in unused_nodes(flow.graph())]


def test_signals_are_subscribed_to_after_a_cell_ran_again(cells: Cells) -> None:
    flow = Flow("f")
    a = flow.signal("a", float)
    for factor in (2, 3):
        cells.next()
        product = a * factor
        flow.sink("out", product)
    engine = hr.Engine(flow)
    seen: list[float] = []
    engine.subscribe(product, seen.append)
    engine.subscribe(product + 1, seen.append)
    engine.tick(a=1.0)
    assert seen == [3.0, 4.0]


def test_marimo_tells_its_executions_by_their_context(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(execution_context=SimpleNamespace(cell_id="a"))
    module = SimpleNamespace(safe_get_context=lambda: context)
    monkeypatch.setitem(sys.modules, "marimo._runtime.context.types", module)
    flow = Flow("f")
    orders = flow.source("orders", Order)
    flow.sink("totals", orders)
    with pytest.raises(BadFlow, match="two sinks"):
        flow.sink("totals", orders)
    context.execution_context = SimpleNamespace(cell_id="a")
    flow.sink("totals", orders)
    assert len(flow.graph().nodes) == 2


@pytest.mark.parametrize(
    "module",
    [SimpleNamespace(), SimpleNamespace(safe_get_context=SimpleNamespace)],
    ids=["function", "field"],
)
def test_another_private_api_of_marimo_makes_a_notebook_a_script(
    monkeypatch: pytest.MonkeyPatch, module: SimpleNamespace
) -> None:
    monkeypatch.setitem(sys.modules, "marimo._runtime.context.types", module)
    flow = Flow("f")
    flow.sink("totals", flow.source("orders", Order))
    assert len(flow.graph().nodes) == 2


def test_a_notebook_runs_its_cells_again(tmp_path: Path) -> None:
    build = (
        'flow.sink("large", numbers.filter(hr.col.value > {}))\n'
        'hr.Engine(flow).tick(n=[1, 5, 9])["large"].rows'
    )
    made = run_cells(
        tmp_path,
        'import headrace as hr\nflow = hr.Flow("f")\nnumbers = flow.source("n", int)',
        build.format(2),
        build.format(2),
        build.format(6),
        'flow.sink("x", numbers)\nflow.sink("x", numbers)',
        failing=[4],
    )
    assert [text_of(cell) for cell in made[1:4]] == ["[(5,), (9,)]", "[(5,), (9,)]", "[(9,)]"]
    error = text_of(made[4])
    assert error.startswith("BadFlow: ")
    assert 'In[5]:2   flow.sink("x", numbers)      <- second' in error
