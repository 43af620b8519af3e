"""Page of a run: its ticks, regions, rows, dead letters and state; and the page of a checkpoint at rest."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.analysis import analyse, explain
from headrace.analysis.column_lineage import live_graph
from headrace.engine.program import compile_program
from headrace.engine.progress import Observer
from headrace.expr.types import Row
from headrace.file_system import local_path
from headrace.graph.node import label
from headrace.io.files.changelog import Changelog
from headrace.io.files.table_files import TableFiles
from headrace.io.source import dead_letter_folder
from headrace.operators.event_time.late_rows import LateRows
from headrace.state.commit import CommitLog
from headrace.state.inspection import CheckpointStats, SlotStats, inspect, plain, rows_of_key
from headrace.ui.server import WHY_SECONDS, OneAtATime
from headrace.ui.view_rows import (
    ViewRows,
    changes_of_tick,
    current_rows,
    latest_dead_letters,
    why_rows_are_elsewhere,
)
from headrace.view import picture_of, to_svg

if TYPE_CHECKING:
    from headrace.engine.progress import Progress, RegionTime
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph
    from headrace.ui.server import JsonObject


# --- state of a checkpoint ----------------------------------------------------------


MAX_VALUES, MAX_TEXT = 200, 20_000
"""Values that are shown of a key, and characters of each."""


# --- picture and generated code -----------------------------------------------------


def flow_description(flow: Flow) -> JsonObject:
    """Describe a flow by its picture, explanation and generated code. Raises the errors of its analysis."""
    graph = flow.graph()
    program = compile_program(live_graph(graph, at_sources=False))
    return {
        "title": graph.name,
        "svg": to_svg(picture_of(graph)),
        "explanation": str(explain(graph)),
        "code": program.source_code,
    }


def flow_overview(
    flow: Flow,
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any],
    *,
    engine: str = "here",
    shards: int | None = None,
) -> JsonObject:
    """Describe a flow with the sources and sinks of its run.

    engine: "here" or "spark". shards: as given to a run on Spark.

    Raises the errors of the flow's analysis, and of placing it on Spark.
    """
    graph = flow.graph()
    analysis = analyse(graph)
    return {
        **flow_description(flow),
        "on_spark": _on_spark(flow, sinks, shards) if engine == "spark" else None,
        "nodes": [label(graph, node) for node in graph.nodes],
        "strata": list(analysis.strata),
        "sources": {name: _described(sources.get(name)) for name in graph.sources},
        "late_sinks": [
            name for name, node in graph.sinks.items() if name in sinks and _holds_late_rows(graph, node)
        ],
        "sinks": {
            name: {
                "destination": _described(sinks[name]),
                "verdict": analysis.verdicts[name].value,
                "table": not analysis.facts[graph.sinks[name]].append,
            }
            for name in graph.sinks
            if name in sinks
        },
    }


def _on_spark(flow: Flow, sinks: Mapping[str, Any], shards: int | None) -> str:
    # Not at the top, because most pages show runs in this process.
    from headrace.spark.explanation import SHARDS, explain_on_spark

    return explain_on_spark(flow.graph(), shards=SHARDS if shards is None else shards, sinks=dict(sinks))


def _holds_late_rows(graph: FlowGraph, sink: int) -> bool:
    (read,) = graph.nodes[sink].inputs
    return isinstance(graph.nodes[read].operator, LateRows)


def _described(endpoint: object) -> str:
    """Return the kind of an endpoint and its path. Other options may hold a password."""
    path = getattr(endpoint, "path", None) or getattr(getattr(endpoint, "records", None), "path", None)
    kind = type(endpoint).__name__
    return f"{kind} {path}" if path else kind


_LOG = logging.getLogger("headrace.ui")
MAX_TICKS = 300
"""Latest ticks that the page shows."""
_IN_MEMORY = "The state is in memory only. With --checkpoint, its size by operator is shown here."


@dataclass(frozen=True)
class RunSubject:
    """The run that a page shows.

    engine:     "here" or "spark". sources, sinks: as given to the run.
    checkpoint: the folder, or None.
    shards:     as given to a run on Spark.
    find_why:   finds the source rows of a view's row, given as JSON; takes seconds.
    """

    flow: Flow
    engine: str
    sources: Mapping[str, Any]
    sinks: Mapping[str, Any]
    checkpoint: str | None
    find_why: Callable[[str, str], JsonObject]
    shards: int | None = None


@dataclass
class _RegionTotals:
    """Sums over the sampled ticks in which a region ran."""

    samples: int = 0
    seconds: float = 0.0
    rows_in: int = 0
    rows_out: int = 0

    def add(self, region: RegionTime) -> None:
        self.samples += 1
        self.seconds += region.seconds
        self.rows_in += region.rows_in
        self.rows_out += region.rows_out


@dataclass
class _Totals:
    ticks: int = 0
    rows_in: int = 0
    set_aside: int = 0
    changes_out: int = 0
    seconds: float = 0.0
    sources: dict[str, int] = field(default_factory=dict[str, int])


class RunPage:
    """Page of a run in this process or on Spark.

    `on_tick` and `observer` go to the run. They only store what they are given; their failures are logged and
    end the page's updates, never the run.
    """

    def __init__(self, subject: RunSubject) -> None:
        self._subject = subject
        graph = subject.flow.graph()
        self._overview = {
            "kind": "run",
            "engine": subject.engine,
            "checkpoint": subject.checkpoint,
            "why_seconds": WHY_SECONDS,
            **flow_overview(
                subject.flow, subject.sources, subject.sinks, engine=subject.engine, shards=subject.shards
            ),
        }
        self._views = {
            name: ViewRows(graph.nodes[node].schema)
            for name, node in graph.sinks.items()
            if name in subject.sinks
        }
        self._known = len(graph.nodes)
        self._lock = threading.Lock()
        self._version = 0
        self._ticks: deque[JsonObject] = deque(maxlen=MAX_TICKS)
        self._regions: dict[tuple[int, ...], _RegionTotals] = {}
        self._totals = _Totals()
        self._first: int | None = None
        self._last: Progress | None = None
        folder = subject.checkpoint
        self._resumed = 0 if folder is None else CommitLog(Path(folder)).last_tick()
        self._failure: str | None = None
        self._broken = False
        self._find_why = OneAtATime(subject.find_why)
        self._to_read: deque[int] = deque()
        self.observer = Observer(self._on_changes)

    # -- called by the run ----------------------------------------------------------------------

    def on_tick(self, done: Progress) -> None:
        """Record a tick."""
        self._safely(lambda: self._record(done))

    def failed(self, error: BaseException) -> None:
        """Record the error that ended the run."""
        self._failure = str(error) or type(error).__name__
        self._version += 1

    def _on_changes(self, tick: int, changes: Mapping[str, list[Row]]) -> None:
        def add() -> None:
            for name, rows in changes.items():
                if name in self._views:
                    self._views[name].add(tick, rows)

        self._safely(add)

    def _safely(self, record: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            record()
        except Exception:
            self._broken = True
            _LOG.exception("the page is no longer updated; the run goes on")

    def _record(self, done: Progress) -> None:
        tick = {
            "tick": done.tick,
            "at": time.time(),
            "rows_in": done.rows_in,
            "changes_out": done.changes_out,
            "set_aside": done.set_aside,
            "seconds": done.seconds,
            "way": done.way,
            "cost": None if done.cost is None else _cost(done),
        }
        with self._lock:
            self._ticks.append(tick)
            self._add_totals(done)
            for region in done.regions:
                nodes = tuple(node for node in region.nodes if node < self._known)
                self._regions.setdefault(nodes, _RegionTotals()).add(region)
            if self._subject.engine == "spark":
                self._queue_to_read(done.tick)
            self._first = done.tick if self._first is None else self._first
            self._last = done
            self._version += 1

    def _queue_to_read(self, tick: int) -> None:
        if len(self._to_read) == MAX_TICKS:
            self._to_read.popleft()
            for name in self._views:
                self._lose(name, f"more than {MAX_TICKS} ticks came before the page read them back")
        self._to_read.append(tick)

    def _lose(self, view: str, why: str) -> None:
        """Record that changes of a changelog are missing. Other sinks are not read tick by tick."""
        if isinstance(self._subject.sinks[view], Changelog):
            self._views[view].lose(why)

    def _add_totals(self, done: Progress) -> None:
        totals = self._totals
        totals.ticks += 1
        totals.rows_in += done.rows_in
        totals.set_aside += done.set_aside
        totals.changes_out += done.changes_out
        totals.seconds += done.seconds
        for name, source in done.sources.items():
            totals.sources[name] = totals.sources.get(name, 0) + source.rows

    # -- called by the server -------------------------------------------------------------------

    def refresh(self) -> None:
        while self._to_read:
            with self._lock:
                tick = self._to_read.popleft()
            self._read_changelogs(tick)
        for view in self._views.values():
            view.settle()

    def _read_changelogs(self, tick: int) -> None:
        for name, view in self._views.items():
            try:
                for rows in changes_of_tick(self._subject.sinks[name], tick, view.schema):
                    view.add(tick, rows)
            except Exception as error:
                view.lose(f"tick {tick} could not be read back ({error})")

    def version(self) -> int:
        return self._version + sum(view.changes for view in self._views.values())

    def overview(self) -> JsonObject:
        return self._overview

    def flow(self, view: str) -> JsonObject:
        return self._overview

    def status(self, after: int) -> JsonObject:
        with self._lock:
            last = self._last
            ticks = [tick for tick in self._ticks if tick["tick"] > after]
            totals = {**vars(self._totals), "sources": dict(self._totals.sources)}
            regions = [{"nodes": nodes, **vars(totals)} for nodes, totals in self._regions.items()]
        return {
            "tick": self._resumed if last is None else last.tick,
            "first": self._first,
            "ticks": ticks,
            "totals": totals,
            "regions": regions,
            "watermarks": {} if last is None else {n: _time(mark) for n, mark in last.watermarks.items()},
            "late": {} if last is None else dict(last.late),
            "sources": {} if last is None else _sources(last),
            "state_bytes": None if last is None else last.state_bytes,
            "views": {name: self._view_version(name) for name in self._views},
            "failure": self._failure,
        }

    def _view_version(self, name: str) -> int:
        """Return a number that rises whenever the view's rows may have changed."""
        if self._is_read_whole(name):
            return 0 if self._last is None else self._last.tick
        return self._views[name].changes

    def _is_read_whole(self, name: str) -> bool:
        return self._subject.engine == "spark" and isinstance(self._subject.sinks[name], TableFiles)

    def state(self) -> JsonObject:
        if self._subject.checkpoint is None:
            return {"why_not": _IN_MEMORY}
        if self._last is None and not self._resumed:
            return {"why_not": "The run has not committed a tick yet."}
        return state_of(self._subject.checkpoint)

    def state_of_key(self, operator: str, key: str) -> JsonObject:
        if self._subject.checkpoint is None:
            return {"why_not": _IN_MEMORY}
        return state_of_key(self._subject.checkpoint, operator, key)

    def rows(self, view: str, search: str, offset: int) -> JsonObject:
        if view not in self._views:
            return {"why_not": f"This run writes no sink {view!r}."}
        sink = self._subject.sinks[view]
        if self._subject.engine == "spark":
            if elsewhere := why_rows_are_elsewhere(sink):
                return {"why_not": elsewhere}
            if self._is_read_whole(view):
                return current_rows(sink, self._views[view].schema, search, offset)
        found = self._views[view].page(search, offset)
        resumed = self._first is not None and self._first > 1
        return {**found, "since": self._first if resumed else None}

    def dead_letters(self) -> JsonObject:
        found: JsonObject = {}
        for name, source in self._subject.sources.items():
            folder = dead_letter_folder(source)
            found[name] = (
                {"why_not": "An unreadable row ends the run: the source has no dead_letter folder."}
                if folder is None
                else latest_dead_letters(name, Path(folder))
            )
        return {"sources": found}

    def why(self, view: str, row: str) -> JsonObject:
        if view not in self._views:
            return {"why_not": f"This run writes no sink {view!r}."}
        return self._find_why(view, row)


