"""Tick tables: input and expected output per tick as a table, checked on every engine.

    tick | due    | paid  | out
    1    | ann 3  |       | + ann 3
    1    | bob 5  |       | + bob 5
    2    |        | bob   | - bob 5
    3    |        |       |
    4    |        | - bob | + bob 5

Each column is a source or a sink of the flow, by name. A line adds its cells to its tick; a cell may hold
several changes separated by `;`. A change lists the values of the row's columns, parsed by their types, after
a sign: the sign is required for sinks, `+` is optional for table sources, and append sources have no sign.
`+2` and `-2` mean two copies. Text with blanks is quoted; other values are `null`, `nan`, `inf`, `true`,
`false`, `[1,2]` for a list, and ISO 8601 for times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import singledispatch
from typing import Any, Protocol, TypeAlias

from headrace.engine.change import Change, SinkChanges
from headrace.engine.engine import Engine
from headrace.errors import BadInput
from headrace.expr.code_runtime import NAN
from headrace.expr.functions import intervals
from headrace.expr.row_classes import to_user
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    FloatingType,
    IntegerType,
    IntervalType,
    ListType,
    Row,
    Schema,
    StrType,
    TimestampNtzType,
    TimestampType,
)
from headrace.flow.flow import Flow
from headrace.flow.stream import Stream
from headrace.operators.endpoints import SourceOperator

Bag: TypeAlias = Counter[Row]
TickInput: TypeAlias = Mapping[str, Sequence[Any]]


class Backend(Protocol):
    """Engine under test."""

    def changes(self, flow: Flow, ticks: Sequence[TickInput]) -> list[dict[str, list[tuple[Row, int]]]]:
        """Run the ticks, and return the changes per tick and sink: internal rows with their weights.

        ticks: for each tick, rows of append sources and `Change`s of table sources, as users see them; a
        source without rows in a tick may be missing.
        """
        ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """In-process engine, as a backend for tick tables."""

    def changes(self, flow: Flow, ticks: Sequence[TickInput]) -> list[dict[str, list[tuple[Row, int]]]]:
        engine = Engine(flow)
        out: list[dict[str, list[tuple[Row, int]]]] = []
        for tick in ticks:
            answer = engine.tick(**tick)
            out.append(
                {name: [(row[:-1], row[-1]) for row in changes.raw] for name, changes in answer.items()}
            )
        return out


def check_ticks(
    backend: Backend, build: Callable[[Flow], Stream[Any, Any, Any, Any] | None], table: str
) -> None:
    """Run the flow built by `build` on `backend`, and compare each tick with `table`.

    build: adds sources and sinks to a new flow; if it returns a stream, that becomes the sink `out`.

    Raises `AssertionError` that shows the tick, the sink, and the missing and unexpected changes;
    `ValueError` for a table that does not fit the flow.
    """
    flow = Flow("tick table")
    stream = build(flow)
    if stream is not None:
        flow.sink("out", stream)
    check_flow(backend, flow, table)


def check_flow(backend: Backend, flow: Flow, table: str) -> None:
    """Run `flow` on `backend`, and compare each tick with `table`. Raises as `check_ticks` does."""
    expected = read_table(flow, table)
    found = backend.changes(flow, [tick.inputs for tick in expected])
    assert len(found) == len(expected), f"{len(expected)} ticks went in, {len(found)} came out"
    for number, (tick, changes) in enumerate(zip(expected, found, strict=True), 1):
        for sink, wanted in tick.outputs.items():
            _compare(f"tick {number}, sink {sink!r}", wanted, changes.get(sink, []))


def _compare(where: str, wanted: Bag, changes: list[tuple[Row, int]]) -> None:
    check_consolidated(where, changes)
    found: Bag = Counter()
    for row, weight in changes:
        found[row] += weight
    missing = {row: weight for row, weight in wanted.items() if found.get(row) != weight}
    too_much = {row: weight for row, weight in found.items() if wanted.get(row) != weight}
    assert not missing, f"{where}: expected {missing}, got {too_much} instead"
    assert not too_much, f"{where}: unexpected {too_much}"


def check_consolidated(where: str, changes: Sequence[tuple[Row, int]]) -> None:
    """Check that no change has weight 0 or is cancelled by another of the same tick.

    Copies may be separate changes if nothing is retracted. Raises `AssertionError`.
    """
    rows = [row for row, _ in changes]
    assert all(weight for _, weight in changes), f"{where}: a change that is none: {changes}"
    if any(weight != 1 for _, weight in changes):
        assert len(set(rows)) == len(rows), f"{where}: two changes of one row: {changes}"


@dataclass(frozen=True, slots=True)
class TableTick:
    """Tick in a table: its input, and the expected changes per sink."""

    inputs: dict[str, list[Any]]
    outputs: dict[str, Bag]


def read_table(flow: Flow, table: str) -> list[TableTick]:
    """Parse the ticks of a table, from tick 1 to the last one; ticks not mentioned are empty.

    Raises `ValueError` for an unknown column, a sink without a column, or a cell that does not fit its row
    type.
    """
    graph = flow.graph()
    head, *lines = [line for line in table.splitlines() if line.strip()]
    names = _cells(head)[1:]
    for name in names:
        if name not in graph.sources and name not in graph.sinks:
            raise ValueError(f"the flow has no source and no sink {name!r}")
    if without := set(graph.sinks) - set(names):
        raise ValueError(f"no column for the sinks {sorted(without)}")
    ticks: list[TableTick] = []
    for line in lines:
        number, *cells = _cells(line)
        while len(ticks) < int(number):
            ticks.append(TableTick({n: [] for n in graph.sources}, {n: Counter() for n in graph.sinks}))
        tick = ticks[int(number) - 1]
        for name, cell in zip(names, cells, strict=True):
            if name in graph.sinks:
                for row, weight in _changes(cell, graph.nodes[graph.sinks[name]].schema):
                    tick.outputs[name][row] += weight
            else:
                node = graph.nodes[graph.sources[name]]
                assert isinstance(node.operator, SourceOperator)
                tick.inputs[name].extend(_input(cell, node.schema, node.operator.append))
    return ticks


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _input(cell: str, schema: Schema, append: bool) -> Iterator[Any]:
    user = to_user(schema)
    for row, weight in _changes(cell, schema):
        yield user(row) if append else Change(user(row), weight)


_WORD = re.compile(r"'[^']*'|\[[^\]]*\]|\S+")


def _changes(cell: str, schema: Schema) -> Iterator[tuple[Row, int]]:
    for text in filter(None, (part.strip() for part in cell.split(";"))):
        words = _WORD.findall(text)
        weight = 1
        if len(words) == len(schema.fields) + 1:
            sign, *words = words
            weight = int(f"{sign}1" if sign in "+-" else sign)
        if len(words) != len(schema.fields):
            raise ValueError(f"{text!r} is no row of {schema}")
        yield tuple(_value(word, f) for word, f in zip(words, schema.fields, strict=True)), weight


def _value(word: str, field: Field) -> Any:
    return None if word == "null" else read_value(field.type, word)


@singledispatch
def read_value(type_: DataType, word: str) -> Any:
    """Parse a word of a cell as a value of a column type."""
    raise ValueError(f"a tick table cannot hold {type_}: {word}")


@read_value.register
def _bool(type_: BoolType, word: str) -> Any:
    return {"true": True, "false": False}[word]


@read_value.register
def _integer(type_: IntegerType, word: str) -> Any:
    return int(word)


@read_value.register
def _float(type_: FloatingType, word: str) -> Any:
    return NAN if word == "nan" else float(word)


@read_value.register
def _decimal(type_: DecimalType, word: str) -> Any:
    return Decimal(word)


@read_value.register
def _str(type_: StrType, word: str) -> Any:
    return word.strip("'")


@read_value.register
def _bytes(type_: BytesType, word: str) -> Any:
    return bytes.fromhex(word)


@read_value.register
def _date(type_: DateType, word: str) -> Any:
    return date.fromisoformat(word)


@read_value.register
def _timestamp(type_: TimestampType, word: str) -> Any:
    return datetime.fromisoformat(word).astimezone(UTC)


@read_value.register
def _timestamp_ntz(type_: TimestampNtzType, word: str) -> Any:
    return datetime.fromisoformat(word)


@read_value.register
def _interval(type_: IntervalType, word: str) -> Any:
    return intervals.of_text(word, type_.first, type_.last)


@read_value.register
def _list(type_: ListType, word: str) -> Any:
    element = Field("element", type_.element, type_.nullable)
    return tuple(_value(part.strip(), element) for part in word.strip("[]").split(",") if part.strip())


def show(build: Callable[..., Stream[Any, Any, Any, Any]], /, **inputs: Sequence[Any]) -> None:
    """Print the changes of `build(*streams)` for `inputs` in one tick, one change per line.

    build:  maps the input streams, in order, to the stream to show.
    inputs: rows of each source, of the type of the first one. If that is a `Change`, all are, and the source
            is a table.

    A further tick, started by deferred rows, is shown under its number. A number of copies other than 1
    follows the sign: `+2 'a'`.

    >>> from headrace import delete, insert
    >>> show(lambda words: words, words=[insert("a"), insert("b"), insert("a"), delete("c")])
    +2 'a'
    + 'b'
    - 'c'
    """
    flow = Flow("shown")
    streams = [_source(flow, name, rows) for name, rows in inputs.items()]
    flow.sink("shown", build(*streams))
    engine = Engine(flow)
    _print_changes(engine.tick(**inputs)["shown"])
    tick = 1
    while engine.pending:
        tick += 1
        print(f"tick {tick}:")  # noqa: T201
        _print_changes(engine.tick()["shown"])


def _source(flow: Flow, name: str, rows: Sequence[Any]) -> Stream[Any, Any, Any, Any]:
    if not rows:
        raise BadInput(f"input {name!r} needs a row to show its type")
    first = rows[0]
    if isinstance(first, Change):
        return flow.table(name, type(first.row))
    return flow.source(name, type(first))


def _print_changes(changes: SinkChanges) -> None:
    for row, weight in changes:
        copies = "" if abs(weight) == 1 else abs(weight)
        print(f"{'+' if weight > 0 else '-'}{copies} {_text(row)}")  # noqa: T201


def _text(row: Any) -> str:
    """Format a row as its columns, without its class name."""
    names = getattr(row, "_fields", None)
    if names is None:
        return repr(row)
    return "(" + ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True)) + ")"
