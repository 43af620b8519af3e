"""Lending: what a lender does in one run."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.pull.edge import Edge
from penstock.pull.lending.borrower import Borrower
from penstock.pull.lending.ledger import Ledger
from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End, attach_close_error


class Handle:
    """running: the runs of a lender in which values are lent, in the order of their starts."""

    def __init__(self) -> None:
        self.running: dict[Lending, None] = {}


class Lending:
    """Upstream is asked when a borrower and downstream both wait for a value, once for each pair of them.

    The stream ends when upstream has ended, all values are answered and all borrowers have closed; or
    when downstream has stopped it, and upstream and all borrowers have closed.
    """

    def __init__(self, module: Module, edge: Edge, handle: Handle) -> None:
        self.module = module
        self.ledger = Ledger()
        self.over = False
        """Whether nothing is lent any more: all is answered, or downstream has stopped the stream."""
        self._edge = edge
        self._handle = handle
        self._asks: deque[AnswerTo] = deque()
        self._waiting: deque[tuple[Borrower, AnswerTo]] = deque()
        self._borrowers: dict[Borrower, None] = {}
        self._reading = 0
        self._end: End | None = None
        self._stop: AnswerTo | None = None
        handle.running[self] = None
        module.hold(self)

    # -- downstream -----------------------------------------------------------------------------

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
        """How upstream has ended; its failure counts more than an abort."""
        if isinstance(end, Exception):
            self._end = attach_close_error(self._end, end) if isinstance(self._end, Exception) else end
        else:
            self._end = self._end or end

    # -- borrowers ------------------------------------------------------------------------------

    def add(self, borrower: Borrower) -> None:
        """Lend to one more, unless all is over."""
        if self.over:
            borrower.loan.over = True
            return
        self._borrowers[borrower] = None
        borrower.start()

    def ask(self, borrower: Borrower, answer: AnswerTo) -> None:
        """A borrower wants a value."""
        if self.over:
            answer(self._end or True)
        else:
            self._waiting.append((borrower, answer))
            self._go_on()

    def forget(self, borrower: Borrower) -> None:
        """A borrower wants no more values; what it has it may still answer."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not borrower)

    def answer(self, borrower: Borrower, result: Any) -> None:
        """A borrower has a result."""
        if not self.ledger.owes(borrower):
            raise borrower.too_many()
        self.ledger.answer(borrower, result)
        borrower.loan.answered += 1
        self._go_on()

    def returned(self, borrower: Borrower) -> None:
        """A borrower has given its last result: what it has not answered is lent to others."""
        self.forget(borrower)
        self.ledger.take_back(borrower)
        self._go_on()

    def closed(self, borrower: Borrower, error: Exception | None) -> None:
        """A borrower has ended."""
        borrower.loan.over = True
        borrower.loan.error = error
        self._borrowers.pop(borrower, None)
        self.returned(borrower)

    # -- what follows ---------------------------------------------------------------------------

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
        """Whether a borrower waits for a value, and downstream for its result."""
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
        """Nothing is lent any more: borrowers that wait for a value get the end, the others are stopped."""
        self.over = True
        self._end = end
        self._handle.running.pop(self, None)
        waiting, self._waiting = self._waiting, deque()
        told: set[Borrower] = set()
        for borrower, answer in waiting:
            told.add(borrower)
            answer(end)
        for borrower in self._borrowers:
            if borrower not in told or self._stop is not None:
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
        """The module has ended, or failed: so do its borrowers."""
        self.over = True
        self._handle.running.pop(self, None)
        for borrower in tuple(self._borrowers):
            borrower.stop(self.module.failure)
