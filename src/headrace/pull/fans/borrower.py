"""Borrower: processes lent values in a run of its own, isolating its failures."""

from __future__ import annotations

from typing import Any, Protocol

from headrace.pull.compose import pull
from headrace.pull.edge import Edge
from headrace.pull.errors import ProtocolBroken
from headrace.pull.module_context import Module
from headrace.pull.modules import Duplex, Sink, SinkPart, Source, SourcePart, Transformer
from headrace.pull.pipeline_run import Run
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.pull.sinks.read_loops import ReadLoop


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
    """Interface of a lender toward its borrowers: see `headrace.pull.fans.lend.LendingRun`."""

    module: Module

    def ask(self, borrower: Borrower, answer: AnswerTo) -> None: ...

    def forget(self, borrower: Borrower) -> None: ...

    def answer(self, borrower: Borrower, result: Any) -> None: ...

    def take_back_values(self, borrower: Borrower) -> None: ...

    def handle_end(self, borrower: Borrower, error: Exception | None) -> None: ...


class Borrower:
    """Running borrower. window: number of requests to keep in flight; None for its modules' depth."""

    def __init__(
        self, lending: LenderState, worker: Transformer | Duplex, loan: Loan, window: int | None
    ) -> None:
        self.loan = loan
        self._lending = lending
        self._worker = worker
        self._lends: list[Edge] = []
        self.run = Run(lending.module.run.runtime, window=window)
        loan.borrower = self

    def start(self) -> None:
        """Open the borrower's modules, which start reading."""
        location = self._lending.module.location
        lent = Source(SourcePart("lent", location, self._open))
        returned = Sink(SinkPart("returned", location, self._receive))
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

    def _receive(self, module: Module, edge: Edge) -> None:
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
