"""Batches in the form of a file: integers in as few bytes as hold them, repeated texts by number.

Most ticks look at a few rows of a large batch. So columns stay as they are in the file, which is mapped, and
only rows that are taken become those of the layout; all of them, once a merge reads the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, cast

from headrace.arrangement.batch import Codes, Places, SingleRows, SortedBatch, select, take
from headrace.requirements import pl

_WIDEST: Mapping[Any, pl.DataType] = {
    pl.Int16: pl.Int16(),
    pl.Int32: pl.Int32(),
    pl.Int64: pl.Int64(),
    pl.Date: pl.Int32(),
}
"""Types whose values are integers, and the integers that they are."""

_NARROW = ((8, pl.Int8()), (16, pl.Int16()), (32, pl.Int32()))
"""Bits of narrower integers."""


def narrowed(column: pl.Series) -> pl.Series:
    """Return a column's integers in the narrowest type that holds them; other columns as they are."""
    widest = _WIDEST.get(column.dtype.base_type())
    if widest is None:
        return column
    numbers = column.to_physical()
    low, high = numbers.min(), numbers.max()
    for bits, narrow in _NARROW:
        least = -(1 << (bits - 1))
        if narrow != widest and (low is None or (least <= cast("int", low) and cast("int", high) <= ~least)):
            return numbers.cast(narrow)
        if narrow == widest:
            break
    return column


def may_be_stored_as(type: pl.DataType, stored: pl.DataType) -> bool:
    """Return whether values of a type may be in a file as narrower integers."""
    return type.base_type() in _WIDEST and any(stored == narrow for _, narrow in _NARROW)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows as they are in a file. types: of the columns. texts: of columns with numbers of texts, by name."""

    frame: pl.DataFrame
    types: Mapping[str, pl.DataType]
    texts: Mapping[str, pl.Series]

    def unpacked(self) -> pl.DataFrame:
        return pl.DataFrame([self.unpacked_column(column) for column in self.frame])

    def unpacked_column(self, column: pl.Series) -> pl.Series:
        type, texts = self.types[column.name], self.texts.get(column.name)
        if texts is not None:
            at = column.cast(pl.UInt32)
            # A plan is only needed for nulls.
            return texts[at] if not at.null_count() else texts.gather(at)
        if column.dtype == type:
            return column
        return column.cast(_WIDEST[type.base_type()]).cast(type)

    @property
    def is_plain(self) -> bool:
        """Whether the frame has the types of the columns, so that there is nothing to unpack."""
        return dict(self.frame.schema) == dict(self.types)

    def are_of_types(self) -> bool:
        """Return whether these are rows of the types."""
        if self.frame.columns != list(self.types):
            return False
        stored = self.frame.schema
        return all(
            self.texts[name].dtype == type
            if name in self.texts
            else stored[name] == type or may_be_stored_as(type, stored[name])
            for name, type in self.types.items()
        )

    def of(self, frame: pl.DataFrame) -> PackedRows:
        return PackedRows(frame, self.types, self.texts)


class PackedBatch(SortedBatch):
    """Sorted batch whose rows are packed. The unpacked frame is cached once it was read."""

    __slots__ = ("_packed", "_unpacked")
    _packed: PackedRows
    _unpacked: pl.DataFrame | None

    def __init__(self, codes: Codes, packed: PackedRows, bounds: tuple[float, ...]) -> None:
        for name, value in (("codes", codes), ("bounds", bounds), ("_packed", packed), ("_unpacked", None)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedBatch, (self.codes, self._packed, self.bounds)

    @property
    def frame(self) -> pl.DataFrame:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self._unpacked is None:
            object.__setattr__(self, "_unpacked", self._packed.unpacked())
        assert self._unpacked is not None
        return self._unpacked

    def slice(self, start: int, stop: int) -> SortedBatch:
        rows = self._packed.of(self._packed.frame.slice(start, stop - start))
        return PackedBatch(self.codes[start:stop], rows, self.bounds)

    def take(self, places: Places) -> pl.DataFrame:
        return self._packed.of(take(self._packed.frame, places)).unpacked()

    def numbers(self, column: str) -> pl.Series:
        found = self._packed.frame[column]
        return found if self._packed.types[column].is_integer() else self._packed.unpacked_column(found)

    def single_rows(self, columns: Sequence[str]) -> SingleRows:
        return SinglePackedRows.of(self._packed.of(select(self._packed.frame, columns)))

    @property
    def estimated_bytes(self) -> int:
        held = 0 if self._unpacked is None else self._unpacked.estimated_size()
        return int(self._packed.frame.estimated_size() + held)


_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class SinglePackedRows:
    """Single rows of packed ones. converters: by column position, of values that are stored otherwise."""

    rows: PackedRows
    converters: Sequence[tuple[int, Callable[[Any], Any]]]

    @classmethod
    def of(cls, rows: PackedRows) -> SinglePackedRows:
        converters: list[tuple[int, Callable[[Any], Any]]] = []
        for at, column in enumerate(rows.frame):
            texts = rows.texts.get(column.name)
            if texts is not None:
                converters.append((at, texts.__getitem__))
            elif rows.types[column.name] == pl.Date and column.dtype != pl.Date:
                converters.append((at, _day))
        return cls(rows, converters)

    def row(self, index: int, /) -> tuple[Any, ...]:
        found = self.rows.frame.row(index)
        if not self.converters:
            return found
        values = list(found)
        for at, value_of in self.converters:
            if values[at] is not None:
                values[at] = value_of(values[at])
        return tuple(values)

    def slice(self, offset: int, length: int, /) -> pl.DataFrame:
        return self.rows.of(self.rows.frame.slice(offset, length)).unpacked()


def _day(number: int) -> date:
    return _EPOCH + timedelta(days=number)


__all__ = ["PackedBatch", "PackedRows", "may_be_stored_as", "narrowed"]
