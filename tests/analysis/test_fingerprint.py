"""Fingerprints: what they notice, what they do not, and how a change is told."""

from __future__ import annotations

import functools
import json
import math
import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from headrace.analysis.fingerprints import (
    describe_nodes,
    fingerprint,
    fingerprint_from_description,
    render_flow_diff,
    to_canonical_data,
)
from headrace.errors import SourceLocation
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import INT32, INT64, STR, DecimalType, Field, Schema, StructType
from headrace.graph.node import FlowGraph, Node
from headrace.operators.across_ticks import DeferTick
from headrace.operators.endpoints import SourceOperator
from headrace.operators.feedback import Feedback
from headrace.operators.map import Map
from headrace.operators.rows import Filter
from tests.analysis.graphs import ROW, Draft, drafts, graphs


def same(a: Any, b: Any) -> bool:
    one, other = Draft(), Draft()
    one.add(Map(a), one.source())
    other.add(Map(b), other.source())
    return fingerprint(one.graph()) == fingerprint(other.graph())


def function(source: str, name: str = "f", **given: object) -> Any:
    """A function from its source, as if written in a module of its own."""
    namespace: dict[str, Any] = {"__name__": "users_module"} | given
    exec(source, namespace)
    return namespace[name]


@given(graphs())
def test_a_description_survives_json_and_keeps_its_fingerprint(graph: FlowGraph) -> None:
    description = json.loads(json.dumps(describe_nodes(graph)))
    assert description == describe_nodes(graph)
    assert fingerprint_from_description(description) == fingerprint(graph)


@given(drafts(legal=False))
def test_names_lines_and_reasons_do_not_count(draft: Draft) -> None:
    graph = draft.graph()
    moved = [replace(n, name=f"n{n.id}", location=SourceLocation("other.py", 7)) for n in graph.nodes]
    altered = [
        replace(n, operator=DeferTick("now there is one")) if isinstance(n.operator, DeferTick) else n
        for n in moved
    ]
    altered = [
        replace(n, operator=Feedback((), 3)) if isinstance(n.operator, Feedback) else n for n in altered
    ]
    other = replace(graph, name="else", nodes=tuple(altered))
    assert fingerprint(other) == fingerprint(graph)
    assert render_flow_diff(describe_nodes(graph), describe_nodes(other)) == ""


@given(drafts(legal=False))
def test_another_input_is_another_flow(draft: Draft) -> None:
    before = fingerprint(draft.graph())
    for node, inputs in enumerate(draft.inputs):
        if inputs:
            draft.inputs[node] = [inputs[0] + 1, *inputs[1:]]
            assert fingerprint(draft.graph()) != before
            return


SAME_FUNCTIONS = [
    pytest.param(
        "def f(n):\n    return n + 1",
        "# said\n\n\ndef f(n):\n    '''One more.'''\n\n    return n + 1  # why",
        id="comments and docstrings",
    ),
    pytest.param(
        "def f(n):\n    total = n + 1\n    return total",
        "def f(n):\n    s = n + 1\n    return s",
        id="locals",
    ),
    pytest.param(
        "def f(n):\n    return n in {'a', 'b', 'c'}", "def f(n):\n    return n in {'c', 'b', 'a'}", id="sets"
    ),
]

SAME_FUNCTIONS.append(
    pytest.param(
        "def f(n):\n    return n + 1",
        "def outer():\n    def f(n):\n        return n + 1\n    return f\nf = outer()",
        id="a move into another function",
    )
)

OTHER_FUNCTIONS = [
    pytest.param("def f(n):\n    return n + 1", "def f(n):\n    return n + 2", id="a constant"),
    pytest.param("def f(n):\n    return n + 1", "def f(n):\n    return n - 1", id="an operation"),
    pytest.param("def f(n):\n    return abs(n)", "def f(n):\n    return hash(n)", id="a function it calls"),
    pytest.param("def f(n, by=1):\n    return n", "def f(n, by=2):\n    return n", id="a default"),
    pytest.param(
        "def f(n, *, by=1):\n    return n", "def f(n, *, by=2):\n    return n", id="a keyword default"
    ),
    pytest.param(
        "def f(n):\n    return list(x + 1 for x in n)",
        "def f(n):\n    return list(x + 2 for x in n)",
        id="inside",
    ),
    pytest.param("def f(n):\n    return 1", "def f(n):\n    return True", id="a type"),
    pytest.param("def f(n):\n    return 0.0", "def f(n):\n    return -0.0", id="a sign"),
    pytest.param("def f(n):\n    return n\n", "def f(n):\n    yield n\n", id="a generator"),
    pytest.param(
        "def g(n):\n    return n + 1\ndef f(n):\n    return g(n)",
        "def g(n):\n    return n + 2\ndef f(n):\n    return g(n)",
        id="a function of the module that it calls",
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME_FUNCTIONS)
def test_a_function_stays_itself_under_idle_edits(one: str, other: str) -> None:
    assert same(function(one), function(other))


@pytest.mark.parametrize(("one", "other"), OTHER_FUNCTIONS)
def test_a_function_that_does_something_else_is_another(one: str, other: str) -> None:
    assert not same(function(one), function(other))


def adder(by: int) -> Callable[[int], int]:
    return lambda n: n + by


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def add(self, n: int) -> int:
        return n + self.by


class Scale:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, n: int) -> int:
        return n * self.by


