"""Messages between dataflow modules, and the streams and ports that carry them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, final

from headrace.errors import SourceLocation
from headrace.pull.dataflow.variable import Variable
from headrace.pull.errors import WrongValue
from headrace.pull.protocol import End

T = TypeVar("T")


def _unbound() -> Variable[Any]:
    return Variable()  # much faster than calling Variable[Answer]()


@dataclass(frozen=True, slots=True)
class Cell(Generic[T]):
    """List cell: an element, and a variable for the rest of the list."""

    head: T
    tail: Variable[Cell[T]] = field(default_factory=_unbound)


# --- answers -------------------------------------------------------------------------------


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


# --- requests ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Request for a value."""

    answer: Variable[Answer] = field(default_factory=_unbound)


@dataclass(frozen=True, slots=True)
class Abort:
    """Request to end the stream. The answer confirms that everything upstream has ended."""

    answer: Variable[Answer] = field(default_factory=_unbound)

    @property
    def cause(self) -> Ending:
        return DONE


@dataclass(frozen=True, slots=True)
class Fail:
    """Request to fail the stream with this error, confirmed like an abort."""

    error: Exception
    answer: Variable[Answer] = field(default_factory=_unbound)

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


# --- the same in the callback form ---------------------------------------------------------


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


# --- streams and ports: lists that are extended at one end while being read -----------------------


class Stream(Generic[T]):
    """Reader of a list, element by element: `async for element in stream`, or `await stream.next()`.

    It waits at the tail for further elements.
    rest: the current position, from which another reader may start.
    """

    __slots__ = ("rest",)

    def __init__(self, rest: Variable[Cell[T]]) -> None:
        self.rest = rest

    def __aiter__(self) -> Stream[T]:
        return self

    async def next(self) -> T:
        cell = await self.rest
        self.rest = cell.tail
        return cell.head

    __anext__ = next


class Port(Generic[T]):
    """Writer of a list: `send` binds its tail. Any holder of the port may send, in any order.

    >>> port = Port()
    >>> port.tail.when_bound(lambda cell: print(cell.head))
    >>> port.send("a")
    a
    """

    __slots__ = ("tail",)

    def __init__(self) -> None:
        self.tail: Variable[Cell[T]] = Variable()

    def send(self, element: T) -> None:
        bound, self.tail = self.tail, Variable()
        bound.bind(Cell(element, self.tail))
