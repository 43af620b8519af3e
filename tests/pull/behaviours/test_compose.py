"""The described cases about putting pieces together."""

from __future__ import annotations

from headrace.pull import Pipeline, PullSource, PullTransformer, collect, map, pull, source, take, values
from headrace.pull.protocol import AnswerTo, End
from tests.pull.described import case


@case("pull(source, throughs..., sink) runs and returns what the sink returns")
def test_a_pipeline_gives_what_its_sink_gives_when_it_is_run() -> None:
    pipeline = pull(values([1, 2, 3]), map(lambda x: x * x), take(2), collect())
    assert isinstance(pipeline, Pipeline)  # composing does nothing; the original runs at once
    assert pipeline.run() == [1, 4]


@case("pull(source, through) is a source (arity 2)")
def test_a_source_and_transformers_are_a_source() -> None:
    piece = pull(values([1, 2]), map(str))
    assert isinstance(piece, PullSource)
    assert pull(piece, collect()).run() == ["1", "2"]


@case("pull(through, through) is a through (arity 1)")
def test_transformers_are_a_transformer() -> None:
    piece = pull(map(abs), map(str), map(len))
    assert isinstance(piece, PullTransformer)
    assert pull(values([-1, 22]), piece, collect()).run() == [1, 2]
    assert pull(values([-333]), piece, collect()).run() == [3]  # the original can be used once


@case("pipeline does nothing until it has a sink")
def test_nothing_is_asked_for_before_a_pipeline_with_a_sink_runs() -> None:
    asked: list[End | None] = []

    def read(abort: End | None, answer: AnswerTo) -> None:
        asked.append(abort)
        answer(True)

    piece = pull(source(read), map(str))
    pipeline = pull(piece, collect())
    assert asked == []
    assert pipeline.run() == []
    assert asked == [None]
