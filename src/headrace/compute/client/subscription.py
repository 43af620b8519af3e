"""Subscriptions of clients: batches in order of time, across any number of connections.

Rows of users are converted to the internal rows of collections and views here, and back.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar, cast

from headrace.compute.channels import END_OF_CALL, raising_compute_errors
from headrace.compute.client.conversation import AS_CLIENT, Conversation, Patience, Wait, retry_with_patience
from headrace.compute.errors import ConnectionBroken, error_of
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol import row_batch
from headrace.compute.protocol.client_messages import (
    EVENT,
    BatchPart,
    ClientAnswer,
    Description,
    PeekMessage,
    PeekRequest,
    RowsPart,
    SubscriptionRequest,
)
from headrace.compute.protocol.commands import Finishing
from headrace.compute.protocol.responses import Problem
from headrace.compute.protocol.row_batch import decode_batch
from headrace.compute.protocol.rows import decode_updates
from headrace.engine.change import Change
from headrace.errors import BadInput, SourceLocation, UnknownColumn
from headrace.expr.row_classes import from_user, row_class, to_user
from headrace.expr.tree import Column, Expr, Ordering
from headrace.expr.types import Field, ListType, MapType, Row, Schema, StructType
from headrace.expr.value_keys import with_representatives
from headrace.shown import Shown


@dataclass(frozen=True)
class CachedDescription:
    """Description of a view or collection, cached by a client.

    id:   distinguishes it from other views or collections that have had the same name.
    key:  key columns of a view; empty: the whole row.
    view: whether it is a view; otherwise a collection.
    """

    name: str
    id: str
    view: bool
    schema: Schema
    key: tuple[str, ...] = ()
    append_only: bool = False

    def to_weighted_rows(self, rows: Iterable[Any], sign: int) -> list[tuple[Row, int]]:
        """Convert users' rows, or `Change`s of them, to internal rows with weights multiplied by `sign`.

        Raises `BadRow`.
        """
        changes = [_change(row) for row in rows]
        bare, weights = [c.row for c in changes], [c.weight for c in changes]
        return list(zip(self._internal(bare), (sign * weight for weight in weights), strict=True))

    def _internal(self, rows: list[Any]) -> list[Row]:
        what = f"{'view' if self.view else 'collection'} {self.name!r}"
        schema = self.schema
        kinds: dict[type[Any], tuple[str, ...] | None] = {
            kind: getattr(kind, "_fields", None) for kind in set[type[Any]](map(type, rows))
        }
        by_name = {kind for kind, names in kinds.items() if names not in (None, schema.names)}
        if by_name and not schema.scalar:
            # Columns of a named tuple are matched by name, in whatever order they are declared.
            rows = [row._asdict() if type(row) in by_name else row for row in rows]
        elif len(kinds) == 1 and schema.names in kinds.values() and not schema.scalar:
            schema = replace(schema, row_class=next(iter(kinds)))  # such rows pass as they are
        if schema.row_class not in self._readers:
            self._readers[schema.row_class] = from_user(schema, what=what)
        return self._readers[schema.row_class](rows)

    @classmethod
    def of(cls, name: str, found: Description) -> CachedDescription:
        """Cache the controller's description of a name."""
        return cls(name, found.id, found.view, found.schema, found.key, found.append_only)

    @cached_property
    def _readers(self) -> dict[type[Any] | None, Callable[[Iterable[object]], list[Row]]]:
        """Cached row converters by row class: building one takes much longer than converting a row."""
        return {}

    @cached_property
    def to_user(self) -> Callable[[Row], Any]:
        """Conversion from internal rows to users' rows."""
        return to_user(self.schema)

    def projection(self, columns: Sequence[str | Expr]) -> tuple[tuple[int, ...], Schema]:
        """Return the positions of columns, and the schema of rows with these columns.

        Raises `UnknownColumn`.
        """
        positions = tuple(self.position(column) for column in columns)
        return positions, Schema(tuple(self.schema.fields[at] for at in positions))

    def position(self, column: str | Expr) -> int:
        """Return the position of a column, given by name or as `col.name`.

        Raises `UnknownColumn`, `BadInput`.
        """
        name = column.name if isinstance(column, Column) else column
        if not isinstance(name, str):
            raise BadInput(
                f"{column} is no column of {self.name!r}",
                where=[SourceLocation.of_caller()],
                why="The rows of an answer can be sorted and cut by columns that the view has.",
                fix="let the flow of the view compute it",
            )
        at = self.schema.position(name)
        if at is None:
            raise UnknownColumn(
                f"{self.name!r} has no column {name!r}",
                where=[SourceLocation.of_caller()],
                why=f"Its columns are {self.schema}.",
                column=name,
            )
        return at

    def ordering(self, order_by: object) -> list[tuple[int, bool]]:
        """Return the positions of the sort columns, each with a flag for descending order."""
        several = isinstance(order_by, list | tuple)
        each = cast("Sequence[object]", order_by) if several else [order_by]
        return [self._ordered(one) for one in each]

    def _ordered(self, one: object) -> tuple[int, bool]:
        if isinstance(one, Ordering):
            return self.position(one.expr), one.descending
        return self.position(cast("str | Expr", one)), False

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Key columns of the view's or collection's index."""
        return self.key or self.schema.names

    def to_internal_keys(self, keys: Iterable[Any]) -> list[Row]:
        """Convert keys to internal rows: bare values for one key column, tuples or mappings for several.

        Raises `BadRow`.
        """
        fields, read = self._key_reader
        if len(fields) != 1:
            return read(keys)
        if isinstance(fields[0].type, StructType | ListType | MapType):
            return read([(key,) for key in keys])
        return read([cast("object", key) if isinstance(key, tuple) else (key,) for key in keys])

    @cached_property
    def _key_reader(self) -> tuple[tuple[Field, ...], Callable[[Iterable[object]], list[Row]]]:
        """Key columns, with the converter for keys."""
        fields = tuple(self.schema.fields[self.position(name)] for name in self.key_columns)
        keys = Schema(fields)
        read = from_user(keys, what=f"keys of {self.name!r}")
        return fields, lambda rows: list(with_representatives(read(rows), keys))

    @property
    def row_class(self) -> type[Any]:
        """Class of users' rows."""
        return row_class(self.schema)


