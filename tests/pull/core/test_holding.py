"""What a module holds outside is given back however the module ends, and before its end is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.pull import PullSink, PullSource, collect, pull, values
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from tests.pull.core.modules import Manual


class Resource:
    def __init__(self) -> None:
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


class Holder:
    """A sink that holds something, asks once, and closes when the test says so."""

    def __init__(self, *, then: Callable[[Module, Any], object] | None = None) -> None:
        self.resource = Resource()
        self.closings: list[Exception | None] = []
        self.closed: Callable[..., object] | None = None
        self._then = then
        self.sink = PullSink.of("holder", self._open)

    def _open(self, module: Module, edge: PullEdge) -> None:
        module.cancel_at_end(self.resource)
        module.closing(self._close)

        def got(end: Any, value: Any = None, /) -> None:
            if self._then is not None:
                self._then(module, end)
            elif end is True:
                module.done("complete")
            elif end is not None:
                module.fail(end, "partial")

        edge(None, got)

    def _close(self, error: Exception | None, closed: Callable[..., object]) -> None:
        self.closings.append(error)
        self.closed = closed


def crash(_module: Module, _end: Any) -> None:
    raise ValueError("in the sink")


def test_the_end_of_a_sink_is_told_when_it_has_closed() -> None:
    holder = Holder()
    run = pull(values([]), holder.sink).start()
    assert (run.finished, holder.closings, holder.resource.cancelled) == (False, [None], 1)
    assert holder.closed is not None
    holder.closed()
    assert (run.finished, run.result()) == (True, "complete")


def test_a_sink_that_is_stopped_from_outside_closes_too() -> None:
    source, holder = Manual(), Holder()
    run = pull(source.source, holder.sink).start()
    run.stop()
    assert (source.requests, holder.closings) == ([None, True], [])
    source.answer(1, True)
    assert (run.finished, holder.closings) == (False, [None])
    assert holder.closed is not None
    holder.closed()
    assert run.finished


def test_a_sink_that_crashes_closes_too() -> None:
    holder = Holder(then=crash)
    run = pull(values([1]), holder.sink).start()
    assert [str(error) for error in holder.closings] == ["in the sink"]
    assert holder.closed is not None
    holder.closed()
    with pytest.raises(ValueError, match="in the sink"):
        run.result()


def test_what_closing_fails_with_is_the_result() -> None:
    holder = Holder()
    run = pull(values([]), holder.sink).start()
    assert holder.closed is not None
    holder.closed(OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        run.result()


def test_what_closing_fails_with_is_attached_to_an_earlier_cause() -> None:
    holder = Holder(then=crash)
    run = pull(values([1]), holder.sink).start()
    assert holder.closed is not None
    holder.closed(OSError("disk full"))
    with pytest.raises(ValueError, match="in the sink") as raised:
        run.result()
    assert raised.value.__notes__ == ["then, while closing: OSError: disk full"]


def test_what_a_close_function_raises_counts_as_what_closing_fails_with() -> None:
    def close(_error: Exception | None, _closed: object) -> None:
        raise OSError("disk full")

    def open(module: Module, edge: PullEdge) -> None:
        module.closing(close)
        module.done()

    with pytest.raises(OSError, match="disk full"):
        pull(values([]), PullSink.of("closes badly", open)).run()


def test_what_a_source_holds_is_given_back_when_its_stream_has_ended() -> None:
    resource = Resource()

    def open(module: Module) -> Callable[..., None]:
        module.cancel_at_end(resource)
        return lambda abort, answer: answer(True)

    pull(PullSource.of("holder", open), collect()).run()
    assert resource.cancelled == 1


def test_what_is_held_by_a_run_that_is_given_up_is_given_back() -> None:
    source, holder = Manual(), Holder()
    run = pull(source.source, holder.sink).start()
    run.abandon()
    assert holder.resource.cancelled == 1


def test_a_failure_that_a_sink_was_not_told_before_it_had_enough_is_not_lost() -> None:
    def open(module: Module, edge: PullEdge) -> None:
        def first(_end: Any, value: Any = None, /) -> None:
            module.done(value)

        edge(None, first)
        edge(None, lambda _end, _value=None, /: None)

    source = Manual()
    run = pull(source.source, PullSink.of("one", open)).start()

    def both() -> None:
        source.answers[0](None, 1)
        source.answers[1](OSError("next"))

    assert source.module is not None
    source.module.enter(both)
    with pytest.raises(OSError, match="next"):
        run.result()
