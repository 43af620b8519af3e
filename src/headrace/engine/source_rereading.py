"""Rereading of a run's sources from the beginning, cut into ticks as in one run over all input."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.endpoints import TICK_ROWS, as_read_by
from headrace.engine.engine import Engine
from headrace.engine.queue import limit_for
from headrace.errors import EvaluationError, HeadraceError
from headrace.expr.compile_python import compile_rows
from headrace.expr.types import Row
from headrace.io import Feed, open_source
from headrace.io.change_data import ChangeData
from headrace.io.delta import DeltaRows
from headrace.io.files.file_source import Files
from headrace.io.in_process import ArrowTable, Rows
from headrace.operators.endpoints import SourceOperator
from headrace.operators.signals.earlier_values import SignalSource

if TYPE_CHECKING:
    from headrace.analysis.column_lineage import Restriction
    from headrace.engine.queue import PerSource
    from headrace.expr.types import Schema
    from headrace.flow.flow import Flow
    from headrace.io.source import Batch, Reader


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """Limits of a search.

    rows:    that are kept per source, with the rest of the batch that reaches it.
    shrink:  most rows of which some are left out. runs: of the flow.
    seconds: until no further run begins; half of it is the limit on reading a source once.
    """

    rows: int = 200_000
    shrink: int = 5_000
    runs: int = 2_000
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A reread row. round: of reading, one tick of the flow. row: with the weight last for a table."""

    source: str
    round: int
    row: Row


@dataclass(frozen=True, slots=True)
class SourceRead:
    """Result of reading a source again.

    schema:      of its rows. append: whether they come without a weight.
    rows:        number read. rounds: ticks that it has input for.
    all_read:    whether the limits left none unread.
    restriction: condition on the rows kept, as text; empty if keys say nothing.
    reaches:     whether its rows reach the sink; otherwise only its ticks matter.
    why_not:     why it could not be read; empty if it was.
    """

    schema: Schema
    append: bool
    rows: int = 0
    rounds: int = 0
    all_read: bool = True
    restriction: str = ""
    reaches: bool = True
    why_not: str = ""


def read_again(
    flow: Flow,
    sources: Mapping[str, Any],
    restrictions: Mapping[str, Restriction],
    tick_rows: PerSource,
    limits: ReplayLimits,
) -> tuple[dict[str, SourceRead], list[SourceRow]]:
    """Read the sources again; return a report per source, and the matching rows, by round."""
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
    if isinstance(_records(source), Files | DeltaRows | ArrowTable | Rows | list | tuple):
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
    limits: ReplayLimits,
    *,
    whole: bool,
) -> tuple[SourceRead, list[SourceRow]]:
    """Read the rows of a source. whole: at once, as a bounded source of versions is read."""
    keep = _filter(restriction, given.schema)
    kept: list[SourceRow] = []
    rows = rounds = 0
    ends = time.perf_counter() + limits.seconds / 2
    all_read = True
    # A bounded source comes in one tick, so it may be read in parts; others are cut as in a run.
    for batch in _batches(reader, limits.rows if limit is None and not whole else limit):
        at = 0 if limit is None else rounds
        more = [SourceRow(name, at, row) for row in batch.rows if keep is None or keep(row)]
        if (more and len(kept) >= limits.rows) or time.perf_counter() > ends:
            all_read = False
            break
        rows, rounds = rows + len(batch.rows), at + 1
        kept += more
    restriction_text = "" if keep is None else str(restriction)
    read = replace(given, rows=rows, rounds=rounds, all_read=all_read, restriction=restriction_text)
    return read, kept


def _batches(reader: Reader, limit: int | None) -> Iterator[Batch]:
    while not reader.done and (batch := reader.read(limit)) is not None:
        yield batch


def _filter(restriction: Restriction, schema: Schema) -> Callable[[Row], bool] | None:
    """Compile a restriction; None if it does not restrict rows with these columns."""
    if restriction.alternatives is None:
        return None
    try:
        alternatives = [
            [(compile_rows((expr,), schema), (value,)) for expr, value in equalities]
            for equalities in restriction.alternatives
        ]
    except HeadraceError:
        return None  # records of a keyed source have other columns than its rows
    width = len(schema.fields)
    return lambda row: any(_agrees(row[:width], equalities) for equalities in alternatives)


def _agrees(row: Row, equalities: Sequence[tuple[Callable[[Row], Row], Row]]) -> bool:
    """Return whether a row satisfies all equalities. An equality that fails on the row is ignored."""
    for compute, value in equalities:
        try:
            if not same(compute(row), value):
                return False
        except EvaluationError:
            continue  # the flow says where the error belongs
    return True


def same(one: Row, other: Row) -> bool:
    """Return whether two rows have equal values; NaN is equal to itself."""
    return one == other or repr(one) == repr(other)
