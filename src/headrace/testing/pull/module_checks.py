"""`check_source`, `check_transformer`, `check_sink`: test any module between all permitted neighbours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any

from headrace.pull.compose import pull
from headrace.pull.edge_recorder import Recorder, probe, probe_around
from headrace.pull.modules import Sink, Source, Transformer, sink, source, transformer
from headrace.pull.protocol import End, Read
from headrace.pull.rules.checker import Profile
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
from headrace.testing.pull.trial import Trial, cases_with_seeds, described, try_out

Expected = Callable[[list[int]], Sequence[Any]]


def check_source(
    make: Callable[[], Source | Read],
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
        piece = made if isinstance(made, Source) else source(made)
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
    make: Callable[[], Transformer | Callable[[Read], Read]],
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
        piece = made if isinstance(made, Transformer) else transformer(made)
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
    make: Callable[[], Sink | Callable[[Read], Any]],
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
        piece = made if isinstance(made, Sink) else sink(made)
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
