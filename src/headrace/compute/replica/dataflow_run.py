"""Running dataflow, independent of its runtime: frontiers, exports, failure and end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from headrace.compute.errors import SinceViolation
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.dataflow import Dataflow
from headrace.compute.protocol.responses import Counted
from headrace.compute.replica.exports import ExportWriter, Failed, failure_of
from headrace.errors import BadInput

RETRY = 0.1
"""Seconds before an unreachable store is retried."""


class DataflowRun(ABC):
    """Running dataflow, idle until it is started.

    upper:   frontier before which the dataflow is computed.
    failed:  failure of the dataflow, if any.
    exports: accessed while holding `exporting` if there are several threads.
    wanted:  ids of exports that are not dropped.
    skips_snapshot: whether no export needs the rows at the as-of, so that they are not read.
    """

    def __init__(
        self, dataflow: Dataflow, exports: Sequence[ExportWriter], timer: Callable[[], float]
    ) -> None:
        assert dataflow.as_of.time is not None
        self.dataflow = dataflow
        self.as_of = dataflow.as_of.time
        self.upper = dataflow.as_of
        self.failed: Failed | None = None
        self.hydrated = self.ended = self.started = False
        self.skips_snapshot = False
        self.exports = list(exports)
        self.exporting = threading.Lock()
        self.wanted = set(dataflow.export_ids)
        self._timer = timer
        self._retry_at = 0.0

    @property
    def read_upper(self) -> Frontier:
        """Frontier up to which inputs have been read and will not be read again."""
        return END if self.ended or self.failed is not None else self.upper

    @property
    def broken(self) -> bool:
        """Return whether the dataflow has failed or will fail, while a rebuilt one may succeed."""
        return self.failed is not None and not self.failed.lasting

    @property
    def fell_behind(self) -> bool:
        """Return whether changes of a collection that the dataflow has yet to read are compacted."""
        cause = None if self.failed is None else self.failed.error.__cause__
        return isinstance(cause, SinceViolation) and any(
            cause.facts.get("id") == each.id for each in self.dataflow.collections
        )

    def drop(self, export: ExportWriter) -> None:
        """Drop an export."""
        self.wanted.discard(export.id)
        with self.exporting:
            export.drop()

    def fail(self, cause: Exception) -> None:
        """Fail from the upper on."""
        self._fail(self.as_of if self.upper.time is None else self.upper.time, cause)

    def _pass_on(self, failure: Failed) -> None:
        """Fail because an input has failed."""
        self._fail(max(failure.time, self.as_of), failure.error)

    def _fail(self, time: int, cause: Exception) -> None:
        self.failed = failure_of(min(self.dataflow.export_ids), self.dataflow.name, time, cause)
        with self.exporting:
            for export in self.exports:
                export.fail(self.failed)
        self._fail_store(self.failed)
        self.upper = Frontier(time + 1)
        self._end()

    def _finish(self) -> None:
        """End because the until has been reached."""
        with self.exporting:
            for export in self.exports:
                export.finish()
        self._end()

    def _retry_later(self) -> None:
        self._retry_at = self._timer() + RETRY

    def _fail_store(self, failure: Failed) -> None:
        """Replace stored contents, other than exports, with an error."""
        return

    @abstractmethod
    def _end(self) -> None:
        """Stop computing and release the inputs."""


def weighted_rows(changes: Sequence[Counted], append: bool, source: str) -> list[tuple[Any, ...]]:
    """Convert changes to engine rows: with the weight last, or one copy per row.

    append: whether the source is append-only; raises `BadInput` for a retraction then.
    """
    if not append:
        return [(*row, weight) for row, weight in changes]
    rows: list[tuple[Any, ...]] = []
    for row, weight in changes:
        if weight == 1:
            rows.append(row)
        elif weight > 1:
            rows.extend([row] * weight)
        else:
            raise BadInput(
                f"source {source!r} takes no row back, and {row} was taken back",
                fix="make it a table source, table=True, or append only",
                source=source,
            )
    return rows