def _cost(done: Progress) -> JsonObject:
    cost = done.cost
    assert cost is not None
    return {
        "driver": cost.driver,
        "jvm": cost.jvm,
        "workers": cost.workers,
        "phases": dict(cost.phases),
        "exchanges": dict(cost.exchanges),
        "shuffled": cost.shuffled,
    }


def _sources(done: Progress) -> JsonObject:
    return {
        name: {
            "rows": source.rows,
            "waiting": source.waiting,
            "newest": source.newest,
            "backlog": dict(source.backlog),
        }
        for name, source in done.sources.items()
    }


def _time(mark: datetime | int | float) -> Any:
    return mark.isoformat() if isinstance(mark, datetime) else mark


def state_of(folder: str | Path) -> JsonObject:
    """Describe a checkpoint. Raises the errors of `inspect`."""
    return _describe(inspect(folder))


def state_of_key(folder: str | Path, operator: str, key: str) -> JsonObject:
    """Look up what an operator has stored for a key, given as JSON. Raises the errors of `rows_of_key`."""
    try:
        wanted = json.loads(key)
    except ValueError:
        return {"why_not": 'A key is JSON: "a" in quotes, 7, or ["a", 7] for several columns.'}
    found = rows_of_key(folder, operator, wanted)[:MAX_VALUES]
    values = [(each, json.dumps(plain(each.value), ensure_ascii=False)[:MAX_TEXT]) for each in found]
    return {"values": [{"slot": each.what, "shard": each.shard, "value": text} for each, text in values]}


