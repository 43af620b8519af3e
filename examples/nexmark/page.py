"""The page of the queries, docs/nexmark.md, made from their flows and their SQL.

python -m examples.nexmark.page > docs/nexmark.md
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from examples.nexmark.queries import QUERIES, Site

_INTRODUCTION = """
# Nexmark

Nexmark is the usual benchmark of streaming systems: people register at an auction site, open auctions and
bid (P. Tucker, K. Tufte, V. Papadimos, D. Maier, *NEXMark: a benchmark for queries over data streams*,
2002, revised 2008; the suites for Apache Beam and Apache Flink have added queries since). Here are all of
q0 to q22, each as a flow of Penstock and as SQL for DuckDB. This page is made from
`examples/nexmark/queries/` by `python -m examples.nexmark.page`, and a test compares it.

**The answers are the same** in this process and as a stream on Spark, with several cuts of the events into
ticks, as a batch on Spark, and from DuckDB, which is given all rows at once and computes each answer from
scratch (`tests/examples/test_nexmark*.py`).

- Queries without windows answer, after every tick, what DuckDB answers to all rows so far.
- q5, q7, q8 and q11 take time from the events. The watermark is 4 seconds behind the latest event; a row
  that is below it when it comes is late and passed over. The answers are DuckDB's to the rows that are
  not late, once the input has ended and the last windows are closed.
- q12 counts per tick: where ticks end is part of the question.

```
python -m examples.nexmark.run q5                        # in this process
python -m examples.nexmark.run q5 --on spark --ticks 50  # as a stream on Spark
python -m examples.nexmark.run all --on batch            # as a batch on Spark
```

`examples/nexmark/spark_sql/` has them as text of Spark SQL, which `ps.sql` keeps up to date, with the same
answers; all but q12, since in SQL a row has no moment at which it came.

None of the 23 is left out. Where something is not as in the benchmark, it is said below the query.
Prices are in cents.
""".strip()

_SHARED = """
## What several queries share

The closing price of an auction is the greatest bid that was made between its `date_time` and its
`expires`, both included. It may rise until the auction is over, and every answer with it.
""".strip()


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, "", *_table(), "", *_shared(), *_queries()]).rstrip() + "\n"


def _table() -> Iterator[str]:
    yield "| | asks | reads |"
    yield "|---|---|---|"
    for query in QUERIES.values():
        yield f"| [{query.name}](#{query.name}) | {query.asks} | {', '.join(query.sources)} |"


def _shared() -> Iterator[str]:
    yield _SHARED
    yield ""
    for name in ("bids_in_time", "final_prices"):
        yield from _code("python", _function(vars(Site)[name].func))


def _queries() -> Iterator[str]:
    for query in QUERIES.values():
        yield f"## {query.name}"
        yield ""
        yield query.asks
        yield ""
        yield from _code("python", _with_what_it_needs(query.add))
        yield from _code("sql", query.sql.strip())
        if query.differs:
            yield f"*Not as in the benchmark.* {query.differs}"
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
