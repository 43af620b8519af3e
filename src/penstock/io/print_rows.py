"""Print: changes as lines of text on standard output."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.io.guarantee import TOLD, Guarantee
from penstock.io.sink import Drain, SinkTarget, Writer, open_sink
from penstock.io.sink_spool import spooled


@dataclass(frozen=True)
class Print(SinkTarget):
    """One line per change: tick, sink, `+` or `-` (with a number where it is not 1), the columns by name."""

    guarantee: ClassVar[Guarantee] = TOLD


@open_sink.register
def _(sink: Print, drain: Drain) -> Writer:
    return spooled(drain, lambda tick, rows: sys.stdout.write(lines(drain, tick, rows)))


def lines(drain: Drain, tick: int, rows: list[tuple[Any, ...]]) -> str:
    """The text of a tick's changes, rows that go before rows that come."""
    names = drain.schema.names
    out: list[str] = []
    for *values, weight in sorted(rows, key=lambda row: row[-1] > 0):
        sign = ("+" if weight > 0 else "-") + ("" if abs(weight) == 1 else str(abs(weight)))
        columns = " ".join(f"{name}={shown(value)}" for name, value in zip(names, values))
        out.append(f"{tick} {drain.name} {sign} {columns}\n")
    return "".join(out)


def shown(value: object) -> str:
    """A value as short text: times in ISO form, strings in quotes only where they would mislead without."""
    if isinstance(value, str):
        return value if value and value.isprintable() and not set(value) & set(" ='\"") else repr(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()  # type: ignore[union-attr]
    return str(value)
