"""Who starts a tick: rows that were fed, and rows that were deferred; and that nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headrace as hr
from headrace.errors import BadInput, BadRow, EngineStopped, NoFixpoint, QueueFull, UserFunctionFailed


def numbers(**limits: Any) -> hr.Engine:
    flow = hr.Flow("numbers")
    flow.sink("out", flow.source("n", int))
    return hr.Engine(flow, **limits)


def delayed(ticks: int, **limits: Any) -> hr.Engine:
    flow = hr.Flow("delayed", ticks="given")
    stream = flow.source("n", int)
    for _ in range(ticks):
        stream = stream.defer_tick()
    flow.sink("out", stream)
    return hr.Engine(flow, **limits)


def out(outputs: Any) -> Any:
    """Rows of the sink `out`: of a tick, or of each of several."""
    if isinstance(outputs, list):
        return [out(each) for each in outputs]
    return [change.row for change in outputs["out"]]


# --- run_tick and run_available -----------------------------------------------------------


def test_rows_that_are_fed_start_nothing_until_a_tick_is_run() -> None:
    engine = numbers()
    engine.feed(n=[1, 2])
    engine.feed(n=[3])
    assert engine.ticks == 0
    assert engine.queued == {"n": 3}
    assert out(engine.run_tick()) == [1, 2, 3]
    assert engine.queued == {"n": 0}


def test_run_tick_advances_by_exactly_one_with_and_without_rows() -> None:
    engine = numbers(tick_rows=2)
    engine.feed(n=[1, 2, 3])
    assert [out(engine.run_tick()) for _ in range(4)] == [[1, 2], [3], [], []]
    assert engine.ticks == 4


def test_run_available_runs_at_least_one_tick() -> None:
    engine = numbers()
    assert out(engine.run_available()) == [[]]
    assert engine.ticks == 1


def test_run_available_goes_on_while_rows_are_queued() -> None:
    engine = numbers(tick_rows=2)
    engine.feed(n=range(5))
    assert out(engine.run_available()) == [[0, 1], [2, 3], [4]]


def test_run_available_goes_on_while_rows_are_deferred() -> None:
    engine = delayed(3)
    engine.feed(n=[1])
    assert out(engine.run_available()) == [[], [], [], [1]]


def test_rows_deferred_lazily_start_no_tick() -> None:
    flow = hr.Flow("lazy", ticks="given")
    flow.sink("out", flow.source("n", int).defer_tick_lazy())
    engine = hr.Engine(flow)
    engine.feed(n=[1])
    assert out(engine.run_available()) == [[]]
    assert not engine.pending
    engine.feed(n=[2])
    assert out(engine.run_available()) == [[1]]


def test_what_is_shown_every_tick_starts_no_tick() -> None:
    flow = hr.Flow("shown", ticks="given")
    flow.sink("out", flow.source("n", int).every_tick())
    engine = hr.Engine(flow)
    engine.feed(n=[1])
    assert out(engine.run_available()) == [[1]]
    assert out(engine.run_available()) == [[1]]


def test_a_callback_is_told_the_number_and_the_changes_of_each_tick() -> None:
    engine = numbers(tick_rows=1)
    engine.feed(n=[7, 8])
    told: list[tuple[int, list[int]]] = []
    assert engine.run_available(lambda tick, output: told.append((tick, out(output)))) is None
    assert told == [(1, [7]), (2, [8])]


def test_a_callback_may_feed_what_the_next_tick_takes() -> None:
    engine = numbers()
    seen: list[int] = []

    def echo(tick: int, output: Any) -> None:
        seen.extend(out(output))
        if tick < 4:
            engine.feed(n=[tick])

    engine.run_available(echo)
    assert seen == [1, 2, 3]
    assert engine.ticks == 4


def test_a_flow_that_defers_for_ever_ends_by_max_ticks() -> None:
    flow = hr.Flow("flip", ticks="given")
    seed = flow.source("n", int)
    back = flow.feedback(int)
    stream = seed.union(back)
    back.close(stream.map(lambda n: n + 1, returns=int).defer_tick())
    flow.sink("out", stream)
    engine = hr.Engine(flow)
    engine.feed(n=[0])
    assert out(engine.run_available(max_ticks=3)) == [[0], [1], [2]]
    assert engine.pending
    with pytest.raises(BadInput, match="max_ticks is 0"):
        engine.run_available(max_ticks=0)


def test_a_tick_with_its_own_rows_leaves_queued_ones_where_they_are() -> None:
    engine = numbers()
    engine.feed(n=[1])
    assert out(engine.tick(n=[2])) == [2]
    assert out(engine.run_available()) == [[1]]


# --- limits -------------------------------------------------------------------------------


def test_limits_may_differ_by_source() -> None:
    flow = hr.Flow("two")
    flow.sink("a_out", flow.source("a", int))
    flow.sink("b_out", flow.source("b", int))
    engine = hr.Engine(flow, tick_rows={"a": 1})
    engine.feed(a=[1, 2], b=[3, 4, 5])
    lengths = [(len(o["a_out"]), len(o["b_out"])) for o in engine.run_available()]
    assert lengths == [(1, 3), (1, 0)]


def test_a_full_queue_is_an_error_that_takes_nothing_and_breaks_nothing() -> None:
    engine = numbers(queue_rows=3)
    engine.feed(n=[1, 2])
    with pytest.raises(QueueFull) as full:
        engine.feed(n=[3, 4])
    assert (full.value.source, full.value.queued, full.value.limit, full.value.fed) == ("n", 2, 3, 2)
    engine.feed(n=[5])
    assert out(engine.run_tick()) == [1, 2, 5]
    engine.feed(n=[6, 7, 8])


def test_of_several_sources_either_all_are_fed_or_none() -> None:
    flow = hr.Flow("two")
    flow.sink("out", flow.source("a", int).union(flow.source("b", int)))
    engine = hr.Engine(flow, queue_rows={"b": 1})
    with pytest.raises(QueueFull, match="'b'"):
        engine.feed(a=[1], b=[2, 3])
    with pytest.raises(BadRow):
        engine.feed(a=[1], b=["x"])
    assert engine.queued == {"a": 0, "b": 0}


def test_a_bounded_source_is_queued_whole_and_taken_whole() -> None:
    flow = hr.Flow("bounded")
    flow.sink("out", flow.source("n", int, bounded=True))
    engine = hr.Engine(flow, tick_rows=2, queue_rows=3)
    engine.feed(n=range(10))
    assert out(engine.run_available()) == [list(range(10))]
    with pytest.raises(BadInput, match="bounded"):
        engine.feed(n=[11])


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"tick_rows": 0}, "tick_rows is 0"),
        ({"queue_rows": {"n": -1}}, r"queue_rows\['n'\] is -1"),
        ({"tick_rows": {"m": 1}}, "tick_rows names 'm', which is no source"),
        ({"max_iterations": 0}, "max_iterations is 0"),
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        numbers(**limits)


def test_rows_are_checked_when_they_are_fed() -> None:
    engine = numbers()
    with pytest.raises(BadRow):
        engine.feed(n=["x"])
    with pytest.raises(BadInput, match="no source 'm'"):
        engine.feed(m=[1])
    with pytest.raises(BadInput, match="takes an iterable of rows"):
        engine.feed(n=5)  # type: ignore[arg-type]
    assert out(engine.run_available()) == [[]]


def test_an_engine_that_failed_is_fed_no_more() -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("n", int).map(lambda n: 1 // n, returns=int))
    engine = hr.Engine(flow)
    engine.feed(n=[0])
    with pytest.raises(UserFunctionFailed):
        engine.run_available()
    with pytest.raises(EngineStopped):
        engine.feed(n=[1])


# --- waiting for room ------------------------------------------------------------------------


def test_feeding_waits_for_room_and_keeps_the_order() -> None:
    engine = numbers(tick_rows=2, queue_rows=3)
    seen: list[int] = []

    async def feed() -> None:
        await engine.feed_when_free(n=range(10))

    async def session() -> None:
        feeding = asyncio.create_task(feed())
        while not feeding.done() or engine.queued["n"]:
            await asyncio.sleep(0)
            assert engine.queued["n"] <= 3
            seen.extend(out(engine.run_tick()))
        await feeding

    asyncio.run(session())
    assert seen == list(range(10))


def test_who_waits_for_room_hears_that_the_engine_failed() -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("n", int).map(lambda n: 1 // n, returns=int))
    engine = hr.Engine(flow, tick_rows=1, queue_rows=1)

    async def session() -> None:
        feeding = asyncio.create_task(engine.feed_when_free(n=[0, 1, 2]))
        await asyncio.sleep(0)
        with pytest.raises(UserFunctionFailed):
            engine.run_tick()
        with pytest.raises(EngineStopped):
            await feeding

    asyncio.run(session())


def test_who_waits_for_room_hears_of_a_failure_in_a_tick_that_took_nothing() -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("n", int).map(lambda n: 1 // n, returns=int))
    engine = hr.Engine(flow, queue_rows=1)

    async def session() -> None:
        feeding = asyncio.create_task(engine.feed_when_free(n=[1, 2]))
        await asyncio.sleep(0)
        with pytest.raises(UserFunctionFailed):
            engine.tick(n=[0])
        with pytest.raises(EngineStopped):
            await feeding

    asyncio.run(session())


def test_who_is_cancelled_while_it_waits_leaves_what_was_queued() -> None:
    engine = numbers(queue_rows=2)

    async def session() -> None:
        feeding = asyncio.create_task(engine.feed_when_free(n=[1, 2, 3]))
        await asyncio.sleep(0)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        assert out(engine.run_available()) == [[1, 2]]

    asyncio.run(session())


# --- loops without end -------------------------------------------------------------------------


def growing(bound: int | None = None) -> hr.Engine:
    flow = hr.Flow("growing")
    seed = flow.source("n", int)
    back = flow.feedback(int, max_iterations=50)
    back.close(seed.union(back.flat_map(lambda n: [2 * n, 2 * n + 1], returns=int)))
    flow.sink("out", back)
    return hr.Engine(flow, max_iterations=bound)


def test_a_loop_without_end_names_its_edge_and_its_growth() -> None:
    with pytest.raises(NoFixpoint) as caught:
        growing(bound=6).tick(n=[1])
    error = caught.value
    assert error.rounds == 6
    assert error.growth == (1, 2, 4, 8, 16, 32, 64)
    assert error.edges == ("union_3 -> feedback_1",)
    opened, closed = error.where
    assert opened.location.text.startswith("back = flow.feedback(")
    assert closed.location.text.startswith("back.close(")
    assert "1, 2, 4, 8, 16, 32, 64" in str(error)


def test_the_bound_of_an_engine_holds_for_what_the_flow_bounds_otherwise() -> None:
    engine = growing(bound=3)
    assert len(engine.tick(n=[])["out"]) == 0
    with pytest.raises(NoFixpoint, match="after 3 rounds"):
        engine.tick(n=[1])


def test_of_several_edges_only_those_that_still_carry_rows_are_named() -> None:
    flow = hr.Flow("two edges")
    seed = flow.source("n", int)
    up = flow.feedback(int, max_iterations=20)
    once = flow.feedback(int, max_iterations=20)
    up.close(seed.union(up.map(lambda n: n + 1, returns=int), once))
    once.close(up.filter(hr.col.value == 0))
    flow.sink("out", up)
    with pytest.raises(NoFixpoint) as caught:
        hr.Engine(flow).tick(n=[0])
    assert [edge.split(" -> ")[1] for edge in caught.value.edges] == ["feedback_1"]


def test_deferred_rows_that_cancel_out_wait_for_no_tick() -> None:
    flow = hr.Flow("later")
    flow.sink("out", flow.table("numbers", int).map(lambda n: n // 2, returns=int).defer_tick())
    engine = hr.Engine(flow)
    engine.tick(numbers=[hr.insert(2), hr.delete(3)])
    assert not engine.pending
    engine.tick(numbers=[hr.insert(4)])
    assert engine.pending
    assert [tuple(change) for change in engine.tick()["out"]] == [(2, 1)]


def test_attributes_of_an_engine_are_looked_up_at_full_speed() -> None:
    """CPython caches no look-ups in a class with `__getattr__`, which made every tick a quarter slower."""
    assert not hasattr(hr.Engine, "__getattr__")