def _change(row: Any) -> Change[Any]:
    return cast("Change[Any]", row) if type(row) is Change else Change(row, 1)


@dataclass(frozen=True, slots=True)
class PeekArguments:
    """Arguments of `peek`. staleness: milliseconds."""

    keys: Sequence[Any] | None
    where: Expr | None
    order_by: Any
    limit: int | None
    offset: int
    columns: Sequence[str | Expr] | None
    at: int | None
    staleness: int | None
    replica: str | None


def peek_message(
    known: CachedDescription, asked: PeekArguments
) -> tuple[PeekMessage, Schema, Callable[[Row], Any]]:
    """Return the message, the schema of its answers, and their conversion to users' rows.

    Raises the errors for invalid columns and values.
    """
    from headrace.compute.plans import encode_expr

    _check(asked)
    positions, schema, convert = None, known.schema, known.to_user
    if asked.columns is not None:
        positions, schema = known.projection(asked.columns)
        convert = to_user(schema)
    request = PeekRequest(
        view=known.name,
        keys=None if asked.keys is None else tuple(known.to_internal_keys(asked.keys)),
        at=asked.at,
        predicate=None if asked.where is None else encode_expr(asked.where, known.schema),
        finishing=Finishing(tuple(known.ordering(asked.order_by)), asked.limit, asked.offset, positions),
        replica=asked.replica,
        staleness=asked.staleness,
    )
    return PeekMessage(known.id, request), schema, convert


def _check(asked: PeekArguments) -> None:
    for name in ("limit", "offset", "at"):
        check_number(name, getattr(asked, name))
    if asked.where is not None and not isinstance(cast("object", asked.where), Expr):
        raise BadInput(
            f"where={asked.where!r}: that is no expression",
            fix="where=col.price > 3, with columns of the view",
        )
    if asked.at is not None and asked.staleness is not None:
        raise BadInput("at= and staleness= are given", fix="say one of them: at= is exactly one time")


def check_number(name: str, value: object, *, least: int = 0) -> None:
    """Raise `BadInput` for an invalid time, row count or limit; None is allowed."""
    if value is not None and (type(value) is not int or not least <= value < 2**63):
        raise BadInput(f"{name}={value!r}: that is not a whole number from {least} to 2**63 - 1")


def decode_peek_answers(
    answers: Iterable[ClientAnswer], schema: Schema, to_user: Callable[[Row], Any]
) -> list[Any]:
    """Decode the answers to a peek to users' rows, repeated by their multiplicity. Raises `BadMessage`.

    schema: schema of the rows.
    """
    found: list[Any] = []
    with collecting_no_garbage():
        for answer in answers:
            data = answer.rows if isinstance(answer, RowsPart) else b""
            for row, count in row_batch.decode(data, schema, "Rows.rows"):
                if count == 1:
                    found.append(to_user(row))
                else:
                    found += [to_user(row)] * count
    return found


