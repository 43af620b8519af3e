"""From rows to the keys that an index files them under: what the engine groups together is one key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from penstock.expr.keys import key_of, nested_key
from penstock.expr.types import Field, Schema

KeyOf = Callable[[tuple[Any, ...]], Any]


class Keying:
    """How rows of a schema are filed by key columns; by the whole row where there are none.

    of_row: from a row to its key: the value of a single column, a tuple of several.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        positions = [schema.names.index(name) for name in columns] or list(range(len(schema.fields)))
        self._single = len(positions) == 1
        self.width = len(positions)
        self.of_row: KeyOf = itemgetter(*positions) if positions else _itself
        if any(_has_spellings(schema.fields[at]) for at in positions):
            plain = self.of_row
            self.of_row = lambda row: nested_key(plain(row))
        elif not columns and not self._single:
            self.of_row = _itself

    def of_values(self, values: tuple[Any, ...]) -> Any:
        """The key of the values of the key columns."""
        return nested_key(values[0]) if self._single else nested_key(tuple(values))


def _itself(row: tuple[Any, ...]) -> Any:
    return row


def _has_spellings(field: Field) -> bool:
    """Whether equal values may be written in several ways: NaN, and zero with its sign."""
    return key_of(field.type, field.nullable, "value", lambda source: (source, source)) != "value"