@dataclass(frozen=True)
class Shift:
    by: int

    def __call__(self, n: int) -> int:
        return n + self.by


def test_callable_objects_count_with_their_plain_attributes() -> None:
    assert same(Scale(1), Scale(1))
    assert not same(Scale(1), Scale(2))
    assert not same(Shift(1), Shift(2))
    assert not same(Shift(1), Scale(1))
    assert same(Adder(1).add, Adder(1).add)
    assert not same(Adder(1).add, Adder(2).add)


def test_the_code_of_a_callable_object_counts() -> None:
    source = "class f:\n    def __call__(self, n):\n        return n + 1\n"
    assert same(function(source)(), function(source)())
    assert not same(function(source)(), function(source.replace("1", "2"))())


def test_callables_that_are_not_written_in_python_count_by_what_makes_them() -> None:
    assert same(operator.itemgetter(1), operator.itemgetter(1))
    assert not same(operator.itemgetter(1), operator.itemgetter(2))
    assert not same(operator.itemgetter(1), operator.attrgetter("x"))


def test_a_cached_function_counts_as_what_it_caches() -> None:
    def cached(by: int) -> Any:
        return functools.lru_cache(adder(by))

    assert same(cached(1), cached(1))
    assert not same(cached(1), cached(2))


def test_what_a_function_closes_over_counts() -> None:
    assert same(adder(1), adder(1))
    assert not same(adder(1), adder(2))


def test_what_a_run_may_have_altered_does_not() -> None:
    seen: list[int] = []
    before = to_canonical_data(seen.append), to_canonical_data(lambda n: seen.append(n))
    seen.append(1)
    assert to_canonical_data(lambda n: seen.append(n)) == before[1]


def test_functions_of_other_modules_count_by_name_alone() -> None:
    source = "def f(n):\n    return imported(n)"
    one = function("def imported(n):\n    return 1", "imported", __name__="elsewhere")
    other = function("def imported(n):\n    return 2", "imported", __name__="elsewhere")
    assert same(function(source, imported=one), function(source, imported=other))


def test_the_class_that_users_see_rows_as_does_not_count() -> None:
    class Pair: ...

    fields = (Field("a", INT64),)
    assert to_canonical_data(StructType(fields, Pair)) == to_canonical_data(StructType(fields))
    assert to_canonical_data(StructType(fields)) != to_canonical_data(StructType((Field("b", INT64),)))


def test_a_recursive_function_has_a_fingerprint() -> None:
    source = "def f(n):\n    return 1 if n == 0 else n * f(n - 1)"
    assert same(function(source), function(source))
    assert not same(function(source), function(source.replace("== 0", "== 1")))


def test_partial_functions_count_with_what_they_were_given() -> None:
    assert same(functools.partial(pow, 2), functools.partial(pow, 2))
    assert not same(functools.partial(pow, 2), functools.partial(pow, 3))


def test_functions_without_code_of_ours_count_by_name() -> None:
    assert same(math.floor, math.floor)
    assert not same(math.floor, math.ceil)
    assert not same(str.upper, str.lower)
    assert not same(operator.itemgetter, operator.attrgetter)


def expression(value: object, function: str = "add", **options: Any) -> Expr:
    return FunctionCall(function, (Column("value"), Literal(value)), **options)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (expression(1), expression(2)),
        (expression(1), expression(1, "subtract")),
        (expression(1), expression(1.0)),
        (expression(1), expression(True)),
        (expression(1), expression("1")),
        (expression(1), FunctionCall("add", (Column("value"), Literal(1, INT32)))),
        (expression(1, options=("day",)), expression(1, options=("hour",))),
        (Literal(None, DecimalType(10, 2)), Literal(None, DecimalType(10, 3))),
        (Column("a"), Column("b")),
    ],
)
def test_expressions_count_to_the_last_literal(one: Expr, other: Expr) -> None:
    assert to_canonical_data(one) != to_canonical_data(other)
    assert to_canonical_data(one) == to_canonical_data(one)


