"""Selection of the ticks to run on Polars, and the explanation shown to users.

Polars is imported only once a tick is large enough or a flow is explained.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.analysis import analyse
from headrace.engine.flow_parts import PartSchedule, live_consumers, plan_parts
from headrace.errors import BadInput
from headrace.graph.node import label

if TYPE_CHECKING:
    from headrace.engine.columnar.columnar_flow import ColumnarExecutor
    from headrace.engine.columnar.columnar_plan import ColumnarPlan
    from headrace.engine.program import Program
    from headrace.graph.node import FlowGraph
    from headrace.lowering.slot import SlotMapping


ColumnarName = Literal["auto", "always", "never"]

COLUMNAR_ROWS = 20_000
"""Number of rows from which a tick counts as large. See docs/explanation/in-process-engine.md."""

NEVER = sys.maxsize
"""Threshold that no tick reaches: no tick counts as large."""


@dataclass(frozen=True, slots=True)
class Columnar:
    """Condition for running ticks on Polars.

    least:  a tick in which every source brings fewer rows runs row by row.
    always: run on frames even if no source brings its rows in columns, for tests.
    release: is told the name of a slot whose mapping becomes an arrangement; None where the state has to stay
        in the mappings that were given.
    """

    least: int
    always: bool = False
    release: Callable[[str], None] | None = None

    def build_large_ticks(
        self, program: Program, names: dict[str, Any], rebind: Callable[[str, SlotMapping], None]
    ) -> ColumnarExecutor | None:
        """Build the large ticks of `program`; None if it has none.

        rebind: replaces the mapping of a slot.
        """
        if program.counting or program.schedule is not PartSchedule.HYBRID:
            return None
        from headrace.engine.columnar.columnar_flow import ColumnarExecutor, large_ticks_code

        code, release = large_ticks_code(program, arranged=self.release is not None), self.release
        if not code.uses_frames:
            return None

        def arrange(slot: str, mapping: SlotMapping) -> None:
            assert release is not None
            release(slot)
            rebind(slot, mapping)

        return ColumnarExecutor(code, names, arrange, least=self.least, always=self.always)


def begins_arranged(slots: Iterable[SlotMapping]) -> bool:
    """Return whether any of an engine's initial slots is an arrangement."""
    if "headrace.engine.columnar.arranged_slot" not in sys.modules:
        return False
    from headrace.engine.columnar.arranged_slot import ArrangedSlot

    return any(isinstance(slot, ArrangedSlot) for slot in slots)


def parse_columnar(
    name: ColumnarName, rows: int | None, *, release: Callable[[str], None] | None
) -> Columnar:
    """Convert the user's options; `release` as in `Columnar`.

    Raises `BadInput` for an unknown name or a number below 1.
    """
    if name not in ("auto", "always", "never"):
        raise BadInput(f"columnar={name!r} means nothing", fix='it is "auto", "always" or "never"')
    if rows is not None and rows < 1:
        raise BadInput(f"columnar_rows={rows} means nothing", fix="it is a number of rows, 1 or more")
    if name == "never":
        return Columnar(NEVER)
    if name == "always":
        return Columnar(rows or 1, always=True, release=release)
    return Columnar(rows or COLUMNAR_ROWS, release=release)


def explain_large_ticks(graph: FlowGraph) -> Iterator[str]:
    """Explain large ticks, one line per part and operator, for `headrace.analysis.explain`."""
    from headrace.engine.columnar.columnar_plan import plan_columnar, takes_values

    analysis = analyse(graph)
    consumers = live_consumers(graph)
    plans = [
        plan_columnar(graph, analysis, consumers, part) for part in plan_parts(graph, analysis, consumers)
    ]
    for plan in plans:
        yield from _lines(graph, plan)
    for source in graph.sources.values():
        if analysis.facts[source].append and takes_values(graph, plans, source):
            yield f"also lists of values: {label(graph, graph.nodes[source])}"


def _lines(graph: FlowGraph, shape: ColumnarPlan) -> Iterator[str]:
    from headrace.engine.columnar.arranged_slot import COLUMNS, KEY, ROW

    names = [label(graph, graph.nodes[n]) for n in shape.columnar]
    if names:
        yield f"on frames: {', '.join(names)}"
    kept = [n for n, plan in shape.arranged.items() if not plan.keeps_values]
    if kept:
        arranged, least = ", ".join(label(graph, graph.nodes[n]) for n in kept), COLUMNS // (KEY + ROW)
        yield f"state in arrangements from the first on, and then on frames from {least} rows on: {arranged}"
    for feed in shape.feeds:
        if feed.reduction is not None:
            readers = [graph.nodes[n] for n in shape.rest if feed.source in graph.nodes[n].inputs]
            yield f"summed up on frames: {', '.join(label(graph, node) for node in readers)}"
    for node_id, reason in shape.reasons.items():
        yield f"in rows: {label(graph, graph.nodes[node_id])}: {reason}"
