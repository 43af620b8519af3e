"""`lend`: distribute the values of a stream to borrowers that come, go and fail."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.compose import pull
from headrace.pull.concurrent_calls import async_map
from headrace.pull.edge import PullEdge
from headrace.pull.elementwise import take
from headrace.pull.errors import NotLending, ProtocolBroken
from headrace.pull.module_context import Module, Registry
from headrace.pull.modules import (
    PullDuplex,
    PullSink,
    PullSource,
    PullTransformer,
    SinkPart,
    SourcePart,
    TransformerPart,
)
from headrace.pull.pipeline_run import Run
from headrace.pull.protocol import AnswerTo, End, Read, attach_close_error
from headrace.pull.sinks import ReadLoop


class Ledger:
    """Ledger of values read, lent and answered. A failed borrower's values are lent again.

    Invariant: `read - answered == lent + pending`, and results are returned in the order of the values.
    `check` verifies it.
    """

    def __init__(self) -> None:
        self.read = 0
        self.answered = 0
        self.given = 0
        self._pending: list[tuple[int, Any]] = []
        self._lent: dict[Hashable, deque[tuple[int, Any]]] = {}
        self._results: dict[int, Any] = {}

    @property
    def pending(self) -> int:
        """Number of values not lent to any borrower."""
        return len(self._pending)

    @property
    def lent(self) -> int:
        """Number of values that borrowers have not answered."""
        return sum(map(len, self._lent.values()))

    @property
    def all_answered(self) -> bool:
        return self.answered == self.read

    @property
    def ready(self) -> bool:
        """Whether the next result in order is available."""
        return self.given in self._results

    def add(self, value: Any) -> None:
        """Record a value read from upstream."""
        heapq.heappush(self._pending, (self.read, value))
        self.read += 1

    def lend(self, borrower: Hashable) -> Any:
        """Lend the oldest pending value. Requires one."""
        number, value = heapq.heappop(self._pending)
        self._lent.setdefault(borrower, deque()).append((number, value))
        return value

    def owes(self, borrower: Hashable) -> bool:
        """Whether a borrower has unanswered values."""
        return bool(self._lent.get(borrower))

    def answer(self, borrower: Hashable, result: Any) -> None:
        """Record the result of the borrower's oldest value. Requires `owes`."""
        number, _ = self._lent[borrower].popleft()
        self._results[number] = result
        self.answered += 1

    def take_back(self, borrower: Hashable) -> None:
        """Mark a borrower's unanswered values as pending again."""
        for numbered in self._lent.pop(borrower, ()):
            heapq.heappush(self._pending, numbered)

    def give(self) -> Any:
        """Return the next result in order. Requires `ready`."""
        self.given += 1
        return self._results.pop(self.given - 1)

    def check(self) -> None:
        assert self.read - self.answered == self.lent + self.pending
        assert self.given + len(self._results) == self.answered
        held = [number for values in (self._pending, *self._lent.values()) for number, _ in values]
        numbers = sorted([*held, *self._results])
        assert numbers == sorted(set(numbers)), "a value is in two places"
        assert all(self.given <= number < self.read for number in numbers)


class Loan:
    """Progress of one borrower, returned by `Lender.lend`.

    lent, answered: number of values it received, and of results it returned.
    over:  whether it has ended. error: its failure, if any.
    """

    def __init__(self) -> None:
        self.lent = 0
        self.answered = 0
        self.over = False
        self.error: Exception | None = None
        self.borrower: Borrower | None = None

    def recall(self) -> None:
        """Stop the borrower. Its unanswered values are lent to others."""
        if self.borrower is not None:
            self.borrower.stop(None)


class LenderState(Protocol):
    """Interface of a lender toward its borrowers: see `LendingRun`."""

    module: Module

    def ask(self, borrower: Borrower, answer: AnswerTo) -> None: ...

    def forget(self, borrower: Borrower) -> None: ...

    def answer(self, borrower: Borrower, result: Any) -> None: ...

    def take_back_values(self, borrower: Borrower) -> None: ...

    def handle_end(self, borrower: Borrower, error: Exception | None) -> None: ...


