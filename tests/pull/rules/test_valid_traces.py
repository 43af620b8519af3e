"""Whatever the specification allows is accepted, and at an edge nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pull.rules.checker import PROFILES, Profile, check
from headrace.pull.rules.trace import Answer, AnswerKind, Event, Layer, Request, Trace, parse
from tests.pull.rules.pair_model import BELOW, next_events, pending, walk
from tests.pull.rules.transformer_model import Walk

LAYERS: tuple[Layer, ...] = (1, 2, 3)
seeds = st.integers(0, 2**32)


def told(trace: Trace, profile: Profile = "spec", *, one_to_one: bool = True) -> list[str]:
    return [str(violation) for violation in check(trace, profile, one_to_one=one_to_one)]


def extensions(past: tuple[Event, ...]) -> Iterator[Event]:
    """Every event that can be written after a past, allowed or not, with few values and messages."""
    index = sum(isinstance(event, Request) for event in past) + 1
    for kind, message, _ in BELOW:
        yield Request("D", kind, index, message)
    said: list[tuple[AnswerKind, str | None]] = [
        ("value", None), ("done", None), ("error", "E"), ("error", "F")
    ]  # fmt: skip
    for answered in range(1, index + 1):
        for kind, message in said:
            yield Answer("U", answered, kind, answered if kind == "value" else None, message)


def test_at_an_edge_exactly_the_valid_traces_are_accepted_up_to_a_length() -> None:
    """Of all traces of up to five events; a trace that is broken stays so, as the next test shows."""
    pasts: list[tuple[Event, ...]] = [()]
    count = 0
    for _ in range(5):
        longer: list[tuple[Event, ...]] = []
        for past in pasts:
            allowed = set(next_events(past))
            for event in extensions(past):
                trace = Trace((*past, event), complete=False)
                assert (not told(trace)) == (event in allowed), f"{trace}: {told(trace)}"
            longer += [(*past, event) for event in allowed]
        for past in longer:
            assert (not told(Trace(past))) == (pending(past) is None), str(Trace(past))
        pasts, count = longer, count + len(longer)
    assert count > 10_000, "all of them, and not a few"


@given(st.lists(st.integers(0, 40), max_size=12), st.sampled_from(PROFILES), st.booleans())
def test_a_trace_that_is_broken_stays_broken_by_the_same_rules(
    choices: list[int], profile: Profile, transformer: bool
) -> None:
    events = events_of(choices, transformer)
    before: set[tuple[str, int | None]] = set()
    for end in range(len(events) + 1):
        prefix = Trace(tuple(events[:end]), complete=False, of_transformer=transformer)
        violations = check(prefix, profile)
        # What P3 says of a request without an answer it says of the answer, when that comes.
        found = {(violation.rule, violation.at) for violation in violations}
        assert {rule for rule, _ in before} <= {rule for rule, _ in found}
        for violation in violations:
            assert violation.at is not None
            assert violation.event is events[violation.at]
            assert violation.other_at is None or violation.other is events[violation.other_at]
        before = found


def events_of(choices: list[int], transformer: bool) -> list[Event]:
    """Any events at all, also those that no piece would make."""
    events: list[Event] = []
    for choice in choices:
        of_one = list(extensions(tuple(events[:4])))
        event = of_one[choice % len(of_one)]
        if transformer and choice % 2:
            event = dataclasses.replace(event, port="TI" if isinstance(event, Request) else "TO")
        events.append(event)
    return events


@given(seeds, st.integers(0, 30), st.sampled_from(LAYERS), st.booleans())
def test_a_valid_trace_of_an_edge_is_accepted(seed: int, steps: int, layer: Layer, complete: bool) -> None:
    assert told(walk(Random(seed), steps, layer, complete=complete)) == []


@given(seeds, st.integers(0, 80), st.sampled_from(LAYERS), st.booleans(), st.booleans())
def test_a_valid_trace_of_a_transformer_is_accepted(
    seed: int, steps: int, layer: Layer, complete: bool, one_to_one: bool
) -> None:
    trace = Walk(Random(seed), layer).run(steps, complete)
    assert told(trace, one_to_one=one_to_one) == [], str(trace)


def in_batches(trace: Trace, size: int) -> Trace:
    """With every ask for so many values, and every value become so many."""
    events: list[Event] = []
    for event in trace.events:
        if isinstance(event, Request) and event.kind == "ask":
            event = dataclasses.replace(event, most=size)
        elif isinstance(event, Answer) and event.kind == "value":
            event = dataclasses.replace(event, value=None, values=(event.value,) * size)
        events.append(event)
    return dataclasses.replace(trace, events=tuple(events))


@given(seeds, st.integers(0, 60), st.integers(1, 4))
def test_a_valid_trace_in_batches_is_accepted(seed: int, steps: int, size: int) -> None:
    assert told(in_batches(walk(Random(seed), steps), size)) == []
    assert told(in_batches(Walk(Random(seed), 3).run(steps, complete=True), size)) == []


def test_a_transformer_that_gets_less_than_it_asked_for_may_ask_for_the_rest() -> None:
    trace = "D:ask1*3 TI:ask1*3 U:ansT1=values(a) TI:ask2*2 U:ansT2=values(b, c) TO:ans1=values(a, b, c)"
    assert told(parse(trace)) == []
    assert [violation.rule for violation in check(parse(trace.replace("*2", "*3")))] == ["T3"]


def linear(random: Random, steps: int) -> Trace:
    """A valid trace under the rules in use: one ask at a time, one stop, nothing after the end."""
    events: list[Event] = []
    for index in range(1, steps + 1):
        events.append(Request("D", "ask", index))
        if index == steps:
            return Trace((*events, Answer("U", index, "done")))
        if random.random() < 0.2:
            end: list[tuple[AnswerKind, str | None]] = [("done", None), ("error", "E")]
            kind, message = random.choice(end)
            both = [Answer("U", at, kind, message=message) for at in (index, index + 1)]
            stops = Request("D", "abort", index + 1), Request("D", "error", index + 1, "E")
            return Trace((*events, random.choice(stops), *both))
        events.append(Answer("U", index, "value", index))
    return Trace((Request("D", "abort", 1), Answer("U", 1, "done")))


@pytest.mark.parametrize("profile", PROFILES)
@given(seed=seeds, steps=st.integers(0, 8))
def test_what_is_valid_in_use_is_valid_everywhere(profile: Profile, seed: int, steps: int) -> None:
    assert told(linear(Random(seed), steps), profile) == []
