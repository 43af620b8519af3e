"""Records that set and delete rows by key, in columns, for upserts and histories.

Keys of which two records share a sequence are looked at one by one, in rows (`RecordColumns.by_key`): which
record wins may depend on older rows. All others are decided in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.arrangement.batch import Layout, batch_of, differing, joined, masked, select, take
from headrace.arrangement.spine import FoundRows
from headrace.columns.column_stream import ColumnStream, empty_stream
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined, constant_weights
from headrace.columns.expressions import reads_columns
from headrace.columns.slot_forms import SlotForm, key_columns, names_of_keys
from headrace.expr.check import check
from headrace.expr.polars_columns import (
    NotLowered,
    dtype_of,
    from_series,
    repeated,
    replace_negative_zero,
    to_series,
)
from headrace.expr.tree import Expr, FunctionCall, Literal
from headrace.expr.types import Schema, StructType
from headrace.expr.typing_rules import is_float
from headrace.lowering.forms import ArrangedPlan
from headrace.operators.keyed_tables.upsert import KeyedRecords, misfit_texts, tie_rule
from headrace.requirements import np, pl
from headrace.state import marked_values
from headrace.state.marked_values import Erasable

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.graph.node import Node
    from headrace.lowering.slot import SlotMapping
    from headrace.operators.keyed_tables.upsert_rule import MisfitTexts, Tied, TieRule, UpsertRule


SEQUENCE, KIND, TIES = "sequence", "kind", "ties"
"""Columns of what a key has of a sequence, beside the row: the sequence, its `Kind`, digests (`packed`)."""

PRESENT, NAMED = "present", "named"
"""Columns of records that may delete: whether one sets a row, and whether it names one that it deletes."""


class RecordKind(IntEnum):
    """State of a key at one sequence. All kinds but `ROW` also keep digests.

    DELETED: a deletion, and no row. ROW: a row that one record set. AMONG: a row that is one of several
    records, and shown. ASIDE: a row that lost against a deletion. ERASED: such a row, erased since.
    GONE: a row that was erased, followed by another record of its sequence.
    """

    DELETED = 0
    ROW = 1
    AMONG = 2
    ASIDE = marked_values.ASIDE
    ERASED = marked_values.ERASED
    GONE = 5


DIGEST = 8
"""Bytes of a digest of a row (see `TieRule`)."""

OwnRecord: TypeAlias = tuple[Any, Any, Any]
"""Row that a record sets, or None; its sequence; the row that a deletion names, or None."""


@dataclass(frozen=True)
class RecordColumns:
    """Columns of the records of an operator.

    records: schema of the input. rows: of the rows that records set, or name when they delete.
    columns: of such a row. sets: conditions under which a record sets it; else it deletes.
    names:   conditions under which one that deletes names it; None: it never does.
    """

    records: Schema
    rows: Schema
    rule: UpsertRule
    columns: tuple[Expr, ...]
    sets: tuple[Expr, ...]
    names: tuple[Expr, ...] | None
    ties: TieRule
    texts: MisfitTexts

    @property
    def keys(self) -> tuple[str, ...]:
        return names_of_keys(len(self.rule.keys))

    @property
    def key_types(self) -> tuple[DataType, ...]:
        return tuple(check(key, self.records).type for key in self.rule.keys)

    @property
    def digests(self) -> bool:
        """Return whether digests distinguish deletions from rows of the same sequence."""
        return self.rule.sequence is not None and self.ties.may_delete and not self.ties.commits

    @property
    def row(self) -> tuple[tuple[str, DataType], ...]:
        """Columns of a row."""
        return tuple((str(at), field.type) for at, field in enumerate(self.rows.fields))

    @property
    def row_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.row)

    @property
    def sequence_type(self) -> DataType:
        assert self.rule.sequence is not None
        return check(self.rule.sequence, self.records).type

    def layout(self, read: Sequence[tuple[str, DataType]]) -> Layout:
        """Return the layout of the held rows. read: their columns without the key."""
        keys = dict(zip(self.keys, map(dtype_of, self.key_types), strict=True))
        nullable = any(check(key, self.records).nullable for key in self.rule.keys)
        held = {name: dtype_of(type) for name, type in read}
        return Layout({**keys, **held, WEIGHT: pl.Int64()}, self.keys, (WEIGHT,), nullable)

    def computed(self, stream: ColumnStream) -> ColumnStream:
        """Return the records as columns: key, row, sequence, and the conditions if records may delete."""
        named = dict(zip(self.keys, self.rule.keys, strict=True))
        named |= dict(zip(self.row_names, self.columns, strict=True))
        if self.rule.sequence is not None:
            named[SEQUENCE] = self.rule.sequence
        lowered = {name: stream.lower(expr) for name, expr in named.items()}
        fails = [one.fails for one in lowered.values()]
        if self.rule.sequence is not None:
            fails.append(lowered[SEQUENCE].value.is_null())
        columns: list[pl.Expr] = []
        for name, one in lowered.items():
            floats = is_float(check(named[name], self.records).type)
            columns.append((replace_negative_zero(one.value) if floats else one.value).alias(name))
        for name, conditions in ((PRESENT, self.sets), (NAMED, self.names)) * self.ties.may_delete:
            holds = pl.lit(conditions is not None)
            for condition in map(stream.lower, conditions or ()):
                fails.append(condition.fails)
                holds &= condition.value.fill_null(False)
            columns.append(holds.alias(name))
        noted = stream.noting(*fails)
        beside = [pl.col(FAILS)] * noted.checked
        return replace(noted, frame=noted.frame.select(*columns, *beside))

    def moments(self, records: pl.DataFrame) -> pl.DataFrame:
        """Convert records to moments: key, sequence, kind, row and digests."""
        count, own = records.height, (*self.keys, SEQUENCE)
        ties = repeated(None, pl.Binary(), count)
        if not self.ties.may_delete:
            kinds, rows = np.full(count, RecordKind.ROW, np.int8), select(records, self.row_names)
        else:
            present = records[PRESENT].to_numpy()
            kinds, rows = present.astype(np.int8), select(records, self.row_names)
            gone = np.flatnonzero(~present)
            named = gone[records[NAMED].to_numpy()[gone]] if self.digests else gone[:0]
            if len(named):
                digests = self.digests_of(take(rows, named))
                found = pl.Series([packed((), (each,)) for each in digests], dtype=pl.Binary())
                ties = ties.scatter(named, found)
            if len(gone):
                rows = pl.DataFrame([masked(column, present) for column in rows])
        return select(records, own).hstack([pl.Series(KIND, kinds), *rows, ties.alias(TIES)])

    def told_again(self, moments: pl.DataFrame, times: Any) -> Any:
        """Return which moments are deletions that name no row and occur more than once.

        times: how often each is told.
        """
        unnamed = (moments[KIND].to_numpy() == RecordKind.DELETED) & moments[TIES].is_null().to_numpy()
        return unnamed & (times > 1) & self.digests

    def digests_of(self, rows: pl.DataFrame) -> list[bytes]:
        """Return the digests of rows (see `TieRule`)."""
        return list(map(self.ties.digest, self._rows_of(rows)))

    def by_key(self, records: pl.DataFrame, keys: pl.DataFrame) -> dict[int, list[OwnRecord]]:
        """Return the records of the given keys, by key number, in their order."""
        numbered = keys.with_columns(pl.Series(_NUMBER, np.arange(keys.height)))
        own = joined(records, numbered, self.keys, "inner")
        nothing = [None] * own.height
        rows: list[Any] = list(self._rows_of(own))
        images: list[Any] = nothing
        if self.ties.may_delete:
            present, named = own[PRESENT].to_list(), own[NAMED].to_list()
            images = [r if n and not p else None for r, p, n in zip(rows, present, named, strict=True)]
            rows = [row if there else None for row, there in zip(rows, present, strict=True)]
        sequences = from_series(self.sequence_type, own[SEQUENCE])
        found: dict[int, list[OwnRecord]] = {}
        for number, *record in zip(own[_NUMBER].to_list(), rows, sequences, images, strict=True):
            found.setdefault(number, []).append((record[0], record[1], record[2]))
        return found

    def keys_of(self, keys: pl.DataFrame) -> list[Any]:
        """Convert key columns to the keys of slot entries."""
        parts = [from_series(type, keys[n]) for n, type in zip(self.keys, self.key_types, strict=True)]
        return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))

    def _rows_of(self, frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
        return zip(*(from_series(type, frame[name]) for name, type in self.row), strict=True)


_NUMBER = "#"


def record_columns(node: Node, records: Schema) -> RecordColumns:
    """Return the columns of the records of an operator. Raises `NotLowered`."""
    operator = node.operator
    assert isinstance(operator, KeyedRecords)
    rule = operator.rule
    if rule.before is not None or rule.place is not None or rule.table is not None:
        raise NotLowered("records of tables work on rows")
    sets, row = _unwrapped(rule.row)
    names: tuple[Expr, ...] | None = None
    if rule.image is not None:
        names, image = _unwrapped(rule.image)
        if not image.same(row):
            raise NotLowered("a deletion that names a row by other columns stays in rows")
    given = (*rule.keys, *row.arguments, *sets, *(names or ()))
    if not all(map(reads_columns, (*given, *([] if rule.sequence is None else [rule.sequence])))):
        raise NotLowered("constants stay in rows")
    rows = check(rule.row, records).type
    assert isinstance(rows, StructType)
    made = RecordColumns(
        records, Schema(rows.fields), rule, row.arguments, sets, names,
        tie_rule(rule, records), misfit_texts(operator, records),
    )  # fmt: skip
    made.computed(empty_stream(records, True))
    empty_stream(node.schema, False)
    return made


def _unwrapped(row: Expr) -> tuple[tuple[Expr, ...], FunctionCall]:
    """Return the conditions under which a row is not null, and the struct that it is then."""
    conditions: list[Expr] = []
    while isinstance(row, FunctionCall) and row.function == "when" and len(row.arguments) == 3:
        condition, made, otherwise = row.arguments
        if not isinstance(otherwise, Literal) or otherwise.value is not None:
            break
        conditions.append(condition)
        row = made
    if not isinstance(row, FunctionCall) or row.function != "struct":
        raise NotLowered("a row that is no struct of columns stays in rows")
    return tuple(conditions), row


def present_rows(layout: Layout, found: FoundRows) -> FoundRows:
    """Consolidate the rows found; each has multiplicity 0 or 1."""
    asked, rows = found
    if rows.height and (rows[WEIGHT].to_numpy() < 0).any():
        by_number = Layout({**layout.types, _NUMBER: pl.Int64()}, (_NUMBER,), (WEIGHT,), nullable=False)
        rows = batch_of(by_number, rows.hstack([pl.Series(_NUMBER, asked)])).frame
        asked = rows[_NUMBER].to_numpy()
    return FoundRows(asked, select(rows, layout.types))


def weighted(layout: Layout, rows: pl.DataFrame, weight: int) -> pl.DataFrame:
    """Return rows with a weight, in the columns of a layout."""
    weights = constant_weights(weight, rows.height)
    return pl.DataFrame([weights if name == WEIGHT else rows[name] for name in layout.types])


def unlike_next(rows: pl.DataFrame, names: Sequence[str]) -> Any:
    """Return, for each row but the last, whether it differs from the next row in the given columns."""
    last, own = max(0, rows.height - 1), select(rows, names)
    return differing(own.slice(0, last).get_columns(), own.slice(1, last).get_columns())


def packed(rows: tuple[bytes, ...], deletions: tuple[bytes | None, ...]) -> bytes | None:
    """Return the digests of a `Tied` as bytes; None if there are none."""
    if not rows and not deletions:
        return None
    unnamed = b"\0" * (None in deletions)
    named = (each for each in deletions if each is not None)
    return b"".join((len(rows).to_bytes(4, "little"), *rows, unnamed, *named))


def _unpacked(ties: bytes | None) -> tuple[tuple[bytes, ...], tuple[bytes | None, ...]]:
    if ties is None:
        return (), ()
    end = 4 + DIGEST * int.from_bytes(ties[:4], "little")
    first = end + (len(ties) - end) % DIGEST
    unnamed: tuple[bytes | None, ...] = (None,) * (first > end)
    return divided(ties[4:end]), unnamed + divided(ties[first:])


def divided(digests: bytes) -> tuple[bytes, ...]:
    """Split joined digests."""
    return tuple(digests[at : at + DIGEST] for at in range(0, len(digests), DIGEST))


@dataclass(frozen=True)
class RecordsPlan(ArrangedPlan):
    """Plan of an operator over keyed records, with one arrangement of what it holds per key.

    schema: of the output.
    """

    node: int
    records: RecordColumns
    schema: Schema

    @property
    def slot(self) -> str:
        """Name of the arrangement's slot."""
        return f"{self.node}.rows"

    @cached_property
    def read(self) -> tuple[tuple[str, DataType], ...]:
        """Columns held per key, without the key."""
        raise NotImplementedError

    @cached_property
    def form(self) -> SlotForm:
        """Form of the slot."""
        raise NotImplementedError

    @cached_property
    def layout(self) -> Layout:
        """Layout of the arrangement."""
        return self.records.layout(self.read)

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        return {self.slot: self.form}


