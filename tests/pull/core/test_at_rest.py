"""What a module can have done when everything else rests; and modules that are sinks and are read from."""

from __future__ import annotations

import pytest

from headrace.errors import SourceLocation
from headrace.pull import PullSource, collect, map, pull, sink, values
from headrace.pull.edge import CallbackEdge
from headrace.pull.module_context import Module
from headrace.pull.pipeline_run import Run
from headrace.pull.pipeline_runtime import Runtime
from headrace.pull.protocol import AnswerTo, End, Read


def test_what_waits_for_the_rest_comes_after_all_that_needs_nothing_from_outside() -> None:
    runtime, said = Runtime(), list[str]()

    def begin() -> None:
        runtime.when_at_rest(said.append, "rest")
        runtime.post(None, runtime.post, None, said.append, "twice posted")
        said.append("first")

    runtime.enter(begin)
    assert said == ["first", "twice posted", "rest"]


def test_a_timer_is_not_waited_for() -> None:
    runtime, said = Runtime(), list[str]()
    runtime.later(3600, said.append, "timer").cancel()
    runtime.when_at_rest(said.append, "rest")
    assert said == ["rest"]
    runtime.close()


def test_a_pipeline_rests_only_when_it_waits_or_has_ended() -> None:
    seen: list[int] = []

    def open(module: Module) -> Read:
        module.run.runtime.when_at_rest(lambda: seen.append(len(got)))

        def read(abort: End | None, answer: AnswerTo) -> None:
            answer(abort or (len(got) == 5 or None), len(got))

        return read

    got: list[int] = []
    pull(PullSource.of("source", open), map(lambda x: got.append(x)), collect()).run()
    assert seen == [5]


def test_a_module_that_is_a_sink_and_has_outputs_settles_when_it_fails() -> None:
    run = Run(Runtime())
    failure = ValueError("broken")

    def build() -> None:
        between = Module(run, "between", SourceLocation.of_caller())
        edge = CallbackEdge(between, lambda _abort, _answer: between.crash(failure))
        collect().open_in(run, edge)
        run.add_sink(between)
        run.built()

    run.runtime.enter(build)
    with pytest.raises(ValueError, match="broken"):
        run.result()
    assert run.finished


def test_a_run_knows_the_result_of_each_of_its_sinks() -> None:
    first = pull(values([1, 2]), collect())
    run = first.start()
    assert list(run.results.values()) == [[1, 2]]
    failing = sink(lambda read: read(None, lambda end, value=None: None), name="one")
    assert list(pull(values([1]), failing).start().results.values()) == []
