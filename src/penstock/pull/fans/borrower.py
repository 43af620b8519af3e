"""Borrower: works on lent values in a run of its own, whose failure harms nobody else."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.errors import ProtocolBroken
from penstock.pull.compose import pull
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Duplex, Sink, SinkPart, Source, SourcePart, Transformer
from penstock.pull.protocol import AnswerTo, End, Read
from penstock.pull.run import Run
from penstock.pull.sinks.reading import Asking


class Loan:
    """What `Lender.lend` returns: how a borrower fares.

    lent, answered: how many values it was given, and has given results of.
    over:  whether it has ended. error: what it failed with, if it did.
    """

    def __init__(self) -> None:
        self.lent = 0
        self.answered = 0
        self.over = False
        self.error: Exception | None = None
        self.borrower: Borrower | None = None

    def recall(self) -> None:
        """Stop the borrower. What it has not answered is lent to others."""
        if self.borrower is not None:
            self.borrower.stop(None)


class Lends(Protocol):
    """What a borrower asks of who lends to it, and tells it: see `penstock.pull.fans.lend.Lending`."""

    module: Module

    def ask(self, borrower: Borrower, answer: AnswerTo) -> None: ...

    def forget(self, borrower: Borrower) -> None: ...

    def answer(self, borrower: Borrower, result: Any) -> None: ...

    def returned(self, borrower: Borrower) -> None: ...

    def closed(self, borrower: Borrower, error: Exception | None) -> None: ...


class Borrower:
    """window: requests that it is kept at work with; None: as many as its modules can use."""

    def __init__(self, lending: Lends, piece: Transformer | Duplex, loan: Loan, window: int | None) -> None:
        self.loan = loan
        self._lending = lending
        self._piece = piece
        self._lends: list[Edge] = []
        self.run = Run(lending.module.run.runtime, window=window)
        loan.borrower = self

    def start(self) -> None:
        """Open its modules. It reads as soon as these do."""
        location = self._lending.module.location
        lent = Source(SourcePart("lent", location, self._open))
        returned = Sink(SinkPart("returned", location, self._receive))
        pipeline = pull(lent, self._piece, returned)
        self.run.when_finished(lambda run: self._lending.closed(self, run.error))
        try:
            pipeline.open_in(self.run)
        except Exception as error:
            self.run.failed(error)
        self.run.built()

    def stop(self, cause: Exception | None) -> None:
        """Abort it, or fail it."""
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

    def _receive(self, module: Module, edge: Edge) -> None:
        def take(results: list[Any]) -> None:
            for result in results:
                self._lending.answer(self, result)

        def over(end: End) -> None:
            self._lending.returned(self)
            # It may have ended without a word upstream: nothing that it reads is of use any more.
            for lent in self._lends:
                lent.finish(end)
            if end is True:
                module.done()
            else:
                module.fail(end)

        Asking(edge, take, over).start()

    def too_many(self) -> ProtocolBroken:
        """The error of a borrower that gives a result for which it has no value."""
        return ProtocolBroken(
            "a borrower gave more results than it was lent values",
            where=[self._lending.module.location],
            why="The results of a borrower belong to its values one by one, in order.",
            fix="lend to transformers that make one value of each value",
            module=self._lending.module.name,
            rule="T2",
        )
