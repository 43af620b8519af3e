"""Page of a controller: its replicas, views and collections, as `headrace status` shows them, and rows.

The page is a client like any other, so it sees what clients see and cannot disturb the controller's loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.compute.controller.status import to_plain
from headrace.ui.run_page import flow_description
from headrace.ui.server import WHY_SECONDS, OneAtATime
from headrace.ui.view_rows import ViewRows
from headrace.view import to_svg
from headrace.view.picture import Arrow, ArrowKind, Box, BoxRole, Picture

if TYPE_CHECKING:
    from headrace.compute.client.client import Client
    from headrace.compute.controller.status import ControllerStatus, ReplicaStatus, ViewStatus
    from headrace.ui.server import JsonObject

MAX_PEEKED = 5_000
"""Rows of a view that the page reads."""
_BETWEEN_LOOKS = 1.0
_NO_LETTERS = "Clients write collections: an invalid row is refused, and never set aside."


class ControllerPage:
    """Page of the controller at `address`, asked by `client`, which the caller closes.

    find_why: finds the rows that a view's row, given as JSON, came from; takes seconds.
    """

    def __init__(self, address: str, client: Client, find_why: Callable[[str, str], JsonObject]) -> None:
        self._address = address
        self._client = client
        self._find_why = OneAtATime(find_why)
        self._status: ControllerStatus | None = None
        self._version = 0
        self._looked = 0.0

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _BETWEEN_LOOKS:
            self._looked = now
            status = self._client.status()
            if status != self._status:
                self._status = status
                self._version += 1

    def version(self) -> int:
        return self._version

    def overview(self) -> JsonObject:
        return {
            "kind": "controller",
            "title": f"Controller at {self._address}",
            "why_seconds": WHY_SECONDS,
            "sources": {},
            "sinks": {},
        }

    def flow(self, view: str) -> JsonObject:
        if self._status is None:
            return {"why_not": "The controller has not answered yet."}
        if not view:
            return {"svg": to_svg(_picture(self._status))}
        return flow_description(self._client.flow(view))

    def status(self, after: int) -> JsonObject:
        empty: JsonObject = {"tick": self._version, "ticks": [], "watermarks": {}, "late": {}, "sources": {}}
        found = self._status
        if found is None:
            return {**empty, "state_bytes": None, "views": {}, "figures": []}
        return {
            **empty,
            "state_bytes": None,
            # Rows of a view may have changed when its frontier has moved.
            "views": {each.name: each.upper.time for each in (*found.views, *found.collections)},
            "figures": [
                ["Epoch", str(found.epoch)],
                ["Last write", _moment(found.read_time)],
                ["Replicas connected", f"{_connected(found)} of {len(found.replicas)}"],
                ["Views ready", f"{sum(v.hydrated for v in found.views)} of {len(found.views)}"],
                ["Pending peeks", str(len(found.peeks))],
                ["Subscriptions", str(len(found.subscriptions))],
            ],
            "replicas": [_replica(each) for each in found.replicas],
            "served": [_view(each) for each in found.views],
            "collections": [to_plain(each) for each in found.collections],
            "problems": [{**to_plain(each), "at": _moment(each.at)} for each in found.problems],
        }

    def state(self) -> JsonObject:
        return {"why_not": "Replicas hold the state of views: see the memory and rows of each."}

    def state_of_key(self, operator: str, key: str) -> JsonObject:
        return self.state()

    def rows(self, view: str, search: str, offset: int) -> JsonObject:
        if self._status is None or view not in self.status(0)["views"]:
            return {"why_not": f"There is no view or collection {view!r}."}
        known = self._client.describe(view)
        rows = self._client.peek(view, limit=MAX_PEEKED)
        held = ViewRows(known.schema)
        held.add(0, [(row, 1) if known.schema.scalar else (*row, 1) for row in rows])
        found = held.page(search, offset)
        limit = f"only the first {MAX_PEEKED:,} rows are read" if len(rows) == MAX_PEEKED else ""
        return {**found, "changes": None, "limit": limit}

    def dead_letters(self) -> JsonObject:
        return {"why_not": _NO_LETTERS}

    def why(self, view: str, row: str) -> JsonObject:
        served = self._status.views if self._status else ()
        if view not in (each.name for each in served):
            return {
                "why_not": f"{view} is a collection: clients, or a view that writes into it, wrote the row."
            }
        return self._find_why(view, row)


def _picture(found: ControllerStatus) -> Picture:
    """Build a picture of all views with their inputs and outputs."""
    ids = {each.name: f"n{at}" for at, each in enumerate((*found.collections, *found.views))}
    boxes = [
        *(
            Box(
                ids[each.name], (each.name, each.columns), BoxRole.SINK if each.written_by else BoxRole.SOURCE
            )
            for each in found.collections
        ),
        *(Box(ids[each.name], (each.name, each.state), BoxRole.OPERATOR) for each in found.views),
    ]
    appended = {each.name for each in found.collections if each.append_only}
    kinds = {name: ArrowKind.APPEND if name in appended else ArrowKind.CHANGES for name in ids}
    arrows = [
        Arrow(ids[read], ids[view.name], kinds[read], "") for view in found.views for read in view.reads
    ]
    written = [
        Arrow(ids[view.name], ids[view.into], kinds[view.into], "") for view in found.views if view.into
    ]
    return Picture("Views and collections", tuple(boxes), (*arrows, *written), ())


def _connected(found: ControllerStatus) -> int:
    return sum(each.state.value == "connected" for each in found.replicas)


def _moment(milliseconds: int) -> str:
    if not milliseconds:
        return "never"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(milliseconds / 1000))


def _replica(replica: ReplicaStatus) -> JsonObject:
    says: dict[str, Any] = dict(replica.says)
    return {
        "name": replica.name,
        "address": replica.address,
        "runtime": replica.timely.runtime,
        "workers": replica.timely.workers,
        "state": replica.state.value,
        "since": replica.since / 1000,
        "ready": replica.ready,
        "connections": replica.connections,
        "deaths": replica.deaths,
        "memory": says.get("memory"),
        "rows": says.get("rows"),
        "problem": replica.problem,
    }


def _view(view: ViewStatus) -> JsonObject:
    return {
        "name": view.name,
        "reads": list(view.reads),
        "key": list(view.key),
        "into": view.into,
        "state": view.state,
        "since": view.since.time,
        "upper": view.upper.time,
        "replicas": [
            {
                "replica": on.replica,
                "hydrated": on.hydrated,
                "failure": on.failure,
                "lag": on.lag,
                "says": on.says,
            }
            for on in view.replicas
        ],
    }
