"""What must be in a message from the network, field by field. What is not is a `BadMessage` that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from penstock.compute.errors import BadMessage, MessageTooLarge
from penstock.compute.frontier import LAST_TIME, Frontier
from penstock.compute.protocol.generated import compute_pb2 as pb
from penstock.errors import PenstockError

M = TypeVar("M", bound=Message)
T = TypeVar("T")
KEY_BYTES = 16
"""The length of uuids, nonces and tokens."""


def parse(of: type[M], data: bytes, limit: int | None = None) -> M:
    """The message. Raises `BadMessage`, or `MessageTooLarge` above `limit` bytes."""
    check_size(len(data), limit, of.__name__)
    try:
        return of.FromString(data)
    except DecodeError as error:
        raise bad(of.__name__, f"The bytes are no message of that kind: {error}") from error


def made(name: str, make: Callable[[], T]) -> T:
    """What `make` makes for the network. Raises `BadMessage` where a value does not fit its field."""
    try:
        return make()
    except PenstockError:
        raise
    except (ValueError, TypeError) as error:
        raise bad(name, str(error)) from error


def kind(message: Message, oneof: str) -> str:
    """The field of a oneof that is set."""
    chosen = message.WhichOneof(oneof)
    if chosen is None:
        raise bad(f"{type(message).__name__}.{oneof}", "Nothing of it is set.")
    return chosen


def require(message: Message, *fields: str) -> None:
    """Raises `BadMessage` where a sub-message that must be there is not."""
    for field in fields:
        if not message.HasField(field):
            raise bad(f"{type(message).__name__}.{field}", "It is not set.")


def name(value: str, field: str) -> str:
    """A name or id, which is never empty."""
    if not value:
        raise bad(field, "It is empty.")
    return value


def key(value: bytes, field: str) -> bytes:
    """A uuid, nonce or token."""
    if len(value) != KEY_BYTES:
        raise bad(field, f"It has {len(value)} bytes and not {KEY_BYTES}.")
    return value


def time(value: int, field: str) -> int:
    if value > LAST_TIME:
        raise bad(field, f"{value} is no time.")
    return value


def frontier(message: Message, field: str) -> Frontier:
    """A frontier that must be there."""
    require(message, field)
    return some_frontier(getattr(message, field), f"{type(message).__name__}.{field}")


def maybe_frontier(message: Message, field: str) -> Frontier | None:
    """A frontier, or None where it is not told."""
    return frontier(message, field) if message.HasField(field) else None


def some_frontier(message: pb.Frontier, field: str) -> Frontier:
    return Frontier(time(message.time, field) if message.HasField("time") else None)


def frontier_message(frontier: Frontier | None) -> pb.Frontier | None:
    return None if frontier is None else pb.Frontier(time=frontier.time)


def maybe(message: Message, field: str) -> int | None:
    """A number, or None where it is not set."""
    return getattr(message, field) if message.HasField(field) else None


def chosen(table: Mapping[str, T], name: str, field: str) -> T:
    """What a closed set of names means."""
    if name not in table:
        raise bad(field, f"{name!r} is none of {', '.join(sorted(table))}.")
    return table[name]


def check_size(size: int, limit: int | None, name: str) -> None:
    """Raises `MessageTooLarge` above the limit; None: there is none."""
    if limit is not None and size > limit:
        raise MessageTooLarge(
            f"a {name} of {size:,} bytes is too large",
            why=f"The limit is {limit:,} bytes.",
            fix="send less at a time, or raise the limit on both sides",
            size=size,
            limit=limit,
        )


def bad(field: str, why: str) -> BadMessage:
    return BadMessage(
        f"{field} is not what it must be",
        why=why,
        fix="use the same version of Penstock on both sides",
        field=field,
    )
