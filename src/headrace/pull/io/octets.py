"""Byte values, as carried by files, sockets and processes."""

from __future__ import annotations

from typing import TypeAlias

from headrace.pull.errors import WrongValue
from headrace.pull.module_context import Module

Octets: TypeAlias = bytes | bytearray | memoryview

CHUNK = 65536
"""Default limit on the bytes of one read."""


def check_octets(module: Module, value: object) -> Octets:
    """Return the value if it is bytes, as a view of single bytes if needed; otherwise raise `WrongValue`."""
    if isinstance(value, memoryview):
        # Event loops count the items of a view as bytes and would lose part of wider ones.
        return value.cast("B") if value.nbytes and value.c_contiguous else value.tobytes()
    if isinstance(value, bytes | bytearray):
        return value
    raise WrongValue(
        f"{module.name}() takes bytes, got {type(value).__name__}",
        where=[module.location],
        why=f"The value is {value!r:.60}.",
        fix="encode text first: join_lines() for lines, map(str.encode) for any text",
        value_type=type(value).__name__,
    )
