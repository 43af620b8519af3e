"""The state of signals is plain data in slots: another engine goes on from it, and nothing shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.program import compile_program
from headrace.errors import WrongType
from headrace.state.codec import decode, value_encoder
from tests.conformance.signal_cases import SCHEDULES, PropagationCase, build
from tests.properties.effort import examples
from tests.signals.test_propagation import events_of, graphs


def empty(flow: hr.Flow) -> dict[str, dict[Any, Any]]:
    return {slot.name: {} for slot in compile_program(flow.graph()).slots}


def stored(state: dict[str, dict[Any, Any]]) -> dict[str, dict[Any, Any]]:
    """The slots as they come back from a store."""
    encode = value_encoder()
    return {n: {k: decode(encode(v)) for k, v in slot.items()} for n, slot in state.items()}


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(data=st.data())
@examples(0.5)
def test_an_engine_that_goes_on_from_stored_state_shows_what_the_first_would_have(
    schedule: Any, data: st.DataObject
) -> None:
    nodes = data.draw(graphs(sources=3, size=10))
    events = data.draw(events_of(nodes))
    outputs = tuple(list(nodes)[-3:])
    flow = build(PropagationCase(nodes, outputs, (), (), {}))
    plain = hr.Engine(flow, schedule=schedule)
    state = empty(flow)
    for at, event in enumerate(events):
        state = stored(state)
        engine = hr.Engine(flow, schedule=schedule, state=state, first_tick=at)
        found = engine.replay([event]) if data.draw(st.booleans()) else engine.tick(**event)
        expected = plain.tick(**event)
        for name in outputs:
            values = [v.row if isinstance(v, hr.Change) else v[1] for v in found[name]]
            assert values == [change.row for change in expected[name]]


class Quote(NamedTuple):
    bid: float
    ask: float | None


def test_rows_lists_and_null_come_back_as_what_they_were() -> None:
    flow = hr.Flow("values")
    quote, other = flow.signal("quote", Quote), flow.signal("other", object)
    flow.sink("both", hr.lift(lambda q, o, last: (q, o, last))(quote, other, quote.window(2)))
    state = empty(flow)
    first = hr.Engine(flow, state=state)
    first.tick(quote=(1.0, None), other=[None, {"a": (1, 2)}])
    state = stored(state)
    (change,) = hr.Engine(flow, state=state, first_tick=1).tick(other=None)["both"]
    quoted, nothing, last = change.row
    assert (quoted, nothing) == (Quote(1.0, None), None)
    assert type(quoted) is Quote
    assert list(last) == [Quote(1.0, None)]


def test_a_value_that_is_no_plain_data_is_an_error_only_where_state_is_kept() -> None:
    flow = hr.Flow("odd")
    flow.sink("out", flow.signal("a", object).filter(lambda v: True))
    odd = {1, 2}
    assert len(hr.Engine(flow).tick(a=odd)["out"]) == 1
    with pytest.raises(WrongType, match="holds a set, which cannot be stored"):
        hr.Engine(flow, state=empty(flow)).tick(a=odd)
