"""What of exports may be said on a connection. Each method gives the reason why something may not."""

from __future__ import annotations

from penstock.compute.frontier import LAST_TIME
from penstock.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CreateDataflow,
    IndexTarget,
    Peek,
    Schedule,
)
from penstock.compute.protocol.dataflow import (
    CollectionExport,
    CopyToExport,
    Dataflow,
    Export,
    Id,
    IndexExport,
    SubscribeExport,
)
from penstock.compute.protocol.export_state import (
    CopyTold,
    ExportProtocolState,
    FrontiersTold,
    SubscriptionTold,
)
from penstock.compute.protocol.responses import CopyToResponse, Frontiers, SubscribeResponse

_UNKNOWN = "It was not created, or is dropped."


class Exports:
    """The exports of a connection that something may still be said of."""

    def __init__(self) -> None:
        self._known: dict[Id, ExportProtocolState] = {}

    def __len__(self) -> int:
        return len(self._known)

    def command(self, command: CreateDataflow | Schedule | AllowWrites | AllowCompaction) -> str | None:
        if isinstance(command, CreateDataflow):
            return self._create(command.dataflow)
        told = self._known.get(command.id)
        if told is None or told.dropped:
            return _UNKNOWN
        match command:
            case Schedule():
                return told.schedule()
            case AllowWrites():
                return None
            case AllowCompaction(id, frontier):
                why = told.compact(frontier)
                if why is None:
                    self._forget(id, told)
                return why

    def peek(self, command: Peek) -> str | None:
        if not isinstance(command.target, IndexTarget):
            return None
        told = self._known.get(command.target.id)
        if told is None or told.dropped:
            return f"The index {command.target.id} was not created, or is dropped."
        return None if isinstance(told.export, IndexExport) else f"{command.target.id} is no index."

    def response(self, response: Frontiers | SubscribeResponse | CopyToResponse) -> str | None:
        told = self._known.get(response.id)
        if told is None:
            return "It was not created, or is dropped and its end was told."
        match response, told:
            case Frontiers(), FrontiersTold():
                why = told.report(response)
            case SubscribeResponse(), SubscriptionTold():
                why = told.see(response.event)
            case CopyToResponse(), CopyTold():
                why = told.answer(response.result)
            case _:
                return f"It is a {type(told.export).__name__}, which is never spoken of like that."
        if why is None:
            self._forget(response.id, told)
        return why

    def _create(self, dataflow: Dataflow) -> str | None:
        if not dataflow.exports:
            return "It exports nothing, so it could never be dropped."
        if dataflow.as_of.time in (None, LAST_TIME):
            return f"It begins at {dataflow.as_of}, and nothing comes after that."
        if len(dataflow.export_ids) != len(dataflow.exports):
            return "Two of its exports have one id."
        for export in dataflow.exports:
            if export.id in self._known:
                return f"{export.id} is created already."
        for index in dataflow.indexes:
            told = self._known.get(index.id)
            if told is None or told.dropped or not isinstance(told.export, IndexExport):
                return f"It imports the index {index.id}, which was not created, or is dropped."
        for export in dataflow.exports:
            self._known[export.id] = _told(export, dataflow)
        return None

    def _forget(self, id: Id, told: ExportProtocolState) -> None:
        if told.dropped and told.ended:
            del self._known[id]


def _told(export: Export, dataflow: Dataflow) -> ExportProtocolState:
    match export:
        case IndexExport() | CollectionExport():
            return FrontiersTold(export, dataflow.as_of)
        case SubscribeExport():
            return SubscriptionTold(export, dataflow.as_of)
        case CopyToExport():
            return CopyTold(export, dataflow.as_of)