class Borrower:
    """Running borrower. window: number of requests to keep in flight; None for its modules' depth."""

    def __init__(
        self, lending: LenderState, worker: PullTransformer | PullDuplex, loan: Loan, window: int | None
    ) -> None:
        self.loan = loan
        self._lending = lending
        self._worker = worker
        self._lends: list[PullEdge] = []
        self.run = Run(lending.module.run.runtime, window=window)
        loan.borrower = self

    def start(self) -> None:
        """Open the borrower's modules, which start reading."""
        location = self._lending.module.location
        lent = PullSource(SourcePart("lent", location, self._open))
        returned = PullSink(SinkPart("returned", location, self._receive))
        pipeline = pull(lent, self._worker, returned)
        self.run.when_finished(lambda run: self._lending.handle_end(self, run.error))
        try:
            pipeline.open_in(self.run)
        except Exception as error:
            self.run.record_failure(error)
        self.run.built()

    def stop(self, cause: Exception | None) -> None:
        """Abort the borrower, or fail it."""
        if not self.run.finished:
            self.run.stop(cause)

    def _open(self, module: Module) -> Read:
        self._lends = module.outputs

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is None:
                self._lending.ask(self, answer)
            else:
                self._lending.forget(self)
                answer(abort)

        return read

    def _receive(self, module: Module, edge: PullEdge) -> None:
        def take(results: list[Any]) -> None:
            for result in results:
                self._lending.answer(self, result)

        def over(end: End) -> None:
            self._lending.take_back_values(self)
            # It may have ended without stopping its input, which is of no use any more.
            for lent in self._lends:
                lent.finish(end)
            if end is True:
                module.done()
            else:
                module.fail(end)

        ReadLoop(edge, take, over).start()

    def unexpected_result_error(self) -> ProtocolBroken:
        """Build the error for a result without a corresponding value."""
        return ProtocolBroken(
            "a borrower gave more results than it was lent values",
            where=[self._lending.module.location],
            why="The results of a borrower belong to its values one by one, in order.",
            fix="lend to transformers that make one value of each value",
            module=self._lending.module.name,
            rule="T2",
        )


class LendingRun:
    """Running lender. It asks upstream once per idle borrower while downstream wants a result.

    The stream ends when upstream has ended, all values are answered and all borrowers have closed. If
    downstream stops it, the stream ends when upstream and all borrowers have closed.
    """

    def __init__(self, module: Module, edge: PullEdge, running: Registry[LendingRun]) -> None:
        self.module = module
        self.ledger = Ledger()
        self.over = False
        """Whether lending is over: all values are answered, or downstream has stopped the stream."""
        self._edge = edge
        self._asks: deque[AnswerTo] = deque()
        self._waiting: deque[tuple[Borrower, AnswerTo]] = deque()
        self._borrowers: dict[Borrower, None] = {}
        self._reading = 0
        self._end: End | None = None
        self._stop: AnswerTo | None = None
        self._entry = running.add(module, self)
        module.cancel_at_end(self)

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._asks.append(answer)
            self._go_on()
            return
        self._asks.clear()
        self._stop = answer
        self._finish(self._end or abort)
        if self._edge.ended is None:
            self._reading += 1
            self._edge(abort, self._confirmed)
        self._look_if_closed()

    def _confirmed(self, end: End | None, _value: Any = None, /) -> None:
        self._reading -= 1
        self._note(end or True)
        self._look_if_closed()

    def _note(self, end: End) -> None:
        """Record how upstream ended; a failure takes precedence over an abort."""
        if isinstance(end, Exception):
            self._end = attach_close_error(self._end, end) if isinstance(self._end, Exception) else end
        else:
            self._end = self._end or end

    def add(self, borrower: Borrower) -> None:
        """Add a borrower, unless the stream is over."""
        if self.over:
            borrower.loan.over = True
            return
        self._borrowers[borrower] = None
        borrower.start()

    def ask(self, borrower: Borrower, answer: AnswerTo) -> None:
        """Handle a borrower's request for a value."""
        if self.over:
            answer(self._end or True)
        else:
            self._waiting.append((borrower, answer))
            self._go_on()

    def forget(self, borrower: Borrower) -> None:
        """Handle a borrower that wants no more values; it may still answer those it has."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not borrower)

    def answer(self, borrower: Borrower, result: Any) -> None:
        """Handle a borrower's result."""
        if not self.ledger.owes(borrower):
            raise borrower.unexpected_result_error()
        self.ledger.answer(borrower, result)
        borrower.loan.answered += 1
        self._go_on()

    def take_back_values(self, borrower: Borrower) -> None:
        """Handle a borrower's last result: its unanswered values are lent to others."""
        self.forget(borrower)
        self.ledger.take_back(borrower)
        self._go_on()

    def handle_end(self, borrower: Borrower, error: Exception | None) -> None:
        """Handle the end of a borrower."""
        borrower.loan.over = True
        borrower.loan.error = error
        self._borrowers.pop(borrower, None)
        self.take_back_values(borrower)

    def _go_on(self) -> None:
        ledger = self.ledger
        while self._asks and ledger.ready:
            self._asks.popleft()(None, ledger.give())
        if not self.over:
            while self._waiting and ledger.pending:
                borrower, answer = self._waiting.popleft()
                borrower.loan.lent += 1
                answer(None, ledger.lend(borrower))
            if self._end is not None and ledger.all_answered:
                self._finish(self._end)
            while self._wants_a_value():
                self._reading += 1
                self._edge(None, self._got)
        self._look_if_closed()

    def _wants_a_value(self) -> bool:
        """Whether a borrower waits for a value while downstream waits for its result."""
        if self.over or self._end is not None:
            return False
        asked, under_way = self.ledger.given + len(self._asks), self.ledger.read + self._reading
        return self._reading < len(self._waiting) and under_way < asked

    def _got(self, end: End | None, value: Any = None, /) -> None:
        self._reading -= 1
        if end is not None:
            self._note(end)
        elif not self.over:
            self.ledger.add(value)
        self._go_on()

    def _finish(self, end: End) -> None:
        """End the lending: waiting borrowers get the end, the others are stopped."""
        self.over = True
        self._end = end
        self._entry.cancel()
        waiting, self._waiting = self._waiting, deque()
        answered: set[Borrower] = set()
        for borrower, answer in waiting:
            answered.add(borrower)
            answer(end)
        for borrower in self._borrowers:
            if borrower not in answered or self._stop is not None:
                borrower.stop(end if isinstance(end, Exception) else None)

    def _look_if_closed(self) -> None:
        if not self.over or self._borrowers or self._reading or self._end is None:
            return
        if self._stop is not None:
            self._stop(self._end)
            self._stop = None
        while self._asks:
            self._asks.popleft()(self._end)

    def cancel(self) -> None:
        """End all borrowers when the module ends or fails."""
        self.over = True
        for borrower in tuple(self._borrowers):
            borrower.stop(self.module.failure)


