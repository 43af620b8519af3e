"""A transformer that does at random whatever a transformer may do, between two neighbours like it.

It makes one value of each value. Requests wait in its inbox, answers in slots, in order; each
step of a walk moves one of them on. Upstream and downstream do what the model of an edge allows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

from headrace.pull.rules.trace import Answer, Event, Layer, Request, RequestKind, Trace
from tests.pull.rules.pair_model import next_answers, next_requests

OWN = "X"
"""The error with which the transformer fails by itself."""


@dataclass(eq=False)
class Slot:
    """A request of downstream that waits. via: the request upstream whose answer it waits for."""

    request: Request
    via: int | None
    outcome: Answer | None = None


class Walk:
    def __init__(self, random: Random, layer: Layer) -> None:
        self.random, self.layer = random, layer
        self.events: list[Event] = []
        self.inbox: deque[Request] = deque()
        self.slots: deque[Slot] = deque()
        self.failing = False

    def run(self, steps: int, complete: bool) -> Trace:
        for _ in range(steps):
            self.random.choice(
                (self._ask_something, self._take, self._upstream, self._reply, self._stop, self._fail)
            )()
        while complete and (self.inbox or self.slots or self._waiting_above()):
            self.random.choice((self._take, self._upstream, self._reply))()
        return Trace(tuple(self.events), self.layer, complete)

    # -- the edges ------------------------------------------------------------------------------

    def _above(self) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.port in ("TI", "U"))

    def _below(self) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.port in ("D", "TO"))

    def _ended(self) -> bool:
        return any(isinstance(e, Answer) and e.port == "U" and e.kind != "value" for e in self.events)

    def _stops(self, *kinds: RequestKind) -> list[Request]:
        return [e for e in self._above() if isinstance(e, Request) and e.kind in kinds]

    def _stopped(self) -> bool:
        return bool(self._stops("abort", "error", "done", "errorInd"))

    def _closed(self) -> bool:
        """Whether upstream has ended, and has confirmed what it was told to confirm."""
        answered = {e.index for e in self.events if isinstance(e, Answer) and e.port == "U"}
        closing = self._stops("abort", "error")
        return self._ended() and (not closing or closing[0].index in answered)

    def _waiting_above(self) -> bool:
        return any(next_answers(self._above(), self.layer, "U"))

    # -- steps ----------------------------------------------------------------------------------

    def _ask_something(self) -> None:
        asks, *stops = list(next_requests(self._below(), self.layer, "D"))
        request = self.random.choice(stops) if stops and self.random.random() < 0.25 else asks
        self.events.append(request)
        self.inbox.append(request)

    def _upstream(self) -> None:
        answers = list(next_answers(self._above(), self.layer, "U"))
        values = [answer for answer in answers if answer.kind == "value"]
        if not answers:
            return
        answer = self.random.choice(values if values and self.random.random() < 0.7 else answers)
        self.events.append(answer)
        for slot in self.slots:
            if slot.via == answer.index:
                slot.outcome = answer

    def _take(self) -> None:
        """Pass a request of downstream on, or keep it to answer it without upstream."""
        if not self.inbox:
            return
        request = self.inbox.popleft()
        over = self._ended() or self._stopped()
        if not request.expects_answer:
            self._take_indication(request, over)
        elif request.kind == "ask" and not over and self.layer > 1 and self.random.random() < 0.1:
            self.slots.append(Slot(request, self._send("abort")))  # it has enough, like take
        elif over and (self.failing or (self._may_keep(request) and self.random.random() < 0.5)):
            self.slots.append(Slot(request, None))
        else:
            self.slots.append(Slot(request, self._send(request.kind, request.message)))

    def _may_keep(self, request: Request) -> bool:
        # What only an indication has ended confirms nothing.
        return request.kind == "ask" or self._ended() or bool(self._stops("abort", "error"))

    def _take_indication(self, request: Request, over: bool) -> None:
        kind = request.kind
        if self.random.random() < 0.5:
            kind = "abort" if kind == "done" else "error"  # to be confirmed, though nobody waits for it
        if not over or self.random.random() < 0.3:
            self._send(kind, request.message)

    def _send(self, kind: RequestKind, message: str | None = None) -> int:
        index = sum(isinstance(event, Request) for event in self._above()) + 1
        self.events.append(Request("TI", kind, index, message))
        return index

    def _stop(self) -> None:
        """Abort upstream for reasons of its own."""
        failed = any(request.kind in ("error", "errorInd") for request in self.inbox)
        if self.layer > 1 and self.random.random() < 0.1 and not failed and not self._stopped():
            self._send("abort")

    def _fail(self) -> None:
        """Fail on the value that is to be answered next."""
        ready = self.slots and self.slots[0].outcome is not None and self.slots[0].outcome.kind == "value"
        over = self._ended() or self._stopped()
        if ready and self.layer == 3 and not over and self.random.random() < 0.1:
            self._send("error", OWN)
            self.failing = True

    # -- answers --------------------------------------------------------------------------------

    def _reply(self) -> None:
        if not self.slots:
            return
        slot = self.slots[0]
        allowed = list(next_answers(self._below(), self.layer, "TO", ("E", "F", OWN)))
        wanted = self._wanted(slot)
        if wanted is None:
            return
        same = [a for a in allowed if (a.kind, a.message) == (wanted.kind, wanted.message)]
        answer = (same or [a for a in allowed if a.kind == "error"] or allowed)[0]
        self.events.append(answer)
        self.slots.popleft()

    def _wanted(self, slot: Slot) -> Answer | None:
        """What should be answered, if it can be: what came from upstream, or how that ended."""
        end = self._end()
        if self.failing:
            return Answer("TO", slot.request.index, "error", message=OWN) if self._closed() else None
        if slot.outcome is not None and slot.outcome.kind != "value":
            return slot.outcome
        if slot.outcome is not None:
            lost = self._stopped_since(slot.request) and end is not None and self._closed()
            return end if lost and self.random.random() < 0.5 else slot.outcome
        if slot.via is not None:
            return None
        if not self._ended() and not self._stops("abort", "error"):
            return Answer("TO", slot.request.index, "done")  # nothing confirms an indication
        return end if self._closed() else None

    def _end(self) -> Answer | None:
        ends = [e for e in self.events if isinstance(e, Answer) and e.port == "U" and e.kind != "value"]
        return ends[0] if ends else None

    def _stopped_since(self, request: Request) -> bool:
        later = self.events[self.events.index(request) :]
        return any(isinstance(event, Request) and event.kind != "ask" for event in later)
