"""`tee`, `fork`, `notify`: one stream, or pushed values, given to several readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

from headrace.errors import BadOption, QueueFull, SourceLocation, UnknownPort
from headrace.pull.argument_checks import AWAIT_BEFORE, check_integer, synchronous_check
from headrace.pull.ask_buffer import Buffer
from headrace.pull.compose import require_one_kind
from headrace.pull.edge import CallbackEdge, PullEdge
from headrace.pull.errors import AlreadyUsed
from headrace.pull.module_context import Module, Registry
from headrace.pull.modules import PullSource, SourcePart
from headrace.pull.pipeline_run import Run
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, BatchRead, End

Choose = Callable[[Any], Iterable[int]]
"""Function from a value to the numbers (from 0) of its branches."""


class TeeBranch(Buffer):
    """Pending requests and waiting values of one branch."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        super().__init__()
        self.left = False

    def room(self, in_flight: deque[int], ahead: int | None) -> float:
        """Return the number of values another request may ask for if all those in flight are filled."""
        if len(self.asks) > len(in_flight):
            return self.asks[len(in_flight)][1]
        if ahead is None:
            return float("inf")
        beyond = sum(most for at, most in enumerate(in_flight) if at >= len(self.asks))
        return ahead - len(self.values) - beyond


class SharedUpstream:
    """Reader of one upstream on behalf of all branches.

    It asks upstream when some branch has an open request, and every other active branch either has one too or
    has room for the values: up to `ahead` (None: unlimited).
    """

    def __init__(
        self, module: Module, upstream: PullEdge, count: int, choose: Choose | None, ahead: int | None
    ) -> None:
        self._upstream = upstream
        self._choose = choose
        self._ahead = ahead
        self._branches = [TeeBranch() for _ in range(count)]
        self._in_flight: deque[int] = deque()
        self._end: End | None = None
        self.edges = [
            CallbackEdge(module, partial(self._read, branch), batches=True, depth=upstream.depth)
            for branch in self._branches
        ]

    def _read(self, branch: TeeBranch, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._leave(branch, abort, answer)
            return
        branch.asks.append((answer, most))
        branch.give()
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
                for branch in self._branches:
                    branch.end = self._end
        finally:
            for branch in self._branches:
                branch.give()
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

    def _leave(self, branch: TeeBranch, cause: End, answer: AnswerTo) -> None:
        """Remove a branch. The last one to leave stops the upstream."""
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
    source: PullSource,
    count: int,
    *,
    choose: Choose | None,
    ahead: int | None,
) -> tuple[PullSource, ...]:
    """Create the sources that share one upstream in a run."""
    owner = object()

    def open_hub(run: Run) -> SharedUpstream:
        module = Module(run, name, location)
        module.advice = (
            f"It asks for a value when every branch has asked, or has room for one more: ahead={ahead}.",
            "let every branch ask; or give a larger ahead=, or None, where one is read before another",
        )
        return SharedUpstream(module, module.open(source), count, choose, ahead)

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
        PullSource(
            SourcePart(f"{name} {number + 1}/{count}", location, partial(open_branch, number), batches=True)
        )
        for number in range(count)
    )


def tee(source: PullSource, count: int = 2, *, ahead: int | None = 0) -> tuple[PullSource, ...]:
    """Duplicate a source into `count` sources, reading it once.

    All branches belong to the same run: complete each and run them `together`, or combine them again with
    `merge` or the like. A branch that no pipeline of the run reads still counts, and blocks the others:
    `NeverAnswered` names it.

    ahead: number of values that a branch may be behind the fastest, which are buffered; None for unlimited.
           With 0, a value is requested only when every branch has asked for one, so the slowest sets the
           pace.

    Done and errors of the source reach each branch after the values before them. A branch that aborts or
    fails leaves immediately, and the others continue; the last one aborts (or fails) the source, whose
    confirmation answers it.

    >>> from headrace.pull import collect, map, pull, together, values
    >>> plain, squares = tee(values([1, 2, 3]))
    >>> together(pull(plain, collect()), pull(squares, map(lambda x: x * x), collect())).run()
    ([1, 2, 3], [1, 4, 9])
    """
    require_one_kind(PullSource, "tee", [source])
    check_integer("tee", "count", count, least=1)
    if ahead is not None:
        check_integer("tee", "ahead", ahead, least=0)
    return branches("tee", SourceLocation.of_caller(), source, count, choose=None, ahead=ahead)