def test_the_fingerprint_is_the_same_in_another_process(tmp_path: Path) -> None:
    flow = tmp_path / "users_flow.py"
    flow.write_text(
        "from tests.analysis.graphs import Draft\n"
        "from headrace.analysis.fingerprints import fingerprint\n"
        "from headrace.operators.map import Map\n"
        "draft = Draft()\n"
        "names = frozenset({'a', 'b', 'c', 'd'})\n"
        "draft.add(Map(lambda n, names=names: n in {'x', 'y', 'z'} or n in names), draft.source())\n"
        "print(fingerprint(draft.graph()))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, str(flow)],
            env={"PYTHONPATH": ":".join(p for p in sys.path if p), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


# -- how a change is told ------------------------------------------------------------------


def named(node: Node, name: str) -> Node:
    return replace(node, name=name)


def base() -> FlowGraph:
    draft = Draft()
    bids = draft.add(SourceOperator("bids", ROW), name="bids")
    cheap = draft.add(Filter(function("def f(n):\n    return n < 3")), bids, name="cheap")
    draft.sink(draft.distinct(cheap))
    return draft.graph()


def told(change: Callable[[Draft], Any], *, also: Callable[[FlowGraph], FlowGraph] = lambda g: g) -> str:
    draft = Draft()
    change(draft)
    return render_flow_diff(
        json.loads(json.dumps(describe_nodes(base()))), describe_nodes(also(draft.graph()))
    )


def rebuild(
    draft: Draft, predicate: str = "def f(n):\n    return n < 3", schema: Schema = ROW, extra: bool = False
) -> None:
    bids = draft.add(SourceOperator("bids", schema), name="bids")
    cheap = draft.add(Filter(function(predicate)), bids, name="cheap")
    read = draft.aggregate(cheap) if extra else cheap
    draft.add(draft_sink(), draft.distinct(read))


def draft_sink() -> Any:
    return base().nodes[-1].operator


def test_nothing_is_told_of_a_flow_that_is_the_same() -> None:
    assert told(rebuild) == ""


def test_an_edited_function_is_told_by_operator_and_function() -> None:
    assert told(lambda d: rebuild(d, "def f(n):\n    return n < 4")) == (
        "changed  filter 'cheap': users_module.f was edited"
    )


def test_a_changed_column_is_told_with_both_types() -> None:
    other = Schema((Field("value", INT32, nullable=True), Field("note", STR)))
    assert told(lambda d: rebuild(d, schema=other)).splitlines() == [
        "changed  source 'bids': column note is new",
        "changed  source 'bids': column value is int32?, was int64",
    ]


def test_an_operator_in_between_is_told_with_what_reads_it() -> None:
    assert told(lambda d: rebuild(d, extra=True)) == (
        "added    aggregate (by (): )\nchanged  distinct: read filter 'cheap', reads aggregate (by (): )"
    )


def test_removed_operators_are_told() -> None:
    def only_source(draft: Draft) -> None:
        draft.add(SourceOperator("bids", ROW), name="bids")

    lines = told(only_source).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["removed", "filter"],
        ["removed", "distinct"],
        ["removed", "sink"],
    ]


def test_another_order_of_the_same_operators_is_told_as_such() -> None:
    one, other = Draft(), Draft()
    for draft, names in ((one, "ab"), (other, "ba")):
        for name in names:
            draft.add(SourceOperator(name, Schema((Field("v", INT64),))), name=name)
    assert render_flow_diff(describe_nodes(one.graph()), describe_nodes(other.graph())) == (
        "the same operators are written in another order"
    )


@given(graphs(), graphs())
def test_something_is_told_exactly_if_the_fingerprints_differ(one: FlowGraph, other: FlowGraph) -> None:
    assert (render_flow_diff(describe_nodes(one), describe_nodes(other)) == "") == (
        fingerprint(one) == fingerprint(other)
    )


def filters(*written: tuple[str | None, str]) -> list[dict[str, Any]]:
    draft = Draft()
    read = draft.add(SourceOperator("bids", ROW), name="bids")
    for name, predicate in written:
        read = draft.add(Filter(function(f"def f(n):\n    return {predicate}")), read, name=name)
    return describe_nodes(draft.graph())


def test_an_operator_is_known_again_by_its_name() -> None:
    old = filters(("first", "n < 1"), ("second", "n < 2"))
    assert render_flow_diff(old, filters(("second", "n < 3"))) == (
        "removed  filter 'first'\n"
        "changed  filter 'second': users_module.f was edited\n"
        "changed  filter 'second': read filter 'first', reads source 'bids'"
    )


def test_a_nameless_operator_is_known_again_by_what_it_does() -> None:
    old = filters((None, "n < 1"), (None, "n < 2"), (None, "n < 3"))
    lines = render_flow_diff(old, filters((None, "n < 2"), (None, "n < 3"))).splitlines()
    assert lines == ["removed  filter (f)", "changed  filter (f): read filter (f), reads source 'bids'"]
