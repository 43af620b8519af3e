"""Damaged and forged plans: bytes changed anyhow, and parts of messages changed for others of their kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from headrace.compute.plans.generated import plan_pb2 as pb

HOSTILE_TEXTS = [
    "",
    " ",
    "x",
    "value",
    "port",
    "\0",
    "\n",
    "a\nimport os",
    "'",
    '"',
    "'''",
    "\\",
    "\\N{BULLET}",
    "{",
    "{0}",
    "%s",
    ");__import__('os').abort()#",
    "' + __import__('os').abort() + '",
    "__class__",
    "__import__",
    "x_1",
    "x_c0",
    "rows_0",
    "out",
    "class",
    "None",
    "lambda",
    "a b",
    "a²",
    "ﬁ",
    "é" * 3,
    "\u202e",
    "a" * 2000,
    "operator.map",
    "builtins.exec",
    "os.system",
    "1e999999999",
    "9" * 500,
    "0001-01-01",
    "9999-12-31",
    "9999-12-31T23:59:59.999999+00:00",
    "0001-01-01T00:00:00+14:00",
    "2024-01-01T00:00:00",
    "NaN",
    "sNaN",
    "Infinity",
]
HOSTILE_INTEGERS = [0, 1, 2, 3, 31, 37, 38, 39, 127, 255, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1]
HOSTILE_FLOATS = [0.0, -0.0, 1.5, -1.0, 1e308, 5e-324, float("inf"), float("-inf"), float("nan")]


def damaged(data: bytes, numbers: random.Random) -> bytes:
    """The bytes with some of them flipped, cut off, doubled or gone."""
    octets = bytearray(data)
    for _ in range(numbers.choice([1, 1, 1, 2, 5])):
        at = numbers.randrange(len(octets) + 1)
        to = min(len(octets), at + numbers.randrange(1, 12))
        match numbers.randrange(5):
            case 0 if at < len(octets):
                octets[at] ^= 1 << numbers.randrange(8)
            case 1:
                del octets[at:]
            case 2:
                del octets[at:to]
            case 3:
                octets[at:at] = octets[at:to]
            case _:
                octets[at:at] = numbers.randbytes(numbers.randrange(1, 5))
    return bytes(octets)


def forged(data: bytes, others: list[bytes], numbers: random.Random) -> bytes:
    """A plan with parts of it exchanged for other parts of the same kind, of it or of another plan."""
    body, other = pb.Body.FromString(data), pb.Body.FromString(numbers.choice([data, *others]))
    for _ in range(numbers.choice([1, 1, 1, 2, 3])):
        _change(body, other, numbers)
    return body.SerializeToString(deterministic=True)


def _change(body: Message, other: Message, numbers: random.Random) -> None:
    message = numbers.choice(list(_messages(body)))
    match numbers.randrange(4):
        case 0:
            alike = [m for m in _messages(other) if m.DESCRIPTOR is message.DESCRIPTOR]
            if alike:
                message.CopyFrom(numbers.choice(alike))
        case 1:
            _change_list(message, numbers)
        case _:
            _change_scalar(message, numbers)


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from _messages(part)


def _change_list(message: Message, numbers: random.Random) -> None:
    lists = [value for field, value in message.ListFields() if field.is_repeated]
    if not lists:
        return
    items: Any = numbers.choice(lists)
    kept = list(items)
    at = numbers.randrange(len(kept))
    match numbers.randrange(3):
        case 0:
            del kept[at]
        case 1:
            kept.insert(at, kept[numbers.randrange(len(kept))])
        case _:
            numbers.shuffle(kept)
    copies = [type(k).FromString(k.SerializeToString()) if isinstance(k, Message) else k for k in kept]
    del items[:]
    items.extend(copies)


def _change_scalar(message: Message, numbers: random.Random) -> None:
    fields = [f for f in message.DESCRIPTOR.fields if f.type != FieldDescriptor.TYPE_MESSAGE]
    if not fields:
        return
    field = numbers.choice(fields)
    value = _SCALARS.get(field.type, _whole)(numbers)
    try:
        if field.is_repeated:
            items = getattr(message, field.name)
            if items:
                items[numbers.randrange(len(items))] = value
        else:
            setattr(message, field.name, value)
    except (ValueError, TypeError):  # beyond what the field can hold
        return


def _whole(numbers: random.Random) -> int:
    return numbers.choice(HOSTILE_INTEGERS) * numbers.choice([1, 1, -1])


_SCALARS: dict[int, Callable[[random.Random], Any]] = {
    FieldDescriptor.TYPE_STRING: lambda numbers: numbers.choice(HOSTILE_TEXTS),
    FieldDescriptor.TYPE_BYTES: lambda numbers: numbers.choice([b"", b"\0", b"\x80" * 9, b"\x7f" * 100_000]),
    FieldDescriptor.TYPE_BOOL: lambda numbers: numbers.random() < 0.5,
    FieldDescriptor.TYPE_DOUBLE: lambda numbers: numbers.choice(HOSTILE_FLOATS),
}
