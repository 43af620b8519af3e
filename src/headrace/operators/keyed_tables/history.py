"""History operator: all versions of each key's row, from records that set or delete it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.expr.check import check
from headrace.expr.constructors import coalesce, col, struct
from headrace.expr.types import Field
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags
from headrace.lowering.step import register_step
from headrace.operators.keyed_tables.upsert import KeyedRecords, KeyedRecordsStep
from headrace.operators.keyed_tables.upsert_rule import (
    MisfitTexts,
    OnMisfit,
    Tied,
    TieRule,
    UpsertRule,
    held_row,
    known_row,
    records_by_key,
    shown_row,
    without_sequence,
)
from headrace.state.marked_values import Erasable

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Facts


START, END = "start_at", "end_at"
"""Columns of a version: from which sequence on it holds, and up to which."""


def version_fields(sequence: Expr, schema: Schema) -> tuple[Field, Field]:
    """Return the columns of versions of records of `schema`."""
    at = check(sequence, schema)
    return Field(START, at.type, at.nullable), Field(END, at.type, True)


_AT = coalesce(col.b, 0)
"""Sequence of the examples' records."""


@dataclass(frozen=True, slots=True)
class History(KeyedRecords):
    """All versions of each key's row. A tick emits the difference between the versions before and after it.

    A version begins with the first record of a run whose rows agree in the columns `track`, shows the row of
    its last one, and ends where another version begins or the row is deleted. Of one key and sequence, the
    row counts that `upsert` would hold after it (see `UpsertRule`), so the versions without an end are the
    rows of `upsert`.

    State: the rows of all records of each key. Of a row that lost against a deletion of its sequence, erasure
    leaves a digest. An empty tick emits nothing.

    >>> from dataclasses import dataclass
    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> @dataclass(frozen=True)
    ... class Price:
    ...     item: str
    ...     price: int
    ...     at: int
    >>> prices = [Price("tea", 3, 1), Price("tea", 5, 4), Price("tea", 3, 2)]
    >>> show(lambda prices: prices.history("item", sequence="at"), prices=prices)
    + (item='tea', price=3, at=2, start_at=1, end_at=4)
    + (item='tea', price=5, at=4, start_at=4, end_at=None)
    """

    kind: ClassVar[str] = "history"
    may_set_aside: ClassVar[bool] = False
    examples: ClassVar[Examples] = {
        "versions": lambda x, y: x.history("a", row=struct(a=col.a, at=_AT), sequence=_AT),
        "of several a sequence": lambda x, y: x.history(
            "a", row=struct(b=col.b), sequence=_AT // 3, deleted=col.b == 3, on_misfit="trust_key"
        ),
        "of some columns": lambda x, y: x.history(
            "a", sequence=_AT // 2, deleted=col.b == 1, track=["a"], on_misfit="trust_key"
        ),
    }
    rule: UpsertRule
    track: tuple[str, ...]

    def output(self, context: CheckContext) -> Columns:
        rule, rows = self.rule, self.rule.check(context)
        names = [field.name for field in rows.fields]
        context.require(rule.sequence is not None, "versions are ordered by a sequence")
        context.require(rule.tombstones is None, "a history forgets nothing")
        context.require(rule.on_misfit is not OnMisfit.DEAD_LETTER, "a history leaves no record out")
        context.require(set(self.track) <= set(names), "its rows lack a column that is tracked")
        context.require(not {START, END} & set(names), "its rows have a column of versions")
        assert rule.sequence is not None
        return (*rows.fields, *version_fields(rule.sequence, context.input))

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return self.rule.output_facts(inputs[0]).but(append=False, ordered=False)

    def describe(self) -> str:
        return f"{self.rule}, track=({', '.join(self.track)})"


