"""One peek at work: from where its rows come, which of them it wants, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.compute.collections.store import Collections
from penstock.compute.errors import ResultTooLarge, SinceViolation
from penstock.compute.frontier import Frontier
from penstock.compute.protocol.commands import Parameters, Peek
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted, Rows, Stashed
from penstock.compute.replica.arrangement import Arrangement
from penstock.compute.replica.feeds import CHUNK
from penstock.compute.replica.finishing import finish_of
from penstock.compute.replica.peek_stash import PeekStash, StashWriter
from penstock.compute.replica.plans import Predicate
from penstock.compute.replica.sizes import rows_size
from penstock.expr.types import Schema

KEYS = 64
"""How many keys are looked up at a time."""


class PeekRun:
    """A peek whose time is settled, in slices: each `next` of `slices` is a moment's work.

    answer: there when the slices are exhausted. Raises within a slice what becomes a `Problem`.
    """

    def __init__(
        self,
        peek: Peek,
        parts: Iterator[Iterable[Counted]],
        schema: Schema,
        predicate: Predicate | None,
        settings: Callable[[], Parameters],
        stash: PeekStash,
    ) -> None:
        self.peek = peek
        self.answer: Rows | Stashed | None = None
        self._parts = parts
        self._predicate = predicate
        self._settings = settings
        self._stash = stash
        self._finish = finish_of(peek.finishing, schema)
        self._writer: StashWriter | None = None

    def slices(self) -> Iterator[None]:
        for part in self._parts:
            if not self._finish.take(shown(self._predicate, part)):
                break
            yield
        yield from self._send()

    def cancel(self) -> None:
        """Give back what it has taken."""
        if self._writer is not None:
            self._writer.cancel()

    def _send(self) -> Iterator[None]:
        rows: list[Counted] = []
        size = 0
        for part in self._finish.rows():
            # Asked for anew: settings apply to peeks that are on their way, too.
            settings = self._settings()
            size += rows_size(part)
            check_size(size, settings)
            if self._writer is None:
                rows += part
                if settings.peek_stash_size is not None and size > settings.peek_stash_size:
                    self._writer = self._stash.writer()
                    self._writer.add(rows)
                    rows = []
            else:
                self._writer.add(part)
            yield
        self.answer = Rows(tuple(rows)) if self._writer is None else self._writer.finish()
        self._writer = None


def shown(predicate: Predicate | None, rows: Iterable[Counted]) -> Sequence[Counted]:
    """The rows that a peek wants. One with negative multiplicity is held back: it may come yet."""
    if predicate is None:
        return [counted for counted in rows if counted[1] > 0]
    return [counted for counted in rows if counted[1] > 0 and predicate(counted[0]) is True]


def check_size(size: int, settings: Parameters) -> None:
    """Raises `ResultTooLarge` where an answer is."""
    limit = settings.max_result_size
    if limit is not None and size > limit:
        raise ResultTooLarge(
            f"the rows of the answer are {size} bytes, above the limit of {limit}",
            fix="ask for fewer rows or columns, or raise max_result_size",
            size=size,
            limit=limit,
        )


def index_parts(index: Arrangement, peek: Peek) -> Iterator[Iterable[Counted]]:
    """The rows of an index that a peek may want: of its keys, or all. The index is held meanwhile."""
    if peek.keys is None:
        yield from index.scan(peek.time)
        return
    keys = list(dict.fromkeys(map(index.keying.of_values, peek.keys)))
    for at in range(0, len(keys), KEYS):
        for key in keys[at : at + KEYS]:
            yield index.at(key, peek.time)


def collection_parts(store: Collections, peek: Peek) -> Iterator[Iterable[Counted]]:
    """The rows of a collection that a peek may want: whole rows, or all."""
    wanted = None if peek.keys is None else set(peek.keys)
    for part in store.snapshot(peek.target.id, peek.time, CHUNK):
        yield part if wanted is None else [counted for counted in part if counted[0] in wanted]


def below_since(id: Id, time: int, since: Frontier) -> SinceViolation:
    return SinceViolation(
        f"{id} cannot be read at time {time}: it has been compacted to {since}",
        why="the changes before that time are not told apart any more",
        fix="ask for a later time",
        id=id,
        time=time,
        since=since.time,
    )
