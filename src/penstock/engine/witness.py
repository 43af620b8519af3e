"""Why a row is in a sink: a small set of source rows from which the flow makes it (a witness).

1. The sources are read again, and rows are kept that can influence the row, by the keys of operators
   (`key_restrictions`). The flow runs on these rows, in this process. If the row does not come out, the flow
   runs on all rows. If the row comes out of neither, it is not in the sink.
2. Rows are kept that agree with the row in the columns handed on to it, if the row comes out of these.
3. Rows are left out whose key no row of another source matches (`matched_keys`), then by common values, in
   halves and down to single ones (delta debugging), as long as the row still comes out. The rest suffices,
   and if time allows none of it can be left out. Other rows may have contributed to the same row in ways
   that do not show in it.

Functions of the flow run again for this, on rows they have seen before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.analysis.key_restrictions import Restriction, matched_keys, restrict_sources
from penstock.engine.endpoints import TICK_ROWS, as_read_by
from penstock.engine.engine import Engine
from penstock.engine.queue import limit_for
from penstock.errors import EvaluationError, PenstockError
from penstock.expr.compile_python import compile_rows
from penstock.flow.operators.signals.signal_source import SignalSource
from penstock.flow.operators.source import TICK_TIME
from penstock.flow.operators.source import Source as SourceOperator
from penstock.io import Feed, open_source
from penstock.io.change_data import ChangeData
from penstock.io.delta import DeltaRows
from penstock.io.files.file_source import Files
from penstock.io.in_process import Rows

if TYPE_CHECKING:
    from penstock.engine.queue import PerSource
    from penstock.expr.types import Schema
    from penstock.flow.flow import Flow
    from penstock.io.source import Reader

Row: TypeAlias = tuple[Any, ...]
_FEW_VALUES = 30
"""Values of a column of which each is tried: can all rows with it be left out?"""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row that was read again. round: of reading, a tick of the flow. row: weight last in a table."""

    source: str
    round: int
    row: Row


