"""The page of the queries, docs/explanation/nexmark.md, made from their flows and their SQL.

python -m examples.nexmark.page > docs/explanation/nexmark.md
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from examples.nexmark.queries import QUERIES, Site

_INTRODUCTION = """
# Nexmark, query by query

<!-- verify -->

Nexmark is the usual benchmark of streaming systems: people register at an auction site, open
auctions and bid (Tucker, Tufte, Papadimos, Maier, *NEXMark: a benchmark for queries over data
streams*, 2002; extended by the suites of Apache Beam and Apache Flink). Below are q0 to q22, each
as a flow and as SQL for DuckDB. Prices are in cents. Generated from `examples/nexmark/queries/` by
`python -m examples.nexmark.page`.

The answers are the same in-process, as a stream and as a batch on Spark, and from DuckDB over all
rows so far.

- q5, q7, q8 and q11 use event time with a lateness of 4 seconds. DuckDB gets the rows that are not late.
- q12 counts per tick, so where ticks end is part of the question.

`run` compares an answer with DuckDB's. `--on spark` runs the query as a stream on Spark,
`--on batch` as a batch:

```console
$ python -m examples.nexmark.run q4 --events 2000 --ticks 2 --rows 1
q4: What do auctions of each category close at, on average?
  category=10 average=27377226.615384616
...
2,000 events in 2 ticks: ...
Checked: q4, 5 rows, the same as from DuckDB.
```

`examples/nexmark/spark_sql/` has the queries as Spark SQL for [`hr.sql`](../reference/sql.md),
except q12: in SQL, a row has no arrival time.
""".strip()

_IMPORTS = """
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, NamedTuple

import headrace as hr
from examples.nexmark.queries import QUERIES, Site
from examples.nexmark.queries.query import AnyStream, FinalPrice
from headrace import col
""".strip()

_SHARED = """
## Shared streams

The closing price of an auction is the greatest bid between its `date_time` and its `expires`, both
inclusive. It may rise until the auction is over, and the answers follow.
""".strip()

_END = """
## The flow of q4

```python
flow = QUERIES["q4"].flow()
```

<!-- picture: nexmark-q4.svg of flow -->
![Bids and auctions are joined, then aggregated twice](../pictures/nexmark-q4.svg)
""".strip()


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, "", *_shared(), *_queries(), _END]).rstrip() + "\n"


def _shared() -> Iterator[str]:
    yield _SHARED
    yield ""
    yield from _code("python", _IMPORTS)
    for name in ("bids_in_time", "final_prices"):
        yield from _code("python", _function(vars(Site)[name].func))


def _queries() -> Iterator[str]:
    for query in QUERIES.values():
        yield f"## {query.name}"
        yield ""
        yield query.asks
        yield ""
        yield from _code("python", _with_what_it_needs(query.add))
        yield from _code(f'sql title="{query.name}.sql"', query.sql.strip())
        if query.differs:
            yield f"*Unlike the benchmark:* {query.differs}"
            yield ""


def _code(language: str, text: str) -> Iterator[str]:
    yield f"```{language}"
    yield text
    yield "```"
    yield ""


def _function(function: Callable[..., Any]) -> str:
    """The source of a function without what decorates it."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(lines[begin:]).strip()


def _with_what_it_needs(function: Callable[..., Any]) -> str:
    """The source of a function, after what it names of its own module."""
    module = inspect.getmodule(function)
    assert module is not None
    source = inspect.getsource(module)
    defined = {name: node for node in ast.parse(source).body for name in _names_defined(node)}
    needed: list[ast.stmt] = []
    _collect(ast.parse(_function(function)), defined, needed)
    needed.sort(key=lambda node: node.lineno)
    parts = [ast.get_source_segment(source, node) or "" for node in needed]
    return "".join([*_paragraphs(parts), _function(function)])


def _names_defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name, decorator_list=[]) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case _:
            return []


def _collect(tree: ast.AST, defined: dict[str, ast.stmt], needed: list[ast.stmt]) -> None:
    for name in ast.walk(tree):
        node = defined.get(name.id) if isinstance(name, ast.Name) else None
        if node is not None and node not in needed:
            needed.append(node)
            _collect(node, defined, needed)


def _paragraphs(parts: list[str]) -> Iterator[str]:
    """Constants one below the other, all else in paragraphs of its own, as a formatter wants them."""
    for at, part in enumerate(parts):
        both_short = "\n" not in part and at + 1 < len(parts) and "\n" not in parts[at + 1]
        yield part + ("\n" if both_short else "\n\n\n")


if __name__ == "__main__":
    print(page(), end="")
