"""Hub: what stands between one upstream and several branches that run together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from penstock.errors import AlreadyUsed, SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Source, SourcePart
from penstock.pull.protocol import AnswerTo, BatchRead, End
from penstock.pull.run import Run

Choose = Callable[[Any], Iterable[int]]
"""The branches that a value goes to, by number from 0."""


class Branch:
    """What one branch has asked for, and what waits for it."""

    def __init__(self) -> None:
        self.asks: deque[tuple[AnswerTo, int]] = deque()
        self.values: deque[Any] = deque()
        self.left = False

    def room(self, in_flight: deque[int], ahead: int | None) -> float:
        """How many values one more request may bring, where each of those in flight brings what it may."""
        if len(self.asks) > len(in_flight):
            return self.asks[len(in_flight)][1]
        if ahead is None:
            return float("inf")
        beyond = sum(most for at, most in enumerate(in_flight) if at >= len(self.asks))
        return ahead - len(self.values) - beyond

    def give(self, end: End | None) -> None:
        """Answer what can be answered; by the end, when nothing waits."""
        while self.asks and self.values:
            answer, most = self.asks.popleft()
            answer(None, self._take(most))
        if self.asks and end is not None:
            self.asks.popleft()[0](end)

    def _take(self, most: int) -> list[Any]:
        if len(self.values) > most:
            return [self.values.popleft() for _ in range(most)]
        taken = list(self.values)
        self.values.clear()
        return taken


class Hub:
    """Reads one upstream for all branches.

    It asks when a branch has an open request, and every branch that has not left either has one, too, or
    has room for what may come: `ahead` values (None: any number).
    """

    def __init__(
        self, module: Module, upstream: Edge, count: int, choose: Choose | None, ahead: int | None
    ) -> None:
        self._upstream = upstream
        self._choose = choose
        self._ahead = ahead
        self._branches = [Branch() for _ in range(count)]
        self._in_flight: deque[int] = deque()
        self._end: End | None = None
        self.edges = [
            Edge(module, partial(self._read, branch), batches=True, depth=upstream.depth)
            for branch in self._branches
        ]

    def _read(self, branch: Branch, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._leave(branch, abort, answer)
            return
        branch.asks.append((answer, most))
        branch.give(self._end)
        self._ask()

    def _ask(self) -> None:
        while self._end is None:
            there = [branch for branch in self._branches if not branch.left]
            wanted = any(len(branch.asks) > len(self._in_flight) for branch in there)
            most = min((branch.room(self._in_flight, self._ahead) for branch in there), default=0)
            if not wanted or most < 1:
                return
            self._in_flight.append(int(most))
            self._upstream(None, self._got, int(most))

    def _got(self, end: End | None, values: Any = None, /) -> None:
        self._in_flight.popleft()
        try:
            if end is None:
                self._hand_out(values)
            else:
                self._end = self._end or end
        finally:
            for branch in self._branches:
                branch.give(self._end)
        self._ask()

    def _hand_out(self, values: list[Any]) -> None:
        if self._choose is None:
            for branch in self._branches:
                if not branch.left:
                    branch.values.extend(values)
            return
        for value in values:
            for number in self._choose(value):
                if not self._branches[number].left:
                    self._branches[number].values.append(value)

    def _leave(self, branch: Branch, cause: End, answer: AnswerTo) -> None:
        """The last one to leave takes the upstream along."""
        branch.left = True
        branch.values.clear()
        if self._end is None and all(each.left for each in self._branches):
            self._upstream(cause, answer)
            return
        answer(True)
        self._ask()


def branches(
    name: str,
    location: SourceLocation,
    source: Source,
    count: int,
    *,
    choose: Choose | None,
    ahead: int | None,
) -> tuple[Source, ...]:
    """So many sources that read the one together, in one run."""
    owner = object()

    def open_hub(run: Run) -> Hub:
        module = Module(run, name, location)
        module.advice = (
            f"It asks for a value when every branch has asked, or has room for one more: ahead={ahead}.",
            "let every branch ask; or give a larger ahead=, or None, where one is read before another",
        )
        return Hub(module, module.open(source), count, choose, ahead)

    def open_branch(number: int, module: Module) -> BatchRead:
        edge = module.shared(owner, lambda: open_hub(module.run)).edges[number]
        if edge.lower is not None:
            raise AlreadyUsed(
                f"branch {number + 1} of {name}() is read twice in a run",
                where=[location],
                why="Each branch gives its values once.",
                fix=f"make one more branch; or {name}() of the branch",
            )
        module.connect(edge)

        def read(abort: End | None, answer: AnswerTo, most: int) -> None:
            edge(abort, answer, most if abort is None else None)

        return read

    return tuple(
        Source(
            SourcePart(f"{name} {number + 1}/{count}", location, partial(open_branch, number), batches=True)
        )
        for number in range(count)
    )
