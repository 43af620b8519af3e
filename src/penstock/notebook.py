"""HTML of flows, streams and results for notebooks: tables and drawings, without scripts or a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import singledispatch
from html import escape
from itertools import islice
from typing import Any

from penstock.engine.change import Changes
from penstock.engine.engine import Engine
from penstock.engine.progress import Progress, RunResult
from penstock.errors import PenstockError
from penstock.expr.tree import Expr
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.flow.stream_base import StreamBase
from penstock.io.in_process import Memory
from penstock.shown import Text
from penstock.view import Picture, picture_of, to_svg

SHOWN = 20
"""Rows of a table that are shown; below it stands how many there are."""

_CELL = 'style="text-align:left;padding:2px 10px"'
_COLOURS = {True: "#1e8449", False: "#c0392b"}


@singledispatch
def html_of(value: object) -> str:
    """Return the HTML by which a notebook shows a value."""
    return f"<pre>{escape(repr(value))}</pre>"


@html_of.register
def _(value: Text) -> str:
    return f'<pre style="line-height:1.25">{escape(str(value))}</pre>'


@html_of.register
def _(value: Picture) -> str:
    return f'<div style="overflow-x:auto">{to_svg(value)}</div>'


@html_of.register
def _(value: Flow) -> str:
    try:
        return html_of(picture_of(value))
    except PenstockError as error:
        return f"<p>Flow <b>{escape(value.name)}</b>, not complete yet: {escape(error.what)}</p>"


@html_of.register
def _(value: StreamBase) -> str:  # type: ignore[type-arg]
    node = value.flow.node(value.node_id)
    return f"<p>{escape(node.name)}, of flow <b>{escape(value.flow.name)}</b></p>{html_of(value.schema)}"


@html_of.register
def _(value: Schema) -> str:
    rows = [(each.name, str(each.type), "null" if each.nullable else "") for each in value.fields]
    return _table(("column", "type", ""), rows)


@html_of.register
def _(value: Expr) -> str:
    return f"<code>{escape(str(value))}</code>"


@html_of.register
def _(value: Changes) -> str:
    changes = [(change.row, change.weight) for change in islice(value, SHOWN)]
    return _changes(value.columns, changes, len(value))


@html_of.register
def _(value: Memory) -> str:
    rows = value.rows()
    return _rows(rows)


@html_of.register
def _(value: Engine) -> str:
    graph = value.program.graph
    rows = [("flow", graph.name), ("ticks", f"{value.ticks:,}")]
    rows += [("sources", ", ".join(graph.sources)), ("sinks", ", ".join(graph.sinks))]
    return _table(("engine", ""), rows)


@html_of.register(RunResult)
@html_of.register(Progress)
def _(value: RunResult | Progress) -> str:
    rows = [
        (each.name.replace("_", " "), _text(found))
        for each in fields(value)
        if (found := getattr(value, each.name)) not in (None, {}, ())
    ]
    return _table((type(value).__name__, ""), rows)


def _changes(names: Sequence[str], changes: Iterable[tuple[Any, int]], count: int) -> str:
    lines: list[str] = []
    for row, weight in changes:
        sign = "+" if weight > 0 else "\N{MINUS SIGN}"
        copies = f"{sign}{abs(weight) if abs(weight) != 1 else ''}"
        first = f'<th scope="row" style="color:{_COLOURS[weight > 0]}">{copies}</th>'
        lines.append(f"<tr>{first}{''.join(map(_cell, _values(row)))}</tr>")
    return _whole(("", *names), lines, count)


def _rows(rows: Sequence[Any]) -> str:
    names: Sequence[str] = getattr(rows[0], "_fields", ()) if rows else ()
    if rows and is_dataclass(rows[0]):
        names = [each.name for each in fields(rows[0])]
    lines = [f"<tr>{''.join(map(_cell, _values(row)))}</tr>" for row in rows[:SHOWN]]
    return _whole(names, lines, len(rows))


def _values(row: Any) -> Sequence[Any]:
    if is_dataclass(row) and not isinstance(row, type):
        return [getattr(row, each.name) for each in fields(row)]
    return row if isinstance(row, tuple) else (row,)  # pyright: ignore[reportUnknownVariableType]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _whole(heads, [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows], 0)


def _whole(heads: Sequence[str], lines: Sequence[str], count: int) -> str:
    head = "".join(f'<th scope="col" {_CELL}>{escape(each)}</th>' for each in heads)
    more = f"<p>{len(lines):,} of {count:,} rows</p>" if count > len(lines) else ""
    none = "<p>no rows</p>" if not lines else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}{none}"


def _cell(value: Any) -> str:
    return f"<td {_CELL}>{escape(_text(value))}</td>"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,}" if type(value) is int else str(value)