@register_step(History)
class HistoryStep(KeyedRecordsStep):
    """Step of history. Slot: key -> its moments in order (see `KeyHistory`)."""

    by_sequence = "x_key_history"

    def finish(self) -> None:
        code, writer = self.code, self.writer
        key, own, changes, row, n = (writer.fresh(name) for name in ("key", "own", "changes", "row", "n"))
        assert isinstance(self.operator, History)
        tracked = writer.constant("tracked", tracked_values(self.operator, self.node.schema))
        with code.block(f"for {key}, {own} in {self.held}.items():"):
            code.line(f"{changes} = {own}.changes({self.ties}, {tracked})")
            with code.block(f"if {own}.has_changed:"):
                code.line(f"{self.slot('rows')}[{key}] = {own}.moments")
            with code.block(f"for {row}, {n} in {changes}:"):
                self.emit_unpacked(row, n)


def tracked_values(operator: History, schema: Schema) -> Callable[[Any], Any]:
    """Return the function of a row that starts a version when its value changes. schema: of the output."""
    at = [schema.names.index(name) for name in operator.track]
    if len(at) > 1:
        return itemgetter(*at)
    # Of equal NaNs, only tuples say that they are.
    return itemgetter(slice(at[0], at[0] + 1) if at else slice(0))


@answer_of_bags.register(History)
def _answer(operator: History, node: Node, inputs: Bags) -> Bag:
    names = node.schema.names
    tracked = [names.index(name) for name in operator.track]
    out: Bag = Counter()
    for records in records_by_key(operator.rule, inputs):
        versions: list[list[Any]] = []  # row, start, end
        for top, at in sorted({record[0]: record[1] for record in records}.items()):
            shown = held_row([record for record in records if record[0] <= top], operator.rule, node)
            last = versions[-1] if versions and versions[-1][2] is None else None
            if last and shown and all(last[0][n] == shown[n] or last[0][n] is shown[n] for n in tracked):
                last[0] = shown
                continue
            if last:
                last[2] = at
            if shown:
                versions.append([shown, at, None])
        out.update((*row, start, end) for row, start, end in versions)
    return out


# --- the records of a key at run time -------------------------------------------------------------


Moment: TypeAlias = tuple[Any, ...]
"""A sequence, and the parts of a `Tied` that its key has of it; without the digests if there are none."""

Version: TypeAlias = tuple[Any, ...]
"""The columns of a row, and the sequences from which on and up to which it is shown."""

_FAR = 5
"""From so many moments apart on, changes are looked at one by one. No moment may be next to two that are."""

Tracked: TypeAlias = Callable[[Any], Any]
"""Function of a row whose value starts a version when it changes."""


