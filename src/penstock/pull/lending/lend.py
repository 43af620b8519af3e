"""lend: the values of a stream worked on by borrowers that come, go and fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import NotLending, SourceLocation
from penstock.pull.compose import pull
from penstock.pull.edge import Edge
from penstock.pull.lending.borrower import Borrower, Loan
from penstock.pull.lending.lending import Handle, Lending
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.pieces import Duplex, Transformer, TransformerPart
from penstock.pull.protocol import Read
from penstock.pull.transformers.async_map import async_map
from penstock.pull.transformers.take import take

Borrows = Transformer | Duplex | Callable[[Any], Awaitable[Any]]
"""A stream that makes one value of each value, or a coroutine function of one value."""


@dataclass(frozen=True, eq=False, slots=True)
class Lender(Transformer):
    """See `lend`."""

    handle: Handle = field(default_factory=Handle)

    def lend(self, borrower: Borrows, *, values: int | None = None) -> Loan:
        """Lend values to one more borrower, in the run of this transformer that was started last.

        values: how many it takes at most; None: as many as there are.

        Raises `NotLending` where there is no run, and where nothing will be lent any more: all values
        are answered, or downstream has stopped the stream. A borrower that finds all values lent to
        others waits: it may get those of one that fails. To be called in the thread of the pipeline.
        """
        lending = next(reversed(self.handle.running), None)
        if lending is None:
            raise NotLending(
                "there is nothing to lend",
                where=[SourceLocation.of_caller()],
                why="The pipeline of this lender has not been started, was stopped, or has all its results.",
                fix="start() or await the pipeline first; borrowers of every run: lend(borrower, ...)",
            )
        loan = Loan()
        lending.module.enter(_add, lending, borrower, values, loan)
        return loan


def lend(*borrowers: Borrows, width: int = 16) -> Lender:
    """The results of borrowers, in the order of the values: each value is worked on by one of them.

    borrowers: those of every run; others come by `Lender.lend` while it runs. A borrower is a
               transformer or a duplex that makes one value of each value, in order (a connection to another
               machine, say), or a coroutine function, which is called with one value at a time.
    width:     how many values may be with borrowers, or wait for their turn, at once: as many requests
               sinks make. Without that many requests from downstream there is less.

    A borrower that fails, ends or aborts before it has answered its values does no harm: they are lent
    to the others, oldest first. Its error is in its `Loan`. When no borrower is left, the stream waits
    for the next one.

    Upstream is asked when a borrower and downstream wait for a value; not before. Values go to whoever
    asks: a fast borrower gets more. Done and errors of upstream come when all values before
    them are answered; borrowers get the same end, and the stream ends when all of them have
    closed. An abort from downstream goes upstream and to all borrowers, and is confirmed when
    they have closed.

    >>> from penstock.pull import collect, map, pull, take, values
    >>> quits = pull(take(2), map(lambda x: 10 * x))
    >>> pull(values([1, 2, 3, 4]), lend(quits, map(lambda x: 10 * x)), collect()).run()
    [10, 20, 30, 40]
    """
    whole("lend", "width", width, least=1)
    handle = Handle()

    def open(module: Module, edge: Edge) -> Read:
        lending = Lending(module, edge, handle)
        for borrower in borrowers:
            _add(lending, borrower, None, Loan())
        return lending.read

    return Lender((TransformerPart("lend", SourceLocation.of_caller(), open, width=width),), handle=handle)


def _add(lending: Lending, borrower: Borrows, values: int | None, loan: Loan) -> None:
    stream = isinstance(borrower, Transformer | Duplex)
    piece = borrower if isinstance(borrower, Transformer | Duplex) else async_map(borrower)
    if values is not None:
        piece = pull(take(values), piece)
    lending.add(Borrower(lending, piece, loan, window=None if stream else 1))
