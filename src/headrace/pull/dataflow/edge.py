"""Edge of dataflow modules: a stream of requests from one module to the module upstream, and their answers.

Downstream writes to it as a port (Oz): `send` appends to the stream's unbound tail, later, in order. Upstream
reads it as a list, and answers by binding the variables in it. Both are the messages of an edge in callback
form, which has the guarantees: the module upstream reads asks, and then at most one `Abort` or `Fail`; the
variables that downstream waits for are bound in the order of its requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from headrace.errors import SourceLocation
from headrace.pull import edge as callback
from headrace.pull.dataflow.variable import DataflowVariable
from headrace.pull.edge import not_a_request, not_an_answer
from headrace.pull.edge_state import PendingRequest
from headrace.pull.errors import WrongValue
from headrace.pull.protocol import End

if TYPE_CHECKING:
    from headrace.pull.edge import EdgeModule

T = TypeVar("T")


def _unbound() -> DataflowVariable[Any]:
    return DataflowVariable()  # much faster than calling DataflowVariable[Answer]()


@dataclass(frozen=True, slots=True)
class ListCell(Generic[T]):
    """List cell: an element, and a variable for the rest of the list."""

    head: T
    tail: DataflowVariable[ListCell[T]] = field(default_factory=_unbound)


@dataclass(frozen=True, slots=True)
class Value:
    """Answer with a value of the stream."""

    value: Any


@final
@dataclass(frozen=True, slots=True)
class Done:
    """Answer that the stream is completed; as an indication, notice that no more values are wanted."""


DONE: Final = Done()


@dataclass(frozen=True, slots=True)
class Failed:
    """Answer that the stream has failed with this error. Raises `WrongValue` for a non-exception."""

    error: Exception

    def __post_init__(self) -> None:
        _check_exception(self)


Ending = Done | Failed
Answer = Value | Done | Failed


@dataclass(frozen=True, slots=True)
class Ask:
    """Request for a value."""

    answer: DataflowVariable[Answer] = field(default_factory=_unbound)


@dataclass(frozen=True, slots=True)
class Abort:
    """Request to end the stream. The answer confirms that everything upstream has ended."""

    answer: DataflowVariable[Answer] = field(default_factory=_unbound)

    @property
    def cause(self) -> Ending:
        return DONE


@dataclass(frozen=True, slots=True)
class Fail:
    """Request to fail the stream with this error, confirmed like an abort."""

    error: Exception
    answer: DataflowVariable[Answer] = field(default_factory=_unbound)

    def __post_init__(self) -> None:
        _check_exception(self)

    @property
    def cause(self) -> Ending:
        return Failed(self.error)


@dataclass(frozen=True, slots=True)
class FailIndication:
    """Notice that the stream fails with this error; no answer is expected."""

    error: Exception

    def __post_init__(self) -> None:
        _check_exception(self)


Stop = Abort | Fail
Request = Ask | Abort | Fail | Done | FailIndication


def _check_exception(of: Failed | Fail | FailIndication) -> None:
    if not isinstance(of.error, Exception):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongValue(
            f"{type(of).__name__}({of.error!r}) carries no exception",
            where=[SourceLocation.of_caller()],
            why="A stream fails with an exception, which is raised where the pipeline is waited for.",
            fix='give an instance, such as ValueError("why"); to abort: DONE, Abort()',
        )


def to_callback_end(ending: Ending) -> End:
    """Convert to callback form: True for done, the exception for failed."""
    return ending.error if isinstance(ending, Failed) else True


def from_callback_end(end: End) -> Ending:
    """Convert an end in callback form to an answer."""
    return Failed(end) if isinstance(end, Exception) else DONE


def ending(cause: Ending | End) -> Ending:
    """Normalize a reason to stop a stream: an exception is a failure, True is done. Raises `WrongValue`."""
    if isinstance(cause, Done | Failed):
        return cause
    if cause is True or isinstance(cause, Exception):  # pyright: ignore[reportUnnecessaryIsInstance]
        return from_callback_end(cause)
    raise WrongValue(
        f"a stream cannot be stopped for {cause!r}",
        where=[SourceLocation.of_caller()],
        why="Anything but an abort or a failure says nothing.",
        fix="stop() aborts it; stop(Failed(error)) or stop(error) fails it",
    )


class DataflowStream(Generic[T]):
    """Reader of a list, element by element: `async for element in stream`, or `await stream.next()`.

    It waits at the tail for further elements.
    rest: the current position, from which another reader may start.
    """

    __slots__ = ("rest",)

    def __init__(self, rest: DataflowVariable[ListCell[T]]) -> None:
        self.rest = rest

    def __aiter__(self) -> DataflowStream[T]:
        return self

    async def next(self) -> T:
        cell = await self.rest
        self.rest = cell.tail
        return cell.head

    __anext__ = next


class DataflowPort(Generic[T]):
    """Writer of a list: `send` binds its tail. Any holder of the port may send, in any order.

    >>> port = DataflowPort()
    >>> port.tail.when_bound(lambda cell: print(cell.head))
    >>> port.send("a")
    a
    """

    __slots__ = ("tail",)

    def __init__(self) -> None:
        self.tail: DataflowVariable[ListCell[T]] = DataflowVariable()

    def send(self, element: T) -> None:
        bound, self.tail = self.tail, DataflowVariable()
        bound.bind(ListCell(element, self.tail))


UpperRequest = Ask | Abort | Fail

Requests = DataflowStream[UpperRequest]
"""Stream of messages that the module upstream reads."""


class DataflowEdge(callback.PullEdge):
    """Stream of requests between two modules. requests: the stream that the module upstream reads."""

    __slots__ = ("_confirmed", "_tail", "requests")

    def __init__(self, upper: EdgeModule, *, depth: int = 0) -> None:
        self._tail: DataflowVariable[ListCell[UpperRequest]] = DataflowVariable()
        self.requests: Requests = DataflowStream(self._tail)
        self._confirmed: DataflowVariable[Answer] | None = None
        super().__init__(upper, depth=depth)

    def deepen(self, depth: int) -> None:
        """Set the depth of a module without a width, once its inputs are opened."""
        if self.depth == 0:
            self.depth = depth
            self.window = max(self.upper.run.window or depth, 1)

    def send(self, request: Request) -> None:
        """Append a request to the stream. Raises `WrongValue` for anything else."""
        match request:
            case Ask(answer):
                self(None, partial(bind_answer, answer))
            case Abort(answer):
                self(True, partial(bind_answer, answer))
            case Fail(error, answer):
                self(error, partial(bind_answer, answer))
            case Done():
                self(True)
            case FailIndication(error):
                self(error)
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                raise not_a_request(self.lower, request, "send Ask(), Abort(), Fail(error), or an indication")

    def ask(self) -> DataflowVariable[Answer]:
        """Ask for a value, and return the variable of the answer."""
        answer: DataflowVariable[Answer] = DataflowVariable()
        self(None, partial(bind_answer, answer))
        return answer

    def stop(self, cause: Ending | End = DONE) -> DataflowVariable[Answer]:
        """Abort or fail the stream, and return the variable of the confirmation.

        cause: DONE to abort; `Failed(error)`, or the exception itself, to fail. Else raises `WrongValue`.

        Further calls return the same variable and send nothing.
        """
        reason = ending(cause)
        if self._confirmed is None:
            self._confirmed = DataflowVariable()
            self(to_callback_end(reason), partial(bind_answer, self._confirmed))
        return self._confirmed

    def _tell(self, request: PendingRequest) -> None:
        answer: DataflowVariable[Answer] = DataflowVariable()
        answer.when_bound(partial(self._heard, request))
        if request.abort is None:
            sent = Ask(answer)
        else:
            self.upper.run.stopping(self.upper, self)
            sent = Fail(request.abort, answer) if isinstance(request.abort, Exception) else Abort(answer)
        tail, self._tail = self._tail, DataflowVariable()
        try:
            tail.bind(ListCell(sent, self._tail))
        except Exception as error:
            self.upper.crash(error)

    def _heard(self, request: PendingRequest, found: Answer) -> None:
        """Handle the variable bound by the module upstream, which may be anything."""
        if isinstance(found, Value):
            self._answered(request, None, found.value)
        elif isinstance(found, Done | Failed):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._answered(request, to_callback_end(found))
        elif self.upper.failure is None:
            fix = "bind answers to Value(value), DONE or Failed(error)"
            self.upper.crash(not_an_answer(self.upper, f"{found!r:.60}", fix))


def bind_answer(variable: DataflowVariable[Answer], end: End | None, value: object = None, /) -> None:
    """Bind a variable to an answer in callback form."""
    variable.bind(Value(value) if end is None else from_callback_end(end))
