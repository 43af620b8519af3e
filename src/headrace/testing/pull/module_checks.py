"""`check_source`, `check_transformer`, `check_sink`: test any module between all permitted neighbours.

Each trial is a single run of the module, in a given event order, that collects the problems found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

from headrace.pull.compose import Pipeline, pull
from headrace.pull.edge_recorder import Recorder, probe, probe_around
from headrace.pull.errors import EndNotConfirmed
from headrace.pull.modules import PullSink, PullSource, PullTransformer, sink, source, transformer
from headrace.pull.pipeline_run import Run
from headrace.pull.protocol import End, Read
from headrace.pull.rules.checker import Profile, check
from headrace.pull.rules.trace import Answer, Request, RequestPort
from headrace.testing.pull.neighbour_modules import (
    Seen,
    SinkCase,
    SourceCase,
    batching_cases,
    checkable_profiles,
    reference_sink,
    shuffle_deterministically,
    sink_cases,
    source_cases,
    source_of,
)
from headrace.testing.pull.virtual_runtime import RandomRuntime, VirtualRuntime

C = TypeVar("C")

FIRST_SEED = 0
"""First seed to try; set another one to search for new failures."""


class ModuleFailed(AssertionError):
    """Raised when a module under test misbehaves.

    rule: number of the broken protocol rule; otherwise a word for the problem.
    parameters: parameters of the modules around it. trace: events at its edges.
    seed: seed of the order; None for the usual order.
    """

    def __init__(self, rule: str, text: str, *, parameters: str, seed: int | None, trace: str) -> None:
        again = "in the usual order" if seed is None else f"again with seed={seed}"
        super().__init__(f"{rule}: {text}\n  {parameters}\n  {again}\n  {trace}")
        self.rule = rule
        self.parameters = parameters
        self.seed = seed
        self.trace = trace


@dataclass(eq=False)
class Trial:
    """Run of a pipeline around the module under test. left: timers and tasks remaining after the run."""

    parameters: str
    seed: int | None
    recorder: Recorder
    run: Run
    escaped: Exception | None = None
    left: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def break_(self, rule: str, text: str) -> None:
        """Record a problem."""
        self.wrong.append((rule, text))

    def judge_trace(
        self, profiles: Collection[Profile], *, one_to_one: bool = False, except_for: Collection[str] = ()
    ) -> None:
        """Check the trace against the rules."""
        trace = self.recorder.trace()
        for profile in profiles:
            for violation in check(trace, profile, one_to_one=one_to_one):
                if violation.rule.rpartition(".")[2] not in except_for:
                    self.break_(violation.rule, f"{violation.sentence}\n  {violation}")

    def check_finished(self) -> None:
        """Check that the run is finished and left nothing behind."""
        if self.escaped is not None:
            self.break_("escaped", f"{self.escaped!r} was raised through the runtime")
        elif not self.run.finished:
            self.break_("stuck", str(self.run.unfinished_error()))
        elif isinstance(self.run.error, EndNotConfirmed):
            self.break_("stuck", str(self.run.error))
        elif self.left:
            self.break_("left", f"{self.left} timers or tasks are left after the end")

    def judge_answers(self, seen: Seen) -> None:
        """Check that each request of the reference sink was answered once, in order."""
        for request, answers in seen.answers.items():
            if len(answers) != 1:
                self.break_("answers", f"request {request} was answered {len(answers)} times")
        if seen.order != sorted(seen.order):
            self.break_("order", f"requests were answered in the order {seen.order}")

    def judge_values(
        self, values: Sequence[Any], expected: Sequence[Any], *, whole: bool, ordered: bool = True
    ) -> None:
        """Check the values received: all expected ones, or a prefix if the stream was stopped."""
        if ordered:
            right = list(values) == list(expected[: len(values)])
        else:
            right = not Counter(map(repr, values)) - Counter(map(repr, expected))
        if not right or (whole and len(values) != len(expected)):
            some = "" if whole else "the first of "
            self.break_("values", f"{list(values)} came instead of {some}{list(expected)}")

    def raise_(self) -> None:
        """Raise the first problem, if any."""
        if self.wrong:
            rule, text = self.wrong[0]
            raise ModuleFailed(
                rule,
                text,
                parameters=self.parameters,
                seed=self.seed,
                trace=str(self.recorder.trace()),
            )


def try_out(
    pipeline: Pipeline, recorder: Recorder, *, parameters: str, seed: int | None, window: int | None = None
) -> Trial:
    """Run a pipeline until it is finished or stuck. seed: determines the order, or None for the usual one."""
    runtime = VirtualRuntime() if seed is None else RandomRuntime(seed)
    run = Run(runtime, window=window)
    trial = Trial(parameters, seed, recorder, run)

    def build() -> None:
        pipeline.open_in(run)
        run.built()

    def stand_still(_run: Run) -> None:
        runtime.passing = False

    run.when_finished(stand_still)
    try:
        runtime.enter(build)
        trial.left = runtime.left
    except Exception as error:
        trial.escaped = error
    finally:
        run.abandon()
        runtime.close()
    return trial


def cases_with_seeds(
    cases: Sequence[C], more: Sequence[C], seeds: int, seed: int | None
) -> Iterator[tuple[C, int | None]]:
    """Yield the cases to try with seeds: all in the usual order, then one of `more` for each seed.

    seed: only this seed.
    """
    if seed is not None:
        yield more[seed % len(more)], seed
        return
    for case in cases:
        yield case, None
    for found in range(FIRST_SEED, FIRST_SEED + seeds):
        yield more[found % len(more)], found


def described(end: End | type[Exception] | None) -> str:
    """Format an end for a failure message."""
    return "no end" if end is None else "done" if end is True else repr(end)


Expected = Callable[[list[int]], Sequence[Any]]


def check_source(
    make: Callable[[], PullSource | Read],
    *,
    expected: Sequence[Any] | None = None,
    end: End | type[Exception] = True,
    ordered: bool = True,
    endless: bool = False,
    profiles: Collection[Profile] = ("spec", "docs"),
    except_for: Collection[str] = (),
    seeds: int = 200,
    seed: int | None = None,
) -> int:
    """Test a source with every combination of sink behaviour, then in `seeds` random orders.

    make:     returns a new source, or a new function `read(abort, answer)`, for each run.
    expected: its values, `ordered` or in any order; None: any. A stopped stream must have the first of them.
    end:      how it ends by itself: True, an exception or a class of exceptions.
    endless:  whether it does not end by itself.
    profiles: profiles of rules to check its traces against; `docs` only if the sink conforms, too.
    except_for: rules that it breaks on purpose.
    seed:     run only this order, to reproduce a failure.

    Returns the number of runs. Raises `ModuleFailed`, which describes the failure and its run.

    >>> from headrace.pull import values
    >>> check_source(lambda: values([1, 2, 3]), expected=[1, 2, 3]) > 200
    True
    """
    runs = 0
    if end is not True:
        # Its own failure may precede that of the sink, and is then the first cause.
        except_for = {*except_for, "P7"}
    batching = batching_cases(endless=endless)
    few = sink_cases(all=False, endless=endless) + batching
    many = shuffle_deterministically(sink_cases(all=True, endless=endless) + batching)
    for case, order in cases_with_seeds(few, many, seeds, seed):
        seen, recorder = Seen(), Recorder(stop_at_once=False)
        made = make()
        piece = made if isinstance(made, PullSource) else source(made)
        pipeline = pull(piece, probe(recorder), reference_sink(case, seen))
        trial = try_out(pipeline, recorder, parameters=str(case), seed=order)
        trial.judge_trace(checkable_profiles(case, profiles), except_for=except_for)
        trial.check_finished()
        trial.judge_answers(seen)
        _judge_source_end(trial, case, seen, end)
        if expected is not None:
            trial.judge_values(seen.values, expected, whole=not seen.stopped, ordered=ordered)
        trial.raise_()
        runs += 1
    return runs


def _judge_source_end(trial: Trial, case: SinkCase, seen: Seen, end: End | type[Exception]) -> None:
    fits = isinstance(seen.end, end) if isinstance(end, type) else seen.end is end
    if seen.stopped:
        fits = fits or seen.end is case.by or (case.indicates and seen.end is None)
    if not fits:
        trial.break_("end", f"the stream ended with {described(seen.end)}, not with {described(end)}")


def check_transformer(
    make: Callable[[], PullTransformer | Callable[[Read], Read]],
    *,
    one_to_one: bool = True,
    expected: Expected | None = None,
    ordered: bool = True,
    endless: bool = False,
    recovers: bool = False,
    fails: type[Exception] | tuple[type[Exception], ...] = (),
    profiles: Collection[Profile] = ("spec", "docs"),
    except_for: Collection[str] = (),
    seeds: int = 200,
    seed: int | None = None,
) -> int:
    """Test a transformer with every combination of source and sink behaviour, then in random orders.

    make:       returns a new transformer, or a new function from the `read` of upstream to its own, for each
                run.
    one_to_one: whether it emits one value per value.
    expected:   maps the values of a stream (1, 2, 3, ... or none) to the expected ones, `ordered` or in any
                order; None: any.
    endless:    whether its stream is always endless; sinks then always stop it.
    recovers:   whether it may end with done after a failure of upstream.
    fails:      classes of exceptions that it may end with by itself.
    profiles, except_for, seeds, seed: see `check_source`.

    Returns the number of runs. Raises `ModuleFailed`, which describes the failure and its run.

    >>> from headrace.pull import map
    >>> check_transformer(lambda: map(str), expected=lambda xs: [str(x) for x in xs]) > 800
    True
    """
    runs = 0
    if fails != ():
        # Its own failure may precede that of the sink, and is then the first cause.
        except_for = {*except_for, "P7"}
    batching = batching_cases(endless=endless)
    few = list(product(source_cases(all=False), sink_cases(all=False, endless=endless) + batching))
    many = shuffle_deterministically(
        list(product(source_cases(all=True), sink_cases(all=True, endless=endless) + batching))
    )
    for (above, below), order in cases_with_seeds(few, many, seeds, seed):
        seen, recorder = Seen(), Recorder(stop_at_once=False)
        made = make()
        piece = made if isinstance(made, PullTransformer) else transformer(made)
        pipeline = pull(source_of(above), probe_around(piece, recorder), reference_sink(below, seen))
        trial = try_out(pipeline, recorder, parameters=f"{above} | {below}", seed=order)
        trial.judge_trace(checkable_profiles(below, profiles), one_to_one=one_to_one, except_for=except_for)
        trial.check_finished()
        trial.judge_answers(seen)
        _judge_transformer_end(trial, above, below, seen, recovers, fails)
        if expected is not None:
            whole = seen.end is True or (one_to_one and seen.end is above.end)
            made_of = expected(list(range(1, above.count + 1)))
            trial.judge_values(seen.values, made_of, whole=whole and not seen.stopped, ordered=ordered)
        trial.raise_()
        runs += 1
    return runs


def _judge_transformer_end(
    trial: Trial,
    above: SourceCase,
    below: SinkCase,
    seen: Seen,
    recovers: bool,
    fails: type[Exception] | tuple[type[Exception], ...],
) -> None:
    """Check that the stream ends as upstream did, or as the transformer or the sink stopped it."""
    end, failed = seen.end, _failed_above(trial, "TI")
    if seen.stopped:
        fits = end in (True, above.end, below.by) or (below.indicates and end is None)
    elif failed:
        fits = end is above.end or (recovers and end is True)
    else:
        fits = end is True
    if not fits and not isinstance(end, fails):
        should = above.end if failed else True
        trial.break_("end", f"the stream ended with {described(end)}, not with {described(should)}")


def check_sink(
    make: Callable[[], PullSink | Callable[[Read], Any]],
    *,
    result: Callable[[list[int]], Any] | None = None,
    partial: Callable[[list[int]], Any] | None = None,
    fails: type[Exception] | tuple[type[Exception], ...] = (),
    profiles: Collection[Profile] = ("spec", "docs"),
    except_for: Collection[str] = (),
    seeds: int = 200,
    seed: int | None = None,
) -> int:
    """Test a sink with every combination of source behaviour, then in random orders.

    make:    returns a new sink, or a new function of the `read` of upstream, for each run.
    result:  maps the values of the stream (1, 2, 3, ... or none) to the result of the run; None: any.
    partial: maps the values before a failure of the stream to `Run.partial`; None: any.
    fails:   classes of exceptions that it may fail with by itself.
    profiles, except_for, seeds, seed: see `check_source`; `docs` if the sink asks one at a time.

    Returns the number of runs. Raises `ModuleFailed`, which describes the failure and its run.

    >>> from headrace.pull import collect
    >>> check_sink(collect, result=list) > 200
    True
    """
    runs = 0
    few = list(product(source_cases(all=True), (1, 3)))
    for (above, window), order in cases_with_seeds(few, shuffle_deterministically(list(few)), seeds, seed):
        recorder = Recorder(stop_at_once=False)
        made = make()
        piece = made if isinstance(made, PullSink) else sink(made)
        pipeline = pull(source_of(above), probe(recorder, below=True), piece)
        asks = f"at most {window} at once"
        trial = try_out(pipeline, recorder, parameters=f"{above} | {asks}", seed=order, window=window)
        kept: list[Profile] = [profile for profile in profiles if profile != "docs" or window == 1]
        trial.judge_trace(kept, except_for=except_for)
        trial.check_finished()
        if trial.run.finished and trial.escaped is None:
            _judge_result(trial, above, result, partial, fails)
        trial.raise_()
        runs += 1
    return runs


def _judge_result(
    trial: Trial,
    above: SourceCase,
    result: Callable[[list[int]], Any] | None,
    partial: Callable[[list[int]], Any] | None,
    fails: type[Exception] | tuple[type[Exception], ...],
) -> None:
    run, values = trial.run, list(range(1, above.count + 1))
    if _failed_above(trial, "D"):
        if run.error is not above.end and not isinstance(run.error, fails):
            trial.break_("end", f"the run ended with {described(run.error or True)}, not {above.end!r}")
        elif partial is not None and run.error is above.end and run.partial != partial(values):
            trial.break_("partial", f"{run.partial!r} was kept instead of {partial(values)!r}")
    elif run.error is not None:
        # A failed source that was stopped before the sink knew answers with its error.
        if run.error is not above.end and not isinstance(run.error, fails):
            trial.break_("end", f"the run failed with {run.error!r}")
    elif result is not None and run.result() != result(values):
        trial.break_("result", f"the result is {run.result()!r} instead of {result(values)!r}")


def _failed_above(trial: Trial, asks: RequestPort) -> bool:
    """Whether the source failed before the module stopped it. asks: whether the module asks."""
    for event in trial.recorder.events:
        if isinstance(event, Request) and event.port == asks and event.terminates:
            return False
        if isinstance(event, Answer) and event.port == "U" and event.terminates:
            return event.kind == "error"
    return False
