"""pathway: a Rust engine on differential dataflow; a commit every 100 ms. Its licence is BSL."""

from __future__ import annotations

from typing import Any

import pathway as pw


class _Numbers(pw.Schema):
    x: int


def _table(schema: Any, rows: list[dict[str, Any]]) -> Any:
    class Rows(pw.io.python.ConnectorSubject):
        def run(self) -> None:
            for row in rows:
                self.next(**row)

    return pw.io.python.read(Rows(), schema=schema, autocommit_duration_ms=100)


def _last(table: Any, column: str) -> Any:
    found: list[Any] = [None]

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            found[0] = row[column]

    pw.io.subscribe(table, on_change=on_change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    pw.internals.parse_graph.G.clear()
    return found[0]


def chain(numbers: list[int]) -> int:
    source = _table(_Numbers, [{"x": x} for x in numbers])
    added = source.select(x=pw.this.x + 1)
    tripled = added.filter(pw.this.x % 2 == 0).select(x=pw.this.x * 3)
    return int(_last(tripled.reduce(total=pw.reducers.sum(pw.this.x)), "total"))
