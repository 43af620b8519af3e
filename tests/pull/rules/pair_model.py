"""What may happen next at an edge: the specification as a walk, written without the checker's help.

`next_events(past)` gives every event that the specification allows after a past that it allows.
Walks along it are all the valid traces there are, up to their length, with errors of few texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from headrace.pull.rules.trace import (
    Answer,
    AnswerPort,
    Event,
    Layer,
    Request,
    RequestKind,
    RequestPort,
    Trace,
)

BELOW: tuple[tuple[RequestKind, str | None, int], ...] = (
    ("ask", None, 1),
    ("abort", None, 2),
    ("done", None, 2),
    ("error", "E", 3),
    ("errorInd", "E", 3),
)
"""What downstream may say, with the message, and the layer from which on."""

End = tuple[Literal["done", "error"], str | None]


def next_events(past: tuple[Event, ...], layer: int = 3) -> Iterator[Event]:
    """Every event that may follow."""
    yield from next_requests(past, layer, "D")
    yield from next_answers(past, layer, "U")


def walk(random: Random, steps: int, layer: Layer = 3, *, complete: bool = True) -> Trace:
    """A valid trace, of at least so many events where all must be answered in the end."""
    past: tuple[Event, ...] = ()
    while len(past) < steps or (complete and pending(past) is not None):
        ask, *stops = next_requests(past, layer, "D")
        answers = list(next_answers(past, layer, "U"))
        values = [answer for answer in answers if answer.kind == "value"]
        chosen: list[Event] = [*(stops if random.random() < 0.2 else [ask])] if len(past) < steps else []
        chosen += values if values and random.random() < 0.7 else answers
        past += (random.choice(chosen),) if chosen else (ask,)
    return Trace(past, layer, complete)


def next_requests(past: tuple[Event, ...], layer: int, port: RequestPort) -> Iterator[Request]:
    """Every request that may follow: all of them, at any time."""
    index = sum(isinstance(event, Request) for event in past) + 1
    for kind, message, needs in BELOW:
        if needs <= layer:
            yield Request(port, kind, index, message)


def next_answers(
    past: tuple[Event, ...], layer: int, port: AnswerPort, errors: tuple[str, ...] = ("E", "F")
) -> Iterator[Answer]:
    """Every answer that may follow: to the first request that has none. errors: that may happen upstream."""
    request = pending(past)
    if request is None:
        return
    for kind, message in _ends(past, request, errors):
        if layer == 3 or kind != "error":
            yield Answer(port, request.index, kind, message=message)
    if may_be_value(past, request):
        yield Answer(port, request.index, "value", request.index)


def pending(past: tuple[Event, ...]) -> Request | None:
    """The first request that waits for its answer."""
    answered = sum(isinstance(event, Answer) for event in past)
    expecting = [event for event in past if isinstance(event, Request) and event.expects_answer]
    return expecting[answered] if len(expecting) > answered else None


def may_be_value(past: tuple[Event, ...], request: Request) -> bool:
    return request.kind == "ask" and not _ended(past) and not _stopped(past[: past.index(request)])


def _ends(past: tuple[Event, ...], request: Request, errors: tuple[str, ...]) -> list[End]:
    """What may be said of the end to a request."""
    any_end: list[End] = [("done", None), *(("error", error) for error in errors)]
    told = [event for event in past if isinstance(event, Answer) and event.kind == "error"]
    if told:
        return [("error", told[0].message)]
    cause = _failed_below(past)
    if cause is None:
        if _ended(past):
            return [("done", None)]
        return any_end
    # Downstream has failed the stream. What it asked for before may end as upstream likes.
    if past.index(request) < past.index(cause) and not _ended(past):
        return any_end
    may_be_complete = any(
        isinstance(event, Answer) and event.kind == "done" and _request(past, event) < past.index(cause)
        for event in past
    )
    confirms = request.kind == "error"
    if confirms or may_be_complete:
        return [("done", None), ("error", cause.message)]
    return [("error", cause.message)]


def _request(past: tuple[Event, ...], answer: Answer) -> int:
    """The place of the request that an answer belongs to."""
    return next(
        at for at, event in enumerate(past) if isinstance(event, Request) and event.index == answer.index
    )


def _ended(past: tuple[Event, ...]) -> bool:
    return any(isinstance(event, Answer) and event.kind != "value" for event in past)


def _stopped(past: tuple[Event, ...]) -> bool:
    return any(isinstance(event, Request) and event.kind != "ask" for event in past)


def _failed_below(past: tuple[Event, ...]) -> Request | None:
    """The error of downstream that failed the stream: nothing had ended it before."""
    for event in past:
        if isinstance(event, Answer) and event.kind != "value":
            return None
        if isinstance(event, Request) and event.kind != "ask":
            return event if event.kind in ("error", "errorInd") else None
    return None