Borrows = PullTransformer | PullDuplex | Callable[[Any], Awaitable[Any]]
"""Transformer or duplex with one result per value, or a coroutine function of one value."""


@dataclass(frozen=True, eq=False, slots=True)
class Lender(PullTransformer):
    """Transformer with a handle to add borrowers; see `lend`."""

    running: Registry[LendingRun] = field(default_factory=lambda: Registry[LendingRun]())

    def lend(self, borrower: Borrows, *, values: int | None = None) -> Loan:
        """Lend values to one more borrower, in the most recently started run of this transformer.

        values: maximum number of values for it; None for unlimited.

        Raises `NotLending` if there is no run, or lending is over because all values are answered or
        downstream has stopped the stream. While all values are lent to others, a new borrower waits, since
        one of them may fail. Call it in the thread of the pipeline.
        """
        lending = next(reversed([*self.running]), None)
        if lending is None:
            raise NotLending(
                "there is nothing to lend",
                where=[SourceLocation.of_caller()],
                why="The pipeline of this lender has not been started, was stopped, or has all its results.",
                fix="start() or await the pipeline first, or give borrowers to each run: lend(borrower, ...)",
            )
        loan = Loan()
        lending.module.enter(_add_borrower, lending, borrower, values, loan)
        return loan


def lend(*borrowers: Borrows, width: int = 16) -> Lender:
    """Process each value by one of several borrowers; results are in the order of the values.

    borrowers: borrowers of every run; `Lender.lend` adds others while it runs. A borrower is a transformer
               or a duplex with one result per value, in order (a connection to another machine, for
               example), or a coroutine function, which is called with one value at a time.
    width:     limit on values that are with borrowers or wait their turn, and so on the requests of sinks.

    If a borrower fails, ends or aborts before it has answered its values, they are lent to the others, oldest
    first. Its error is in its `Loan`. When no borrower is left, the stream waits for the next one.

    Upstream is asked only when both a borrower and downstream wait for a value. Values go to whichever
    borrower asks, so a fast one gets more. Done and errors of upstream follow once all values before them are
    answered; borrowers get the same end, and the stream ends when all of them have closed. An abort from
    downstream goes upstream and to all borrowers, and is confirmed when they have closed.

    >>> from headrace.pull import collect, map, pull, take, values
    >>> quits = pull(take(2), map(lambda x: 10 * x))
    >>> pull(values([1, 2, 3, 4]), lend(quits, map(lambda x: 10 * x)), collect()).run()
    [10, 20, 30, 40]
    """
    check_integer("lend", "width", width, least=1)
    running: Registry[LendingRun] = Registry()

    def open(module: Module, edge: PullEdge) -> Read:
        lending = LendingRun(module, edge, running)
        for borrower in borrowers:
            _add_borrower(lending, borrower, None, Loan())
        return lending.read

    return Lender((TransformerPart("lend", SourceLocation.of_caller(), open, width=width),), running=running)


def _add_borrower(lending: LendingRun, borrower: Borrows, values: int | None, loan: Loan) -> None:
    stream = isinstance(borrower, PullTransformer | PullDuplex)
    worker = borrower if isinstance(borrower, PullTransformer | PullDuplex) else async_map(borrower)
    if values is not None:
        worker = pull(take(values), worker)
    lending.add(Borrower(lending, worker, loan, window=None if stream else 1))
