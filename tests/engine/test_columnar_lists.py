"""Lists between operators in large ticks: `explode`, functions of lists, and who takes none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

import headrace as hr
from headrace import Flow, col
from headrace.engine.change import Change
from headrace.engine.columnar.columnar_option import explain_large_ticks
from headrace.engine.program import Program, compile_program
from headrace.expr.polars_columns import from_series, to_series
from headrace.expr.row_classes import from_user
from headrace.expr.types import STR, ListType
from tests.engine.test_columnar import ALWAYS, Run, noting_declines
from tests.properties.effort import examples


class Line(NamedTuple):
    key: int
    text: str | None
    words: list[str]
    numbers: list[int | None] | None


texts = st.text("ab ,|é.", max_size=8)
lines_ = st.builds(
    Line,
    st.integers(0, 2),
    st.none() | texts,
    st.lists(texts, max_size=3),
    st.none() | st.lists(st.none() | st.integers(-3, 3) | st.just(2**63 - 1), max_size=3),
)
ticks_ = st.lists(st.lists(st.tuples(lines_, st.integers(1, 2)), max_size=5), max_size=3)

Build = Callable[[Any], Any]
FLOWS: dict[str, Build] = {
    "words": lambda s: s.explode(col.words).select("key", "words"),
    "words with places": lambda s: s.explode(col.words, position="at").select("at", "words", "numbers"),
    "numbers": lambda s: s.explode(col.numbers).select("key", twice=col.numbers % 7),
    "numbers and none": lambda s: s.explode(col.numbers, position="at", outer=True).select(
        "key", "at", "numbers"
    ),
    "words and none": lambda s: s.explode(col.words, outer=True),
    "split": lambda s: s.select(word=hr.functions.split(col.text, " ", -1)).explode(col.word),
    "split by an escaped text": lambda s: s.select(
        "key", word=hr.functions.split(col.text, r"\|", -1)
    ).explode(col.word),
    "split and counted": lambda s: (
        s.select(word=hr.functions.split(col.text, ", ", -1))
        .explode(col.word)
        .group_by("word")
        .agg(n=hr.count())
    ),
    "counted": lambda s: s.explode(col.numbers).group_by("numbers").agg(n=hr.count(), least=hr.min(col.text)),
    "both": lambda s: s.explode(col.words).explode(col.numbers).select("words", "numbers"),
    "sizes": lambda s: s.select(
        "key", n=col.words.length(), m=col.numbers.length(), none=col.numbers.is_null()
    ),
    "elements": lambda s: s.filter(col.words.length() > 0).select(
        a=hr.functions.try_element_at(col.words, 2),
        b=hr.functions.try_element_at(col.numbers, -1),
        c=hr.functions.get(col.numbers, 0),
    ),
    "first": lambda s: s.select(a=hr.functions.element_at(col.words, 1)),
    "chosen": lambda s: (
        s.filter(hr.functions.array_contains(col.words, "a"))
        .union(s.filter(hr.functions.array_contains(col.words, col.text)))
        .select("key", "text")
    ),
    "lists that go on": lambda s: s.filter(col.key > 0).select("key", "words", "numbers"),
}


@cache
def program_of(name: str, is_table: bool) -> Program:
    flow = Flow("lists")
    flow.sink("out", FLOWS[name]((flow.table if is_table else flow.source)("lines", Line)))
    return compile_program(flow.graph())


@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("name", FLOWS)
@examples(0.3)
@given(ticks_, st.lists(st.booleans(), min_size=1))
@example([[(Line(1, "", [], []), 1), (Line(1, " a", [""], None), 1)]], [True])
def test_lists_are_taken_apart_as_in_rows(
    name: str, is_table: bool, ticks: list[list[tuple[Line, int]]], large: list[bool]
) -> None:
    program = program_of(name, is_table)
    schema = program.graph.nodes[program.graph.sources["lines"]].schema
    inside = from_user(schema, what="lines", change=Change if is_table else None)
    back = [[(line, -weight) for line, weight in tick] for tick in reversed(ticks)] if is_table else []
    in_rows, always, mixed = (Run(program, c) for c in (None, ALWAYS, ALWAYS))
    for at, tick in enumerate([*ticks, *back]):
        rows = inside([Change(*each) if is_table else each[0] for each in tick])
        wanted = in_rows.tick({"lines": rows}, in_order=True)
        with noting_declines() as noted:
            assert always.tick({"lines": rows}, in_order=True) == wanted
            mixed.machine.least = 1 if large[at % len(large)] else 10**9
            assert mixed.tick({"lines": rows}, in_order=True) == wanted
        if isinstance(wanted, str):
            return
        assert all(why is None for why in noted)
    assert always.settled() == in_rows.settled() == mixed.settled()


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3)))
def test_lists_come_back_as_they_went(values: list[list[str | None] | None]) -> None:
    inside = [None if value is None else tuple(value) for value in values]
    type = ListType(STR, True)
    series = to_series(type, inside)
    assert (series.dtype, from_series(type, series)) == (pl.List(pl.String()), inside)


def test_lists_of_an_arrow_table_stay_columns() -> None:
    class Words(NamedTuple):
        words: list[str]
        n: list[int] | None

    flow = Flow("words")
    words = (
        flow.table("words", Words)
        .explode(col.words)
        .group_by("words")
        .agg(n=hr.count(), m=hr.sum(col.words.length()))
    )
    flow.sink("out", words)
    engine = hr.Engine(flow, columnar="always")
    table = pa.table({"words": [["a", "b"], [], ["a"]], "n": [[1], None, []], "weight": [1, 1, 2]})
    with noting_declines() as declines:
        made = engine.tick(words=table)["out"]
    assert declines == [None]
    assert sorted(change.row for change in made) == [("a", 3, 3), ("b", 1, 1)]
    with pytest.raises(hr.HeadraceError, match="words"):
        engine.tick(words=pa.table({"words": [["a", None]], "n": [None], "weight": [1]}))


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda s: s.distinct(), "distinct"),
        (lambda s: s.group_by("words").agg(n=hr.count()), "aggregate"),
        (lambda s: s.group_by("key").agg(n=hr.count_distinct(col.words)), "aggregate"),
        (lambda s: s.group_by("key").agg(n=hr.max(col.words)), "aggregate"),
        (lambda s: s.join(s, on="key", suffix="_2"), "join"),
        (lambda s: s.select("words").join(s.select("words"), on="words", how="semi"), "join"),
        (lambda s: s.select("key").join(s, on="key", how="left", suffix="_2"), "join"),
        (lambda s: s.top_k(1, by=col.key), "top_k"),
        (lambda s: s.with_columns(n=hr.row_number().over(partition_by="key", order_by="text")), "over"),
        (lambda s: s.filter(col.words == col.words), "filter"),
        (lambda s: s.select(a=hr.coalesce(col.words, col.words)), "select"),
        (lambda s: s.select(a=hr.functions.split(col.text, "[ ,]", -1)).explode(col.a), "select"),
        (lambda s: s.select(a=hr.functions.split(col.text, " ", 2)).explode(col.a), "select"),
    ],
)
@pytest.mark.parametrize("is_table", [False, True])
def test_lists_that_would_be_compared_or_held_stay_in_rows(build: Build, why: str, is_table: bool) -> None:
    flow = Flow("lists")
    made = build((flow.table if is_table else flow.source)("lines", Line))
    flow.sink("out", made)
    assert any(line.startswith(f"in rows: {why}") for line in explain_large_ticks(flow.graph()))
    assert not any("arrangements" in line and why in line for line in explain_large_ticks(flow.graph()))
    rows = [Line(n % 2, "a b", ["a"] * (n % 3), [n % 2, None]) for n in range(9)]
    given: Any = [*map(hr.insert, rows)] if is_table else rows
    assert sorted(map(repr, hr.Engine(flow, columnar="always").tick(lines=given)["out"])) == sorted(
        map(repr, hr.Engine(flow, columnar="never").tick(lines=given)["out"])
    )
