"""A dataflow that passes on what it reads, as subscriptions to a view do: nothing is computed for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from penstock.compute.collections.store import Collections
from penstock.compute.frontier import Frontier
from penstock.compute.protocol.responses import Counted, Update
from penstock.compute.replica.spark_inputs import Inputs
from penstock.compute.replica.spark_state import State
from penstock.compute.replica.spark_versions import Versions
from penstock.flow.flow import Flow
from penstock.flow.operators.source import Source
from penstock.spark.external_ticks import Given, Session
from penstock.spark.versions.files import LAST_HASH


def passed_on(flow: Flow) -> dict[str, str] | None:
    """By sink the source whose changes it gets as they are; None where there is more to the flow."""
    graph = flow.graph()
    found: dict[str, str] = {}
    for sink, node in graph.sinks.items():
        (above,) = graph.nodes[node].inputs
        operator = graph.nodes[above].operator
        if not isinstance(operator, Source) or operator.append:
            return None
        found[sink] = operator.name
    return found


class PassedOn(Versions):
    """The changes of the last tick, for those who are told of them at once. Nobody else reads them."""

    def __init__(self, as_of: int) -> None:
        super().__init__(Path(), (), as_of)
        self.updates: list[Update] = []

    def scan(self, time: int, low: int = 0, high: int = LAST_HASH) -> list[Counted]:
        return [(row, weight) for row, at, weight in self.updates if at <= time]

    def changes(self, lower: int, upper: Frontier) -> list[Update]:
        return [update for update in self.updates if lower <= update[1] and upper.passed(update[1])]


class PassthroughState(State):
    """Keeps nothing: subscriptions and copies begin anew with each connection."""

    def __init__(
        self,
        flow: Flow,
        inputs: Inputs,
        versions: Mapping[str, PassedOn],
        sources: Mapping[str, str],
        as_of: int,
    ) -> None:
        super().__init__(Path(), {}, flow, inputs, versions, as_of)
        self._passed = [(source, versions[sink]) for sink, source in sources.items() if sink in versions]
        self._sources = frozenset(one.source for one in inputs.imports)

    @property
    def append(self) -> Mapping[str, bool]:
        return dict.fromkeys(self._sources, False)

    def open(self, store: Collections, spark: Session) -> bool:
        self.is_open = True
        return True

    def run(self, spark: Session, given: Iterable[Given], times: Sequence[int], upper: Frontier) -> None:
        found: dict[str, list[Update]] = {source: [] for source in self._sources}
        for source, number, rows in given:
            found[source] += [(row[:-1], times[number], row[-1]) for row in rows]
        for source, versions in self._passed:
            versions.updates = sorted(found[source], key=lambda update: update[1])

    def remove(self) -> None:
        self.close()
