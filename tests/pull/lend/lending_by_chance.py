"""A lender whose input, output and borrowers do one random thing after the other, replayable by its seed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from headrace.pull import PullSink, PullSource, PullTransformer, lend, pull
from headrace.pull.edge import PullEdge
from headrace.pull.lending import LendingRun
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from headrace.testing import RandomRuntime

Action = tuple[str, Callable[[], object]]


class InputError(Exception):
    """What the input fails with."""


class OutputError(Exception):
    """What the output fails the stream with."""


class BorrowerError(Exception):
    """What a borrower fails with."""


class Case:
    """The four kinds: the input or the output ends the stream, with done or an error."""

    def __init__(self, seed: int) -> None:
        chosen = random.Random(seed)
        self.input_ends = chosen.random() < 0.5
        self.fails = chosen.random() < 0.5
        self.values = chosen.randrange(6) if self.input_ends else 100
        self.takes = 100 if self.input_ends else chosen.randrange(6)

    @property
    def end(self) -> End:
        if not self.fails:
            return True
        return InputError("input") if self.input_ends else OutputError("output")


class Input:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.given = 0
        self.asked = 0
        self.stopped = False
        self.ended = False
        self.waiting: deque[AnswerTo] = deque()
        self.module: Module | None = None
        self.source = PullSource.of("input", self.open)

    def open(self, module: Module) -> Any:
        self.module = module

        def read(abort: End | None, answer: AnswerTo) -> None:
            self.asked += abort is None
            self.stopped = self.stopped or abort is not None
            self.waiting.append(answer)

        return read

    def actions(self) -> Iterator[Action]:
        if self.waiting and not self.ended:
            yield "input", self.act

    def act(self) -> None:
        assert self.module is not None
        answer = self.waiting.popleft()
        if self.stopped:
            self.ended = not self.waiting
            self.module.enter(answer, True)
        elif self.given < self.case.values:
            self.given += 1
            self.module.enter(answer, None, self.given)
        else:
            self.ended = True
            self.module.enter(answer, self.case.end)


class Output:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.asks = 0
        self.open_asks = 0
        self.got: list[Any] = []
        self.end: End | None = None
        self.stopped = False
        self.module: Module | None = None
        self.edge: PullEdge | None = None
        self.sink = PullSink.of("output", self.open)

    def open(self, module: Module, edge: PullEdge) -> None:
        self.module, self.edge = module, edge

    def actions(self) -> Iterator[Action]:
        if self.end is None and not self.stopped and self.open_asks < 3:
            yield "output", self.act

    def act(self) -> None:
        assert self.module is not None
        self.module.enter(self.request)

    def request(self) -> None:
        assert self.edge is not None
        if len(self.got) >= self.case.takes:
            self.stopped = True
            self.edge(self.case.end, self.answered)
        else:
            self.asks += 1
            self.open_asks += 1
            self.edge(None, self.answered)

    def answered(self, end: End | None, value: Any = None, /) -> None:
        assert self.module is not None
        self.open_asks -= 1
        if end is None:
            self.got.append(value)
        elif self.end is None:
            self.end = end
            self.module.done()


class Borrower:
    """Answers ten times each value, one thing at a time; one time in ten it fails or stops instead."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen
        self.asks: deque[AnswerTo] = deque()
        self.values: deque[int] = deque()
        self.reads = 0
        self.reading = False
        self.end: End | None = None
        self.closed = False
        self.module: Module | None = None
        self.edge: PullEdge | None = None
        self.transformer = PullTransformer.of("borrower", self.open)

    def open(self, module: Module, edge: PullEdge) -> Any:
        self.module, self.edge = module, edge

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is None:
                self.asks.append(answer)
            else:
                self.closed = True
                edge(abort, answer)

        return read

    def actions(self) -> Iterator[Action]:
        if not self.closed and self.asks:
            yield "borrower", self.act

    def act(self) -> None:
        assert self.module is not None
        if self.chosen.random() < 0.1:
            self.closed = True
            self.module.enter(self.fail if self.chosen.random() < 0.5 else self.quit)
        else:
            self.module.enter(self.go_on)

    def go_on(self) -> None:
        assert self.edge is not None
        can_read = not self.reading and self.end is None
        if self.values and (not can_read or self.chosen.random() < 0.5):
            self.asks.popleft()(None, 10 * self.values.popleft())
        elif can_read:
            self.reading = True
            self.reads += 1
            self.edge(None, self.got)
        elif self.end is not None and not self.values:
            self.closed = True
            self.asks.popleft()(self.end)

    def got(self, end: End | None, value: Any = None, /) -> None:
        self.reading = False
        if end is None:
            self.values.append(value)
        else:
            self.end = end

    def fail(self) -> None:
        raise BorrowerError("borrower")

    def quit(self) -> None:
        assert self.edge is not None
        answer = self.asks.popleft()
        self.edge(True, answer)


class ByChance:
    """One seeded run. `trace` is what was done, in order."""

    def __init__(self, seed: int) -> None:
        self.case = Case(seed)
        self.chosen = random.Random(seed)
        self.input = Input(self.case)
        self.output = Output(self.case)
        self.borrowers: list[Borrower] = []
        self.lender = lend(width=3)
        self.trace: list[str] = []
        self.lending: LendingRun | None = None
        self.runtime = RandomRuntime(seed, after_each=self.check)
        self.run = pull(self.input.source, self.lender, self.output.sink).start(self.runtime)
        self.lending = next(iter(self.lender.running))

    def check(self) -> None:
        """What holds after each thing that happens."""
        if self.lending is None:
            return
        ledger = self.lending.ledger
        ledger.check()
        assert ledger.read <= self.input.given
        assert self.input.asked <= sum(borrower.reads for borrower in self.borrowers)
        assert self.input.asked <= self.output.asks

    def actions(self) -> Iterator[Action]:
        yield from self.input.actions()
        yield from self.output.actions()
        if self.lender.running and sum(not borrower.closed for borrower in self.borrowers) < 4:
            yield "create", self.create
        for borrower in self.borrowers:
            yield from borrower.actions()

    def create(self) -> None:
        borrower = Borrower(self.chosen)
        self.borrowers.append(borrower)
        self.lender.lend(borrower.transformer)

    def play(self, most: int = 2000) -> None:
        """Do random things until the run has finished."""
        for _ in range(most):
            actions = list(self.actions())
            if self.run.finished or not actions:
                return
            name, act = self.chosen.choice(actions)
            self.trace.append(name)
            act()
            self.check()
