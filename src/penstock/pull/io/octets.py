"""The values that files, sockets and processes take: bytes."""

from __future__ import annotations

from typing import TypeAlias

from penstock.errors import WrongValue
from penstock.pull.module import Module

Octets: TypeAlias = bytes | bytearray | memoryview

CHUNK = 65536
"""Most bytes of one read, by default."""


def octets(module: Module, value: object) -> Octets:
    """The value, where it is bytes. Raises `WrongValue` otherwise."""
    if isinstance(value, memoryview):
        # Event loops count the items of a view as bytes, and would lose what is wider.
        return value.cast("B") if value.nbytes and value.c_contiguous else value.tobytes()
    if isinstance(value, bytes | bytearray):
        return value
    raise WrongValue(
        f"{module.name}() was given {type(value).__name__}, and takes bytes",
        where=[module.location],
        why=f"The value is {value!r:.60}.",
        fix="join_lines() makes bytes of lines of text; map(str.encode) of any text",
        value_type=type(value).__name__,
    )
