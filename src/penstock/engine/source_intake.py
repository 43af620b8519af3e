"""Converters from what users give a source to internal rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, cast

from penstock.engine.change import Change, KeyDeletion, Update
from penstock.engine.signals.row_values import rows_of_signal
from penstock.errors import BadRow
from penstock.expr.keyed_rows import KeyedRows
from penstock.expr.row_classes import from_user
from penstock.expr.row_conversion import from_trusted
from penstock.expr.types import Schema
from penstock.flow.operators.keyed_source import KeyedSource
from penstock.flow.operators.signals.signal_source import SignalSource
from penstock.flow.operators.source import Source

Rows: TypeAlias = "list[tuple[Any, ...]]"
Intake: TypeAlias = "Callable[[Iterable[Any]], Rows]"


def source_intake(operator: object, append: bool, trusted: bool) -> Intake:
    """Create the function from user input to internal rows. It raises `BadRow`."""
    if isinstance(operator, SignalSource):
        return rows_of_signal(operator)
    assert isinstance(operator, Source)
    what = f"source {operator.name!r}"
    if isinstance(operator, KeyedSource):
        return _keyed_intake(operator.keyed, what)
    make = from_trusted if trusted else partial(from_user, what=what)
    return make(operator.schema, change=None if append else Change)


def _keyed_intake(keyed: KeyedRows, what: str) -> Intake:
    """Create the function from rows, changes, updates and deletions by key to records."""
    from penstock.io.keyed_records import RecordBuilder

    build = RecordBuilder.of(keyed)
    rows = from_user(keyed.rows, what=what)
    keys = from_user(Schema((*keyed.key_fields, *keyed.sequence_fields)), what=f"keys of {what}")

    def deletion(given: KeyDeletion) -> tuple[Any, ...]:
        one: object = given.key
        key = cast("tuple[Any, ...]", one) if isinstance(one, tuple) else (one,)
        if len(key) != len(keyed.key) or (keyed.sequence is None and given.sequence is not None):
            of = "no sequence" if keyed.sequence is None else f"the sequence {keyed.sequence!r}"
            raise BadRow(
                f"{what} is given {given!r}",
                why=f"Its key is ({', '.join(keyed.key)}), and its records have {of}.",
                fix="delete_key(7), delete_key((7, 'tea')), delete_key(7, sequence=12)",
            )
        (checked,) = keys([key if keyed.sequence is None else (*key, given.sequence)])
        return build.deletes_key(checked[: len(key)], None if keyed.sequence is None else checked[-1])

    def records_of(given: Any) -> Rows:
        if isinstance(given, KeyDeletion):
            return [deletion(given)]
        if isinstance(given, Update):
            replaced = cast("Update[Any]", given)
            before, after = rows([replaced.before, replaced.after])
            return build.replaces(before, after)
        row, weight = given
        (made,) = rows([row])
        if weight not in (1, -1):
            raise BadRow(
                f"{what} is given {given!r}",
                why="A key has one row, so a change sets it or deletes it.",
                fix="insert(row) or delete(row)",
            )
        return [build.sets(made) if weight > 0 else build.deletes(made)]

    def intake(given: Iterable[Any]) -> Rows:
        made: Rows = []
        plain: list[Any] = []
        for each in given:
            if isinstance(each, Change | KeyDeletion | Update):
                made += map(build.sets, rows(plain))
                plain.clear()
                made += records_of(each)
            else:
                plain.append(each)
        made += map(build.sets, rows(plain))
        return [(*record, None) for record in made]  # in no file

    return intake
