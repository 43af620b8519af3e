"""What each end promises after a crash can be read, for whatever a run takes as one."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import io, pull
from headrace.io import Guarantee, SinkTarget, Source, guarantee_of
from headrace.io.outbox import DeliveredSink


def classes(base: type[Any]) -> list[type[Any]]:
    found = [c for c in base.__subclasses__() if c.__module__.startswith("headrace.")]
    return found + [deeper for c in found for deeper in classes(c)]


@pytest.mark.parametrize("end", [c for c in classes(SinkTarget) + classes(Source) if c is not DeliveredSink])
def test_every_source_and_sink_says_what_it_promises(end: type[Any]) -> None:
    assert isinstance(end.guarantee, Guarantee)
    assert end.guarantee.why
    assert not end.guarantee.why.endswith(".")


@pytest.mark.parametrize(
    ("end", "level"),
    [
        (io.Changelog("out"), "exactly once"),
        (io.TableFiles("out"), "exactly once"),
        (io.DeltaTable("out", "k"), "exactly once"),
        (io.DeltaChangelog("out"), "exactly once"),
        (io.PostgresTable("postgresql://h/d", "t", "k"), "exactly once"),
        (io.PostgresChangelog("postgresql://h/d", "t"), "exactly once"),
        (io.KafkaTopic("a:1", "t"), "at least once"),
        (io.Call(print), "at least once"),
        (io.Print(), "at least once"),
        (print, "at least once"),
        (pull.for_each(print), "at least once"),
        (io.Memory(), "this run only"),
        ([], "this run only"),
        (io.JsonFiles("in"), "exactly once"),
        (io.Debezium(io.JsonFiles("in")), "exactly once"),
        (pull.values([1]), "exactly once"),
    ],
    ids=lambda end: repr(end).partition("(")[0],
)
def test_what_is_promised_is_known_of_an_end_as_it_is_given(end: object, level: str) -> None:
    assert guarantee_of(end).level == level
    assert str(guarantee_of(end)).startswith(f"{level}: ")


def test_what_is_no_end_promises_nothing() -> None:
    with pytest.raises(TypeError, match="int is neither a source nor a sink"):
        guarantee_of(1)
