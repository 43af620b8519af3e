"""What each sink answers, asks for, and does at each end."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import pull as callback
from headrace.pull import (
    Pipeline,
    collect,
    concat,
    count,
    dataflow,
    drain,
    error,
    find,
    last,
    log,
    map,
    on_end,
    pull,
    reduce,
    values,
)
from headrace.pull.errors import NoValue, WrongValue
from tests.pull.core.modules import Manual


class Failure(Exception):
    pass


def failing(*before: Any) -> Any:
    """These values, and then a failure."""
    from headrace.pull import cat

    return cat([values(before), error(Failure("upstream"))])


def partial(pipeline: Pipeline) -> Any:
    """What the sink held when its stream failed."""
    run = pipeline.start()
    with pytest.raises(Failure):
        run.result()
    return run.partial


def raises(_value: Any) -> Any:
    raise Failure("in the function")


def failing_sinks(form: Any) -> list[Any]:
    """Sinks of a form whose function raises at the first value."""
    sinks = [form.drain(raises), form.find(raises), form.for_each(raises)]
    return [*sinks, form.reduce(lambda _total, _value: raises(0), 0)]


@pytest.mark.parametrize("form", [callback, dataflow])
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("then", [Failure("upstream"), None], ids=["fails", "is done"])
def test_what_a_function_raises_goes_before_how_the_stream_ends_meanwhile(
    form: Any, at: int, then: Exception | None
) -> None:
    """The end is on its way already: several requests were under way."""

    def make(left: list[int]) -> int:
        if not left and then is not None:
            raise then
        return left.pop()

    def source() -> Any:
        left = [1]
        return form.infinite(lambda: make(left)) if then is not None else form.values(left)

    run = form.pull(source(), failing_sinks(form)[at]).start(window=2)
    with pytest.raises(Failure, match="in the function") as raised:
        run.wait()
    assert getattr(raised.value, "__notes__", []) == (
        [] if then is None else ["then, while closing: Failure: upstream"]
    )
    told: list[Exception | None] = []
    run.when_finished(lambda run: told.append(run.error))
    assert told == [raised.value]


@pytest.mark.parametrize(
    "sink",
    [drain(raises), find(raises), log(to=raises), reduce(lambda _total, _value: raises(0))],
    ids=["drain", "find", "log", "reduce"],
)
def test_what_a_function_of_a_sink_raises_fails_upstream_and_is_the_result(sink: Any) -> None:
    heard: list[Exception | None] = []
    with pytest.raises(Failure, match="in the function") as raised:
        pull(values([1, 2], on_stop=heard.append), sink).run()
    assert heard == [raised.value]


# --- collect, concat, reduce, last -----------------------------------------------------------------


def test_collect_holds_what_came_before_a_failure() -> None:
    assert partial(pull(failing(1, 2), collect())) == [1, 2]


def test_each_run_of_a_sink_begins_anew() -> None:
    pipeline = pull(values([1, 2]), collect())
    assert pipeline.run() == pipeline.run() == [1, 2]


def test_concat_joins_texts_and_what_can_be_written_as_text() -> None:
    assert pull(values(["a", 1, None]), concat()).run() == "a1None"
    assert pull(values([]), concat()).run() == ""


def test_concat_joins_bytes_where_that_is_said() -> None:
    assert pull(values([b"a", bytearray(b"b")]), concat(b"")).run() == b"ab"
    assert pull(values([]), concat(b"")).run() == b""
    with pytest.raises(WrongValue, match="takes bytes, got str"):
        pull(values([b"a", "b"]), concat(b"")).run()


def test_concat_holds_what_came_before_a_failure() -> None:
    assert partial(pull(failing("a", "b"), concat())) == "ab"


def test_reduce_begins_with_the_first_value_or_with_the_initial_one() -> None:
    assert pull(values([3, 4]), reduce(lambda total, value: (total, value))).run() == (3, 4)
    assert pull(values([3, 4]), reduce(lambda total, value: (total, value), 0)).run() == ((0, 3), 4)
    assert pull(values([3]), reduce(raises)).run() == 3
    assert pull(values([]), reduce(raises, None)).run() is None


def test_reduce_of_nothing_is_an_error_that_says_where() -> None:
    with pytest.raises(NoValue) as raised:
        pull(values([]), reduce(max)).run()
    assert "reduce(max)" in raised.value.where[0].location.text


def test_reduce_holds_what_it_came_to_before_a_failure() -> None:
    assert partial(pull(failing(1, 2), reduce(lambda total, value: total + value))) == 3
    assert partial(pull(failing(), reduce(max))) is None


def test_last_is_the_last_value_or_the_default() -> None:
    assert pull(values([1, 2]), last()).run() == 2
    assert pull(values([]), last(default="none")).run() == "none"
    assert partial(pull(failing(1, 2), last())) == 2


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_batches_change_no_result(batch: int) -> None:
    source = values(range(10))
    assert pull(source, collect(batch=batch)).run() == list(range(10))
    assert pull(source, concat(batch=batch)).run() == "0123456789"
    assert pull(source, last(batch=batch)).run() == 9
    assert pull(source, reduce(lambda total, value: total + value, batch=batch)).run() == 45
    assert pull(source, find(lambda value: value == 7, batch=batch)).run() == 7
    seen: list[Any] = []
    pull(source, drain(seen.append, batch=batch)).run()
    pull(source, log(to=seen.append, batch=batch)).run()
    assert seen == [*range(10), *(str(value) for value in range(10))]


# --- find ----------------------------------------------------------------------------------------


def test_find_asks_for_nothing_behind_what_it_finds() -> None:
    drawn: list[int] = []
    assert (
        pull(values(range(100)), map(lambda value: drawn.append(value) or value), find(lambda v: v > 3)).run()
        == 4
    )
    assert drawn == [0, 1, 2, 3, 4]


def test_the_result_of_find_is_there_when_upstream_has_confirmed() -> None:
    source = Manual()
    run = pull(source.source, find(lambda value: value == 7)).start()
    source.answer(0, None, 7)
    assert (source.requests, run.finished) == ([None, True], False)
    source.answer(1, True)
    assert (run.finished, run.result()) == (True, 7)


def test_what_closing_fails_with_is_the_result_of_find() -> None:
    source = Manual()
    run = pull(source.source, find()).start()
    source.answer(0, None, 7)
    source.answer(1, Failure("closing"))
    with pytest.raises(Failure, match="closing"):
        run.result()


def test_find_gives_its_default_where_nothing_passes() -> None:
    assert pull(values([0, 0]), find(default="none")).run() == "none"


# --- drain ---------------------------------------------------------------------------------------


def test_false_and_nothing_else_is_enough_for_drain() -> None:
    seen: list[Any] = []

    def take(value: int) -> Any:
        seen.append(value)
        return [0, None, "", False][value]

    assert pull(count(10), drain(take)).run() is None
    assert seen == [0, 1, 2, 3]


def test_a_batch_is_left_where_drain_has_enough() -> None:
    seen: list[int] = []
    pull(values(range(10)), drain(lambda value: seen.append(value) or value != 4, batch=10)).run()
    assert seen == [0, 1, 2, 3, 4]


def test_drain_aborts_once_where_its_function_aborts_and_says_that_it_has_enough() -> None:
    source = Manual()

    def both(_value: Any) -> bool:
        sink.abort()
        sink.abort(Failure("too late"))
        return False

    sink = drain(both)
    run = pull(source.source, sink).start()
    source.answer(0, None, 1)
    assert source.requests == [None, True]
    source.answer(1, True)
    assert run.result() is None


def test_what_the_function_of_drain_raises_after_an_abort_is_not_lost() -> None:
    def both(_value: Any) -> None:
        sink.abort()
        raise Failure("after")

    sink = drain(both)
    with pytest.raises(Failure, match="after"):
        pull(values([1]), sink).run()


def test_drain_aborted_before_it_runs_ends_every_run_at_once() -> None:
    source = Manual()
    sink = drain(raises)
    sink.abort()
    for at in range(2):
        run = pull(source.source, sink).start()
        source.answer(at, True)
        assert run.result() is None
    assert source.requests == [True, True]


def test_drain_aborted_while_a_value_is_awaited_ends_when_upstream_has_confirmed() -> None:
    source = Manual()
    sink = drain()
    run = pull(source.source, sink).start()
    sink.abort(Failure("enough"))
    assert (source.requests[0], run.finished) == (None, False)
    source.answer(1, True)
    with pytest.raises(Failure, match="enough"):
        run.result()


def test_drain_aborted_after_its_end_changes_nothing() -> None:
    sink = drain()
    run = pull(values([1]), sink).start()
    sink.abort(Failure("late"))
    assert run.result() is None


def test_drain_composed_with_a_transformer_is_stopped_by_its_handle() -> None:
    source, sink = Manual(), drain()
    run = pull(source.source, pull(map(str), sink)).start()
    sink.abort()
    source.answer(1, True)
    assert (source.requests, run.finished) == ([None, True], True)


# --- on_end, log ---------------------------------------------------------------------------------


def test_on_end_learns_of_a_normal_end_once() -> None:
    heard: list[Any] = []
    pull(values([1, 2]), on_end(heard.append)).run()
    assert heard == [None]


def test_on_end_learns_what_the_stream_failed_with() -> None:
    heard: list[Any] = []
    with pytest.raises(Failure) as raised:
        pull(failing(1), on_end(heard.append)).run()
    assert heard == [raised.value]


def test_on_end_learns_that_the_run_was_stopped_after_upstream_has_confirmed() -> None:
    source, heard = Manual(), []
    run = pull(source.source, on_end(heard.append)).start()
    run.stop()
    assert heard == []
    source.answer(1, True)
    assert (heard, run.finished) == ([None], True)


def test_what_the_function_of_on_end_raises_is_the_result_or_a_note_of_it() -> None:
    with pytest.raises(Failure, match="in the function"):
        pull(values([1]), on_end(raises)).run()
    with pytest.raises(Failure, match="upstream") as raised:
        pull(failing(1), on_end(raises)).run()
    assert raised.value.__notes__ == ["then, while closing: Failure: in the function"]


def test_log_writes_a_label_only_where_there_is_one() -> None:
    seen: list[str] = []
    pull(values(["a"]), log(to=seen.append)).run()
    pull(values(["a"]), log("in", to=seen.append)).run()
    assert seen == ["'a'", "in: 'a'"]
