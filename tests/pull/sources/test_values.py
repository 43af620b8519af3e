"""values and keys: the items of collections."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from headrace.pull import Recorder, collect, keys, probe, pull, take, values
from headrace.pull.errors import AlreadyUsed
from headrace.pull.protocol import End
from tests.pull.core.modules import Hand


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([1, 2], [1, 2]),
        ((1, 2), [1, 2]),
        ("ab", ["a", "b"]),
        (range(2), [0, 1]),
        ({"a": 1, "b": 2}, [1, 2]),
        (MappingProxyType({"a": 1}), [1]),
        ([None, False, 0], [None, False, 0]),
        ([], []),
        (None, []),
    ],
)
def test_the_items_of_a_collection_and_the_values_of_a_mapping(items: Any, expected: list[Any]) -> None:
    assert pull(values(items), collect()).run() == expected


def test_every_run_begins_anew_and_sees_the_collection_as_it_is_then() -> None:
    items: list[int] = []
    pipeline = pull(values(items), collect())
    assert pipeline.run() == []
    items.append(1)
    assert pipeline.run() == pipeline.run() == [1]


def test_an_iterator_is_not_silently_empty_the_second_time() -> None:
    pipeline = pull(values(iter([1])), collect())
    assert pipeline.run() == [1]
    with pytest.raises(AlreadyUsed, match=r"values\(\) of 'list_iterator'"):
        pipeline.run()


def test_keys_are_in_the_order_of_the_mapping() -> None:
    assert pull(keys({"b": 1, "a": 2}), collect()).run() == ["b", "a"]


def test_a_batch_holds_what_is_left_and_no_more() -> None:
    recorder = Recorder()
    pull(values([1, 2, 3]), probe(recorder), collect(batch=2)).run()
    assert recorder.trace().texts() == (
        "D:ask1*2",
        "U:ans1=values(1, 2)",
        "D:ask2*2",
        "U:ans2=values(3)",
        "D:ask3*2",
        "U:ans3=done",
    )


@pytest.mark.parametrize(("stop", "told"), [(True, None), (OSError("x"), OSError)])
def test_on_stop_hears_how_the_stream_was_stopped_after_the_confirmation(stop: End, told: Any) -> None:
    stops: list[Exception | None] = []
    hand = Hand()
    run = pull(values([1, 2], on_stop=stops.append), hand.sink).start()
    hand.request("one")
    assert stops == []
    hand.request("stop", stop)
    assert hand.heard == [("one", 1), ("stop", stop)]
    assert len(stops) == 1
    assert stops[0] is told or type(stops[0]) is told
    assert not run.finished  # the sink has not said that it is done


def test_on_stop_is_called_once_by_a_sink_that_stops_twice() -> None:
    stops: list[Exception | None] = []
    hand = Hand()
    pull(values([1], on_stop=stops.append), hand.sink).start()
    hand.request("first", True)
    hand.indicate(OSError("x"))
    hand.request("second", True)
    assert stops == [None]
    assert hand.heard == [("first", True), ("second", True)]


def test_on_stop_is_not_called_at_the_end_of_the_collection() -> None:
    stops: list[Exception | None] = []
    pull(values([1], on_stop=stops.append), collect()).run()
    assert stops == []


def test_what_on_stop_raises_is_the_error_of_the_run() -> None:
    def fail(_error: Exception | None) -> None:
        raise OSError("cannot close")

    with pytest.raises(OSError, match="cannot close"):
        pull(values([1, 2], on_stop=fail), take(1), collect()).run()
