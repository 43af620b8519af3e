"""Errors for uses of Python that ask a stream for its rows, which it does not have while a flow is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from penstock.errors import SourceLocation, WrongType
from penstock.expr.missing_attributes import missing_attribute

if TYPE_CHECKING:
    from penstock.expr.types import Schema

_ROWS = "run the flow: Engine(flow).tick(source=[rows]) returns the changes of each sink"
_ELSEWHERE = {
    "where": "did you mean .filter(...)?",
    "withColumn": "did you mean .with_columns(name=...)?",
    "assign": "did you mean .with_columns(name=...)?",
    "order_by": "did you mean .sort_by(...) or .top_k(...)?",
    "orderBy": "did you mean .sort_by(...) or .top_k(...)?",
    "merge": "did you mean .join(...)?",
    "agg": "first .group_by(...), without keys for all rows",
    "drop": "select the columns that stay: .select(...)",
    "rename": "select them under other names: .select(other=ps.col.one)",
    "sink": 'flow.sink("name", stream)',
    **dict.fromkeys(("collect", "show", "head", "count", "to_pandas", "toPandas", "rows", "print"), _ROWS),
}


class NoRows:
    """Base of streams: Python's own functions and statements are refused."""

    __slots__ = ()
    _schema: Schema

    def __bool__(self) -> NoReturn:
        raise self._unknown_rows("has no truth value")

    def __iter__(self) -> NoReturn:
        raise self._unknown_rows("cannot be iterated")

    def __len__(self) -> NoReturn:
        raise self._unknown_rows("has no length")

    def __getitem__(self, key: object) -> NoReturn:
        raise WrongType(
            f"a stream cannot be indexed: {self!r}",
            where=[SourceLocation.of_caller()],
            fix='columns are ps.col.price, within .filter(...) or .select(...); .select("price") keeps one',
        )

    def _unknown_rows(self, problem: str) -> WrongType:
        return WrongType(
            f"a stream {problem} while the flow is being built: {self!r}",
            where=[SourceLocation.of_caller()],
            why="It has no rows until the flow runs.",
            fix=_ROWS,
        )

    if not TYPE_CHECKING:  # type checkers find missing methods by themselves

        def __getattr__(self, name: str) -> NoReturn:
            elsewhere = _ELSEWHERE
            if not name.startswith("_") and self._schema.position(name) is not None:
                elsewhere = {name: f"the column is ps.col.{name}, as in .select(ps.col.{name})"}
            raise missing_attribute(self, "a stream", name, elsewhere, f"its rows: {_ROWS}")
