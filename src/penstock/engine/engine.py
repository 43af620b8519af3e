"""The in-process engine: ticks over rows of the user's classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from penstock.engine.change import Change, Changes
from penstock.engine.machine import Machine
from penstock.engine.plan import Schedule
from penstock.engine.program import compile_program
from penstock.errors import BadInput, EngineStopped
from penstock.expr.rows import from_user, to_user
from penstock.flow.operators.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.slot import SlotMapping
    from penstock.flow.flow import Flow

Rows = list[tuple[Any, ...]]
ScheduleName = Literal["hybrid", "dynamic", "static"]
_NO_ROWS: Rows = []


class Engine:
    """A flow that runs in this process, tick by tick.

    state: a mapping per slot name, to keep state elsewhere than in memory or to
           go on from an earlier run; by default new dicts.
    first_tick: the number of the first tick; above 0 when going on from an earlier run.
    schedule: which pieces the flow is compiled in and which of them a tick runs. "hybrid":
           regions, where something reaches them. "dynamic": single operators, likewise.
           "static": single operators, all of them. For comparison; answers are the same.
    count_activations: count what `activations` tells, which costs a little.

    Raises at construction what the analysis of the flow raises.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        state: Mapping[str, SlotMapping] | None = None,
        first_tick: int = 0,
        schedule: ScheduleName = "hybrid",
        count_activations: bool = False,
    ) -> None:
        self.program = compile_program(flow.graph(), schedule=Schedule(schedule), counting=count_activations)
        if state is None:
            in_memory: dict[str, SlotMapping] = {s.name: {} for s in self.program.slots}
            state = in_memory
        self._machine = Machine(self.program, state)
        self._ticks = first_tick
        self._failure: BaseException | None = None
        graph = self.program.graph
        self._intake: dict[str, Callable[[Iterable[Any]], Rows]] = {
            name: _intake(graph.nodes[node].operator, self.program.source_append[name])
            for name, node in graph.sources.items()
        }
        self._bounded = {
            name for name, node in graph.sources.items() if _is_bounded(graph.nodes[node].operator)
        }
        self._outlets = [
            (name, self.program.sink_append[name], to_user(graph.nodes[node].schema))
            for name, node in graph.sinks.items()
        ]

    @property
    def code(self) -> str:
        """The generated source."""
        return self.program.source_code

    @property
    def ticks(self) -> int:
        """The number of ticks that have ended; the next one has this number."""
        return self._ticks

    @property
    def activations(self) -> dict[str, int]:
        """Per operator name the number of ticks so far in which a row reached it.

        Sources and delays count ticks in which they had rows. All are 0 without `count_activations`.
        """
        nodes = self.program.graph.nodes
        return {node.name: self._machine.activations[node.id] for node in nodes}

    @property
    def pending(self) -> bool:
        """Whether deferred rows wait for a next tick."""
        return self._machine.pending

    def tick(self, /, **inputs: Iterable[Any]) -> dict[str, Changes]:
        """Run one tick with these rows per source; the changes per sink, empty ones included.

        Append sources take rows; table sources take rows or `Change(row, weight)`.

        Raises `BadInput` for a name that is no source and for rows of a bounded
        source after the first tick, `BadRow` for a row of the wrong type: both
        before anything changed. Raises `UserFunctionFailed`, `EvaluationError`,
        `NoFixpoint` from within the tick; after one of these the state is half of
        the tick, and every further call raises `EngineStopped`.
        """
        rows: dict[str, Rows] = {}
        for name, given in inputs.items():
            intake = self._intake.get(name)
            if intake is None:
                raise self._unknown_source(name)
            if given.__class__ is not list:
                _check_iterable(name, given)
            rows[name] = intake(given)
        made = self.tick_rows(rows)
        outputs: dict[str, Changes] = {}
        for name, append, user in self._outlets:
            outputs[name] = Changes(made.get(name, _NO_ROWS), append, user)
        return outputs

    def tick_rows(self, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
        """`tick` on internal rows, unchecked: tuples, with the weight last unless the source is append."""
        if self._failure is not None:
            failure = str(self._failure) or type(self._failure).__name__
            raise EngineStopped(
                f"the engine failed in tick {self._ticks}",
                why=f"its state is half of that tick. The failure was: {failure}",
                fix="make a new engine, or restore the last checkpoint",
            ) from self._failure
        if self._ticks and self._bounded:
            self._refuse_late_rows(inputs)
        try:
            outputs = self._machine.tick(inputs)
        except BaseException as error:  # Ctrl-C, too, leaves half a tick behind
            self._failure = error
            raise
        self._ticks += 1
        return outputs

    def _refuse_late_rows(self, inputs: Mapping[str, Rows]) -> None:
        for name in self._bounded:
            if inputs.get(name):
                raise BadInput(
                    f"source {name!r} is bounded, and tick {self._ticks} brings more rows",
                    why="answers that were final at the end of the first tick would change.",
                    fix="give all its rows to the first tick, or declare the source unbounded",
                    source=name,
                )

    def internal_rows(self, name: str, rows: Iterable[Any]) -> Rows:
        """Rows as `tick` takes them, for `tick_rows`. Raises `BadInput` and `BadRow` as `tick` does."""
        intake = self._intake.get(name)
        if intake is None:
            raise self._unknown_source(name)
        _check_iterable(name, rows)
        return intake(rows)

    def _unknown_source(self, name: str) -> BadInput:
        return BadInput(
            f"the flow has no source {name!r}",
            fix=f"its sources are {', '.join(map(repr, self._intake)) or 'none'}",
            source=name,
        )


def _check_iterable(name: str, rows: object) -> None:
    """Raises `BadInput` for what is no collection of rows; text is one row, not one of letters."""
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise BadInput(
            f"source {name!r} takes an iterable of rows, got {type(rows).__name__} {rows!r}",
            fix=f"tick({name}=[...]); leave a source out to give it nothing",
            source=name,
        )


def _is_bounded(operator: object) -> bool:
    return isinstance(operator, Source) and operator.bounded


def _intake(operator: object, append: bool) -> Callable[[Iterable[Any]], Rows]:
    """From what users give to internal rows."""
    assert isinstance(operator, Source)
    what = f"source {operator.name!r}"
    return from_user(operator.schema, what=what, change=None if append else Change)
