"""Files that carry messages between tasks of a tick.

Between jobs, a task writes all that it sends beyond its own into one file, and the driver holds only names:
what it tells of each message, the next job gets back as a message of the same address, with where it lies in
its stead. Within a job whose tasks share a machine, large tables go the same way: written once and mapped by
the task that reads them, instead of through Spark's shuffle, which copies and compresses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace.errors import UnreadableSource
from headrace.spark.ticks.messages import BLOBS_OF_ONE_PLACE, TO_DRIVER, Message, Result
from headrace.state.codec import decode, value_encoder

Address: TypeAlias = tuple[int, int, int, int]
"""Destination of rows: stage, shard, exchange, place."""

SENT = "sent"

NOTHING: Message = (-2, 0, 0, 0, b"")
"""Message to no stage: Spark starts no task on an empty frame, but some tasks must run without input."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message stored in a file. port: number of its exchange. rows: its row count."""

    stage: int
    shard: int
    port: int
    place: int
    path: str
    offset: int
    size: int
    rows: int

    def reference(self) -> Message:
        """Return the reference that stands for the stored message in a job; a negative port marks it."""
        body = value_encoder()((self.path, self.offset, self.size))
        return (self.stage, self.shard, -1 - self.port, self.place, body)

    def result(self) -> Result:
        body = (self.stage, self.shard, self.port, self.place, self.path, self.offset, self.size, self.rows)
        return Result(SENT, body)


def split_sent(results: Iterable[Result]) -> tuple[list[Sent], list[Result]]:
    """Separate messages stored for later jobs from all other results."""
    sent: list[Sent] = []
    others: list[Result] = []
    for result in results:
        if result.kind == SENT:
            sent.append(Sent(*result.body))
        else:
            others.append(result)
    return sent, others


def write_down(path: Path, messages: Iterable[tuple[Message, int]]) -> Iterator[Result]:
    """Write messages with their row counts to a file; yield a reference to each for the driver."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for (stage, shard, port, place, body), rows in messages:
            offset = out.tell()
            out.write(body)
            yield Sent(stage, shard, port, place, str(path), offset, len(body), rows).result()


LARGE = 1 << 18
"""Bytes of a table from which it is handed on in a file, where tasks share a machine."""
_ALIGNED = 64


def handed_over(folder: str, attempt: str, tables: Iterable[tuple[Address, pa.Table]]) -> Iterator[Message]:
    """Write tables to a file of their own; yield for each a message that refers to it."""
    path = Path(folder) / f"{attempt}.tables"
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as out:
        for (stage, shard, port, place), table in tables:
            begin = out.tell()
            with ipc.new_stream(out, table.schema) as stream:
                stream.write_table(table)
            size = out.tell() - begin
            yield Sent(stage, shard, port, place * BLOBS_OF_ONE_PLACE, str(path), begin, size, 0).reference()
            out.write(bytes(-out.tell() % _ALIGNED))


def fetched(messages: Iterable[Message], of: int | None = None) -> Iterator[Message]:
    """Resolve references among messages by reading their files.

    of: stage that reads the messages; references for other stages are not resolved.
    """
    for message in messages:
        stage, shard, port, place, body = message
        if message == NOTHING:
            continue
        if port >= 0 or stage == TO_DRIVER or (of is not None and stage != of):
            yield message
            continue
        path, offset, size = decode(body)
        yield (stage, shard, -1 - port, place, read(path, offset, size))


def read(path: str, offset: int, size: int) -> bytes | pa.Buffer:
    """Return the body of a stored message. Raises `UnreadableSource` if it is missing."""
    try:
        with pa.memory_map(path) as file:
            file.seek(offset)
            return file.read_buffer(size)
    except FileNotFoundError:
        raise UnreadableSource(
            "what a task has sent is not there for the next one",
            why=f"{path} is missing. In rounds, tasks hand each other files, which every host must see.",
            fix="put the checkpoint (of a batch: the temporary files, TMPDIR) where all hosts see it",
            path=path,
        ) from None