@dataclass(frozen=True, slots=True)
class SourceRead:
    """What was read again of a source.

    schema:      of its rows. append: whether they come without a weight.
    rows:        number read. all_read: whether the limits left none unread.
    restriction: condition on the rows kept, as text; empty if keys say nothing.
    why_not:     why it could not be read; empty if it was.
    """

    schema: Schema
    append: bool
    rows: int = 0
    all_read: bool = True
    restriction: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Witness:
    """Answer to why a row is in a sink.

    found:      whether the flow gives the row on what was read again. complete: whether that is all there is;
                otherwise rows that were not read may replace it.
    sources:    what was read, per source that reaches the sink.
    possible:   rows that meet the restrictions. needed: those of them that suffice to give the row.
    minimal:    whether the row is gone without any single one of the needed ones. Otherwise some of them were
                not tried, and may have nothing to do with it.
    runs, seconds: effort. problem: why the row was not found or the search ended early; empty otherwise.
    """

    found: bool
    sources: Mapping[str, SourceRead]
    possible: tuple[SourceRow, ...]
    needed: tuple[SourceRow, ...]
    minimal: bool
    runs: int
    seconds: float
    problem: str = ""

    @property
    def complete(self) -> bool:
        return all(source.all_read for source in self.sources.values())


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a search.

    rows:    that are kept per source; reading ends with the batch that reaches it.
    shrink:  most rows of which some are left out. runs: of the flow.
    seconds: until no further run begins; half of it is the limit on reading a source once.
    """

    rows: int = 200_000
    shrink: int = 5_000
    runs: int = 2_000
    seconds: float = 10.0


@dataclass
class _Search:
    """State of one search. ends: whether sources end after their rows."""

    flow: Flow
    sink: str
    row: Row
    limits: Limits
    ends: bool = False
    began: float = field(default_factory=time.perf_counter)
    runs: int = 0
    error: str = ""

    @property
    def exhausted(self) -> bool:
        return self.runs >= self.limits.runs or time.perf_counter() - self.began >= self.limits.seconds

    def gives_row(self, items: list[SourceRow]) -> bool:
        """Return whether the flow gives the row on these rows. Errors of the flow count as no."""
        self.runs += 1
        try:
            return self._count(items) > 0
        except PenstockError as error:
            self.error = str(error)
            return False

    def settle_ends(self, items: list[SourceRow], ends: bool | None) -> bool:
        """Like `gives_row`; ends: whether the sources have ended, or None to find out which way gives it."""
        self.ends = bool(ends)
        found = self.gives_row(items)
        if not found and ends is None:
            self.ends = True
            found = self.gives_row(items)
        return found

    def _count(self, items: list[SourceRow]) -> int:
        engine = Engine(self.flow, columnar="never")
        count = 0
        for inputs in _ticks(items):
            count += self._in(engine.tick_rows(self._with_time(inputs)))
            while engine.pending:
                count += self._in(engine.tick_rows(self._with_time({})))
        if self.ends and engine.awaited_ends:
            count += self._in(engine.tick_rows({}, ended=engine.awaited_ends))
        return count

    def _with_time(self, inputs: dict[str, list[Row]]) -> dict[str, list[Row]]:
        if TICK_TIME in self.flow.graph().sources:
            inputs[TICK_TIME] = [(datetime.now(UTC),)]
        return inputs

    def _in(self, outputs: Mapping[str, list[Row]]) -> int:
        made = outputs.get(self.sink, ())
        width = len(self.row)
        return sum(row[width] if len(row) > width else 1 for row in made if _same(row[:width], self.row))


def find_witness(
    flow: Flow,
    sources: Mapping[str, Any],
    sink: str,
    row: Row,
    *,
    tick_rows: PerSource = TICK_ROWS,
    end: bool | None = None,
    limits: Limits | None = None,
) -> Witness:
    """Search for source rows that give a sink's internal row.

    sources: as given to the run. Files are read again from their beginning, as they are now.
    end:     whether sources that are read have ended, as in the run; None tries both.

    Raises the errors of the flow's analysis and of reading the sources.
    """
    limits = limits or Limits()
    search = _Search(flow, sink, row, limits)
    found, read, items = _find(search, sources, tick_rows, end)
    needed: list[SourceRow] = items if found else []
    minimal = False
    if found:
        needed = _without_unmatched_keys(items, read, search)
    if found and len(needed) <= limits.shrink:
        needed = _without_common_values(needed, read, search)
        needed, minimal = _shrink(needed, search)
    seconds = time.perf_counter() - search.began
    problem = "" if found else _problem(read, search)
    return Witness(found, read, tuple(items), tuple(needed), minimal, search.runs, seconds, problem)


def _find(
    search: _Search, sources: Mapping[str, Any], tick_rows: PerSource, end: bool | None
) -> tuple[bool, dict[str, SourceRead], list[SourceRow]]:
    """Return whether the row comes out, with what was read and the rows kept.

    That is decided on all rows that can influence the row: fewer could produce it for want of those that beat
    it. Then only the rows that agree with it are kept, if they produce it.
    """

    def reading(restrictions: Mapping[str, Restriction]) -> tuple[dict[str, SourceRead], list[SourceRow]]:
        return _read(search.flow, sources, restrictions, tick_rows, search.limits)

    agreeing, by_key = (_restrictions(search, keys_only=keys_only) for keys_only in (False, True))
    everything = dict.fromkeys(by_key, Restriction(None))
    read, items = reading(by_key)
    found = search.settle_ends(items, end)
    if not found and _texts(by_key) != _texts(everything):
        read, items = reading(everything)
        found = search.settle_ends(items, end)
    if found and _texts(agreeing) != _texts(by_key):
        fewer, kept = reading(agreeing)
        if search.settle_ends(kept, end):
            return True, fewer, kept
    return found, read, items


def _restrictions(search: _Search, *, keys_only: bool) -> dict[str, Restriction]:
    found = restrict_sources(search.flow.graph(), search.sink, search.row, keys_only=keys_only)
    return {name: restriction for name, restriction in found.items() if name != TICK_TIME}


def _texts(restrictions: Mapping[str, Restriction]) -> list[tuple[str, str]]:
    return [(name, str(each)) for name, each in restrictions.items()]  # expressions have no equality


def _problem(read: Mapping[str, SourceRead], search: _Search) -> str:
    unread = [name for name, source in read.items() if source.why_not]
    if unread:
        return f"The row needs rows of {', '.join(unread)}, which cannot be read again."
    if search.error:
        return f"The flow fails on the rows that were read again: {search.error}"
    if not all(source.all_read for source in read.values()):
        return "The rows that were read do not produce it; the source has more rows than the limit."
    return (
        "The sources as they are now do not produce the row. It may have been replaced since, the sources may"
        " have changed, or it depends on how the run cut its input into ticks or on the time."
    )


def _without_unmatched_keys(
    items: list[SourceRow], read: Mapping[str, SourceRead], search: _Search
) -> list[SourceRow]:
    """Leave out, at once, rows whose key no row of the other sources has, as long as the row comes out."""
    widths = {name: len(source.schema.fields) for name, source in read.items()}
    for matched in matched_keys(search.flow.graph()) * 2:  # again, for keys that a later one has reduced
        if len(matched.keys() & read.keys()) < 2:
            continue  # the operator matches rows for other sinks
        try:
            keys = {n: compile_rows(key, read[n].schema) for n, key in matched.items() if n in read}
            keyed = [
                (item, repr(keys[item.source](item.row[: widths[item.source]])))
                for item in items
                if item.source in keys
            ]
        except PenstockError:
            continue  # records of a keyed source have other columns than its rows, or a key fails on a row
        common = set[str].intersection(*({key for item, key in keyed if item.source == n} for n in keys))
        unmatched = {id(item) for item, key in keyed if key not in common}
        trial = [item for item in items if id(item) not in unmatched]
        if unmatched and not search.exhausted and search.gives_row(trial):
            items = trial
    return items


def _without_common_values(
    items: list[SourceRow], read: Mapping[str, SourceRead], search: _Search
) -> list[SourceRow]:
    """Leave out, at once, rows of a source with the same value in a column, where there are few values."""
    for name, source in read.items():
        for at in range(len(source.schema.fields)):
            values = {repr(item.row[at]) for item in items if item.source == name}
            for value in sorted(values) if 1 < len(values) <= _FEW_VALUES else ():
                if search.exhausted:
                    return items
                trial = [i for i in items if i.source != name or repr(i.row[at]) != value]
                if search.gives_row(trial):
                    items = trial
    return items


def _shrink(items: list[SourceRow], search: _Search) -> tuple[list[SourceRow], bool]:
    """Leave out rows while the row still comes out; return the rest, and whether none can be left out."""
    size = len(items) // 2
    while size:
        at, shrunk = 0, False
        while at < len(items):
            if search.exhausted:
                return items, False
            trial = items[:at] + items[at + size :]
            if search.gives_row(trial):
                items, shrunk = trial, True
            else:
                at += size
        if size > 1:
            size //= 2
        elif not shrunk:
            break
    return items, True


def _ticks(items: list[SourceRow]) -> Iterator[dict[str, list[Row]]]:
    """Group rows, ordered by round, into the input of ticks."""
    inputs: dict[str, list[Row]] = {}
    now = None
    for item in items:
        if item.round != now and inputs:
            yield inputs
            inputs = {}
        now = item.round
        inputs.setdefault(item.source, []).append(item.row)
    yield inputs


def _same(one: Row, other: Row) -> bool:
    return one == other or repr(one) == repr(other)  # NaN is unlike itself


# -- reading again ----------------------------------------------------------------------------


def _read(
    flow: Flow,
    sources: Mapping[str, Any],
    restrictions: Mapping[str, Restriction],
    tick_rows: PerSource,
    limits: Limits,
) -> tuple[dict[str, SourceRead], list[SourceRow]]:
    """Read the sources again; return what was read, and the rows that meet the restrictions, by round."""
    engine = Engine(flow, columnar="never")
    graph = engine.program.graph
    read: dict[str, SourceRead] = {}
    items: list[SourceRow] = []
    with ExitStack() as closing:
        for name, restriction in restrictions.items():
            operator = graph.nodes[graph.sources[name]].operator
            assert isinstance(operator, SourceOperator | SignalSource)
            append = engine.program.source_append[name]
            given = SourceRead(operator.schema, append, why_not=_why_unreadable(name, sources.get(name)))
            if given.why_not:
                read[name] = given
                continue
            feed = Feed(name, operator.schema, append=append, from_user=engine.intake_of(name))
            reader = open_source(as_read_by(operator, sources[name]), feed)
            closing.callback(reader.close)
            rows = _limit(operator, tick_rows)
            whole = rows is None and isinstance(_records(sources[name]), DeltaRows)
            read[name], kept = _rows_of(name, reader, rows, restriction, given, limits, whole=whole)
            items += kept
    items.sort(key=lambda item: item.round)  # stable: rows keep their order within a source
    return read, items


def _limit(operator: SourceOperator | SignalSource, tick_rows: PerSource) -> int | None:
    if isinstance(operator, SignalSource):
        return 1
    return None if operator.bounded else limit_for(tick_rows, operator.name) or TICK_ROWS


def _why_unreadable(name: str, source: object) -> str:
    if isinstance(_records(source), Files | DeltaRows | Rows | list | tuple):
        return ""
    if source is None:
        return f"nothing is given for source {name!r}"
    return f"{type(source).__name__} cannot be read again; files, Delta tables and lists of rows can"


def _records(source: object) -> object:
    return source.records if isinstance(source, ChangeData) else source


def _rows_of(
    name: str,
    reader: Reader,
    limit: int | None,
    restriction: Restriction,
    given: SourceRead,
    limits: Limits,
    *,
    whole: bool,
) -> tuple[SourceRead, list[SourceRow]]:
    """Read the rows of a source. whole: at once, as a bounded source of versions is read."""
    keep = _filter(restriction, given.schema)
    kept: list[SourceRow] = []
    count = round_ = 0
    ends = time.perf_counter() + limits.seconds / 2
    while len(kept) < limits.rows and time.perf_counter() < ends:
        batch = reader.read(None if whole else limits.rows if limit is None else min(limits.rows, limit))
        if batch is None:
            break
        count += len(batch.rows)
        kept += [SourceRow(name, round_, row) for row in batch.rows if keep is None or keep(row)]
        round_ += limit is not None  # a bounded source comes in one tick
    restriction_text = "" if keep is None else str(restriction)
    return replace(given, rows=count, all_read=reader.done, restriction=restriction_text), kept


def _filter(restriction: Restriction, schema: Schema) -> Callable[[Row], bool] | None:
    """Compile a restriction; None if it says nothing about rows with these columns."""
    if restriction.alternatives is None:
        return None
    try:
        alternatives = [
            [(compile_rows((expr,), schema), (value,)) for expr, value in equalities]
            for equalities in restriction.alternatives
        ]
    except PenstockError:
        return None  # records of a keyed source have other columns than its rows
    width = len(schema.fields)
    return lambda row: any(_agrees(row[:width], equalities) for equalities in alternatives)


def _agrees(row: Row, equalities: Sequence[tuple[Callable[[Row], Row], Row]]) -> bool:
    """Return whether a row meets all equalities. One that fails on the row rules nothing out."""
    for compute, value in equalities:
        try:
            if not _same(compute(row), value):
                return False
        except EvaluationError:
            continue  # the flow says where the error belongs
    return True
