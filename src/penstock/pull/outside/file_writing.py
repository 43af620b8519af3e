"""File writing: the module that writes into a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.asking import Asking
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.outside.atomic_file import Target
from penstock.pull.outside.octets import Octets
from penstock.pull.protocol import End


def writing(
    module: Module, edge: Edge, target: Target, bytes_of: Callable[[Any], Octets], *, per_value: bool
) -> None:
    """Write `bytes_of` each value. The result is how many values, or how many bytes, there were.

    The target is committed when the stream is done, and taken back however else the sink ends.
    """
    module.hold(target)
    written = 0

    def take(values: list[Any]) -> None:
        nonlocal written
        for value in values:
            data = bytes_of(value)
            target.write(data)
            written += 1 if per_value else len(data)

    def over(end: End) -> None:
        if edge.stopped:
            return  # from outside: what was written is not the whole, and the run goes on to its end
        if end is True:
            target.commit()
            module.done(written)
        else:
            module.fail(end, written)

    Asking(edge, take, over).start()