def fork(
    source: PullSource,
    classify: Callable[[Any], Hashable],
    keys: Sequence[Hashable] = (False, True),
    *,
    ahead: int | None = 0,
) -> tuple[PullSource, ...]:
    """Split a source by key: one source per key, with the values for which `classify(value)` is that key.

    keys: with the default, `classify` is a predicate, and the first branch has the values that fail it.

    As with `tee`, all branches belong to the same run. With `ahead=0`, a value is requested only when every
    branch has asked for one, since it may be for any of them; otherwise up to `ahead` values wait for a
    branch that does not ask. Values for a branch that has left are dropped. Ends are handled as by `tee`.

    An exception of `classify`, or a key that is not in `keys` (`UnknownPort`), fails the source, and then all
    branches.

    >>> from headrace.pull import collect, pull, together, values
    >>> odd, even = fork(values(range(5)), lambda x: x % 2 == 0)
    >>> together(pull(odd, collect()), pull(even, collect())).run()
    ([1, 3], [0, 2, 4])
    """
    location = SourceLocation.of_caller()
    require_one_kind(PullSource, "fork", [source])
    if ahead is not None:
        check_integer("fork", "ahead", ahead, least=0)
    classify = synchronous_check("fork", classify, fix=AWAIT_BEFORE).calling(classify)
    numbers = {key: number for number, key in enumerate(keys)}
    if len(numbers) != len(keys) or not keys:
        raise BadOption(
            f"fork() cannot work with keys={keys!r}",
            where=[location],
            why="There is one branch for each key.",
            fix="give one or more keys, each of them once",
            constructor="fork",
            option="keys",
        )

    def choose(value: Any) -> Iterable[int]:
        key = classify(value)
        if key not in numbers:
            raise UnknownPort(
                f"fork() has no branch for {key!r}",
                where=[location],
                why=f"classify({value!r}) is {key!r}; its keys are {', '.join(map(repr, keys))}.",
                fix="give this key, too; or classify it as one that is there",
                key=key,
                keys=tuple(keys),
            )
        return (numbers[key],)

    return branches("fork", location, source, len(keys), choose=choose, ahead=ahead)


def notify(*, bound: int | None = 1024) -> Notify:
    """Create a handle that delivers each value to all current listeners.

    bound: limit on values waiting for one listener; None for unlimited. A listener over the limit emits the
           waiting values and then fails with `QueueFull`, without affecting the others or the caller.

    >>> from headrace.pull import collect, pull
    >>> news = notify()
    >>> early = pull(news.listen(), collect()).start()
    >>> news.push(1)
    >>> late = pull(news.listen(), collect()).start()
    >>> news.push(2), news.end()
    (None, None)
    >>> early.result(), late.result()
    ([1, 2], [2])
    """
    if bound is not None:
        check_integer("notify", "bound", bound, least=1)
    return Notify(bound, SourceLocation.of_caller())


class Notify:
    """Broadcast handle; see `notify`. Use it only in the listening pipelines' thread."""

    def __init__(self, bound: int | None, location: SourceLocation) -> None:
        self._bound = bound
        self._location = location
        self._listeners: Registry[_Listener] = Registry()
        self._end: End | None = None

    @property
    def listeners(self) -> int:
        """Number of current listeners."""
        return len(self._listeners)

    def listen(self) -> PullSource:
        """Create a source of values pushed from the moment a run opens it, until `end`.

        An abort stops listening, and is confirmed immediately. After `end`, the source is empty.
        """
        return PullSource.of("notify", self._open, batches=True)

    def push(self, value: Any) -> None:
        """Deliver a value to all listeners; after `end`, to nobody."""
        for listener in self._listeners:
            listener.module.enter(listener.hear, value)

    def end(self, error: Exception | None = None) -> None:
        """End all current and future listeners, after their waiting values, with done or the error.

        Later calls have no effect.
        """
        if self._end is None:
            self._end = error or True
            for listener in self._listeners:
                listener.module.enter(listener.hear_end, self._end)

    def _open(self, module: Module) -> BatchRead:
        listener = _Listener(self, module)
        if self._end is None:
            listener.entry = self._listeners.add(module, listener)
        else:
            listener.hear_end(self._end)
        return listener.read

    def too_slow(self, waiting: int) -> QueueFull | None:
        """Build the failure of a listener with too many waiting values; None if they are within the bound."""
        if self._bound is None or waiting <= self._bound:
            return None
        return QueueFull(
            f"a listener of notify() is more than {self._bound} values behind, which is the bound",
            where=[self._location],
            why="Values are pushed faster than it requests them, and no listener holds up the others.",
            fix="a larger bound=; or drop values in front of what is slow",
            bound=self._bound,
        )


class _Listener:
    """Values not yet taken by one listening run."""

    entry: Cancellable | None = None

    def __init__(self, notify: Notify, module: Module) -> None:
        self.module = module
        self._notify = notify
        self._buffer = Buffer()

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._buffer.clear()
            self._leave()
            answer(abort)
        else:
            self._buffer.asks.append((answer, most))
            self._buffer.give()

    def hear(self, value: Any) -> None:
        buffer = self._buffer
        if buffer.end is not None:
            return
        buffer.values.append(value)
        buffer.give()
        error = self._notify.too_slow(len(buffer.values))
        if error is not None:
            buffer.values.pop()
            self.hear_end(error)

    def hear_end(self, end: End) -> None:
        self._leave()
        self._buffer.end = self._buffer.end or end
        self._buffer.give()

    def _leave(self) -> None:
        if self.entry is not None:
            self.entry.cancel()