def _describe(held: CheckpointStats) -> JsonObject:
    return {
        "folder": str(held.folder),
        "on": held.on,
        "shards": held.shards,
        "oldest": held.oldest,
        "tick": held.tick,
        "files": held.files,
        "bytes": held.bytes,
        "damage": list(held.damage),
        "skipped": list(held.skipped),
        "positions": held.positions,
        "watermarks": held.watermarks,
        "slots": [_slot(slot, label) for slot, label in zip(held.slots, _labels(held.slots), strict=True)],
    }


def _labels(slots: Sequence[SlotStats]) -> list[str]:
    """Label the operators of slots by the user's name or their kind, and the line; else by the slot name."""
    labels: dict[str, str] = {}
    for slot in slots:
        if slot.name not in labels:
            name = slot.called or ("" if slot.operator is None else slot.operator.partition(" (")[0])
            label = (f"{name} at {slot.place}" if slot.place else name) if name else slot.name
            count = sum(other == label or other.startswith(f"{label} #") for other in labels.values())
            labels[slot.name] = f"{label} #{count + 1}" if count else label
    return [labels[slot.name] for slot in slots]


def _slot(slot: SlotStats, label: str) -> JsonObject:
    return {
        "name": slot.called or slot.name,
        "label": label,
        "operator": slot.operator or "removed from the flow",
        "slot": slot.what,
        "keys": slot.whole.keys,
        "bytes": slot.whole.bytes,
        "shards": {str(number): part.keys for number, part in sorted(slot.shards.items())},
    }