@contextmanager
def collecting_no_garbage() -> Generator[None]:
    """Pause garbage collection: it finds nothing among many new rows, and takes longer than creating them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


T = TypeVar("T")


class TimedUpdate(NamedTuple, Generic[T]):
    """Changed row, with the time and the weight of the change: copies added, or removed if negative."""

    row: T
    time: int
    weight: int


@dataclass(frozen=True, slots=True)
class UpdateBatch(Shown, Generic[T]):
    """All changes at times in [`lower`, `upper`), or from `lower` on if `upper` is None.

    A reader that stores `upper` together with the applied batch can resume there later:
    `subscribe(view, as_of=upper - 1, snapshot=False)`.
    """

    lower: int
    upper: int | None
    updates: tuple[TimedUpdate[T], ...]


class AsyncSubscription(AsyncIterator[UpdateBatch[Any]]):
    """Batches of a view that cover every time exactly once, across reconnects and controller restarts.

    Each batch begins where the previous one ended. Nothing is read ahead: a reader that stops reads nothing
    more from the network. Once begun, it waits without limit, also for a controller. Ends after a batch with
    `upper` None. Raises `ReadTimeout` if it does not begin within its patience; `SinceViolation` if the
    reader was away, or slow, for longer than the view keeps its past; `UnknownName` if the view was dropped.
    """

    def __init__(
        self,
        conversation: Conversation,
        asked: SubscriptionRequest,
        *,
        progress: bool,
        patience: Patience = AS_CLIENT,
    ) -> None:
        self._conversation = conversation
        self._asked = asked
        self._progress = progress
        self._patience = patience
        self._upper = START
        self._begun = False
        self._given = 0
        self._call: Any = None
        self._schema = Schema(())
        self._to_user: Callable[[tuple[Any, ...]], Any] = _as_it_is
        self._part: list[TimedUpdate[Any]] = []

    @property
    def upper(self) -> int | None:
        """Frontier up to which the batches so far are complete, or None once they cover all times."""
        return self._upper.time

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> UpdateBatch[Any]:
        while not self._upper.ended:
            batch = await self._first() if not self._begun else await self._following()
            if batch is None:
                continue
            first = not self._begun
            self._begun, self._upper = True, Frontier(batch.upper)
            if batch.updates or self._progress or first:
                # Extend the batch over the times of the empty batches skipped before it.
                given, self._given = replace(batch, lower=self._given), batch.upper or 0
                return given
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the subscription."""
        self._hang_up()
        self._upper = Frontier(None)

    async def _first(self) -> UpdateBatch[Any] | None:
        wait = self._conversation.wait(self._patience)
        async with wait.enforce_limit(
            f"the subscription to {self._asked.view!r}", self._conversation.address
        ):
            return await retry_with_patience(lambda: self._next_batch(wait), self._conversation, wait)

    async def _following(self) -> UpdateBatch[Any] | None:
        wait = Wait(None)
        return await retry_with_patience(lambda: self._next_batch(wait), self._conversation, wait)

    async def _next_batch(self, wait: Wait) -> UpdateBatch[Any] | None:
        """Read the next batch; None for one already seen. The caller retries after `ConnectionBroken`."""
        try:
            if self._call is None:
                self._call = self._connected(wait)
            with raising_compute_errors(self._conversation.address):
                while (message := await self._call.read()) is not END_OF_CALL:
                    wait.disconnected = None
                    match EVENT.from_message(message):
                        case BatchPart() as part:
                            batch = self._add(part)
                            if not part.more:
                                return batch
                            wait.restart()
                        case Problem() as problem:
                            raise error_of(problem)
                        case Description() as found:
                            known = CachedDescription.of(self._asked.view, found)
                            self._schema, self._to_user = known.schema, known.to_user
            raise ConnectionBroken(
                "the controller has ended the connection", address=self._conversation.address
            )
        except BaseException:
            self._hang_up()
            raise

    def _connected(self, wait: Wait) -> Any:
        if self._begun:
            assert self._upper.time is not None
            asked = replace(self._asked, as_of=self._upper.time - 1, snapshot=False)
        else:
            asked = replace(self._asked, patience=wait.remaining_milliseconds())
        self._part = []
        return self._conversation.subscribe(asked)

    def _add(self, message: BatchPart) -> UpdateBatch[Any] | None:
        to_user, at = self._to_user, message.time
        if at is not None:
            with collecting_no_garbage():
                changes = decode_batch(message.updates, self._schema, "Batch.updates")
                self._part += [TimedUpdate(to_user(row), at, weight) for row, weight in changes]
        elif message.updates:
            self._part += [
                TimedUpdate(to_user(row), at, weight) for row, at, weight in decode_updates(message.updates)
            ]
        if message.more:
            return None
        lower, upper = Frontier(message.lower), Frontier(message.upper)
        updates, self._part = tuple(self._part), []
        if upper <= self._upper and self._begun:
            return None
        # A resumed subscription may begin with a batch that reaches back over times already seen, without
        # changes there.
        return UpdateBatch(max(lower, self._upper).time or 0, upper.time, updates)

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None


def _as_it_is(row: tuple[Any, ...]) -> Any:
    return row


class Subscription:
    """Blocking iterator over the batches of an `AsyncSubscription`. Close it, or use it in a `with`
    statement."""

    def __init__(self, subscription: AsyncSubscription, run: Callable[[Any], Any]) -> None:
        self._subscription = subscription
        self._run = run

    @property
    def upper(self) -> int | None:
        """Frontier up to which the batches so far are complete, or None once they cover all times."""
        return self._subscription.upper

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> UpdateBatch[Any]:
        batch = self._run(self._next())
        if batch is None:
            raise StopIteration
        return batch

    async def _next(self) -> UpdateBatch[Any] | None:
        return await anext(self._subscription, None)

    def close(self) -> None:
        """End the subscription."""
        self._run(self._subscription.aclose())

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