@dataclass(frozen=True)
class TiedForm(SlotForm):
    """Form of a slot that holds each key's state at one or more sequences.

    row: names of the columns of a row.
    """

    row: tuple[str, ...]

    @property
    def aside(self) -> tuple[str, ...]:
        return (KIND, *self.row)


def decode_tied(kind: int, row: tuple[Any, ...], ties: bytes | None) -> Tied:
    """Build the state of a key at a sequence from columns."""
    match kind:
        case RecordKind.ROW | RecordKind.AMONG:
            return row, *_unpacked(ties)
        case RecordKind.ASIDE:
            return Erasable(row), *_unpacked(ties)
        case RecordKind.ERASED:
            return Erasable(None), *_unpacked(ties)
        case _:
            return None, *_unpacked(ties)


def columns_of_tied(tied: Tied, width: int) -> tuple[Any, ...]:
    """Convert the state of a key at a sequence to columns: kind, row and digests."""
    row, rows, deletions = tied
    if row.__class__ is Erasable:
        kind = RecordKind.ERASED if row.value is None else RecordKind.ASIDE
        row = row.value
    elif row is None:
        kind = RecordKind.GONE if rows else RecordKind.DELETED
    else:
        kind = RecordKind.AMONG if rows or deletions else RecordKind.ROW
    return kind, *((None,) * width if row is None else row), packed(rows, deletions)


def rows_as_columns(form: SlotForm, keys: Sequence[Any], rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Convert held rows to the columns of the arrangement, with their keys. Raises `ColumnarDeclined`."""
    try:
        columns = [
            to_series(type, [row[at] for row in rows]).alias(name)
            for at, (name, type) in enumerate(form.read)
        ]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ColumnarDeclined from error
    own = [
        series.alias(name)
        for series, name in zip(key_columns(form, list(keys)), form.layout.keys, strict=True)
    ]
    return pl.DataFrame([*own, *columns, constant_weights(1, len(rows))])
