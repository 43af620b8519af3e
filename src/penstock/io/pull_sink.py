"""Sinks as pull-streams: they are given the two steps of a tick; asking for more says that a step is done.

A flow answers with `Prepare`. When every sink has asked again, it commits the tick, and
answers with `Publish`. When every sink has asked again, it begins the next tick: so
a slow sink holds back the sources, and what one of them cannot prepare is published by none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.io.close_once import Once
from penstock.io.sink import Writer
from penstock.pull import Sink
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.protocol import End

Rows = list[tuple[Any, ...]]


class Prepare(NamedTuple):
    """Write the changes of a tick down, where nobody looks. Rows have their weight last.

    publish: show them at once, too; no `Publish` follows.
    """

    tick: int
    rows: Rows
    publish: bool = False


class Publish(NamedTuple):
    """Show what was prepared for a tick: it is committed."""

    tick: int


Step = Prepare | Publish


def written_by(name: str, writer: Writer, close: Once) -> Sink:
    """A sink that has a writer do the steps, and closes it in the end; for one run. It has recovered."""

    def open(module: Module, edge: Edge) -> None:
        def got(end: End | None, step: Any = None, /) -> None:
            if end is None:
                if step.__class__ is Publish:
                    writer.publish(step.tick)
                else:
                    writer.prepare(step.tick, step.rows)
                    if step.publish:
                        writer.publish(step.tick)
                edge(None, got)
            elif end is True:
                module.done()
            else:
                module.fail(end)

        def closing(_error: Exception | None, closed: Callable[..., object]) -> None:
            close()
            closed()

        module.closing(closing)
        edge(None, got)

    return Sink.of(name, open)
