"""Mutations: each makes of a valid, complete trace one that breaks a rule.

A mutation gives None where a trace has not what it needs. Where it is said to be `alone`, it breaks
its rule and no other.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from headrace.pull.rules.trace import Answer, Event, Request, RequestKind, Trace

Events = list[Event]
Mutate = Callable[[Random, Events], Events | None]


@dataclass(frozen=True)
class Mutation:
    """of: what it mutates, `pair` or `transformer`. layer: of the trace that comes out."""

    rule: str
    mutate: Mutate
    of: str
    alone: bool
    layer: bool

    def __call__(self, random: Random, trace: Trace) -> Trace | None:
        events = self.mutate(random, list(trace.events))
        if events is None:
            return None
        return dataclasses.replace(trace, events=tuple(events), layer=2 if self.layer else trace.layer)


MUTATIONS: list[Mutation] = []


def breaks(
    rule: str, of: str = "pair", *, alone: bool = True, layer: bool = False
) -> Callable[[Mutate], Mutate]:
    def add(mutate: Mutate) -> Mutate:
        MUTATIONS.append(Mutation(rule, mutate, of, alone, layer))
        return mutate

    return add


def answers(events: Events, port: str = "U", *kinds: str) -> Iterator[tuple[int, Answer]]:
    for at, event in enumerate(events):
        if isinstance(event, Answer) and event.port == port and (not kinds or event.kind in kinds):
            yield at, event


def requests(events: Events, port: str = "D", *kinds: RequestKind) -> Iterator[tuple[int, Request]]:
    for at, event in enumerate(events):
        if isinstance(event, Request) and event.port == port and (not kinds or event.kind in kinds):
            yield at, event


def asked(events: Events, answer: Answer) -> int:
    """The place of the request that an answer belongs to."""
    below = "D" if answer.port == "TO" or not any(e.port == "TI" for e in events) else "TI"
    return next(at for at, request in requests(events, below) if request.index == answer.index)


def first_end(events: Events, port: str = "U") -> int:
    """The place of the first end; after all events where there is none."""
    return next((at for at, _ in answers(events, port, "done", "error")), len(events))


def first_stop(events: Events, port: str = "D") -> int:
    stops = requests(events, port, "abort", "error", "done", "errorInd")
    return next((at for at, _ in stops), len(events))


def with_answer(events: Events, at: int, **changes: object) -> Events:
    answer = events[at]
    assert isinstance(answer, Answer)
    changed = dataclasses.replace(answer, **{"value": None, "message": None, **changes})
    return [*events[:at], changed, *events[at + 1 :]]


def moved(events: Events, at: int, to: int) -> Events:
    """With the event at one place put before what stands at an earlier place."""
    return [*events[:to], events[at], *events[to:at], *events[at + 1 :]]


def chosen(random: Random, places: list[int]) -> int | None:
    return random.choice(places) if places else None


# -- edges ------------------------------------------------------------------------------------------


@breaks("P1")
def an_ask_is_left_out(random: Random, events: Events) -> Events | None:
    # Not the one whose answer is the first end: what follows is judged by it.
    ended = [asked(events, answer) for at, answer in answers(events) if at == first_end(events)]
    at = chosen(random, [at for at, _ in requests(events, "D", "ask") if at not in ended])
    return None if at is None else events[:at] + events[at + 1 :]


@breaks("P2")
def an_answer_is_repeated(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in answers(events)])
    if at is None:
        return None
    to = random.randint(at + 1, len(events))
    return [*events[:to], events[at], *events[to:]]


@breaks("P3")
def two_values_are_swapped(random: Random, events: Events) -> Events | None:
    values = [at for at, _ in answers(events, "U", "value")]
    pairs = [(one, two) for one, two in itertools.pairwise(values) if asked(events, events[two]) < one]
    if not pairs:
        return None
    one, two = random.choice(pairs)
    swapped = list(events)
    swapped[one], swapped[two] = swapped[two], swapped[one]
    return swapped


@breaks("P4")
def a_value_follows_the_end(random: Random, events: Events) -> Events | None:
    late = [at for at, a in answers(events) if at > first_end(events) and _is(events, a, "ask")]
    at = chosen(random, late)
    return None if at is None else with_answer(events, at, kind="value", value=9)


@breaks("P4")
def an_error_follows_done(random: Random, events: Events) -> Events | None:
    end = first_end(events)
    if any(isinstance(event, Request) and event.kind in ("error", "errorInd") for event in events[:end]):
        return None
    late = [at for at, answer in answers(events, "U", "done") if at > end]
    at = chosen(random, late)
    return None if at is None else with_answer(events, at, kind="error", message="F")


@breaks("P5")
def an_abort_is_answered_by_a_value(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, answer in answers(events) if _is(events, answer, "abort")])
    # The first error of several is what the others must repeat.
    if at is None or at == next((at for at, _ in answers(events, "U", "error")), None):
        return None
    if at == first_end(events) and first_stop(events) > at:
        return None
    return with_answer(events, at, kind="value", value=9) if _end_is_elsewhere(events, at) else None


@breaks("P6")
def a_failure_becomes_done(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in answers(events, "U", "error")][1:])
    return None if at is None else with_answer(events, at, kind="done")


@breaks("P6")
def a_failure_becomes_another(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in answers(events, "U", "error")][1:])
    return None if at is None else with_answer(events, at, kind="error", message="G")


@breaks("P7", alone=False)
def an_error_is_answered_by_a_value(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, answer in answers(events) if _is(events, answer, "error")])
    return None if at is None else with_answer(events, at, kind="value", value=9)


@breaks("P7", alone=False)
def an_error_is_confirmed_by_another(_random: Random, events: Events) -> Events | None:
    stop, end = first_stop(events), first_end(events)
    confirms = end < len(events) and stop < end and asked(events, events[end]) == stop
    return (
        with_answer(events, end, kind="error", message="G") if confirms and _is_error(events[stop]) else None
    )


@breaks("P8")
def an_indication_is_answered(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in requests(events, "D", "done", "errorInd")])
    if at is None:
        return None
    to = random.randint(at + 1, len(events))
    return [*events[:to], Answer("U", events[at].index, "done"), *events[to:]]


@breaks("P3", alone=False)
def an_answer_is_left_out_and_a_later_one_is_not(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in answers(events)][:-1])
    return None if at is None else events[:at] + events[at + 1 :]


@breaks("P9")
def the_last_answer_is_left_out_and_is_a_value(_random: Random, events: Events) -> Events | None:
    last = next((at for at, _ in reversed(list(answers(events)))), None)
    return events[:last] + events[last + 1 :] if last is not None and events[last].kind == "value" else None


@breaks("P9", alone=False)
def an_answer_is_left_out(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in answers(events)])
    return None if at is None else events[:at] + events[at + 1 :]


@breaks("P10", alone=False)
def a_value_for_an_ask_after_a_stop(_random: Random, events: Events) -> Events | None:
    end = first_end(events)
    if end == len(events):
        return None
    ask = asked(events, events[end])
    late = _is(events, events[end], "ask") and ask > first_stop(events)
    return with_answer(events, end, kind="value", value=9) if late else None


@breaks("L", layer=True)
def an_error_below_its_layer(_random: Random, events: Events) -> Events | None:
    return events if any(event.kind in ("error", "errorInd") for event in events) else None


@breaks("W1")
def a_number_is_used_twice(random: Random, events: Events) -> Events | None:
    asks = [request for _, request in requests(events, "D")]
    if len(asks) < 2:
        return None
    one, two = sorted(random.sample([request.index for request in asks], 2))
    if _kind_of(asks, one) or _kind_of(asks, two):
        return None  # what an indication is called matters to P8 only
    return [dataclasses.replace(event, index=one) if event.index == two else event for event in events]


@breaks("B1")
def a_batch_for_one(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in answers(events, "U", "value")])
    return None if at is None else with_answer(events, at, values=(1,))


@breaks("B1")
def a_batch_that_is_too_large_or_empty(random: Random, events: Events) -> Events | None:
    at = chosen(random, [at for at, _ in answers(events, "U", "value")])
    if at is None:
        return None
    ask = asked(events, events[at])
    changed = with_answer(events, at, values=random.choice([(), (1, 2, 3)]))
    changed[ask] = dataclasses.replace(events[ask], most=2)
    return changed


def _is(events: Events, answer: Answer, kind: RequestKind) -> bool:
    """Whether an answer is one to a request of a kind."""
    return events[asked(events, answer)].kind == kind


def _is_error(event: Event) -> bool:
    return event.kind == "error"


def _kind_of(asks: list[Request], index: int) -> bool:
    return any(not ask.expects_answer for ask in asks if ask.index == index)


def _end_is_elsewhere(events: Events, at: int) -> bool:
    """Whether an answer is not what makes later ones right."""
    return first_end(events) != at or not any(at < later for later, _ in answers(events))


# -- transformers -----------------------------------------------------------------------------------


@breaks("T2", "transformer")
def the_first_value_is_answered_before_it_comes(_random: Random, events: Events) -> Events | None:
    value = next((at for at, _ in answers(events, "TO", "value")), None)
    if value is None or next(answers(events, "TO"))[0] != value:
        return None
    return moved(events, value, asked(events, events[value]) + 1)


@breaks("T2", "transformer", alone=False)
def the_end_is_answered_before_it_comes(_random: Random, events: Events) -> Events | None:
    """The first answer downstream is an end; upstream nothing was indicated."""
    end, stop = first_end(events, "TO"), first_stop(events, "TI")
    if end == len(events) or next(answers(events, "TO"))[0] != end:
        return None
    ask = asked(events, events[end])
    indicated = stop < len(events) and events[stop].kind in ("done", "errorInd")
    if not _is(events, events[end], "ask") or indicated or first_end(events) < ask:
        return None
    return moved(events, end, ask + 1)


@breaks("T3", "transformer", alone=False)
def upstream_is_asked_at_once(_random: Random, events: Events) -> Events | None:
    ask = next((at for at, _ in requests(events, "TI", "ask")), None)
    return None if ask is None else moved(events, ask, 0)


@breaks("T4", "transformer", alone=False)
def a_stop_is_confirmed_at_once(_random: Random, events: Events) -> Events | None:
    first = next(answers(events, "TO"), None)
    if first is None or not _stops(events, first[1]) or first[1].kind == "value":
        return None
    at = asked(events, first[1])
    return moved(events, first[0], at + 1) if first_end(events) > at else None


@breaks("T5", "transformer", alone=False)
def upstream_does_not_hear_of_a_stop(_random: Random, events: Events) -> Events | None:
    """All that was said upstream of a stop is left out, with its answers."""
    told = {r.index for _, r in requests(events, "TI", "abort", "error", "done", "errorInd")}
    left = [e for e in events if not (e.port in ("TI", "U") and e.index in told)]
    stopped = first_stop(events) < len(events)
    return left if told and stopped and first_end(left) == len(left) else None


@breaks("T6", "transformer", alone=False)
def a_value_is_lost(_random: Random, events: Events) -> Events | None:
    """The last value downstream becomes the end, which nobody but upstream decided."""
    undisturbed = first_stop(events) == first_stop(events, "TI") == len(events)
    values = [at for at, _ in answers(events, "TO", "value")]
    ended = undisturbed and first_end(events) < len(events) and values
    return with_answer(events, values[-1], kind="done") if ended else None


@breaks("T8", "transformer", alone=False)
def an_error_of_upstream_is_hidden(_random: Random, events: Events) -> Events | None:
    above, below = first_end(events), first_end(events, "TO")
    if len(events) in (above, below) or events[above].kind != "error" or first_stop(events) < len(events):
        return None
    return with_answer(events, below, kind="done")


@breaks("T8", "transformer")
def done_becomes_an_error(random: Random, events: Events) -> Events | None:
    above, below = first_end(events), first_end(events, "TO")
    if above == len(events) or below == len(events) or events[above].kind != "done":
        return None
    if below < above:  # an error of its own is possible then: it may fail while it closes
        return None
    held = sum(1 for _ in answers(events, "U", "value")) - sum(1 for _ in answers(events, "TO", "value"))
    if held or any(_is_error(event) or event.kind == "errorInd" for event in events):
        return None
    changed = list(events)
    for at, _ in answers(events, "TO", "done"):
        changed = with_answer(changed, at, kind="error", message="G")
    return changed


@breaks("T8", "transformer", alone=False)
def an_error_of_downstream_becomes_an_abort(_random: Random, events: Events) -> Events | None:
    stop, told = first_stop(events), first_stop(events, "TI")
    if stop == len(events) or told == len(events) or not _is_error(events[stop]) or told < stop:
        return None
    asks = [at for at, _ in requests(events, "D", "ask") if at < stop]
    forwarded = [at for at, _ in requests(events, "TI", "ask") if at < told]
    if not _is_error(events[told]) or len(forwarded) < len(asks) or first_end(events) < told:
        return None
    changed = list(events)
    changed[told] = dataclasses.replace(events[told], kind="abort", message=None)
    return changed


def _stops(events: Events, answer: Answer) -> bool:
    return events[asked(events, answer)].kind in ("abort", "error")
