"""Why a row is in a sink: a small set of source rows from which the flow makes it (a witness).

1. The sources are read again, and rows are kept that can influence the row, by the keys of operators
   (`column_lineage`). The flow runs on these rows, in this process. If the row does not come out, the flow
   runs on all rows. If the row comes out of neither, it is not in the sink.
   The replay has the ticks of one run over all of the input. If the sink depends on the cut into ticks, the
   flow runs on all rows of all sources at once, and every later run repeats the ticks of this one.
2. Rows are kept that agree with the row in the columns handed on to it, if the row comes out of these.
3. Rows are left out whose key no row of another source matches (`matched_keys`), then by common values, in
   halves and down to single ones (delta debugging), as long as the row still comes out. The rest suffices,
   and if time allows none of it can be left out. Other rows may have contributed to the same row in ways
   that do not show in it.

A row counts as in the sink if more of it was inserted than retracted after the last tick.
Functions of the flow run again for this, on rows they have seen before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from headrace.analysis.analysis import analyse
from headrace.analysis.checks import Verdict
from headrace.analysis.column_lineage import Restriction, matched_keys, restrict_sources
from headrace.engine.endpoints import TICK_ROWS
from headrace.engine.engine import Engine
from headrace.engine.source_rereading import ReplayLimits, SourceRead, SourceRow, read_again, same
from headrace.errors import HeadraceError
from headrace.expr.compile_python import compile_rows
from headrace.expr.types import Row
from headrace.operators.endpoints import TICK_TIME, SourceOperator

if TYPE_CHECKING:
    from headrace.engine.queue import PerSource
    from headrace.flow.flow import Flow


_FEW_VALUES = 30
"""Values of a column of which each is tried: can all rows with it be left out?"""


@dataclass(frozen=True, slots=True)
class Witness:
    """Answer to why a row is in a sink.

    found:      whether the flow gives the row on what was read again.
    conclusive: whether that is the answer: no row that was not read could change it.
    by_tick:    whether the sink depends on the cut into ticks; then the answer is that of one run over all of
                the input.
    sources:    what was read, per source that the answer depends on.
    possible:   rows that meet the restrictions. needed: those of them that suffice to give the row.
    minimal:    whether the row is gone without any single one of the needed ones. Otherwise some of them were
                not tried, and may have nothing to do with it.
    runs, seconds: effort. problem: why the row was not found or the search ended early; empty otherwise.
    """

    found: bool
    conclusive: bool
    by_tick: bool
    sources: Mapping[str, SourceRead]
    possible: tuple[SourceRow, ...]
    needed: tuple[SourceRow, ...]
    minimal: bool
    runs: int
    seconds: float
    problem: str = ""


@dataclass
class _Search:
    """State of one search.

    verdict: on the sink.
    rounds:  ticks that each source has input for, if it was read. ends: whether sources end after these.
    ticks:   of the run on all rows, each as the sources that end in it. Recorded if the sink depends on them.
    """

    flow: Flow
    sink: str
    row: Row
    limits: ReplayLimits
    verdict: Verdict
    rounds: dict[str, int] = field(default_factory=dict[str, int])
    ends: bool = False
    ticks: list[AbstractSet[str]] | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.perf_counter)
    runs: int = 0
    error: str = ""

    @property
    def by_tick(self) -> bool:
        """Whether the sink depends on the cut into ticks."""
        return self.verdict in (Verdict.GUARDED, Verdict.GIVEN_TICKS)

    @property
    def exhausted(self) -> bool:
        return self.runs >= self.limits.runs or time.perf_counter() - self.began >= self.limits.seconds

    def gives_row(self, items: list[SourceRow]) -> bool:
        """Return whether the flow produces the row from these rows. An error of the flow counts as no."""
        self.runs += 1
        try:
            return self._count(items) > 0
        except HeadraceError as error:
            self.error = str(error)
            return False

    def settle(self, items: list[SourceRow], read: Mapping[str, SourceRead], end: bool | None) -> bool:
        """Return whether the flow produces the row from all rows read. Later runs use the same ticks.

        end: whether the sources have ended, or None to find out which way gives the row.
        """
        self.rounds = {name: source.rounds for name, source in read.items() if not source.why_not}
        if TICK_TIME in self.flow.graph().sources:
            self.rounds[TICK_TIME] = 1
        for ends in (False, True) if end is None else (end,):
            self.ends, self.ticks = ends, None
            if self.gives_row(items):
                return True
        return False

    def _count(self, items: list[SourceRow]) -> int:
        engine = Engine(self.flow, columnar="never")
        inputs = _by_round(items)
        ticks: list[AbstractSet[str]] = []
        copies = 0
        for at, ended in self._ticks(engine, inputs):
            rows = inputs.get(at, {})
            if not ticks and TICK_TIME in self.flow.graph().sources:
                rows[TICK_TIME] = [(self.now,)]
            copies += self._in(engine.tick_rows(rows, ended=ended))
            ticks.append(ended)
        if self.by_tick and self.ticks is None:
            self.ticks = ticks
        return copies

    def _ticks(
        self, engine: Engine, inputs: Mapping[int, Mapping[str, list[Row]]]
    ) -> Iterator[tuple[int, AbstractSet[str]]]:
        """Yield each tick of a run (see `RunModule`): the round of its input, and the sources that end in it.

        Rows wait for a tick that has input as long as there is one. Rounds without rows are left out unless
        the sink depends on them.
        """
        if self.ticks is not None:
            yield from enumerate(self.ticks)
            return
        last = max(self.rounds.values(), default=0)
        begins = any(node.operator.runs_first_tick for node in engine.program.graph.nodes)
        for at in chain(range(last) if self.by_tick else sorted(inputs), count(last)):
            ended = self._ended(engine, at, last)
            must_begin = engine.ticks == 0 and (begins or last > 0)
            if at >= last and not (at in inputs or ended or engine.pending or must_begin):
                return
            yield at, ended

    def _ended(self, engine: Engine, at: int, last: int) -> AbstractSet[str]:
        """Return the awaited sources that end in a tick: those without more input, once no row is pending."""
        if not self.ends or engine.pending:
            return frozenset()
        return {name for name in engine.awaited_ends if at >= self.rounds.get(name, last)}

    def _in(self, outputs: Mapping[str, list[Row]]) -> int:
        made = outputs.get(self.sink, ())
        width = len(self.row)
        return sum(row[width] if len(row) > width else 1 for row in made if same(row[:width], self.row))


def find_witness(
    flow: Flow,
    sources: Mapping[str, Any],
    sink: str,
    row: Row,
    *,
    tick_rows: PerSource = TICK_ROWS,
    end: bool | None = None,
    limits: ReplayLimits | None = None,
) -> Witness:
    """Search for source rows from which the flow produces a sink's internal row.

    sources: as given to the run. Files are read again from their beginning, as they are now.
    end:     whether sources that are read have ended, as in the run; None tries both.

    Raises the errors of the flow's analysis and of reading the sources.
    """
    limits = limits or ReplayLimits()
    search = _Search(flow, sink, row, limits, analyse(flow.graph()).verdicts[sink])
    found, conclusive, read, items = _find_source_rows(search, sources, tick_rows, end)
    needed: list[SourceRow] = items if found else []
    minimal = False
    if found:
        needed = _without_unmatched_keys(items, read, search)
    if found and len(needed) <= limits.shrink:
        needed = _without_common_values(needed, read, search)
        needed, minimal = _shrink(needed, search)
    seconds = time.perf_counter() - search.began
    problem = "" if found else _problem(read, search)
    return Witness(
        found, conclusive, search.by_tick, read, tuple(items), tuple(needed),
        minimal, search.runs, seconds, problem,
    )  # fmt: skip


def _find_source_rows(
    search: _Search, sources: Mapping[str, Any], tick_rows: PerSource, end: bool | None
) -> tuple[bool, bool, dict[str, SourceRead], list[SourceRow]]:
    """Search for source rows. Returns whether they give the row, whether conclusively, reads, rows kept.

    That is decided on all rows that can influence the row: fewer could produce it for want of those that beat
    it. Then only the rows that agree with it are kept, if they produce it.
    """

    def reading(restrictions: Mapping[str, Restriction]) -> tuple[dict[str, SourceRead], list[SourceRow]]:
        return read_again(search.flow, sources, restrictions, tick_rows, search.limits)

    agreeing, by_key = (_restrictions(search, keys_only=keys_only) for keys_only in (False, True))
    others = [name for name in search.flow.graph().sources if search.by_tick and name != TICK_TIME]
    everything = dict.fromkeys([*by_key, *others], Restriction(None))
    decisive = everything if search.by_tick else by_key
    read, items = reading(decisive)
    found = search.settle(items, read, end)
    if not found and _texts(decisive) != _texts(everything):
        whole, every = reading(everything)
        # A part of all rows says less than all that keys select.
        if _is_conclusive(search, True, whole) and search.settle(every, whole, end):
            found, read, items = True, whole, every
    read = {name: replace(source, reaches=name in by_key) for name, source in read.items()}
    items = [item for item in items if item.source in by_key]
    conclusive = _is_conclusive(search, found, read)
    if found and _texts(agreeing) != _texts(decisive):
        fewer, kept = reading(agreeing)
        if search.gives_row(kept):
            return True, conclusive, read | fewer, kept
    return found, conclusive, read, items


def _is_conclusive(search: _Search, found: bool, read: Mapping[str, SourceRead]) -> bool:
    """Return whether unread rows cannot change the answer."""
    unread = [name for name, source in read.items() if source.why_not or not source.all_read]
    if not unread:
        return True
    graph = search.flow.graph()
    operators = [graph.nodes[graph.sources[name]].operator for name in unread]
    # More rows only add to such a sink. Of a bounded source it may be known what is absent.
    grows = search.verdict is Verdict.NO_COORDINATION
    return found and grows and not any(isinstance(o, SourceOperator) and o.bounded for o in operators)


def _restrictions(search: _Search, *, keys_only: bool) -> dict[str, Restriction]:
    found = restrict_sources(search.flow.graph(), search.sink, search.row, keys_only=keys_only)
    return {name: restriction for name, restriction in found.items() if name != TICK_TIME}


def _texts(restrictions: Mapping[str, Restriction]) -> list[tuple[str, str]]:
    return [(name, str(each)) for name, each in restrictions.items()]  # expressions have no equality


def _problem(read: Mapping[str, SourceRead], search: _Search) -> str:
    unread = [name for name, source in read.items() if source.why_not]
    if unread:
        what = "needs rows" if any(read[name].reaches for name in unread) else "may depend on the ticks"
        return f"The row {what} of {', '.join(unread)}, which cannot be read again."
    if search.error:
        return f"The flow fails on the rows that were read again: {search.error}"
    if not all(source.all_read for source in read.values()):
        return "The rows that were read do not produce it; the source has more rows than the limit."
    reasons = ["it may have been replaced since", "the sources may have changed"]
    if search.by_tick:
        reasons.append("the run may have cut its input into other ticks")
    if TICK_TIME in search.flow.graph().sources:
        reasons.append("it may depend on the time of the run")
    listed = f"{', '.join(reasons[:-1])}, or {reasons[-1]}" if len(reasons) > 2 else " or ".join(reasons)
    return f"The sources as they are now do not produce the row: {listed}."


def _without_unmatched_keys(
    items: list[SourceRow], read: Mapping[str, SourceRead], search: _Search
) -> list[SourceRow]:
    """Drop all rows whose key no other source has, provided the remaining rows still produce the row."""
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
        except HeadraceError:
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
    """Drop all rows of a source with one value of a column at once, for columns with few values."""
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
    """Minimise the rows that still produce the row; return them, and whether they are minimal."""
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


def _by_round(items: list[SourceRow]) -> dict[int, dict[str, list[Row]]]:
    """Group rows into the input of ticks, by round and source."""
    inputs: dict[int, dict[str, list[Row]]] = {}
    for item in items:
        inputs.setdefault(item.round, {}).setdefault(item.source, []).append(item.row)
    return inputs
