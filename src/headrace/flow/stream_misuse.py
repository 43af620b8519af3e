"""Errors for uses of Python that ask a stream or a group for rows, which it lacks while a flow is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from headrace.errors import SourceLocation, WrongType
from headrace.expr.expression_errors import MethodGuesses

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.expr.types import Schema

_ROWS = "run the flow: Engine(flow).tick(source=[rows]) returns the changes of each sink"
_ELSEWHERE = {
    "where": "did you mean .filter(...)?",
    "withColumn": "did you mean .with_columns(name=...)?",
    "assign": "did you mean .with_columns(name=...)?",
    "order_by": "did you mean .sort_by(...) or .top_k(...)?",
    "orderBy": "did you mean .sort_by(...) or .top_k(...)?",
    "merge": "did you mean .join(...)?",
    "agg": "first .group_by(...), without keys for all rows",
    "drop_duplicates": "did you mean .distinct()? By some columns: .group_by(...).agg(...)",
    "dropDuplicates": "did you mean .distinct()? By some columns: .group_by(...).agg(...)",
    "drop": "select the columns that stay: .select(...)",
    "rename": "select them under other names: .select(other=hr.col.one)",
    "sink": 'flow.sink("name", stream)',
    **dict.fromkeys(("collect", "show", "head", "count", "to_pandas", "toPandas", "rows", "print"), _ROWS),
}


_AGGREGATE = "aggregate it: .agg(total=hr.sum(hr.col.price), rows=hr.count())"


_OF_COLUMNS = "operators are for columns, within .select(...) or .filter(...): hr.col.price > 10"
_OF_STREAMS = {
    **dict.fromkeys("+|", "did you mean .union(...), which has the rows of both?"),
    "-": "did you mean .difference(...), which leaves out the rows of the other?",
    "&": "did you mean .join(...)?",
}


def _no_operator(sign: str) -> Callable[[Any, object], NoReturn]:
    def refuse(self: Any, other: object) -> NoReturn:
        raise WrongType(
            f"{self._what} has no operator {sign}: {self!r}",
            where=[SourceLocation.of_caller()],
            fix=_OF_STREAMS.get(sign, _OF_COLUMNS) if isinstance(other, RowMisuse) else _OF_COLUMNS,
        )

    return refuse


class RowMisuse(MethodGuesses):
    """Base of streams and groups: Python's own functions and statements are refused."""

    __slots__ = ()
    _rows_fix: ClassVar[str]
    _index_fix: ClassVar[str]

    def __bool__(self) -> NoReturn:
        raise self._unknown_rows("has no truth value")

    def __iter__(self) -> NoReturn:
        raise self._unknown_rows("cannot be iterated")

    def __len__(self) -> NoReturn:
        raise self._unknown_rows("has no length")

    def __getitem__(self, key: object) -> NoReturn:
        raise WrongType(
            f"{self._what} cannot be indexed: {self!r}",
            where=[SourceLocation.of_caller()],
            fix=self._index_fix,
        )

    if not TYPE_CHECKING:  # type checkers find them by themselves

        def __setitem__(self, key: object, value: object) -> NoReturn:
            raise WrongType(
                f"{self._what} takes no columns by assignment: {self!r}",
                where=[SourceLocation.of_caller()],
                why="An operator makes another stream, and leaves this one as it is.",
                fix=f"stream = stream.with_columns({key}=hr.col.price * 2)",
            )

        __add__, __radd__, __or__, __sub__, __and__ = (
            _no_operator(sign) for sign in ("+", "+", "|", "-", "&")
        )
        __mul__, __truediv__, __lt__, __le__, __gt__, __ge__ = (
            _no_operator(sign) for sign in ("*", "/", "<", "<=", ">", ">=")
        )

    def _unknown_rows(self, problem: str) -> WrongType:
        return WrongType(
            f"{self._what} {problem} while the flow is being built: {self!r}",
            where=[SourceLocation.of_caller()],
            why="It has no rows until the flow runs.",
            fix=self._rows_fix,
        )


class StreamMisuse(RowMisuse):
    """Base of streams."""

    __slots__ = ()
    _what = "a stream"
    _elsewhere = _ELSEWHERE
    _other_fix = f"its rows: {_ROWS}"
    _rows_fix = _ROWS
    _index_fix = 'columns are hr.col.price, within .filter(...) or .select(...); .select("price") keeps one'
    _schema: Schema

    def _missing_method(self, name: str) -> AttributeError:
        if not name.startswith("_") and self._schema.position(name) is not None:
            return self._unknown_method(name, f"the column is hr.col.{name}, as in .select(hr.col.{name})")
        return super()._missing_method(name)


class GroupMisuse(RowMisuse):
    """Base of groups."""

    __slots__ = ()
    _what = "a group"
    _elsewhere: ClassVar = {
        **{each: f".agg({each}=hr.{each}(hr.col.price))" for each in ("sum", "mean", "min", "max", "median")},
        **dict.fromkeys(("avg", "average"), ".agg(mean=hr.mean(hr.col.price))"),
        **dict.fromkeys(("count", "size"), ".agg(rows=hr.count())"),
    }
    _other_fix = _AGGREGATE
    _rows_fix = _index_fix = _AGGREGATE
