"""Conversion of user input for a keyed table to records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from headrace.engine.change import Change, KeyDeletion, Update
from headrace.errors import BadRow
from headrace.expr.row_classes import KeyedRows, from_trusted, from_user
from headrace.expr.row_validation import RowValidator
from headrace.expr.types import Row, Schema
from headrace.io.files.text_values import UnfitValue
from headrace.io.keyed_records import SET_OR_DELETE, RecordBuilder
from headrace.io.source import WEIGHT


class KeyedIntake:
    """Converter from rows, changes, updates and deletions by key to records. It raises `BadRow`.

    What is given is taken apart into whole rows, rows of which only the key need be known, and keys; each
    of these are converted together. If one is refused, all are checked again one by one, to find its number.
    """

    def __init__(self, keyed: KeyedRows, what: str, trusted: bool) -> None:
        self._what = what
        self._keyed = keyed
        self._build = RecordBuilder.of(keyed)
        self._width = len(keyed.key)
        keys = Schema((*keyed.key_fields, *keyed.sequence_fields))
        whats = (keyed.rows, what), (keyed.relaxed, what), (keys, f"keys of {what}")
        self._converters = [
            from_trusted(schema) if trusted else from_user(schema, what=name) for schema, name in whats
        ]
        self._validators = [RowValidator(schema, name) for schema, name in whats]

    def __call__(self, given: Iterable[Any]) -> list[Row]:
        items = list(given)
        try:
            parts = zip(self._converters, self._parts(items, 0), strict=True)
            # A row stays within its record, so it must be a plain tuple.
            return self._records(items, *(map(tuple, convert(part)) for convert, part in parts))
        except (BadRow, UnfitValue):
            for number, item in enumerate(items):
                self._check(item, number)
            raise

    def _check(self, item: object, number: int) -> None:
        """Raise `BadRow` with the item's number if the item cannot be converted."""
        parts = zip(self._validators, self._parts([item], number), strict=True)
        try:
            self._records([item], *(map(partial(each.convert, number=number), part) for each, part in parts))
        except UnfitValue as problem:
            name = self._keyed.sequence
            fix = f"give its {name}, or delete_key(7, sequence=12)"
            if isinstance(item, KeyDeletion):
                fix = f'delete_key(7, sequence=12); of envelopes, columns={{"{name}": "source.lsn"}}'
            raise BadRow(f"{self._what}, row {number}: {problem}", fix=fix, row=number, field=name) from None

    def _parts(self, items: Sequence[Any], start: int) -> tuple[list[Any], list[Any], list[Row]]:
        """Split items into complete rows, rows that need only their key, and keys. Raises `BadRow`."""
        whole: list[Any] = []
        known: list[Any] = []
        keys: list[Row] = []
        for number, item in enumerate(items, start):
            kind = item.__class__
            if kind is Update:
                known.append(item.before)
                whole.append(item.after)
            elif kind is KeyDeletion:
                keys.append(self._key(item, number))
            elif kind is Change:
                if item.weight not in (1, -1):
                    raise BadRow(
                        f"{self._what}, row {number}: {WEIGHT}: {SET_OR_DELETE}, found {item.weight!r}",
                        fix="insert(row) or delete(row)",
                        row=number,
                        field=WEIGHT,
                    )
                (whole if item.weight == 1 else known).append(item.row)
            else:
                whole.append(item)
        return whole, known, keys

    def _key(self, item: KeyDeletion, number: int) -> Row:
        """Return the key of a deletion, followed by its sequence if the table has one. Raises `BadRow`."""
        one: object = item.key
        key = cast("Row", one) if isinstance(one, tuple) else (one,)
        names, sequence = ", ".join(self._keyed.key), self._keyed.sequence
        if len(key) != self._width:
            problem = f"deletes by {len(key)} value{'s' * (len(key) != 1)}, but the key is ({names})"
        elif sequence is None and item.sequence is not None:
            problem = f"deletes with the sequence {item.sequence!r}, but the table is declared without one"
        else:
            return key if sequence is None else (*key, item.sequence)
        shown = names if self._width == 1 else f"({names})"
        raise BadRow(
            f"{self._what}, row {number} {problem}",
            fix=f"delete_key({shown})" if sequence is None else f"delete_key({shown}, sequence={sequence})",
            row=number,
            field="key",
        )

    def _records(
        self, items: Iterable[Any], whole: Iterator[Row], known: Iterator[Row], keys: Iterator[Row]
    ) -> list[Row]:
        """Build the records of items from their parts, without file positions. Raises `UnfitValue`."""
        build, width = self._build, self._width
        made: list[Row] = []
        for item in items:
            kind = item.__class__
            if kind is Update:
                made += build.replaces(next(known), next(whole))
            elif kind is KeyDeletion:
                key = next(keys)
                made.append(build.deletes_key(key[:width], key[-1]))
            elif kind is Change and item.weight == -1:
                made.append(build.deletes(next(known)))
            else:
                made.append(build.sets(next(whole)))
        return [(*record, None) for record in made]
