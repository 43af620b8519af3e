"""HTML of flows, streams and results for notebooks: tables and drawings, without scripts or a network.

A dataclass without a form of its own shows its fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import singledispatch
from html import escape
from itertools import islice
from typing import Any

from headrace.analysis import Analysis
from headrace.analysis.checks import Judgement, Verdict
from headrace.analysis.flow_report import MEANING
from headrace.engine.change import SinkChanges, TickOutput
from headrace.engine.engine import Engine
from headrace.engine.signals.engine_mixin import Emissions
from headrace.errors import HeadraceError
from headrace.expr.tree import Expr
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.flow.stream_base import Groups, StreamBase
from headrace.io.in_process import Memory
from headrace.operators.over.window_function import WindowFunction
from headrace.shown import Text, text_of, values_of
from headrace.view.drawing import Drawing, draw

SHOWN = 20
"""Rows of a table that are shown; below it stands how many there are."""

_MONO = (
    'style="font-family:ui-monospace,Menlo,Consolas,monospace;line-height:1.25;'
    'white-space:pre;overflow-x:auto"'
)
_CELL = 'style="text-align:left;padding:2px 10px"'
_COLOURS = {True: "#1e8449", False: "#c0392b"}


@singledispatch
def html_of(value: object) -> str:
    """Return the HTML that a notebook shows for a value."""
    if not is_dataclass(value):
        return f"<pre {_MONO}>{escape(repr(value))}</pre>"
    held = ((each.name, getattr(value, each.name)) for each in fields(value))
    lines = [
        f"<tr>{_cell(name.replace('_', ' '))}<td {_CELL}>{_held(found)}</td></tr>"
        for name, found in held
        if found not in (None, {}, ())
    ]
    return _whole((type(value).__name__, ""), lines, 0)


def _held(value: Any) -> str:
    rows = isinstance(value, tuple) and len(value) > 0 and all(hasattr(each, "_fields") for each in value)
    return _rows(value) if rows else escape(text_of(value))


@html_of.register
def _(value: Text) -> str:
    return f"<pre {_MONO}>{escape(str(value))}</pre>"


@html_of.register
def _(value: Drawing) -> str:
    return f'<div style="overflow-x:auto">{value.svg}</div>'


@html_of.register
def _(value: Flow) -> str:
    try:
        return html_of(draw(value))
    except HeadraceError as error:
        return f"<p>Flow <b>{escape(value.name)}</b>, not complete yet: {escape(error.what)}</p>"


@html_of.register
def _(value: StreamBase) -> str:  # type: ignore[type-arg]
    node = value.flow.node(value.node_id)
    return f"<p>{escape(node.name)}, of flow <b>{escape(value.flow.name)}</b></p>{html_of(value.schema)}"


@html_of.register
def _(value: Groups) -> str:
    keys = _table(("key", ""), [(name, str(key)) for name, key in value.keys])
    return f"{keys}{html_of(value.stream)}"


@html_of.register
def _(value: Schema) -> str:
    rows = [(each.name, str(each.type), "null" if each.nullable else "") for each in value.fields]
    return _table(("column", "type", ""), rows)


@html_of.register(Expr)
@html_of.register(WindowFunction)
def _(value: Expr | WindowFunction) -> str:
    return f"<code>{escape(str(value))}</code>"


@html_of.register
def _(value: SinkChanges) -> str:
    changes = [(change.row, change.weight) for change in islice(value, SHOWN)]
    return _changes(value.columns, changes, len(value))


@html_of.register
def _(value: TickOutput) -> str:
    return "".join(f"<h4>{escape(name)}</h4>{html_of(changes)}" for name, changes in value.items())


@html_of.register
def _(value: Emissions) -> str:
    rows = [(f"{tick:,}", text_of(each)) for tick, each in islice(value, SHOWN)]
    lines = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    return _whole(("tick", "value"), lines, len(value))


@html_of.register
def _(value: Analysis) -> str:
    rows = [(name, judgement) for name, judgement in value.judgements.items()]
    return _table(("sink", "verdict", ""), [(name, *_verdict(judgement)) for name, judgement in rows])


@html_of.register
def _(value: Judgement) -> str:
    return _table(("verdict", ""), [_verdict(value)])


def _verdict(judgement: Judgement) -> tuple[str, str]:
    claims = "; ".join(claim.said for claim in judgement.claims)
    return judgement.verdict.value, MEANING[judgement.verdict] + (f" (claimed: {claims})" if claims else "")


@html_of.register
def _(value: Verdict) -> str:
    return _table(("verdict", ""), [(value.value, MEANING[value])])


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


def _changes(names: Sequence[str], changes: Iterable[tuple[Any, int]], count: int) -> str:
    lines: list[str] = []
    for row, weight in changes:
        sign = "+" if weight > 0 else "\N{MINUS SIGN}"
        copies = f"{sign}{abs(weight) if abs(weight) != 1 else ''}"
        first = f'<th scope="row" style="color:{_COLOURS[weight > 0]}">{copies}</th>'
        lines.append(f"<tr>{first}{''.join(map(_cell, values_of(row)))}</tr>")
    return _whole(("", *names), lines, count)


def live_html(table: Mapping[str, Any]) -> str:
    """Return the HTML of a live table's current content."""
    rows: list[Any] = [row for row in table["rows"] if row["copies"]]
    lines = [f"<tr>{''.join(map(_cell, row['cells']))}</tr>" for row in rows]
    title, note = (f"<p>{escape(table[name])}</p>" for name in ("title", "note"))
    return title + _whole(table["columns"], lines, 0) + note


def _rows(rows: Sequence[Any]) -> str:
    lines = [f"<tr>{''.join(map(_cell, values_of(row)))}</tr>" for row in rows[:SHOWN]]
    return _whole(_names(rows), lines, len(rows))


def _names(rows: Iterable[Any]) -> Sequence[str]:
    """Return the column names of rows of a row class; empty for scalars."""
    first = next(iter(rows), None)
    if is_dataclass(first):
        return [each.name for each in fields(first)]
    names: Sequence[str] = getattr(first, "_fields", ())
    return names


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _whole(heads, [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows], 0)


def _whole(heads: Sequence[str], lines: Sequence[str], count: int) -> str:
    head = "".join(f'<th scope="col" {_CELL}>{escape(each)}</th>' for each in heads)
    more = f"<p>{len(lines):,} of {count:,} rows</p>" if count > len(lines) else ""
    none = "<p>no rows</p>" if not lines else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}{none}"


def _cell(value: Any) -> str:
    return f"<td {_CELL}>{escape(text_of(value))}</td>"