_NO_ROWS = "A checkpoint holds state, not the rows of sinks. Start the run with --ui to see them."


_NO_WHY = "A checkpoint does not hold the flow. `headrace why FLOW SINK ROW --source ...` finds the rows."


_NO_LETTERS = "A checkpoint does not know the folders of dead letters. Start the run with --ui to see them."


class CheckpointPage:
    """Page of a checkpoint's folder; it follows new commits. The checkpoint is never modified.

    Following reads the newest commit only. The state's files are read when the state is asked for.
    The constructor raises the errors of `inspect`.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(local_path(folder, "checkpoint"))
        inspect(self._folder)
        self._log = CommitLog(self._folder)
        self._last = self._log.last()
        self._failure = ""
        self._version = 0

    def refresh(self) -> None:
        failure = "" if self._folder.is_dir() else f"{self._folder} is gone; this is what it held last."
        ticks = self._log.ticks()
        if failure != self._failure or (ticks and ticks[-1] != self._tick):
            self._last = self._log.last() or self._last
            self._failure = failure
            self._version += 1

    @property
    def _tick(self) -> int:
        return 0 if self._last is None else self._last.tick

    def version(self) -> int:
        return self._version

    def overview(self) -> JsonObject:
        return {"kind": "checkpoint", "title": self._folder.name, "sources": {}, "sinks": {}}

    def flow(self, view: str) -> JsonObject:
        return {"why_not": "A checkpoint holds no flow."}

    def status(self, after: int) -> JsonObject:
        last = self._last
        return {
            "tick": self._tick,
            "ticks": [],
            "watermarks": {} if last is None else last.counters.get("watermarks", {}),
            "late": {},
            "sources": {},
            "state_bytes": None if last is None else last.state_bytes,
            "failure": self._failure,
        }

    def state(self) -> JsonObject:
        return state_of(self._folder)

    def state_of_key(self, operator: str, key: str) -> JsonObject:
        return state_of_key(self._folder, operator, key)

    def rows(self, view: str, search: str, offset: int) -> JsonObject:
        return {"why_not": _NO_ROWS}

    def dead_letters(self) -> JsonObject:
        return {"why_not": _NO_LETTERS}

    def why(self, view: str, row: str) -> JsonObject:
        return {"why_not": _NO_WHY}
