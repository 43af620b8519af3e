"""`show`: print the results of a small flow, for docstrings and experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.engine.change import Change, Changes
from headrace.engine.engine import Engine
from headrace.errors import BadInput
from headrace.flow.flow import Flow
from headrace.flow.stream import Stream


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


def _print_changes(changes: Changes) -> None:
    for row, weight in changes:
        copies = "" if abs(weight) == 1 else abs(weight)
        print(f"{'+' if weight > 0 else '-'}{copies} {_text(row)}")  # noqa: T201


def _text(row: Any) -> str:
    """Format a row as its columns, without its class name."""
    names = getattr(row, "_fields", None)
    if names is None:
        return repr(row)
    return "(" + ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True)) + ")"