class KeyHistory:
    """The records of a key, within a tick.

    stored: its moments in order, None if there is none. shown: the row that a misfit contradicts, if no
    deletion of its sequence hides it.

    Each moment is decided by the rule that `Sequenced` follows for the last one, so the row that is shown
    after all of them is the one that an upsert holds.
    """

    __slots__ = ("_touched", "moments", "shown", "stored")

    def __init__(self, stored: Sequence[Moment] | None) -> None:
        self.stored: Sequence[Moment] = stored or ()
        self.moments = list(self.stored)
        self.shown: Any = None
        # The sequences of the moments that have changed.
        self._touched: set[Any] = set()

    @property
    def has_changed(self) -> bool:
        """Whether records of this tick have changed any moment."""
        return bool(self._touched)

    def apply(
        self, row: Any, sequence: Any, image: Any, place: Any, rule: TieRule, texts: MisfitTexts
    ) -> str | None:
        """Apply a record; return the reason if its sequence already has another row (see `Sequenced`)."""
        if sequence is None:
            raise without_sequence()
        moments = self.moments
        # A tuple is above the one that it starts with.
        at = bisect_left(moments, (sequence,))
        if at == len(moments) or moments[at][0] != sequence:
            first: Tied = rule.of_deletion(image) if row is None else (row, (), ())
            moments.insert(at, _moment(sequence, first))
        else:
            before = _tied(moments[at])
            if row is not None and before[0] is not None and row != before[0] and not rule.trust:
                self.shown = shown_row(rule.settled(before, lambda: self._before(at, rule)))
                return texts.of_sequence(sequence, row, before[0])
            after = rule.added(before, row, image)
            if after == before:
                return None
            moments[at] = _moment(sequence, after)
        self._touched.add(sequence)
        return None

    def changes(self, rule: TieRule, tracked: Tracked) -> list[tuple[Version, int]]:
        """Return the changes of the versions in this tick, retractions first."""
        before: dict[Any, Version] = {}
        after: dict[Any, Version] = {}
        stretches = self._stretches()
        if rule.may_delete and not rule.commits:
            # All before the first version is made, which may end with a moment of the next stretch.
            stretches = [(low, self._settle(low, high, rule)) for low, high in stretches]
        for low, high in stretches:
            # The moment to the left is the same before and after.
            left = self.moments[max(bisect_left(self.moments, (low,)) - 1, 0)][0]
            before |= _versions(self.stored, left, high, tracked)
            after |= _versions(self.moments, left, high, tracked)
        gone = [(version, -1) for start, version in before.items() if after.get(start) != version]
        return gone + [(version, 1) for start, version in after.items() if before.get(start) != version]

    def _stretches(self) -> list[tuple[Any, Any]]:
        """Return the first and the last sequence of each stretch of moments with changes."""
        found: list[tuple[Any, Any]] = []
        last = -_FAR
        for sequence in sorted(self._touched):
            at = bisect_left(self.moments, (sequence,), max(last, 0))
            if at - last < _FAR:
                found[-1] = found[-1][0], sequence
            else:
                found.append((sequence, sequence))
            last = at
        return found

    def _settle(self, low: Any, high: Any, rule: TieRule) -> Any:
        """Settle the moments that have changed, and the next one that could have the same row.

        Return the sequence of the last of them.
        """
        moments = self.moments
        for at in range(bisect_left(moments, (low,)), len(moments)):
            moment = moments[at]
            sequence, is_plain = moment[0], len(moment) == 2
            if not is_plain:
                settled = rule.settled(_tied(moment), lambda at=at: self._before(at, rule))
                moments[at] = _moment(sequence, settled)
            if sequence > high and has_row(moment):
                return high if is_plain else sequence
        return high

    def _before(self, at: int, rule: TieRule) -> tuple[bytes, ...]:
        """Return the row digests of the next older sequence that has rows."""
        while at:
            at -= 1
            if has_row(self.moments[at]):
                row, rows, _ = _tied(self.moments[at])
                return rows or (rule.digest(row),)
        return ()


def has_row(moment: Moment) -> bool:
    """Return whether a record set a row at a moment, even if a deletion won or the row was erased."""
    return moment[1] is not None or (len(moment) > 2 and bool(moment[2]))


def _moment(sequence: Any, tied: Tied) -> Moment:
    return (sequence, *tied) if tied[1] or tied[2] else (sequence, tied[0])


def _tied(moment: Moment) -> Tied:
    if len(moment) == 2:
        return known_row(moment[1]), (), ()
    return known_row(moment[1]), moment[2], moment[3]


def _versions(moments: Sequence[Moment], low: Any, high: Any, tracked: Tracked) -> dict[Any, Version]:
    """Return the versions of the moments between two sequences, and the next version, by their start."""
    end = bisect_left(moments, (high,))
    if end < len(moments) and moments[end][0] == high:
        end += 1
    first = at = bisect_left(moments, (low,))
    found: dict[Any, Version] = {}
    size = len(moments)
    while at < size and at <= end:
        start, row = moments[at][:2]
        if at == first:
            start = _start_of_version(moments, at, tracked)
        at += 1
        if row is None or row.__class__ is Erasable:
            continue
        value = tracked(row)
        while at < size:
            following = moments[at][1]
            if following is None or following.__class__ is Erasable or tracked(following) != value:
                break
            # Records that change nothing tracked belong to one version, which shows the last.
            row = following
            at += 1
        found[start] = (*row, start, moments[at][0] if at < size else None)
    return found


def _start_of_version(moments: Sequence[Moment], at: int, tracked: Tracked) -> Any:
    """Return the sequence of the first moment of the version that contains a moment."""
    row = moments[at][1]
    if row is not None and row.__class__ is not Erasable:
        value = tracked(row)
        while at:
            row = moments[at - 1][1]
            if row is None or row.__class__ is Erasable or tracked(row) != value:
                break
            at -= 1
    return moments[at][0]


register_runtime({"x_key_history": KeyHistory})
