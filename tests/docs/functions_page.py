"""The page docs/reference/functions.md: every function of `headrace.functions`, with an example that runs."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import headrace as hr
from headrace.expr.functions import CATALOGUE, CHAPTERS
from headrace.functions import COMPOSED, parameters_of
from tests.docs.pages import GENERATED
from tests.expr.function_examples import value_of

HEAD = f"""\
# Functions

{GENERATED}

Functions are written `hr.functions.lpad(col.code, 5, "0")`. Names and meaning are those of Spark 4 with
ANSI on. Arguments are expressions or constants; a null argument gives null unless the description says
otherwise. [Expressions](expressions.md) have operators, methods and casts; [SQL](sql.md#functions)
lists differences from Spark.
"""


def page() -> str:
    rows: dict[str, list[str]] = {title: [] for title in CHAPTERS}
    for name in dir(hr.functions):
        rows[_section(name)].append(_row(name))
    parts = [HEAD]
    for title, functions in rows.items():
        if not functions:
            continue
        table = "\n".join(["| function | value | example |", "|---|---|---|", *functions])
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


def _section(name: str) -> str:
    if name in COMPOSED:
        return COMPOSED[name].section
    chapters = (title for title, records in CHAPTERS.items() if CATALOGUE[name] in records)
    return next(chapters)


def _row(name: str) -> str:
    known = COMPOSED.get(name)
    takes = known.parameters if known else parameters_of(CATALOGUE[name])
    call = f"{name}({known.example if known else CATALOGUE[name].example})"
    cells = [_code(f"{name}({takes})"), _meaning(name), f"{_code(call)}<br>{_code(_value(call))}"]
    return f"| {' | '.join(cells)} |"


def _meaning(name: str) -> str:
    said = (getattr(hr.functions, name).__doc__ or "").partition(" Takes ")[0]
    return said.partition("\n\n")[0]


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _value(call: str) -> str:
    """The value of a call, as a flow computes it."""
    flow = hr.Flow("example")
    one = flow.source("one", int)
    expression = value_of(call)
    if call.startswith("raise_error"):
        expression = hr.when(hr.col.value == 1, expression).otherwise(0)
    flow.sink("out", one.select(x=expression))
    try:
        (change,) = hr.Engine(flow).tick(one=[1])["out"]
    except hr.HeadraceError as error:
        return str(error).splitlines()[0]
    return _shown(change.row.x)


def _shown(value: Any) -> str:
    match value:
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
        case date():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case float():
            return repr(round(value, 6))  # the last digits depend on the machine's library
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case tuple():
            fields = zip(getattr(value, "_fields"), value, strict=True)  # noqa: B009
            return f"({', '.join(f'{name}={_shown(each)}' for name, each in fields)})"
        case _:
            return repr(value)
