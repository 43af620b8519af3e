"""`rows_of`: a source of `headrace.io` as the source of a pipeline, without a flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.expr.row_classes import from_user, schema_of, to_user
from headrace.expr.types import Schema
from headrace.io.pull.sources import CloseOnce, ReaderSourceRun
from headrace.io.source import Batch, DeadLetters, Feed, dead_letter_folder, open_source
from headrace.pull import Source, Transformer, pull
from headrace.pull.fusion import Kernel
from headrace.pull.module_context import Module
from headrace.pull.protocol import Read


def rows_of(
    source: Any, rows: Any, *, name: str = "rows", follow: bool = False, read_rows: int = 1000
) -> Source:
    """Create a source of the rows of a `headrace.io` source, as objects of their class `rows`, in order.

    name:      name of the source in errors and dead letter files.
    follow:    keep looking for new files forever.
    read_rows: limit on the rows that are read at once and wait for requests.

    The source is opened anew in each run of the pipeline; a stop closes it before it is confirmed.
    Unreadable rows go to the source's `dead_letter` folder, if it has one: a file per batch read.

    >>> from datetime import datetime
    >>> from headrace.io import WallClock
    >>> from headrace.pull import collect, map, pull, take
    >>> pull(rows_of(WallClock("1s"), datetime), take(1), map(lambda at: at.microsecond), collect()).run()
    [0]

    Raises `UnknownRowType` for a class that is not a row type. The pipeline fails with `BadRow` and
    `UnreadableSource`, and with `BadInput` for what is not a source.
    """
    schema = schema_of(rows)
    letters = None
    folder = dead_letter_folder(source)
    if folder is not None:
        letters = DeadLetters(name, Path(folder), durable=False)

    def open(module: Module) -> Read:
        convert = from_user(schema, what=f"source {name!r}")
        reader = open_source(source, Feed(name, schema, follow=follow, from_user=convert))
        return ReaderSourceRun(module, reader, read_rows, CloseOnce(reader.close), None).read

    return pull(Source.of("rows_of", open, linear=True), _unpacked(schema, letters))


def _unpacked(schema: Schema, letters: DeadLetters | None) -> Transformer:
    """Transform batches to user rows, setting unreadable ones aside."""
    user = to_user(schema)

    def kernel() -> Kernel:
        number = 0

        def rows(batches: Iterable[Batch]) -> Iterator[Any]:
            nonlocal number
            for batch in batches:
                number += 1
                if letters is not None:
                    letters.prepare(number, batch.bad)
                    letters.publish(number)
                yield from map(user, batch.rows)

        return rows

    return Transformer.of_kernel("rows_of", kernel)
