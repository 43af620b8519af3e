"""What an engine takes for rows, and that a broken tick stays broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.errors import BadInput, EngineStopped


def words() -> hr.Engine:
    flow = hr.Flow("words")
    flow.sink("out", flow.source("words", str))
    return hr.Engine(flow)


@pytest.mark.parametrize("rows", ["abc", b"abc", None, 5])
def test_what_is_no_collection_of_rows_is_refused_and_changes_nothing(rows: object) -> None:
    engine = words()
    with pytest.raises(BadInput, match="'words' takes an iterable of rows"):
        engine.tick(words=rows)  # type: ignore[arg-type]
    assert list(engine.tick(words=["abc"])["out"]) == [hr.insert("abc")]


@pytest.mark.parametrize("rows", [["a"], ("a",), {"a"}, iter(["a"]), {"a": 1}])
def test_any_collection_will_do(rows: object) -> None:
    assert list(words().tick(words=rows)["out"]) == [hr.insert("a")]  # type: ignore[arg-type]


def test_an_engine_that_was_interrupted_in_a_tick_goes_no_further() -> None:
    def interrupted(n: int) -> int:
        raise KeyboardInterrupt

    flow = hr.Flow("interrupted")
    flow.sink("out", flow.source("n", int).map(interrupted))
    engine = hr.Engine(flow)
    with pytest.raises(KeyboardInterrupt):
        engine.tick(n=[1])
    with pytest.raises(EngineStopped, match="KeyboardInterrupt"):
        engine.tick()


def test_rows_of_an_append_stream_are_plain_tuples_and_those_of_a_table_are_refused() -> None:
    flow = hr.Flow("both")
    words = flow.source("words", str)
    flow.sink("words", words)
    flow.sink("counts", words.group_by("value").agg(n=hr.count()))
    output = hr.Engine(flow).tick(words=["a", "a"])
    assert output["words"].is_append
    assert output["words"].rows == [("a",), ("a",)]
    assert not output["counts"].is_append
    with pytest.raises(BadInput, match="come and go"):
        _ = output["counts"].rows


class Pair(NamedTuple):
    k: int
    v: str


@dataclass(frozen=True)
class Record:
    k: int
    v: str


@pytest.mark.parametrize(
    ("row", "rows"),
    [
        (int, [1, 2]),
        (Pair, [Pair(1, "a"), (2, "b")]),
        (Record, [Record(1, "a"), Record(2, "b")]),
    ],
)
@pytest.mark.parametrize("as_table", [False, True])
def test_rows_that_are_trusted_give_what_checked_ones_give(row: Any, rows: list[Any], as_table: bool) -> None:
    def told(**options: Any) -> list[Any]:
        flow = hr.Flow("passing")
        flow.sink("out", flow.table("rows", row) if as_table else flow.source("rows", row))
        given = [*rows, hr.Change(rows[0], -1), hr.Change(rows[1], 0)] if as_table else rows
        return list(hr.Engine(flow, **options).tick(rows=iter(given))["out"])

    assert told(trusted=["rows"]) == told()


def test_a_trusted_source_is_not_checked() -> None:
    flow = hr.Flow("passing")
    flow.sink("out", flow.source("rows", int))
    assert list(hr.Engine(flow, trusted=["rows"]).tick(rows=["no"])["out"]) == [hr.insert("no")]
    with pytest.raises(BadInput, match="no source 'row'"):
        hr.Engine(flow, trusted=["row"])
