"""Which workers of a replica run a dataflow: all of them, each with its share of the rows, or one.

Divided is what comes out right without rows that travel between workers: a flow without state over
collections or divided indexes, and a flow over collections that needs one cut by keys. What writes a
collection or a file runs on one worker, for there is one to write. A dataflow on one worker finds the
indexes that it reads on that worker; one that is divided or elsewhere is built there once more, for this
reader alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.compute.protocol.dataflow import (
    CollectionExport,
    CopyToExport,
    Dataflow,
    Id,
    IndexExport,
    IndexImport,
)
from penstock.compute.replica.workers.runtime.shard import division_of
from penstock.flow.flow import Flow


@dataclass(frozen=True, slots=True)
class Hosted:
    """A dataflow and where it runs.

    dataflow: as it was asked for. built: as its workers build it, with the ids of copies that it reads.
    workers:  their numbers; all of them where it is `divided`.
    copies:   the dataflows that are built on its worker for it, before it.
    """

    dataflow: Dataflow
    built: Dataflow
    workers: tuple[int, ...]
    divided: bool = False
    copies: tuple[Dataflow, ...] = ()

    @property
    def copied_ids(self) -> tuple[Id, ...]:
        return tuple(export.id for copy in self.copies for export in copy.exports)


def host(dataflow: Dataflow, flow: Flow | None, workers: int, known: Mapping[Id, Hosted]) -> Hosted:
    """Where a dataflow is to run.

    flow:  of its plan; None where that cannot be read.
    known: by their exports, the dataflows that are hosted already.
    """
    imported = [known[i.id] for i in dataflow.indexes if i.id in known]
    if (
        flow is not None
        and len(imported) == len(dataflow.indexes)
        and _divides(dataflow, flow, workers, imported)
    ):
        return Hosted(dataflow, dataflow, tuple(range(workers)), divided=True)
    on = next((h.workers[0] for h in imported if not h.divided), _spread(dataflow, workers))
    copies: list[Dataflow] = []
    built = _on_one(dataflow, dataflow, on, known, copies)
    return Hosted(dataflow, built, (on,), copies=tuple(copies))


def _divides(dataflow: Dataflow, flow: Flow, workers: int, imported: list[Hosted]) -> bool:
    if any(isinstance(e, CollectionExport | CopyToExport) for e in dataflow.exports):
        return False
    if not all(h.divided for h in imported):
        return False
    division = division_of(flow, workers)
    return division is not None and (division.keeps_nothing or not imported)


def _spread(dataflow: Dataflow, workers: int) -> int:
    """The worker of what could run on any."""
    return zlib.crc32(" ".join(sorted(dataflow.export_ids)).encode()) % workers


def _on_one(
    dataflow: Dataflow, reader: Dataflow, worker: int, known: Mapping[Id, Hosted], copies: list[Dataflow]
) -> Dataflow:
    """The dataflow as one worker can build it; adds to `copies` what has to be built there before."""
    indexes = tuple(_there(i, reader, worker, known, copies) for i in dataflow.indexes)
    return replace(dataflow, indexes=indexes)


def _there(
    read: IndexImport, reader: Dataflow, worker: int, known: Mapping[Id, Hosted], copies: list[Dataflow]
) -> IndexImport:
    hosted = known.get(read.id)
    if hosted is None or (not hosted.divided and hosted.workers == (worker,)):
        return read
    id = f"{read.id} for {min(reader.export_ids)}"
    if not any(id in copy.export_ids for copy in copies):
        export = next(e for e in hosted.dataflow.exports if isinstance(e, IndexExport) and e.id == read.id)
        alone = replace(hosted.dataflow, exports=(replace(export, id=id),), as_of=reader.as_of)
        copies.append(_on_one(alone, reader, worker, known, copies))
    return replace(read, id=id)
