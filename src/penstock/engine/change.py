"""Changes at the borders of an engine: rows with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")


class Change(NamedTuple, Generic[T]):
    """A row and how many copies of it came (positive) or went (negative)."""

    row: T
    weight: int


def insert(row: T) -> Change[T]:
    """One more copy of `row`, for a table source."""
    return Change(row, 1)


def delete(row: T) -> Change[T]:
    """One copy of `row` less, for a table source."""
    return Change(row, -1)


class Changes(Sequence[Change[Any]]):
    """The changes of one sink in one tick, consolidated.

    Of a table each row stands at most once, with a weight that is not 0. Of an
    append stream each copy of a row stands by itself, in the stream's order.
    Rows become instances of their row class when they are looked at. `raw` are
    plain tuples with the weight as last field.
    """

    __slots__ = ("_append", "_rows", "_to_user")

    def __init__(
        self, rows: list[tuple[Any, ...]], append: bool, to_user: Callable[[tuple[Any, ...]], Any]
    ) -> None:
        self._rows = rows
        self._append = append
        self._to_user = to_user

    @property
    def raw(self) -> list[tuple[Any, ...]]:
        return [(*row, 1) for row in self._rows] if self._append else self._rows

    def _change(self, row: tuple[Any, ...]) -> Change[Any]:
        if self._append:
            return Change(self._to_user(row), 1)
        return Change(self._to_user(row[:-1]), row[-1])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Change[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change[Any]]: ...
    def __getitem__(self, index: int | slice) -> Change[Any] | list[Change[Any]]:
        if isinstance(index, slice):
            return [self._change(row) for row in self._rows[index]]
        return self._change(self._rows[index])

    def __iter__(self) -> Iterator[Change[Any]]:
        return map(self._change, self._rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Changes | list):
            return list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Changes({list(self)!r})"
