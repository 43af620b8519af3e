"""Edge of dataflow modules: a stream of requests from one module to the module upstream.

Downstream writes to it as a port (Oz): `send` appends to the stream's unbound tail, later, in order. Upstream
reads it as a list, and answers by binding the variables in it. Both are the messages of an edge in callback
form, which has the guarantees: the module upstream reads asks, and then at most one `Abort` or `Fail`; the
variables that downstream waits for are bound in the order of its requests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.pull import edge as callback
from headrace.pull.dataflow.messages import (
    DONE,
    Abort,
    Answer,
    Ask,
    Cell,
    Done,
    Ending,
    Fail,
    Failed,
    FailIndication,
    Request,
    Stream,
    Value,
    ending,
    from_callback_end,
    to_callback_end,
)
from headrace.pull.dataflow.variable import Variable
from headrace.pull.edge import not_a_request, not_an_answer
from headrace.pull.edge_state import PendingRequest
from headrace.pull.protocol import End

if TYPE_CHECKING:
    from headrace.pull.edge import EdgeModule

UpperRequest = Ask | Abort | Fail

Requests = Stream[UpperRequest]
"""Stream of messages that the module upstream reads."""


class Edge(callback.Edge):
    """Stream of requests between two modules. requests: the stream that the module upstream reads."""

    __slots__ = ("_confirmed", "_tail", "requests")

    def __init__(self, upper: EdgeModule, *, depth: int = 0) -> None:
        self._tail: Variable[Cell[UpperRequest]] = Variable()
        self.requests: Requests = Stream(self._tail)
        self._confirmed: Variable[Answer] | None = None
        super().__init__(upper, depth=depth)

    def deepen(self, depth: int) -> None:
        """Set the depth of a module without a width, once its inputs are opened."""
        if self.depth == 0:
            self.depth = depth
            self.window = max(self.upper.run.window or depth, 1)

    # -- downstream -----------------------------------------------------------------------------

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

    def ask(self) -> Variable[Answer]:
        """Ask for a value, and return the variable of the answer."""
        answer: Variable[Answer] = Variable()
        self(None, partial(bind_answer, answer))
        return answer

    def stop(self, cause: Ending | End = DONE) -> Variable[Answer]:
        """Abort or fail the stream, and return the variable of the confirmation.

        cause: DONE to abort; `Failed(error)`, or the exception itself, to fail. Else raises `WrongValue`.

        Further calls return the same variable and send nothing.
        """
        reason = ending(cause)
        if self._confirmed is None:
            self._confirmed = Variable()
            self(to_callback_end(reason), partial(bind_answer, self._confirmed))
        return self._confirmed

    # -- upstream -------------------------------------------------------------------------------

    def _tell(self, request: PendingRequest) -> None:
        answer: Variable[Answer] = Variable()
        answer.when_bound(partial(self._heard, request))
        if request.abort is None:
            sent = Ask(answer)
        else:
            self.upper.run.stopping(self.upper, self)
            sent = Fail(request.abort, answer) if isinstance(request.abort, Exception) else Abort(answer)
        tail, self._tail = self._tail, Variable()
        try:
            tail.bind(Cell(sent, self._tail))
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


def bind_answer(variable: Variable[Answer], end: End | None, value: object = None, /) -> None:
    """Bind a variable to an answer in callback form."""
    variable.bind(Value(value) if end is None else from_callback_end(end))
