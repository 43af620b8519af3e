"""Large ticks on frames: the same outputs, the same state, the same failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("polars")

from penstock.engine.change import Change
from penstock.engine.columnar.choice import Columnar
from penstock.engine.machine import Machine
from penstock.engine.program import Program, compile_program
from penstock.expr.rows import from_user
from penstock.testing.strategies import Case, Tick, cases, cuts

Rows = list[tuple[Any, ...]]
ALWAYS = Columnar(1, always=True)
HELD = Columnar(1, always=True, lazily=True)


class Run:
    """A machine over state that can be looked at."""

    def __init__(self, program: Program, columnar: Columnar | None) -> None:
        self.state: dict[str, dict[Any, Any]] = {s.name: {} for s in program.slots}
        self.machine = Machine(program, self.state, columnar)

    def tick(self, inputs: Mapping[str, Rows]) -> object:
        """The outputs as bags, or the failure as text."""
        try:
            made = self.machine.tick(inputs)
        except Exception as error:
            return str(error)
        rows = {name: out if isinstance(out, list) else out.rows() for name, out in made.items()}
        return {name: Counter(map(_shown, out)) for name, out in rows.items() if out}

    def settled(self) -> object:
        """The state; the lists of rows in it as bags, since joins keep their inputs in any order."""
        self.machine.settle()
        return {name: {_shown(k): _bag(v) for k, v in slot.items()} for name, slot in self.state.items()}


def _shown(row: object) -> str:
    # 0.0 and -0.0 are equal, and which of them stands for both is not promised.
    return repr(_plain(row)).replace("-0.0", "0.0")


def _plain(value: object) -> object:
    """Rows as users gave them may be instances of their class inside."""
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _bag(value: object) -> object:
    if isinstance(value, list) and value and all(isinstance(v, tuple) for v in value):
        return Counter(map(_shown, value))
    if isinstance(value, dict):
        return Counter({_shown(k): v if isinstance(v, int) else _shown(v) for k, v in value.items()})
    return _shown(value)


def _inside(case: Case, tick: Tick) -> dict[str, Rows]:
    """A tick's rows as they are inside."""
    return {
        name: from_user(
            case.source(name).schema, what=name, change=None if case.source(name).append else Change
        )(rows)
        for name, rows in tick.items()
    }


@st.composite
def runs(draw: st.DrawFn) -> tuple[Case, list[Tick], list[bool]]:
    case = draw(cases(deferred=draw(st.booleans())))
    ticks = draw(cuts(case))
    return case, ticks, draw(st.lists(st.booleans(), min_size=len(ticks), max_size=len(ticks)))


@settings(max_examples=150, deadline=None)
@given(runs())
def test_outputs_and_state_are_the_same_whichever_ticks_run_on_frames(
    run: tuple[Case, list[Tick], list[bool]],
) -> None:
    case, ticks, large = run
    program = compile_program(case.graph)
    in_rows, always, held, mixed = (Run(program, c) for c in (None, ALWAYS, HELD, HELD))
    for tick, is_large in zip(ticks, large, strict=True):
        inputs = _inside(case, tick)
        wanted = in_rows.tick(inputs)
        assert always.tick(inputs) == wanted
        assert held.tick(inputs) == wanted
        mixed.machine.least = 1 if is_large else 10**9
        assert mixed.tick(inputs) == wanted
        if isinstance(wanted, str):
            return
        assert always.settled() == in_rows.settled()
    assert held.settled() == in_rows.settled()
    assert mixed.settled() == in_rows.settled()
